#!/usr/bin/env python3
"""Makes the golden steps of trainings whose weights are stored in bf16 or fp16, with PyTorch and transformers.

Usage: make_storage_goldens.py OUT_DIR ATOLL_TRAINER    (needs torch, transformers; written with torch 2.15 and
                                                         transformers 5.23, CPU, one thread)

The run of make_training_goldens.py on its Llama, computed in fp32: each step rounds fp32 masters to the format, takes
loss and gradients of the rounded weights, and AdamW updates the masters. Epsilon alone is another: with 1e-8 AdamW
makes as much of gradients near zero, which rounding decides, as of others, and moves enough weights from one value of
bf16 to the next to move a loss by 5e-5. With this one a few still move, for a step or some: losses of four models by up
to 1.1e-5 in one step, masters by 2e-6. Writes bf16.json and fp16.json:

  loss         [20], before each step's update
  masters      {NAME: [64]}: the sketch of each parameter after the last step (golden_tiles.py)
  no_masters   {"loss", "distance_of_masters"} of a control that rounds the weights to nearest after each update and
               keeps nothing else; the distance is relative, L2, over all parameters
  moments      the same of a control that rounds the moments to nearest in bf16 after each update
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup

from golden_tiles import sketch
from make_training_goldens import BATCH, CONFIGS, ROWS, STEPS, VOCABULARY, rows

FORMATS = {"bf16": torch.bfloat16, "fp16": torch.float16}


EPSILON = 1e-2


def make_model(trainer, config, seed):
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory)
        (path / "given.json").write_text(json.dumps(config))
        subprocess.run([trainer, "init", "--config", path / "given.json", "--out", path / "model", "--seed", str(seed)],
                       check=True)
        return AutoModelForCausalLM.from_pretrained(path / "model", dtype=torch.float32, attn_implementation="eager")


def round_to(tensor, dtype):
    return tensor.to(dtype).to(tensor.dtype)


def train(model, dtype, keeps_masters=True, moments=None):
    """The losses, and the masters by name."""
    names, weights = zip(*model.named_parameters())
    masters = [torch.nn.Parameter(weight.detach().clone()) for weight in weights]
    optimizer = torch.optim.AdamW(masters, lr=5e-3, betas=(0.9, 0.98), eps=EPSILON, weight_decay=0.1)
    schedule = get_cosine_schedule_with_warmup(optimizer, 4, STEPS)
    ids, labels = rows()
    losses = []
    for step in range(STEPS):
        with torch.no_grad():
            for weight, master in zip(weights, masters):
                weight.copy_(round_to(master, dtype))
                if not keeps_masters:
                    master.copy_(weight)
        at = [(step * BATCH + i) % ROWS for i in range(BATCH)]
        logits = model(ids[at]).logits
        loss = cross_entropy(logits[:, :-1].reshape(-1, VOCABULARY), labels[at][:, 1:].reshape(-1), ignore_index=-100)
        model.zero_grad()
        loss.backward()
        for weight, master in zip(weights, masters):
            master.grad = weight.grad.clone()
        torch.nn.utils.clip_grad_norm_(masters, 1.0)
        losses.append(loss.item())
        optimizer.step()
        schedule.step()
        for state in optimizer.state.values() if moments else []:
            for key in ("exp_avg", "exp_avg_sq"):
                state[key].copy_(round_to(state[key], moments))
    return losses, {name: master.detach().double() for name, master in zip(names, masters)}


def control(exact, run):
    losses, masters = run
    difference = sum((masters[name] - value).square().sum() for name, value in exact.items())
    size = sum(value.square().sum() for value in exact.values())
    return {"loss": losses, "distance_of_masters": float(torch.sqrt(difference / size))}


def short(value):
    """Its numbers with nine digits, which tell fp32 apart."""
    if isinstance(value, dict):
        return {key: short(part) for key, part in value.items()}
    return [float(f"{number:.9g}") for number in value] if isinstance(value, list) else value


def main():
    out, trainer = pathlib.Path(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    for name, dtype in FORMATS.items():
        def run(**how):
            return train(make_model(trainer, CONFIGS["llama"], 3), dtype, **how)
        losses, masters = run()
        golden = {"loss": losses,
                  "masters": {key: sketch(key, value).tolist() for key, value in masters.items()},
                  "no_masters": control(masters, run(keeps_masters=False)),
                  "moments": control(masters, run(moments=torch.bfloat16))}
        (out / f"{name}.json").write_text(json.dumps(short(golden)) + "\n")


if __name__ == "__main__":
    main()
