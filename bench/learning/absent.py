#!/usr/bin/env python3
"""What it costs a federation when a site misses rounds, and how much of that `absent: no_change` takes back: the recipe of
row_weights.py, where the Czech site has no update in some rounds.

  absent.py --programs build/release/bin --dir /var/tmp/atoll-absent [--rounds 10] [--steps 30] [--away 4 7]

Prints the perplexities of both languages and their geometric mean.
"""
import math
import os
import shutil

from liars import options_of, run
from replica import TEMPLATES
from row_weights import Rows

AWAY = "cs"
CASES = {"nobody is away": None, "left out": [], "no change": ["--absent", 1]}


class Absent(Rows):
    def run_case(self, flags, away):
        base = self.path("base")
        shutil.rmtree(self.path("rows"), ignore_errors=True)
        os.makedirs(self.path("rows"))
        for number in range(1, self.rounds + 1):
            is_away = flags is not None and number in away
            if is_away:  # its next round goes on from the moments of the last that it trained
                os.symlink(self.path("rows", f"{AWAY}{number - 1}"), self.path("rows", f"{AWAY}{number}"))
            updates = [self.train_site(base, site, number) for site in TEMPLATES if not (is_away and site == AWAY)]
            made = self.path("rows", f"made{number}")
            run(self.atoll, "aggregate", "--json", "--base", base, "--row-weights", "tokens", *(flags if is_away else []), "--out",
                made, *updates)
            base = made
        return [self.perplexity(base, [site]) for site in TEMPLATES]


def main():
    parser = options_of(__doc__)
    parser.add_argument("--away", nargs="*", type=int, default=[4, 7])
    options = parser.parse_args()
    bench = Absent(options)
    bench.prepare_sites()
    for name, flags in CASES.items():
        it, cs = bench.run_case(flags, options.away)
        print(f"{name:15} it {it:7.1f}  cs {cs:7.1f}  geometric mean {math.sqrt(it * cs):7.1f}", flush=True)


if __name__ == "__main__":
    main()
