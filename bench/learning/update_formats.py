#!/usr/bin/env python3
"""What updates as int8 or int4 cost a federation of two sites, one Italian and one Czech, by Muon with kept optimizers and one
schedule over all rounds: the demo's rows, the plain mean of whole fp32 models against changes in blocks of 128, with what rounding
lost added to the next change and without.

  update_formats.py --programs build/release/bin --dir /var/tmp/atoll-formats [--rounds 10] [--steps 30] [--only model int4]

Prints the perplexities of both languages, their geometric mean, and the bytes of one update. Needs the packages fortunes-it and
fortunes-cs.
"""
import math
import os
import shutil

from liars import options_of, run
from replica import TEMPLATES
from row_weights import KeptMuon

CASES = {"model": ("model", False), "int8": ("int8", True), "int4": ("int4", True), "int4-without-feedback": ("int4", False)}


class Formats(KeptMuon):
    def train_site(self, base, site, number, form, feedback):
        written = ["--save-dtype", "fp32"] if form == "model" else ["--update-format", form]
        if feedback and number > 1:
            written += ["--rounding-error-from", self.path("formats", f"{site}{number - 1}")]
        return self.train(base, site, number, "formats", *written)

    def run_case(self, form, feedback):
        base = self.path("base")
        shutil.rmtree(self.path("formats"), ignore_errors=True)
        os.makedirs(self.path("formats"))
        for number in range(1, self.rounds + 1):
            updates = [self.train_site(base, site, number, form, feedback) for site in TEMPLATES]
            made = self.path("formats", f"made{number}")
            run(self.atoll, "aggregate", "--json", "--base", base, "--out", made, *updates)
            base = made
        name = "model.safetensors" if form == "model" else "delta.safetensors"
        return [self.perplexity(base, [site]) for site in TEMPLATES], os.path.getsize(os.path.join(updates[0], name))


def main():
    parser = options_of(__doc__)
    parser.add_argument("--only", nargs="*", choices=CASES)
    options = parser.parse_args()
    bench = Formats(options)
    bench.prepare_sites()
    for name in options.only or CASES:
        (it, cs), size = bench.run_case(*CASES[name])
        print(f"{name:22} it {it:7.2f}  cs {cs:7.2f}  geometric mean {math.sqrt(it * cs):7.2f}  {size} bytes an update", flush=True)


if __name__ == "__main__":
    main()
