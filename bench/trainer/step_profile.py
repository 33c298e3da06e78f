#!/usr/bin/env python3
"""Where the time of a training step goes, by `perf` (Debian's linux-perf), and how near the step is to its products' limit.

  step_profile.py [ROW] [--trainer build/release/bin/atoll-trainer] [--seconds 20]

Trains one of compare.py's rows of one process, samples it after its third step and prints the share of the samples by
kind of work. oneDNN's products with AVX-512 pack one operand inside their arithmetic, which counts as that. The limit:
the operations of a step (products and attention) at the rate that 512×512 products reach on this machine right before
(`mfu` is the part of it that is reached, so 1/mfu is what is left to win).
"""
import argparse
import collections
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile

import compare

KINDS = [  # the first that matches a symbol
    ("products: arithmetic", r"gemm_kernel|gemm_direct|gemm_small|xbyak_gemm|kernel_sgemm|gemv_"),
    ("products: packing, widening, scaling", r"gemm_.*copy|copy_[ab][nt]_kern|gemm_beta|pack_|widen|_to_f32"),
    ("attention", r"attention"),
    ("optimizer, norm of the gradients", r"adamw|sgd|sum_of_squares"),
    ("head: loss", r"cross_entropy|softmax"),
    ("norms, activations, biases, sums", r"norm|relu|silu|swiglu|bias|sum_rows|add|rope|embed"),
    ("threads waiting for work", r"ThreadPool|sched|yield|mutex|futex|cond_"),
    ("memory of the kernel", r"clear_page|fault|alloc"),
]


def kind_of(symbol):
    return next((name for name, pattern in KINDS if re.search(pattern, symbol, re.IGNORECASE)), "everything else")


def samples(data):
    text = subprocess.run(["perf", "report", "-i", data, "--sort", "symbol", "--stdio", "-g", "none"], check=True,
                          capture_output=True, text=True).stdout
    for line in text.splitlines():
        match = re.match(r"\s*([\d.]+)%\s+(.*\S)", line)
        if match:
            yield float(match[1]), match[2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("row", nargs="?", default="opt125m", choices=[name for name, row in compare.ROWS.items() if row[3] == 1])
    parser.add_argument("--trainer", default=str(compare.ROOT / "build/release/bin/atoll-trainer"))
    parser.add_argument("--seconds", type=int, default=20)
    options = parser.parse_args()
    options.instruction_set = None
    config, batch, length, ranks, flags, _ = compare.ROWS[options.row]
    with tempfile.TemporaryDirectory() as directory:
        compare.Ours(options, directory, config, batch, length, ranks)
        place = pathlib.Path(directory)
        training = subprocess.Popen(
            [options.trainer, "train", "--model", place / "model", "--data", place / "rows.safetensors", "--out",
             place / "out", "--batch-size", str(batch), "--steps", "1000000",
             *[flag.format(directory=directory) for flag in flags]], stdout=subprocess.PIPE, text=True,
            env=os.environ | {"DNNL_JIT_PROFILE": "2"})  # oneDNN names its code in /tmp/perf-PID.map
        try:
            for _ in range(3):
                training.stdout.readline()
            subprocess.run(["perf", "record", "-q", "-F", "499", "-o", place / "perf.data", "-p", str(training.pid), "--", "sleep",
                            str(options.seconds)], check=True)
        finally:
            training.kill()
        steps = [json.loads(line) for line in training.stdout.read().splitlines() if line.endswith("}")]
        training.wait()
        shares = collections.Counter()
        for share, symbol in samples(place / "perf.data"):
            shares[kind_of(symbol)] += share
    print(f"{options.row}: {len(steps)} steps, tokens/s {statistics.median(line['tokens_per_s'] for line in steps):.0f}, "
          f"mfu {statistics.median(line['mfu'] or 0 for line in steps):.2f}\n")
    print("| work | % of the CPU time |\n|---|---|")
    for name, share in shares.most_common():
        print(f"| {name} | {share:.1f} |")


if __name__ == "__main__":
    main()
