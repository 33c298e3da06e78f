#!/usr/bin/env python3
"""Times `atoll aggregate --strategy product` of the adapters of several sites: all linears of a 7B Llama, in bf16.

  product.py --atoll build/release/bin/atoll [--dir /var/tmp/atoll-bench-product] [--sites 4] [--rank 16] [--threads 2]

Needs numpy, to make the adapters (random, 80 MB a site at rank 16; they stay there). With a base the changes are measured too,
as in a job's rounds. Prints the times, CPU seconds and peak memory.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import time

import numpy

LAYERS, WIDTH, INNER = 32, 4096, 11008
LINEARS = {**{f"self_attn.{name}_proj": (WIDTH, WIDTH) for name in "qkvo"},
           "mlp.gate_proj": (INNER, WIDTH), "mlp.up_proj": (INNER, WIDTH), "mlp.down_proj": (WIDTH, INNER)}


def make_adapter(path, rank, seed):
    dice = numpy.random.default_rng(seed)
    tensors = {}
    for layer in range(LAYERS):
        for name, (outputs, inputs) in LINEARS.items():
            module = f"base_model.model.model.layers.{layer}.{name}"
            tensors[f"{module}.lora_A.weight"] = (rank, inputs)
            tensors[f"{module}.lora_B.weight"] = (outputs, rank)
    header, end = {}, 0
    for name, shape in tensors.items():
        begin, end = end, end + 2 * shape[0] * shape[1]
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    os.makedirs(path)
    with open(f"{path}/adapter_model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for shape in tensors.values():
            values = dice.standard_normal(shape, dtype=numpy.float32) * numpy.float32(0.01)
            file.write((values.view(numpy.uint32) >> 16).astype(numpy.uint16).tobytes())
    with open(f"{path}/adapter_config.json", "w") as file:
        json.dump({"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "target_modules": "all-linear"}, file)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--atoll", required=True)
    parser.add_argument("--dir", default="/var/tmp/atoll-bench-product")
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    os.makedirs(options.dir, exist_ok=True)
    names = ["base"] + [f"site{i}" for i in range(options.sites)]
    paths = [f"{options.dir}/r{options.rank}-{name}" for name in names]
    for seed, path in enumerate(paths):
        if not os.path.exists(path):
            make_adapter(path, options.rank, seed)
    out = f"{options.dir}/out"
    for label, more in (("without a base", []), ("with a base, measured", ["--base", paths[0], "--clip", "1.4"])):
        shutil.rmtree(out, ignore_errors=True)
        command = [options.atoll, "aggregate", "--strategy", "product", "--json", "--threads", str(options.threads),
                   "--out", out, *more, *paths[1:]]
        begin = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        made = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            sys.exit(f"failed: {command}")
        print(f"{label}: {time.monotonic() - begin:.1f} s, {usage.ru_utime + usage.ru_stime:.1f} CPU s, "
              f"peak {usage.ru_maxrss / 1024:.0f} MiB, relative error {json.loads(made)['relative_error']:.3f}")
    shutil.rmtree(out, ignore_errors=True)


main()
