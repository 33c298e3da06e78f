#!/usr/bin/env python3
"""Makes the golden perplexities of rows with unequal numbers of targets with PyTorch and transformers.

Usage: make_perplexity_goldens.py OUT_DIR ATOLL_TRAINER    (needs torch, transformers, safetensors; written with torch
                                                            2.15 and transformers 5.23, CPU, one thread)

The models are those of make_training_goldens.py; of row r only the last 1 + 7 r mod 15 labels count, as
trainer/program/testing/program_fixture.cpp repeats. Writes perplexity.json: for "llama" and "opt" the perplexity of all rows in
one batch, the targets, and as a control the exponential of the mean of the rows' mean losses.
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM

from make_training_goldens import CONFIGS, LENGTH, ROWS, rows


def perplexities(config, trainer):
    with tempfile.TemporaryDirectory() as directory:
        base = pathlib.Path(directory)
        (base / "given.json").write_text(json.dumps(config))
        subprocess.run([trainer, "init", "--config", base / "given.json", "--out", base / "model", "--seed", "3"],
                       check=True)
        model = AutoModelForCausalLM.from_pretrained(base / "model", dtype=torch.float32,
                                                     attn_implementation="eager").double()
    ids, _ = rows()
    labels = ids.clone()
    for row in range(ROWS):
        labels[row, :LENGTH - 1 - 7 * row % 15] = -100
    with torch.no_grad():
        loss = model(input_ids=ids, labels=labels).loss.item()
        of_rows = [model(input_ids=ids[row:row + 1], labels=labels[row:row + 1]).loss.item() for row in range(ROWS)]
    return {"perplexity": math.exp(loss), "targets": int((labels[:, 1:] != -100).sum()),
            "of_row_means": math.exp(sum(of_rows) / ROWS)}


def main():
    out, trainer = pathlib.Path(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    numbers = {name: perplexities(config, trainer) for name, config in CONFIGS.items()}
    (out / "perplexity.json").write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    main()
