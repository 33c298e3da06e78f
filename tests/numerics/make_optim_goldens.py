#!/usr/bin/env python3
"""Makes the golden weights of trainer/optim/optimizer_test.cpp: torch.optim on a formula of gradients.

Usage: make_optim_goldens.py OUT_DIR      (needs torch, safetensors; written with torch 2.15, CPU)

Weight i begins as cos(i), its gradient at step t (from 1) is sin(0.7 i + 0.05 t) · 0.1^(i mod 3), both rounded to fp32.
For Muon (trainer/optim/muon_test.cpp) the weights are a matrix and gradient i is sin(0.013 i² + 0.05 t): there and in the
control of its own bf16 products, torch's Newton-Schulz is run in the dtype of the weights.
Writes golden.safetensors: fp64 [101] "OPTIMIZER.STEP" after 1, 10 and 1,000 steps, and "muon.ROWSxCOLUMNS.STEP" after 1, 10 and 100. torch's optimizer itself runs in
fp64, so that the numbers are the formula's: in fp32 torch's AdamW is 1.3e-5 (relative L2) from them after 1,000 steps.
"""

import inspect
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


MUON_SHAPES, MUON_STEPS = ((12, 40), (40, 12), (24, 24), (1, 16)), (1, 10, 100)


def without_bf16(function):
    """torch.optim._muon's _zeropower_via_newtonschulz in the dtype of what it is given."""
    source = inspect.getsource(function)
    assert "dtype=torch.bfloat16" in source
    names = {"Tensor": torch.Tensor, "torch": torch}
    exec(source.replace("dtype=torch.bfloat16", "dtype=grad.dtype"), names)
    return names[function.__name__]


def run_muon(rows, columns, dtype):
    def matrix(value):
        values = [value(i) for i in range(rows * columns)]
        return torch.tensor(values, dtype=torch.float32).to(dtype).reshape(rows, columns)

    weights = torch.nn.Parameter(matrix(math.cos))
    optimizer = torch.optim.Muon([weights], lr=RATE, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    out = {}
    for t in range(1, max(MUON_STEPS) + 1):
        weights.grad = matrix(lambda i: math.sin(0.013 * i * i + 0.05 * t))
        optimizer.step()
        if t in MUON_STEPS:
            out[t] = weights.detach().clone().reshape(-1)
    return out


def add_muon(tensors):
    in_bf16 = torch.optim._muon._zeropower_via_newtonschulz
    for rows, columns in MUON_SHAPES:
        rounded = run_muon(rows, columns, torch.float32)
        torch.optim._muon._zeropower_via_newtonschulz = without_bf16(in_bf16)
        exact, single = run_muon(rows, columns, torch.float64), run_muon(rows, columns, torch.float32)
        torch.optim._muon._zeropower_via_newtonschulz = in_bf16
        for step, weights in exact.items():
            tensors[f"muon.{rows}x{columns}.{step}"] = weights
            far = [float((one[step].double() - weights).norm() / weights.norm()) for one in (single, rounded)]
            print(f"muon {rows}x{columns}, step {step}: torch in fp32 is {far[0]:.1e} off, with bf16 products {far[1]:.1e}")


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
    add_muon(tensors)
    save_file(tensors, out / "golden.safetensors")


main()
