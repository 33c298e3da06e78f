#!/usr/bin/env python3
"""Makes the golden numbers of tiny models of the families beside Llama (Mistral, Qwen2, Qwen3), and of YaRN, with PyTorch
and transformers.

Usage: make_families_goldens.py OUT_DIR [CASE…]      (needs torch, transformers, safetensors; written with torch 2.15 and
                                                      transformers 5.23, CPU, one thread)

Cases and tensors as in make_llama_goldens.py; every case without segment_ids has tokens.
"""

import pathlib
import sys

import torch
from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

from golden_case import config_text, save_case
from make_llama_goldens import BATCH, LENGTH, documents, segment_ids, version4_dialect

VOCABULARY = 61

COMMON = dict(vocab_size=VOCABULARY, hidden_size=24, intermediate_size=36, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=64, attn_implementation="eager", initializer_range=0.2,
              rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=None)


def yarn(**options):
    return dict(rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=16, **options)


MODELS = {"llama": (LlamaConfig, LlamaForCausalLM), "mistral": (MistralConfig, MistralForCausalLM),
          "qwen2": (Qwen2Config, Qwen2ForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM)}
# By name: the family, what is special, and whether config.json is in the dialect of transformers 4.
CASES = {
    "mistral": ("mistral", dict(head_dim=10, sliding_window=None), False),
    "mistral_window": ("mistral", dict(sliding_window=LENGTH, num_key_value_heads=1), True),
    "qwen2": ("qwen2", dict(tie_word_embeddings=True, sliding_window=8), True),
    "qwen2_packed": ("qwen2", dict(), False),
    "qwen3": ("qwen3", dict(head_dim=10, sliding_window=8), False),
    "qwen3_biased": ("qwen3", dict(head_dim=8, attention_bias=True, tie_word_embeddings=True), True),
    "qwen3_packed": ("qwen3", dict(head_dim=6, num_key_value_heads=4), False),
    # In 16 channels the ramp between the two ends is several pairs long.
    "yarn": ("llama", dict(head_dim=16, rope_parameters=yarn(beta_fast=1.0, beta_slow=0.25)), False),
    "yarn_untruncated": ("qwen3", dict(head_dim=16, rope_parameters=yarn(
        beta_fast=1.0, beta_slow=0.25, mscale=1.5, mscale_all_dim=0.5, truncate=False)), True),
    "yarn_factor": ("qwen2", dict(rope_parameters=yarn(attention_factor=0.8)), True),
}


def make_model(name):
    family, options, _ = CASES[name]
    make_config, make = MODELS[family]
    torch.manual_seed(sum(map(ord, name)))
    model = make(make_config(**{**COMMON, **options})).float()
    with torch.no_grad():  # norms away from one and biases away from zero, so that their use is seen
        for key, parameter in model.named_parameters():
            if "norm" in key or key.endswith("bias"):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def packed_output(model, ids, labels):
    """Logits and loss of each document on its own, as the definition of packing."""
    logits = torch.zeros(BATCH, LENGTH, VOCABULARY, dtype=torch.float64)
    total, counted = 0.0, 0
    for row, part in documents(ids):
        piece = model(input_ids=ids[row : row + 1, part]).logits
        logits[row, part] = piece[0].detach()
        target = labels[row, part][1:]
        total = total + torch.nn.functional.cross_entropy(piece[0, :-1], target, ignore_index=-100, reduction="sum")
        counted += int((target != -100).sum())
    return logits, total / counted


def make_case(name, out):
    model = make_model(name)
    tensors = {f"weight:{key}": value.detach().clone() for key, value in model.named_parameters()}
    model = model.double()
    ids = torch.randint(0, VOCABULARY, (BATCH, LENGTH))
    labels = ids.clone()
    labels[0, 3] = labels[1, 0] = labels[1, 9:12] = -100
    if name.endswith("packed"):
        logits, loss = packed_output(model, ids, labels)
        tensors["segment_ids"] = segment_ids().int()
    else:
        output = model(input_ids=ids, labels=labels)
        logits, loss = output.logits.detach(), output.loss
        generated = model.generate(ids[:1, :5], attention_mask=torch.ones(1, 5, dtype=torch.long), max_new_tokens=10,
                                   do_sample=False, pad_token_id=0)
        tensors["tokens"] = generated[0, 5:].int()
    loss.backward()
    for key, parameter in model.named_parameters():
        tensors[f"gradient:{key}"] = parameter.grad.float()
    tensors.update(input_ids=ids.int(), labels=labels.int(), logits=logits.float(), loss=loss.detach().float().view(1))
    text = config_text(model.config, type(model).__name__)
    save_case(out / name, version4_dialect(text) if CASES[name][2] else text, tensors)


def main():
    torch.set_num_threads(1)
    for name in sys.argv[2:] or CASES:
        make_case(name, pathlib.Path(sys.argv[1]))


if __name__ == "__main__":
    main()
