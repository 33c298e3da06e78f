#!/usr/bin/env python3
"""Makes the golden numbers of tiny OPTs with PyTorch and transformers.

Usage: make_opt_goldens.py OUT_DIR [CASE…]      (needs torch, transformers, safetensors; written with torch 2.15 and
                                                 transformers 5.23, CPU, one thread)

Cases and tensors as in make_llama_goldens.py. The models are in evaluation mode: dropout is off.
"""

import pathlib
import sys

import torch
from transformers import OPTConfig, OPTForCausalLM

import golden_tiles
from golden_case import config_text, save_case

BATCH, LENGTH, VOCABULARY = 2, 16, 97

COMMON = dict(vocab_size=VOCABULARY, hidden_size=24, num_hidden_layers=2, ffn_dim=40, max_position_embeddings=32,
              num_attention_heads=4, do_layer_norm_before=True, dropout=0.1, init_std=0.15, word_embed_proj_dim=24,
              bos_token_id=2, eos_token_id=None, pad_token_id=1, attn_implementation="eager")

CASES = {
    "tied": dict(),
    "projected": dict(word_embed_proj_dim=12, num_attention_heads=2),
    "packed": dict(),
}
TILES = dict(vocab_size=golden_tiles.VOCABULARY, hidden_size=416, ffn_dim=1024, num_attention_heads=8,
             max_position_embeddings=256, word_embed_proj_dim=400, pad_token_id=None)
# Documents in each row of the packed case, by their lengths.
SEGMENTS = [[5, 7, 4], [1, 11, 4]]


def documents():
    for row, lengths in enumerate(SEGMENTS):
        begin = 0
        for length in lengths:
            yield row, slice(begin, begin + length)
            begin += length


def make_case(name, options, out):
    torch.manual_seed(sum(map(ord, name)))
    config = OPTConfig(**{**COMMON, **options})
    model = OPTForCausalLM(config).float().eval()
    with torch.no_grad():  # norms away from one and biases away from zero, so that their use is seen
        for key, parameter in model.named_parameters():
            if "norm" in key or key.endswith("bias"):
                parameter.add_(0.3 * torch.randn_like(parameter))
    weights = {key: value.detach().clone() for key, value in model.named_parameters()}
    model = model.double()
    ids = torch.randint(0, VOCABULARY, (BATCH, LENGTH))
    labels = ids.clone()
    labels[0, 3] = labels[1, 0] = labels[1, 9:12] = -100
    tensors = {f"weight:{key}": value for key, value in weights.items()}
    logits = torch.zeros(BATCH, LENGTH, VOCABULARY, dtype=torch.float64)
    total, counted = 0.0, 0
    parts = documents() if name == "packed" else [(row, slice(0, LENGTH)) for row in range(BATCH)]
    for row, part in parts:  # each document on its own, as the definition of packing
        piece = model(input_ids=ids[row : row + 1, part]).logits
        logits[row, part] = piece[0].detach()
        target = labels[row, part][1:]
        total = total + torch.nn.functional.cross_entropy(piece[0, :-1], target, ignore_index=-100, reduction="sum")
        counted += int((target != -100).sum())
    loss = total / counted
    if name == "packed":
        segments = [[index for index, n in enumerate(row) for _ in range(n)] for row in SEGMENTS]
        tensors["segment_ids"] = torch.tensor(segments).int()
    else:
        assert abs(float(model(input_ids=ids, labels=labels).loss) - float(loss)) < 1e-5
        generated = model.generate(ids[:1, :5], attention_mask=torch.ones(1, 5, dtype=torch.long), max_new_tokens=12,
                                   do_sample=False, pad_token_id=1)
        tensors["tokens"] = generated[0, 5:].int()
    loss.backward()
    for key, parameter in model.named_parameters():
        tensors[f"gradient:{key}"] = parameter.grad.float()
    tensors.update(input_ids=ids.int(), labels=labels.int(), logits=logits.float(), loss=loss.detach().float().view(1))
    save_case(out / name, config_text(config, "OPTForCausalLM"), tensors)


def make_tiles(out):
    torch.manual_seed(1)
    config = OPTConfig(**{**COMMON, **TILES})
    tensors = golden_tiles.golden_tensors(OPTForCausalLM(config).double().eval())
    save_case(out / "tiles", config_text(config, "OPTForCausalLM"), tensors)


def main():
    torch.set_num_threads(1)
    out = pathlib.Path(sys.argv[1])
    for name in sys.argv[2:] or [*CASES, "tiles"]:
        if name == "tiles":
            make_tiles(out)
        else:
            make_case(name, CASES[name], out)


if __name__ == "__main__":
    main()
