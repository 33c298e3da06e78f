#!/usr/bin/env python3
"""Makes the losses of 300 steps of small Llamas in fp32 and in bf16, with PyTorch and transformers.

Usage: make_curve_goldens.py OUT_DIR ATOLL_TRAINER    (needs torch, transformers; written with torch 2.15 and
                                                       transformers 5.23, CPU, one thread)

The weights are those of `atoll-trainer init --seed S` with config.json, for each S of SEEDS. The rows follow a formula
that trainer/program/curve_golden_test.cpp repeats: a token follows from the one before it, but one of four is random,
and no row comes twice. So losses fall to the entropy of that and stay there. In bf16 the model, its gradients and all
it computes are bf16 (model.to(bfloat16), eager), but for the loss, which takes the logits in fp32, as in transformers;
AdamW updates fp32 masters. Writes config.json and curves.json:

  curves     {SEED: {"fp32": [300], "bf16": [300]}}, the losses before each step's update
  controls   {NAME: distance}, of the first seed, to its fp32: the root of the mean square of the differences
               rounded   bf16 without masters: what is updated are the weights, rounded to nearest
               lost      fp32, with one of a hundred updates left out
               stale     fp32, with each step's gradient applied one step late
"""

import json
import pathlib
import sys

import numpy
import torch
from torch.nn.functional import cross_entropy
from transformers import get_cosine_schedule_with_warmup

from golden_tiles import mixed
from make_storage_goldens import make_model, short

LENGTH, VOCABULARY, BATCH, STEPS, SEEDS = 32, 61, 8, 300, (3, 4, 5)
CONFIG = dict(architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=VOCABULARY, hidden_size=64,
              intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
              max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=10000.0, hidden_act="silu",
              initializer_range=0.05, tie_word_embeddings=False, torch_dtype="float32")


def rows():
    random = mixed("rows", STEPS * BATCH * LENGTH).reshape(-1, LENGTH)
    ids = (random >> numpy.uint64(32)) % numpy.uint64(VOCABULARY)
    follows = random % numpy.uint64(4) > 0
    for t in range(1, LENGTH):
        ids[:, t] = numpy.where(follows[:, t], (5 * ids[:, t - 1] + 1) % VOCABULARY, ids[:, t])
    return torch.from_numpy(ids.astype(numpy.int64))


def losses_of(model, dtype, keeps_masters=True, loses=lambda step: False, delay=0):
    masters = [torch.nn.Parameter(weight.detach().clone()) for weight in model.parameters()]
    weights = list(model.to(dtype).parameters())
    optimizer = torch.optim.AdamW(masters, lr=3e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
    schedule = get_cosine_schedule_with_warmup(optimizer, 20, STEPS)
    ids, losses, gradients = rows(), [], []
    for step in range(STEPS):
        with torch.no_grad():
            for weight, master in zip(weights, masters):
                weight.copy_(master.to(dtype))
                if not keeps_masters:
                    master.copy_(weight)
        at = ids[step * BATCH:(step + 1) * BATCH]
        logits = model(at).logits.float()
        loss = cross_entropy(logits[:, :-1].reshape(-1, VOCABULARY), at[:, 1:].reshape(-1))
        model.zero_grad()
        loss.backward()
        losses.append(loss.item())
        gradients.append([weight.grad.float().clone() for weight in weights])
        for master, gradient in zip(masters, gradients[max(0, step - delay)]):
            master.grad = gradient.clone()
        gradients[:-2] = [None] * len(gradients[:-2])
        torch.nn.utils.clip_grad_norm_(masters, 1.0)
        if not loses(step):
            optimizer.step()
        schedule.step()
    return losses


def distance(losses, exact):
    return float(numpy.sqrt(numpy.mean(numpy.square(numpy.subtract(losses, exact)))))


def main():
    out, trainer = pathlib.Path(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n")

    def run(seed, dtype=torch.float32, **how):
        return losses_of(make_model(trainer, CONFIG, seed), dtype, **how)
    curves = {str(seed): {"fp32": run(seed), "bf16": run(seed, torch.bfloat16)} for seed in SEEDS}
    exact = curves[str(SEEDS[0])]["fp32"]
    controls = {"rounded": run(SEEDS[0], torch.bfloat16, keeps_masters=False),
                "lost": run(SEEDS[0], loses=lambda step: step % 100 == 99),
                "stale": run(SEEDS[0], delay=1)}
    golden = {"curves": curves, "controls": {name: distance(curve, exact) for name, curve in controls.items()}}
    (out / "curves.json").write_text(json.dumps(short(golden)) + "\n")


if __name__ == "__main__":
    main()
