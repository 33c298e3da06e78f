#!/usr/bin/env python3
"""Prints the golden weights of trainer/optim/optimizer_test.cpp: torch.optim on a formula of gradients.

Usage: make_optim_goldens.py      (needs torch; written with torch 2.15, CPU)

Weight i begins as cos(i), its gradient at step t (from 1) is sin(0.7 i + 0.05 t) · 0.1^(i mod 3), both rounded to fp32.
The optimizer itself runs in fp64, so that the numbers are the formula's and not one library's rounding.
"""

import math

import torch

COUNT = 6


def run(make, steps, decay=0.0, lr=0.01):
    weights = torch.nn.Parameter(torch.tensor([math.cos(i) for i in range(COUNT)], dtype=torch.float32).double())
    optimizer = make([weights])
    out = {}
    for t in range(1, max(steps) + 1):
        gradient = [math.sin(0.7 * i + 0.05 * t) * 0.1 ** (i % 3) for i in range(COUNT)]
        weights.grad = torch.tensor(gradient, dtype=torch.float32).double()
        with torch.no_grad():
            weights.mul_(1 - lr * decay)  # decoupled decay, which torch's SGD lacks
        optimizer.step()
        if t in steps:
            out[t] = [float(f"{x:.9g}") for x in weights.tolist()]
    return out


for name, make, decay in (
        ("AdamW", lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.1), 0.0),
        ("SGD, momentum 0.9, decay 0.1", lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9), 0.1),
        ("SGD", lambda p: torch.optim.SGD(p, lr=0.01), 0.0)):
    for step, weights in run(make, (1, 10, 1000), decay).items():
        print(f"{name}, step {step}: {weights}")
