#!/usr/bin/env python3
"""Makes the golden weights of shared/aggregate/server_optimizer_test.cpp: torch.optim.SGD on pseudo-gradients.

Usage: make_outer_goldens.py OUT_DIR      (needs torch; written with torch 2.15, CPU)

Weight i of the base begins as cos(i). In round r (from 1) site s (0, 1) hands in base + 0.1 sin(0.7 i + 0.9 r + s),
rounded to fp32; they count 3 : 1. The optimizer itself runs in fp64, so that the numbers are the formula's and not one
library's rounding. Writes outer.json, a list of {"lr", "momentum", "weights"} after the last round.
"""

import json
import math
import pathlib
import sys

import torch

COUNT, ROUNDS = 6, 3


def single(values):
    return torch.tensor(values, dtype=torch.float32).double()


def weights_after(rate, momentum):
    base = torch.nn.Parameter(single([math.cos(i) for i in range(COUNT)]))
    outer = torch.optim.SGD([base], lr=rate, momentum=momentum, nesterov=momentum > 0)
    for r in range(1, ROUNDS + 1):
        sites = [base.detach() + single([0.1 * math.sin(0.7 * i + 0.9 * r + s) for i in range(COUNT)])
                 for s in (0, 1)]
        base.grad = base.detach() - (0.75 * sites[0] + 0.25 * sites[1])
        outer.step()
    return base.tolist()


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    goldens = [{"lr": rate, "momentum": momentum, "weights": weights_after(rate, momentum)}
               for rate, momentum in ((0.7, 0.6), (0.7, 0.9), (0.5, 0.0))]
    (out / "outer.json").write_text(json.dumps(goldens, indent=1) + "\n")


main()
