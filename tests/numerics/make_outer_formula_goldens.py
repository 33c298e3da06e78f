#!/usr/bin/env python3
"""Makes the golden weights of shared/aggregate/server_optimizer_test.cpp for the server optimizers that no optimizer of PyTorch is:
FedAvgM (https://arxiv.org/abs/1909.06335) and FedAdam (https://arxiv.org/abs/2003.00295, algorithm 2), from their formulas in fp64.

Usage: make_outer_formula_goldens.py OUT_DIR      (plain Python)

The rounds are those of make_outer_goldens.py. Writes outer_formulas.json, a list of {"outer", "weights"} after the last round.
"""
import json
import math
import pathlib
import struct
import sys

COUNT, ROUNDS = 6, 3


def single(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def weights_after(outer):
    base = [single(math.cos(i)) for i in range(COUNT)]
    first, second = [0.0] * COUNT, [0.0] * COUNT
    for r in range(1, ROUNDS + 1):
        for i in range(COUNT):
            sites = [base[i] + single(0.1 * math.sin(0.7 * i + 0.9 * r + s)) for s in (0, 1)]
            change = 0.75 * sites[0] + 0.25 * sites[1] - base[i]  # the papers' delta: towards the mean
            if outer["optimizer"] == "momentum":
                first[i] = outer["momentum"] * first[i] + change
                base[i] += outer["lr"] * first[i]
                continue
            first[i] = outer["momentum"] * first[i] + (1 - outer["momentum"]) * change
            second[i] = outer["beta2"] * second[i] + (1 - outer["beta2"]) * change ** 2
            base[i] += outer["lr"] * first[i] / (math.sqrt(second[i]) + outer["epsilon"])
    return base


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    cases = [{"optimizer": "momentum", "lr": 1, "momentum": 0.9}, {"optimizer": "momentum", "lr": 0.3, "momentum": 0.5},
             {"optimizer": "adam", "lr": 0.01, "momentum": 0.9, "beta2": 0.99, "epsilon": 0.001},
             {"optimizer": "adam", "lr": 0.1, "momentum": 0.0, "beta2": 0.5, "epsilon": 0.1}]
    goldens = [{"outer": outer, "weights": weights_after(outer)} for outer in cases]
    (out / "outer_formulas.json").write_text(json.dumps(goldens, indent=1) + "\n")


main()
