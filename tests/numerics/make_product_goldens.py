#!/usr/bin/env python3
"""Makes the golden numbers of shared/aggregate/strategies/product_test.cpp: torch.linalg.svd of means of LoRA products.

Usage: make_product_goldens.py OUT_DIR      (needs torch; written with torch 2.15, CPU)

Site s of a case has A[k, c] = sin(0.1 x^2 + s) of x = k in + c and B[o, k] = cos(0.07 y^2 + 2 s) of y = o rank + k, rounded
to fp32; where `one_a`, all sites have A of site 0. What it adds is scale B A, scale being alpha / rank, or alpha / sqrt(rank)
where `rslora`. M is the mean of these by `weights`, R what is nearest to M of rank `rank`. Everything else is in fp64. Writes
product.json, a list of the cases with "error", |M - R| / |M| in Frobenius' norm, and "probes", of p = 0, 1, 2 the sum over
o, c of sin(o + p) R[o, c] cos(c p + 1).
"""

import json
import math
import pathlib
import sys

import torch

PROBES = 3


def site(rank, alpha, rslora=False):
    return {"rank": rank, "alpha": alpha, "rslora": rslora}


CASES = [
    {"out": 7, "in": 5, "rank": 2, "sites": [site(2, 4.0), site(2, 4.0)], "weights": [1, 1]},
    {"out": 7, "in": 5, "rank": 4, "sites": [site(2, 4.0), site(2, 4.0)], "weights": [3, 1]},
    {"out": 6, "in": 9, "rank": 3, "sites": [site(3, 6.0)], "weights": [1]},
    {"out": 12, "in": 10, "rank": 2, "sites": [site(2, 4.0), site(3, 4.0), site(1, 8.0)], "weights": [1, 2, 3]},
    {"out": 12, "in": 10, "rank": 4, "sites": [site(4, 16.0, True), site(2, 3.0), site(4, 2.0)], "weights": [1, 1, 1]},
    {"out": 3, "in": 20, "rank": 4, "sites": [site(4, 4.0)] * 3, "weights": [1, 1, 2]},
    {"out": 20, "in": 3, "rank": 2, "sites": [site(2, 4.0)] * 3, "weights": [1, 1, 2]},
    {"out": 15, "in": 17, "rank": 3, "sites": [site(3, 6.0)] * 4, "weights": [1, 2, 1, 1], "one_a": True},
    {"out": 40, "in": 24, "rank": 5, "sites": [site(5, 10.0)] * 4, "weights": [1, 1, 1, 1]},
    {"out": 1100, "in": 30, "rank": 4, "sites": [site(4, 8.0)] * 4, "weights": [4, 3, 2, 1]},
    {"out": 13, "in": 1030, "rank": 6, "sites": [site(6, 12.0, True), site(3, 12.0, True)], "weights": [1, 1]},
    {"out": 600, "in": 700, "rank": 8, "sites": [site(8, 16.0)] * 8, "weights": [1] * 8},
]


def single(rows, columns, value):
    values = [[value(i, j) for j in range(columns)] for i in range(rows)]
    return torch.tensor(values, dtype=torch.float64).float().double()


def product_of(case, s):
    rank, alpha = case["sites"][s]["rank"], case["sites"][s]["alpha"]
    of_a = 0 if case.get("one_a") else s
    a = single(rank, case["in"], lambda k, c: math.sin(0.1 * (k * case["in"] + c) ** 2 + of_a))
    b = single(case["out"], rank, lambda o, k: math.cos(0.07 * (o * rank + k) ** 2 + 2 * s))
    return alpha / (math.sqrt(rank) if case["sites"][s]["rslora"] else rank) * (b @ a)


def solved(case):
    total = sum(case["weights"])
    mean = sum(w / total * product_of(case, s) for s, w in enumerate(case["weights"]))
    u, values, v = torch.linalg.svd(mean, full_matrices=False)
    r = case["rank"]
    nearest = u[:, :r] * values[:r] @ v[:r]
    probes = []
    for p in range(PROBES):
        left = torch.tensor([math.sin(o + p) for o in range(case["out"])], dtype=torch.float64)
        right = torch.tensor([math.cos(c * p + 1) for c in range(case["in"])], dtype=torch.float64)
        probes.append(float(left @ nearest @ right))
    error = math.sqrt(float((values[r:] ** 2).sum()) / float((values ** 2).sum()))
    return {**case, "error": error, "norm": float(values.norm()), "probes": probes}


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(solved(case)) for case in CASES]
    (out / "product.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


main()
