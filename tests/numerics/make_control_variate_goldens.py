#!/usr/bin/env python3
"""Makes the golden losses of two rounds with a control variate (SCAFFOLD, arXiv:1910.06378) with PyTorch and transformers.

Usage: make_control_variate_goldens.py OUT_DIR ATOLL_TRAINER    (needs torch, transformers, safetensors; written with torch
                                                                 2.15 and transformers 5.23, CPU, one thread)

Model, rows and optimizer are those of make_training_goldens.py, without a schedule. Each round begins with the first
weights. The first one's mean of clipped gradients, as int8 in blocks of 128, is the site's own control variate c_i in the
second; the common one is c = 3 c_i in elements of an even index of each tensor, and -c_i in the others. There the
optimizer gets g + 0.7 (c - c_i), g being clipped. Writes steps.json: of each round {"loss": [6], "grad_norm": [6],
"mean": {tensor: the norm of its mean of clipped gradients}}.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

from make_training_goldens import BATCH, CONFIGS, ROWS, VOCABULARY, rows

STEPS, FACTOR = 6, 0.7


def as_int8(values):
    flat = values.reshape(-1)
    out = torch.empty_like(flat)
    for begin in range(0, flat.numel(), 128):
        block = flat[begin : begin + 128]
        scale = block.abs().max() / 127
        out[begin : begin + 128] = (block / scale).round() * scale if scale > 0 else 0
    return out.reshape(values.shape)


def run_round(directory, corrections):
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").double()
    ids, labels = rows()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.1)
    means = {name: torch.zeros_like(weights) for name, weights in model.named_parameters()}
    losses, norms = [], []
    for step in range(STEPS):
        at = [(step * BATCH + i) % ROWS for i in range(BATCH)]
        logits = model(ids[at]).logits
        loss = cross_entropy(logits[:, :-1].reshape(-1, VOCABULARY), labels[at][:, 1:].reshape(-1), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        losses.append(loss.item())
        for name, weights in model.named_parameters():
            means[name] += weights.grad / STEPS
            if corrections:
                weights.grad += corrections[name]
        optimizer.step()
    return means, {"loss": losses, "grad_norm": norms, "mean": {name: float(m.norm()) for name, m in means.items()}}


def correction(mean):
    own = as_int8(mean)
    even = torch.arange(own.numel()).reshape(own.shape) % 2 == 0
    return FACTOR * (torch.where(even, 3 * own, -own) - own)


def main():
    out, trainer = pathlib.Path(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        config = pathlib.Path(directory) / "given.json"
        config.write_text(json.dumps(CONFIGS["llama"]))
        model = pathlib.Path(directory) / "model"
        subprocess.run([trainer, "init", "--config", config, "--out", model, "--seed", "3"], check=True)
        means, first = run_round(model, {})
        _, second = run_round(model, {name: correction(mean) for name, mean in means.items()})
    (out / "steps.json").write_text(json.dumps({"first": first, "second": second}, indent=1) + "\n")


if __name__ == "__main__":
    main()
