#!/usr/bin/env python3
"""What row weights bring a federation of two sites, one Italian and one Czech, by Muon with kept optimizers and one schedule over
all rounds: the demo's rows, the plain mean of everything against embedding and head weighed by token counts.

  row_weights.py --programs build/release/bin --dir /var/tmp/atoll-rows [--rounds 10] [--steps 30] [--only mean tokens]

Prints the perplexities of both languages and their geometric mean. Needs the packages fortunes-it and fortunes-cs.
"""
import math
import os
import shutil

from liars import options_of, run
from replica import ROWS, TEMPLATES, Federation

CASES = {"mean": [], "tokens": ["--row-weights", "tokens"]}


class KeptMuon(Federation):
    def train(self, base, site, number, folder, *flags):
        """A site's update of that round, in `folder`; it begins with the optimizer's moments of the round before."""
        out, before = self.path(folder, f"{site}{number}"), self.path(folder, f"{site}{number - 1}")
        kept = ["--optimizer-from", before] if number > 1 else []
        run(self.trainer, "train", "--model", base, "--data", self.path(site + "-train"), "--out", out, "--steps", self.steps,
            "--batch-size", ROWS, "--optimizer", "muon", "--lr", 9e-3, "--lr-embedding", 18e-3, "--beta1", 0.6, "--beta2", 0.95,
            "--momentum", 0.9, "--weight-decay", 0.1, "--max-grad-norm", 1, "--schedule", "linear", "--schedule-runs", self.rounds,
            "--schedule-run", number, "--warmup-steps", 5, "--warmup-from-zero", "off", "--precision", "fp32", "--seed",
            number - 1, "--threads", self.threads, "--keep-optimizer", *kept, *flags)
        return out


class Rows(KeptMuon):
    def train_site(self, base, site, number):
        return self.train(base, site, number, "rows", "--token-counts")

    def run_case(self, flags):
        base = self.path("base")
        shutil.rmtree(self.path("rows"), ignore_errors=True)
        os.makedirs(self.path("rows"))
        for number in range(1, self.rounds + 1):
            updates = [self.train_site(base, site, number) for site in TEMPLATES]
            made = self.path("rows", f"made{number}")
            run(self.atoll, "aggregate", "--json", "--base", base, *flags, "--out", made, *updates)
            base = made
        return [self.perplexity(base, [site]) for site in TEMPLATES]


def main():
    parser = options_of(__doc__)
    parser.add_argument("--only", nargs="*", choices=CASES)
    options = parser.parse_args()
    bench = Rows(options)
    bench.prepare_sites()
    for name in options.only or CASES:
        it, cs = bench.run_case(CASES[name])
        print(f"{name:8} it {it:7.1f}  cs {cs:7.1f}  geometric mean {math.sqrt(it * cs):7.1f}", flush=True)


if __name__ == "__main__":
    main()
