#!/usr/bin/env python3
"""Times `atoll aggregate`, with and without measuring the changes, against `cat` of its inputs, a copy of one, and a PyTorch script, in turns.

  compare.py --atoll build/release/bin/atoll [--python PYTHON-WITH-TORCH] [--dir /var/tmp/atoll-bench] [--repeats 7]

Without --python the script is left out, and the inputs must be there.

Every repeat runs all of them once, one after another, so that they share whatever else the machine does; inputs are in
the page cache and outputs are deleted before each run. Prints the median, the spread, CPU seconds and peak memory.
"""
import argparse
import filecmp
import glob
import os
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def measure(command):
    begin = time.monotonic()
    process = subprocess.Popen(command, shell=True, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"failed: {command}")
    return time.monotonic() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def remove_outputs():
    for out in glob.glob("out.*"):
        os.remove(out) if os.path.isfile(out) else shutil.rmtree(out)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--atoll", required=True)
    parser.add_argument("--python")
    parser.add_argument("--dir", default="/var/tmp/atoll-bench")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--mib", type=int, default=512)
    options = parser.parse_args()
    os.makedirs(options.dir, exist_ok=True)
    os.chdir(options.dir)
    peer = f"{options.python} {HERE}/peer_torch.py"
    inputs = [f"in{i}" for i in range(options.count)]
    if not os.path.exists(inputs[-1]):
        subprocess.run(f"{peer} make . {options.count} {options.mib}", shell=True, check=True)
    files = " ".join(f"{name}/model.safetensors" for name in inputs)
    if not os.path.exists("base"):
        shutil.copytree(inputs[0], "base")
    commands = {
        "cat of the inputs": f"exec cat {files}",
        "cp of one": "exec cp in0/model.safetensors out.copy",
        "atoll aggregate": f"exec {options.atoll} aggregate --out out.atoll {' '.join(inputs)}",
        "the same with a base": f"exec {options.atoll} aggregate --base base --out out.based {' '.join(inputs)}",
        "with a base, measured":
            f"exec {options.atoll} aggregate --base base --clip 1.3 --drop 3 --out out.measured {' '.join(inputs)}",
    }
    if options.python:
        commands["PyTorch"] = f"exec {peer} average out.torch {' '.join(inputs)}"
    results = {name: [] for name in commands}
    remove_outputs()
    for name, command in commands.items():  # warms the page cache
        measure(command)
    if options.python and not filecmp.cmp("out.atoll/model.safetensors", "out.torch/model.safetensors", shallow=False):
        print("note: the two means differ in some bits")
    for _ in range(options.repeats):
        for name, command in commands.items():
            remove_outputs()
            results[name].append(measure(command))
    remove_outputs()
    print(f"| {options.count} fp16 models of {options.mib} MiB | median s | min–max | CPU s | peak MiB |\n|---|---|---|---|---|")
    for name, samples in results.items():
        walls, cpus, peaks = zip(*samples)
        print(f"| {name} | {statistics.median(walls):.2f} | {min(walls):.2f}–{max(walls):.2f} |"
              f" {statistics.median(cpus):.2f} | {max(peaks):.0f} |")


if __name__ == "__main__":
    main()
