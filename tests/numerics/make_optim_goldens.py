#!/usr/bin/env python3
"""Makes the golden weights of trainer/optim/optimizer_test.cpp: torch.optim on a formula of gradients.

Usage: make_optim_goldens.py OUT_DIR      (needs torch, safetensors; written with torch 2.15, CPU)

Weight i begins as cos(i), its gradient at step t (from 1) is sin(0.7 i + 0.05 t) · 0.1^(i mod 3), both rounded to fp32.
Writes golden.safetensors: fp64 [101] "OPTIMIZER.STEP" after 1, 10 and 1,000 steps. torch's optimizer itself runs in
fp64, so that the numbers are the formula's: in fp32 torch's AdamW is 1.3e-5 (relative L2) from them after 1,000 steps.
"""

import math
import pathlib
import sys

import torch
from safetensors.torch import save_file

COUNT, STEPS, RATE = 101, (1, 10, 1000), 0.01

# The optimizer, and the decoupled decay that torch's SGD lacks.
OPTIMIZERS = {
    "adamw": (lambda p: torch.optim.AdamW(p, lr=RATE, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.1), 0.0),
    "sgd_momentum": (lambda p: torch.optim.SGD(p, lr=RATE, momentum=0.9), 0.1),
    "sgd": (lambda p: torch.optim.SGD(p, lr=RATE), 0.0),
}


def run(make, decay, dtype=torch.float64):
    weights = torch.nn.Parameter(torch.tensor([math.cos(i) for i in range(COUNT)], dtype=torch.float32).to(dtype))
    optimizer = make([weights])
    out = {}
    for t in range(1, max(STEPS) + 1):
        gradient = [math.sin(0.7 * i + 0.05 * t) * 0.1 ** (i % 3) for i in range(COUNT)]
        weights.grad = torch.tensor(gradient, dtype=torch.float32).to(dtype)
        with torch.no_grad():
            weights.mul_(1 - RATE * decay)
        optimizer.step()
        if t in STEPS:
            out[t] = weights.detach().clone()
    return out


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, (make, decay) in OPTIMIZERS.items():
        exact, single = run(make, decay), run(make, decay, torch.float32)
        for step, weights in exact.items():
            tensors[f"{name}.{step}"] = weights
            distance = float((single[step].double() - weights).norm() / weights.norm())
            print(f"{name}, step {step}: torch in fp32 is {distance:.1e} off")
    save_file(tensors, out / "golden.safetensors")


main()
