#!/usr/bin/env python3
"""Losses of 300 steps on a card beside those of the CPU, of a Llama of 4.2 M parameters that learns.

    curves.py make --trainer PROGRAM --scratch FOLDER       the CPU's, into cpu_curves.json beside this file
    curves.py compare --trainer PROGRAM --scratch FOLDER --device cuda

fp32: the largest relative difference of a loss from the CPU's, of the first 30 and of all; the former is rounding, the
latter rounding that grew. bf16: the root mean square distance from the CPU's fp32 losses over that of the CPU's own
bf16 losses. --steps compares fewer, from the first on.
"""
import argparse
import json
import math
import pathlib

from stage import HERE, LLAMA_33M, Stage, trainer_environment, write_rows

CURVES = HERE / "cpu_curves.json"
CONFIG = LLAMA_33M | {"vocab_size": 2000, "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4,
                      "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 128}
STEPS, BATCH, LENGTH = 300, 4, 128
FORMATS = {"fp32": ["--precision", "fp32", "--compute-dtype", "fp32"],
           "bf16": ["--precision", "bf16", "--compute-dtype", "bf16"]}
FIRST = 30
FP32_FIRST_MAX = 2e-6
FP32_MAX = 1e-2
BF16_MAX = 2.0


def rows():
    """Three tokens of four follow from the one before."""
    ids, state = [], 1
    for i in range(STEPS * BATCH * LENGTH):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        drawn = state >> 33
        follows = i % LENGTH > 0 and drawn % 4 > 0
        ids.append((5 * ids[-1] + 1 if follows else drawn >> 2) % CONFIG["vocab_size"])
    return ids


def losses(stage, options, device, precision):
    scratch = pathlib.Path(options.scratch) / "curves"
    scratch.mkdir(parents=True, exist_ok=True)
    if not (scratch / "rows.safetensors").exists():
        (scratch / "config.json").write_text(json.dumps(CONFIG))
        write_rows(scratch / "rows.safetensors", rows(), LENGTH)
        stage.run("curve.init", [options.trainer, "init", "--config", scratch / "config.json", "--out",
                                 scratch / "model", "--seed", "1"], 2, trainer_environment())
    lines = stage.run(f"curve.{precision}", [
        options.trainer, "train", "--model", scratch / "model", "--data", scratch / "rows.safetensors", "--out",
        scratch / "out", "--overwrite", "--steps", options.steps, "--global-batch-size", BATCH, "--batch-size", BATCH,
        "--shuffle", "off", "--lr", "1e-3", "--schedule", "constant", "--warmup-steps", "20", "--max-grad-norm", "1",
        "--weight-decay", "0.1", "--peak-tflops", "1", "--device", device, *FORMATS[precision]], 10,
        trainer_environment())
    return None if lines is None else [line["loss"] for line in lines if "step" in line and "tokens_per_s" in line]


def distance(curve, exact):
    return math.sqrt(sum((a - b)**2 for a, b in zip(curve, exact)) / len(curve))


def compare_fp32(stage, curve, exact):
    furthest = [abs(ours / theirs - 1) for ours, theirs in zip(curve, exact)]
    stage.measure("curve.fp32", value=max(furthest), first=max(furthest[:FIRST]), last_loss=curve[-1], losses=curve)
    if not max(furthest[:FIRST]) <= FP32_FIRST_MAX or not max(furthest) <= FP32_MAX:
        stage.fail("curve.fp32", f"further from the CPU than {FP32_FIRST_MAX} in the first {FIRST} steps or {FP32_MAX}")


def compare_bf16(stage, curve, cpu):
    exact, rounded = (cpu[precision][:len(curve)] for precision in ("fp32", "bf16"))
    worse = distance(curve, exact) / distance(rounded, exact)
    stage.measure("curve.bf16", value=worse, last_loss=curve[-1], losses=curve)
    if not worse <= BF16_MAX:
        stage.fail("curve.bf16", f"more than {BF16_MAX} times as far from fp32 as the CPU's bf16")


def compare(stage, options):
    cpu = json.loads(CURVES.read_text())
    for precision in FORMATS:
        curve = losses(stage, options, options.device, precision)
        if not curve:
            continue
        if precision == "fp32":
            compare_fp32(stage, curve, cpu["fp32"])
        else:
            compare_bf16(stage, curve, cpu)


def make(stage, options):
    curves = {precision: [round(loss, 7) for loss in losses(stage, options, "cpu", precision)] for precision in FORMATS}
    report = stage.run("report", [options.trainer, "report"], 2, trainer_environment())[0]
    about = {"of": "curves.py make", "kernels": report["kernels"], "cpu": report["cpu"]["model"],
             "steps": STEPS, "rows a step": BATCH, "tokens a row": LENGTH}
    lines = [json.dumps(about)[:-1], *(f'"{precision}": {json.dumps(curve)}' for precision, curve in curves.items())]
    CURVES.write_text(",\n".join(lines) + "}\n")
    print(f"bf16 is {distance(curves['bf16'], curves['fp32']):.2e} from fp32; the last loss is {curves['fp32'][-1]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["make", "compare"])
    parser.add_argument("--trainer", required=True)
    parser.add_argument("--scratch", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    stage = Stage()
    (make if options.what == "make" else compare)(stage, options)
    stage.end()


if __name__ == "__main__":
    main()
