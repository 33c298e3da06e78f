#!/usr/bin/env python3
"""Makes the golden losses and gradient norms of a short training run with PyTorch and transformers.

Usage: make_training_goldens.py OUT_DIR ATOLL_TRAINER    (needs torch, transformers, safetensors; written with torch
                                                          2.15 and transformers 5.23, CPU, one thread)

The weights are those of `atoll-trainer init --seed 3` (the same bits everywhere), the rows follow a formula that
trainer/program/testing/program_fixture.cpp repeats. Writes config.json and steps.json, {"loss": [20], "grad_norm": [20]}, of a
Llama, and of other families in folders below: OUT_DIR/opt, ….
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup

ROWS, LENGTH, VOCABULARY, BATCH, STEPS = 24, 16, 61, 4, 20
SIZES = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=100.0, hidden_act="silu",
             initializer_range=0.1, tie_word_embeddings=False, torch_dtype="float32")
CONFIGS = {
    "llama": dict(architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=VOCABULARY, hidden_size=32,
                  intermediate_size=56, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                  max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=10000.0, hidden_act="silu",
                  initializer_range=0.1, tie_word_embeddings=True, torch_dtype="float32"),
    "opt": dict(architectures=["OPTForCausalLM"], model_type="opt", vocab_size=VOCABULARY, hidden_size=32, ffn_dim=56,
                num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64, word_embed_proj_dim=24,
                do_layer_norm_before=True, activation_function="relu", init_std=0.1, dropout=0.0, pad_token_id=None,
                torch_dtype="float32"),
    "mistral": dict(architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=None, head_dim=10, **SIZES),
    "qwen2": dict(architectures=["Qwen2ForCausalLM"], model_type="qwen2", **SIZES),
    "qwen3": dict(architectures=["Qwen3ForCausalLM"], model_type="qwen3", head_dim=12, attention_bias=True,
                  rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16), **SIZES),
}


def rows():
    ids = torch.tensor([[(7 * row + t * (row % 3 + 1) + t * t * row) % VOCABULARY for t in range(LENGTH)]
                        for row in range(ROWS)])
    labels = ids.clone()
    for row in range(ROWS):
        labels[row, :row % 5] = -100
    return ids, labels


def make_case(config, out, trainer):
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([trainer, "init", "--config", out / "config.json", "--out", directory, "--seed", "3"], check=True)
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").double()
    ids, labels = rows()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.1)
    schedule = get_cosine_schedule_with_warmup(optimizer, 4, STEPS)
    losses, norms = [], []
    for step in range(STEPS):
        at = [(step * BATCH + i) % ROWS for i in range(BATCH)]
        logits = model(ids[at]).logits
        loss = cross_entropy(logits[:, :-1].reshape(-1, VOCABULARY), labels[at][:, 1:].reshape(-1), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        losses.append(loss.item())
        optimizer.step()
        schedule.step()
    (out / "steps.json").write_text(json.dumps({"loss": losses, "grad_norm": norms}, indent=1) + "\n")


def main():
    out, trainer = pathlib.Path(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    for name, config in CONFIGS.items():
        make_case(config, out if name == "llama" else out / name, trainer)


if __name__ == "__main__":
    main()
