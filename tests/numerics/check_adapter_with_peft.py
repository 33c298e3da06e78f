#!/usr/bin/env python3
"""Checks that peft reads adapter directories that atoll-trainer trained, and finds the loss that atoll-trainer finds.

Usage: check_adapter_with_peft.py ATOLL_TRAINER    (needs torch, transformers, peft; make_goldens.sh runs it)

For the Llama and the OPT of make_training_goldens.py, and the Llama with a head that is not tied and an adapter on it
alone. Prints the losses, of the base alone as a control too, and ends
with 1 if peft's differs from ours by more than 1e-5, or the base's does not.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import peft
import torch
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

from make_training_goldens import CONFIGS, rows


def losses(config, targets, trainer, directory):
    """Of atoll-trainer, of peft, and of the base without its adapter."""
    (directory / "given.json").write_text(json.dumps(config))
    ids, labels = rows()
    save_file({"input_ids": ids.int(), "labels": labels.int()}, directory / "data.safetensors")

    def run(*arguments):
        return subprocess.run([trainer, *map(str, arguments)], check=True, capture_output=True, text=True).stdout

    model, adapter, data = directory / "model", directory / "adapter", directory / "data.safetensors"
    run("init", "--config", directory / "given.json", "--out", model, "--seed", 3)
    run("train", "--model", model, "--data", data, "--out", adapter, "--steps", 10, "--batch-size", 4, "--lr", "2e-2",
        "--lora-rank", 4, "--lora-targets", targets)
    ours = json.loads(run("eval", "--model", model, "--adapter", adapter, "--data", data))["loss"]

    def loss_of(reference):
        with torch.no_grad():
            logits = reference.double()(input_ids=ids).logits
        return cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100).item()

    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="eager")
    alone = loss_of(base)
    return ours, loss_of(peft.PeftModel.from_pretrained(base, adapter)), alone


def main():
    torch.set_num_threads(1)
    good = True
    cases = {name: (config, "all-linear") for name, config in CONFIGS.items()}
    cases["head"] = ({**CONFIGS["llama"], "tie_word_embeddings": False}, "lm_head")
    for name, (config, targets) in cases.items():
        with tempfile.TemporaryDirectory() as directory:
            ours, theirs, alone = losses(config, targets, sys.argv[1], pathlib.Path(directory))
        print(f"{name}: atoll-trainer {ours:.8f}, peft {theirs:.8f}, without the adapter {alone:.8f}")
        good = good and abs(ours / theirs - 1) < 1e-5 < abs(ours / alone - 1)
    sys.exit(0 if good else 1)


main()
