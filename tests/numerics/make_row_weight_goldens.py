#!/usr/bin/env python3
"""Makes the golden rows of shared/aggregate/row_weights_test.cpp: the formula in plain Python, in fp64.

Usage: make_row_weight_goldens.py OUT_DIR

An embedding of five tokens and three columns: element (r, c) of the base is cos(3 r + c). Site i (0, 1, 2) hands in
base + 0.1 sin(0.7 (3 r + c) + i), both rounded to fp32; the shares are 0.5, 0.3 and 0.2. The sites have counted

    [1, 0, 4, 0, 9], [1, 6, 4, 0, 0] and [16, 0, 4, 0, 0]

tokens. With f_i(r) the part of site i's tokens that are token r, but the largest of a row taken as at most four times its second
largest where that is not zero,

    a_i = share_i sqrt(f_i) / sqrt(sum_j share_j^2 f_j),    row = base + sum_i a_i (update_i - base)

and a_i = share_i in the row that nobody has counted. Writes row_weights.json: {"weights": [[a_i] a row], "rows": [[…]]}.
"""

import json
import math
import pathlib
import struct
import sys

SHARES = [0.5, 0.3, 0.2]
COUNTS = [[1, 0, 4, 0, 9], [1, 6, 4, 0, 0], [16, 0, 4, 0, 0]]
TOKENS, WIDTH = 5, 3


def single(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def weights_of(row):
    parts = [counts[row] / sum(counts) for counts in COUNTS]
    most = 4 * sorted(parts)[-2] or max(parts)
    sizes = [share * math.sqrt(min(part, most)) for share, part in zip(SHARES, parts)]
    length = math.sqrt(sum(size * size for size in sizes))
    return [size / length for size in sizes] if length > 0 else SHARES


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    for row in range(TOKENS):
        made = []
        for column in range(WIDTH):
            at = WIDTH * row + column
            base = single(math.cos(at))
            updates = [single(base + 0.1 * math.sin(0.7 * at + site)) for site in range(len(SHARES))]
            made.append(base + sum(a * (update - base) for a, update in zip(weights_of(row), updates)))
        rows.append(made)
    golden = {"weights": [weights_of(row) for row in range(TOKENS)], "rows": rows}
    (out / "row_weights.json").write_text(json.dumps(golden, indent=1) + "\n")


main()
