#!/usr/bin/env python3
"""Measures how far PyTorch's gradients in bf16 and in fp32 are from those in fp64, for tiny models of transformers.

Usage: make_bf16_gradient_goldens.py OUT_DIR [cuda]    (needs torch, transformers, safetensors; written with torch 2.15
                                                        and transformers 5.23, CPU, one thread; cuda: see below)

The models are those of goldens/llama and goldens/opt in CASES, their weights rounded to bf16; the batches follow a
formula that bf16_gradient_golden_test.cpp repeats. "In bf16" is model.to(bfloat16) with eager attention; the loss takes
the logits in fp32, as in transformers. Writes errors.json and, of fp32, fp32_errors.json, {FAMILY: {CASE: {NAME:
error}}}: of each parameter's gradient |bf16 − fp64| / |fp64|, the root of the mean of its square over the batches. One
batch's error of a norm's few weights varies by a third; so there are several, of many tokens. Of fp32 OPT's second model
is left out: in it an input of the ReLUs is so near to zero that fp32 takes now one side of the kink, now the other.

With "cuda" only fp32_errors_cuda.json, PyTorch's fp32 on a GPU: its products add up in another order than a CPU's.
"""

import json
import pathlib
import sys

import numpy
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy
from transformers import AutoConfig, AutoModelForCausalLM

from golden_tiles import mixed

BATCHES, ROWS, LENGTH = 8, 16, 32
CASES = {"llama": ("mha", "gqa_tied", "llama3_rope"), "opt": ("tied", "projected")}


def batches(vocabulary):
    ids = mixed("batches", BATCHES * ROWS * LENGTH) % numpy.uint64(vocabulary)
    return torch.from_numpy(ids.astype(numpy.int64)).view(BATCHES, ROWS, LENGTH)


def load(folder):
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), attn_implementation="eager").eval()
    weights = load_file(folder / "golden.safetensors")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights["weight:" + name].bfloat16())
    return model


def gradients(model, ids):
    ids = ids.to(model.device)
    logits = model(input_ids=ids).logits
    logits = logits.float() if logits.dtype == torch.bfloat16 else logits
    model.zero_grad()
    cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
    return {name: parameter.grad.double().cpu() for name, parameter in model.named_parameters()}


def errors_of(folder, dtype, device):
    rounded, exact = load(folder).to(dtype).to(device), load(folder).double()
    squares = {}
    for ids in batches(exact.config.vocab_size):
        ours, wanted = gradients(rounded, ids), gradients(exact, ids)
        for name, value in wanted.items():
            if name.endswith("k_proj.bias"):  # zero in exact arithmetic
                continue
            error = (ours[name] - value).norm() / value.norm()
            squares[name] = squares.get(name, 0) + float(error) ** 2 / BATCHES
    return {name: float(f"{square ** 0.5:.4g}") for name, square in squares.items()}


def main():
    out = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    goldens = pathlib.Path(__file__).parent / "goldens"
    device = sys.argv[2] if len(sys.argv) > 2 else "cpu"
    fp32 = (torch.float32, {**CASES, "opt": ("tied",)})
    files = {"errors.json": (torch.bfloat16, CASES), "fp32_errors.json": fp32}
    if device != "cpu":
        files = {f"fp32_errors_{device}.json": fp32}
    for file, (dtype, families) in files.items():
        errors = {
            family: {case: errors_of(goldens / family / case, dtype, device) for case in cases}
            for family, cases in families.items()
        }
        (out / file).write_text(json.dumps(errors, indent=1) + "\n")


if __name__ == "__main__":
    main()
