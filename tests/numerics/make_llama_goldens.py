#!/usr/bin/env python3
"""Makes the golden numbers of tiny Llamas with PyTorch and transformers.

Usage: make_llama_goldens.py OUT_DIR [CASE…]      (needs torch, transformers, safetensors; written with torch 2.15 and
                                           transformers 5.23, CPU, one thread)

Each case is a directory: config.json, and golden.safetensors with
  weight:NAME    the parameters (fp32)          gradient:NAME  d loss / d parameter
  input_ids, labels, segment_ids                int32 [B, T]; labels are not shifted
  logits         fp32 [B, T, V]                 loss  fp32 [1], the mean over counted targets
  tokens         int32 [N], 12 greedy tokens after the prompt input_ids[0, :5] (present in some cases)
"tiles" is larger, and has what golden_tiles.py says instead.
The products run in fp64 (transformers keeps its norms and the softmax in fp32) and are stored in fp32.
"""

import pathlib
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import golden_tiles
from golden_case import config_text, save_case

BATCH, LENGTH, VOCABULARY = 2, 16, 97

COMMON = dict(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, max_position_embeddings=64,
              attn_implementation="eager", initializer_range=0.15, bos_token_id=1, eos_token_id=None)

CASES = {
    "mha": dict(intermediate_size=48, num_attention_heads=4, num_key_value_heads=4, rms_norm_eps=1e-5),
    "gqa_tied": dict(intermediate_size=40, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
                     tie_word_embeddings=True),
    "llama3_rope": dict(intermediate_size=48, num_attention_heads=4, num_key_value_heads=1, head_dim=16,
                        rope_parameters=dict(rope_type="llama3", rope_theta=100.0, factor=8.0, low_freq_factor=1.0,
                                             high_freq_factor=4.0, original_max_position_embeddings=32)),
    "dynamic_rope": dict(intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=8,
                         rope_parameters=dict(rope_type="dynamic", rope_theta=50.0, factor=3.0)),
    "packed": dict(intermediate_size=48, num_attention_heads=4, num_key_value_heads=2,
                   rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.0)),
}
TILES = dict(vocab_size=golden_tiles.VOCABULARY, hidden_size=416, intermediate_size=896, num_attention_heads=8,
             num_key_value_heads=2, max_position_embeddings=256)
# Documents in each row of the packed case, by their lengths.
SEGMENTS = [[5, 7, 4], [1, 11, 4]]


def version4_dialect(config):
    """The same configuration as transformers 4 wrote it."""
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype", "float32")
    return config


def segment_ids():
    return torch.tensor([[index for index, n in enumerate(row) for _ in range(n)] for row in SEGMENTS])


def documents(ids):
    """Row and slice of each document of the packed case."""
    for row, lengths in enumerate(SEGMENTS):
        begin = 0
        for length in lengths:
            yield row, slice(begin, begin + length)
            begin += length


def make_case(name, options, out):
    torch.manual_seed(sum(map(ord, name)))
    config = LlamaConfig(**{**COMMON, **options})
    model = LlamaForCausalLM(config).float()
    with torch.no_grad():  # norms away from one, so that their gradients and their use are seen
        for key, parameter in model.named_parameters():
            if "norm" in key:
                parameter.add_(0.3 * torch.randn_like(parameter))
    weights = {key: value.detach().clone() for key, value in model.named_parameters()}
    model = model.double()
    ids = torch.randint(0, VOCABULARY, (BATCH, LENGTH))
    labels = ids.clone()
    labels[0, 3] = labels[1, 0] = labels[1, 9:12] = -100
    tensors = {f"weight:{key}": value for key, value in weights.items()}
    if name == "packed":  # each document on its own, as the definition of packing
        logits = torch.zeros(BATCH, LENGTH, VOCABULARY, dtype=torch.float64)
        total, counted = 0.0, 0
        for row, part in documents(ids):
            piece = model(input_ids=ids[row : row + 1, part]).logits
            logits[row, part] = piece[0].detach()
            target = labels[row, part][1:]
            total = total + torch.nn.functional.cross_entropy(piece[0, :-1], target, ignore_index=-100, reduction="sum")
            counted += int((target != -100).sum())
        loss = total / counted
        tensors["segment_ids"] = segment_ids().int()
        positions = torch.cat([torch.arange(n) for n in sum(SEGMENTS, [])]).view(BATCH, LENGTH)
        for row in range(BATCH):  # what transformers makes of restarting position_ids
            packed = model(input_ids=ids[row : row + 1], position_ids=positions[row : row + 1], use_cache=False).logits
            assert torch.allclose(packed[0], logits[row], atol=1e-5), "transformers' packing differs"
    else:
        output = model(input_ids=ids, labels=labels)
        loss, logits = output.loss, output.logits.detach()
    loss.backward()
    for key, parameter in model.named_parameters():
        tensors[f"gradient:{key}"] = parameter.grad.float()
    tensors.update(input_ids=ids.int(), labels=labels.int(), logits=logits.float(), loss=loss.detach().float().view(1))
    if name in ("mha", "gqa_tied", "dynamic_rope"):
        generated = model.generate(ids[:1, :5], attention_mask=torch.ones(1, 5, dtype=torch.long), max_new_tokens=12,
                                   do_sample=False, pad_token_id=0)
        tensors["tokens"] = generated[0, 5:].int()
    text = config_text(config, "LlamaForCausalLM")
    save_case(out / name, version4_dialect(text) if name in ("llama3_rope", "dynamic_rope") else text, tensors)


def make_tiles(out):
    torch.manual_seed(1)
    config = LlamaConfig(**{**COMMON, **TILES})
    tensors = golden_tiles.golden_tensors(LlamaForCausalLM(config).double().eval())
    save_case(out / "tiles", config_text(config, "LlamaForCausalLM"), tensors)


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
