#!/usr/bin/env python3
"""Makes the golden means of shared/aggregate/variates_test.cpp: the formula in plain Python, in fp64.

Usage: make_variate_mean_goldens.py OUT_DIR

A model has the tensors w of 300 elements and v of 5. Element j of tensor t (0, 1) of the control variate of site i is

    size_i (1 + b + t) / 1024 (((37 j + 101 i + 11 t) mod 255) - 127),    b = j div 128, its block

and that of the base, where a case has one, (((37 j + 707 + 11 t) mod 255) - 127) / 512. A norm is that of both tensors
together. Usual is the lower median of the sites' norms, of two the smaller one. What is longer than 1.4 times that, the
base's too, is shortened to it; what a site has is zero where it is longer than 3 times that:

    c = sum_i share_i part_i c_i + absent part base

Writes variate_means.json: {case: {"parts": [part_i], "w": [c], "v": [c]}}.
"""

import json
import math
import pathlib
import sys

CLIP, DROP = 1.4, 3
COUNTS = {"w": 300, "v": 5}

# name: sizes, shares, the absent ones' share: there is a base's where that is not zero
CASES = {
    "alike": ([1, 1.25, 0.75], [0.5, 0.3, 0.2], 0),
    "long": ([1, 1.25, 2.5], [0.5, 0.3, 0.2], 0),
    "far": ([1, 8, 1.25], [0.5, 0.3, 0.2], 0),
    "zero": ([1, 0, 1.25], [0.5, 0.3, 0.2], 0),
    "two": ([1, 2], [0.5, 0.5], 0),
    "one is absent": ([1, 1.25], [0.25, 0.25], 0.5),
    "one is absent and the others have less": ([0.25, 0.25], [0.25, 0.25], 0.5),
}


def variate(site, size):
    return {
        name: [
            size * (1 + j // 128 + t) / 1024 * ((37 * j + 101 * site + 11 * t) % 255 - 127) for j in range(COUNTS[name])
        ]
        for t, name in enumerate(COUNTS)
    }


def variate_of_base():
    return {
        name: [((37 * j + 707 + 11 * t) % 255 - 127) / 512 for j in range(COUNTS[name])]
        for t, name in enumerate(COUNTS)
    }


def norm(values):
    return math.sqrt(sum(value * value for tensor in values.values() for value in tensor))


def make(sizes, shares, absent):
    variates = [variate(site, size) for site, size in enumerate(sizes)]
    norms = [norm(values) for values in variates]
    base = variate_of_base()
    usual = sorted(norms)[(len(norms) - 1) // 2]
    parts = [0 if n > DROP * usual else CLIP * usual / n if n > CLIP * usual else 1 for n in norms]
    of_base = min(1, CLIP * usual / norm(base)) * absent
    made = {"parts": parts}
    for name in COUNTS:
        made[name] = [
            sum(share * part * values[name][j] for share, part, values in zip(shares, parts, variates))
            + of_base * base[name][j]
            for j in range(COUNTS[name])
        ]
    return made


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    golden = {name: make(*case) for name, case in CASES.items()}
    (out / "variate_means.json").write_text(json.dumps(golden) + "\n")


main()
