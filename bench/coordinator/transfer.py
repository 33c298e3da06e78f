#!/usr/bin/env python3
"""Times `atoll model push` and `pull` of a model of 1 GB beside cp + sync + sha256sum of the same files, in turns.

  transfer.py --bin build/release/bin [--gigabytes 1] [--repeats 5] [--state /var/tmp/atoll-transfer-bench]

Starts a stack of its own. Every repeat makes new random files of the same sizes, so that no chunk is known to the store,
pushes them, pulls them into an empty directory, and copies them beside: cp, then sync of the copies (a push is on the disk
when it answers, and so is what was pulled), then sha256sum of them. The files are in the page cache, as is right after
training. Prints seconds and rates, with the spread, and the ratio of each transfer to the copy of its repeat.
"""
import argparse
import os
import shutil
import statistics
import subprocess
import time

from stack import HIDDEN, Stack, make_model


def numbers(count):
    """Random mantissas below exponents of numbers near 1: no NaN, nothing that compresses."""
    block = bytearray(os.urandom(count))
    block[3::4] = b"\x3f" * len(block[3::4])
    return block


def timed(work):
    os.sync()  # what the step before left to be written is not this one's
    begin = time.monotonic()
    work()
    return time.monotonic() - begin


def copy(source, target):
    shutil.rmtree(target, ignore_errors=True)
    names = sorted(os.listdir(source))
    subprocess.run(["cp", "-r", source, target], check=True)
    subprocess.run(["sync", *[os.path.join(target, name) for name in names]], check=True)
    subprocess.run(["sha256sum", *[os.path.join(target, name) for name in names]], check=True, stdout=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--gigabytes", type=float, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--state", default="/var/tmp/atoll-transfer-bench")
    options = parser.parse_args()
    stack = Stack(options.bin, options.state)
    model, pulled, copied = (os.path.join(options.state, "bench", name) for name in ("model", "pulled", "copied"))
    size = int(options.gigabytes * 1e9)
    results = {"cp + sync + sha256sum": [], "atoll model push": [], "atoll model pull": []}
    try:
        for repeat in range(options.repeats):
            shutil.rmtree(model, ignore_errors=True)
            make_model(model, size // 2 // 4 // HIDDEN, numbers)
            name = f"bench-{repeat}"
            shutil.rmtree(pulled, ignore_errors=True)
            results["cp + sync + sha256sum"].append(timed(lambda: copy(model, copied)))
            results["atoll model push"].append(timed(lambda: stack.run("model", "push", name, model, "--tag", "base")))
            results["atoll model pull"].append(timed(lambda: stack.run("model", "pull", name + "@base", "--out", pulled)))
            print(f"  repeat {repeat + 1} of {options.repeats}: " +
                  ", ".join(f"{what} {times[-1]:.1f} s" for what, times in results.items()), flush=True)
        print(f"\n| {size / 1e9:.1f} GB in 2 files | median s | min–max | MB/s | of the copy's rate | min–max |\n"
              "|---|---|---|---|---|---|")
        limit = next(iter(results.values()))
        for what, times in results.items():
            ratios = [copy_s / own_s for copy_s, own_s in zip(limit, times)]
            print(f"| {what} | {statistics.median(times):.2f} | {min(times):.2f}–{max(times):.2f} |"
                  f" {size / 1e6 / statistics.median(times):.0f} | {statistics.median(ratios):.2f} |"
                  f" {min(ratios):.2f}–{max(ratios):.2f} |")
        print(f"\nload of the machine: {os.getloadavg()[0]:.1f}")
    finally:
        stack.down()


if __name__ == "__main__":
    main()
