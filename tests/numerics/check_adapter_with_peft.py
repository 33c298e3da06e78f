#!/usr/bin/env python3
"""Checks that peft reads an adapter directory of atoll-trainer and finds the loss that atoll-trainer finds.

Usage: check_adapter_with_peft.py MODEL ADAPTER DATA.safetensors ATOLL_TRAINER    (needs torch, transformers, peft)

Prints both losses and ends with 1 if they differ by more than 1e-5. DATA has input_ids and perhaps labels.
"""

import json
import subprocess
import sys

import peft
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM


def main():
    model, adapter, data, trainer = sys.argv[1:5]
    tensors = load_file(data)
    ids = tensors["input_ids"].long()
    labels = tensors.get("labels", ids).long()
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="eager").double()
    adapted = peft.PeftModel.from_pretrained(base, adapter).double()
    with torch.no_grad():
        logits = adapted(input_ids=ids).logits
    theirs = cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100).item()
    line = subprocess.run([trainer, "eval", "--model", model, "--adapter", adapter, "--data", data], check=True,
                          capture_output=True, text=True).stdout
    ours = json.loads(line)["loss"]
    print(f"peft {theirs:.8f}  atoll-trainer {ours:.8f}")
    sys.exit(0 if abs(ours / theirs - 1) < 1e-5 else 1)


main()
