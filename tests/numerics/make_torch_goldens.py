#!/usr/bin/env python3
"""Makes tests/fixtures/torch: small models as PyTorch and Meta write them, with what an import of them must give.

Needs torch, transformers and safetensors (written with torch 2.15 and transformers 5.23); takes no argument.

Each directory has expected.safetensors: the tensors of the Hugging Face model, in the dtype of the files.
"""

import json
import pathlib
import zipfile

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "torch"


def make_model(dtype, **options):
    torch.manual_seed(sum(map(ord, str(options))))
    config = LlamaConfig(**{**dict(vocab_size=11, hidden_size=8, intermediate_size=12, num_hidden_layers=2,
                                   num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=32,
                                   initializer_range=0.5), **options})
    return LlamaForCausalLM(config).to(dtype)


def start(name, tensors, config=None):
    folder = FIXTURES / name
    folder.mkdir(parents=True, exist_ok=True)
    save_file({key: value.detach().clone().contiguous() for key, value in tensors.items()},
              folder / "expected.safetensors")
    if config is not None:
        text = {key: value for key, value in config.to_dict().items() if key != "_attn_implementation"}
        text.update(architectures=["LlamaForCausalLM"], dtype="float32")
        (folder / "config.json").write_text(json.dumps(text, indent=1, sort_keys=True, default=str) + "\n")
    return folder


def with_zip64(path):
    """Writes the archive again with the structures of zip64, which torch.save keeps for files above 4 GiB."""
    members = []
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            members.append((info.filename, archive.read(info)))
    zipfile.ZIP64_LIMIT, limit = 1, zipfile.ZIP64_LIMIT
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members:
            with archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as member:
                member.write(data)
    zipfile.ZIP64_LIMIT = limit


def single():
    """Tied: two names for one storage; a buffer of old versions; metadata on the dictionary."""
    model = make_model(torch.float16, tie_word_embeddings=True)
    expected = {key: value for key, value in model.state_dict().items() if key != "lm_head.weight"}
    folder = start("single", expected, model.config)
    state = model.state_dict()
    state["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.arange(2.0)
    torch.save(state, folder / "pytorch_model.bin")
    folder = start("zip64", expected, model.config)
    torch.save(state, folder / "pytorch_model.bin")
    with_zip64(folder / "pytorch_model.bin")


def sharded():
    """fp32 parameters (not plain tensors), views into larger storages, names without the prefix."""
    model = make_model(torch.float32, num_key_value_heads=1)
    expected = dict(model.named_parameters())
    folder = start("sharded", expected, model.config)
    shards, weight_map = [{}, {}], {}
    for index, (key, value) in enumerate(expected.items()):
        name = key.removeprefix("model.")
        shards[index % 2][name] = value if index % 3 else torch.cat([value, value])[: value.shape[0]]
        weight_map[name] = f"pytorch_model-0000{index % 2 + 1}-of-00002.bin"
    for index, shard in enumerate(shards):
        torch.save(shard, folder / f"pytorch_model-0000{index + 1}-of-00002.bin")
    text = {"metadata": {"total_size": sum(v.numel() * 4 for v in expected.values())}, "weight_map": weight_map}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(text, indent=1) + "\n")


def interleaved(weight, heads):
    """The inverse of what transformers' conversion script does to Meta's wq and wk."""
    rows, columns = weight.shape
    return weight.view(heads, 2, rows // heads // 2, columns).transpose(1, 2).reshape(rows, columns)


def meta(name, ranks, embedding_axis, params, **options):
    """`options` are the Hugging Face model's, `params` what Meta's params.json says besides the sizes."""
    model = make_model(torch.bfloat16, **options)
    config = model.config
    folder = start(name, dict(model.named_parameters()))
    pieces = [{} for _ in range(ranks)]

    def share(key, value, axis):
        parts = value.chunk(ranks, axis) if axis is not None else [value] * ranks
        for rank, part in enumerate(parts):
            pieces[rank][key] = part.detach().clone().contiguous()

    state = dict(model.named_parameters())
    share("tok_embeddings.weight", state["model.embed_tokens.weight"], embedding_axis)
    share("norm.weight", state["model.norm.weight"], None)
    share("output.weight", state["lm_head.weight"], 0)
    for layer in range(config.num_hidden_layers):
        ours, theirs = f"model.layers.{layer}.", f"layers.{layer}."
        share(theirs + "attention.wq.weight",
              interleaved(state[ours + "self_attn.q_proj.weight"], config.num_attention_heads), 0)
        share(theirs + "attention.wk.weight",
              interleaved(state[ours + "self_attn.k_proj.weight"], config.num_key_value_heads), 0)
        share(theirs + "attention.wv.weight", state[ours + "self_attn.v_proj.weight"], 0)
        share(theirs + "attention.wo.weight", state[ours + "self_attn.o_proj.weight"], 1)
        share(theirs + "feed_forward.w1.weight", state[ours + "mlp.gate_proj.weight"], 0)
        share(theirs + "feed_forward.w3.weight", state[ours + "mlp.up_proj.weight"], 0)
        share(theirs + "feed_forward.w2.weight", state[ours + "mlp.down_proj.weight"], 1)
        share(theirs + "attention_norm.weight", state[ours + "input_layernorm.weight"], None)
        share(theirs + "ffn_norm.weight", state[ours + "post_attention_layernorm.weight"], None)
    for rank, piece in enumerate(pieces):
        piece["rope.freqs"] = torch.arange(2.0)
        torch.save(piece, folder / f"consolidated.{rank:02d}.pth")
    params = {"dim": config.hidden_size, "multiple_of": 4, "n_heads": config.num_attention_heads,
              "n_layers": config.num_hidden_layers, "norm_eps": 1e-05, "vocab_size": -1, **params}
    (folder / "params.json").write_text(json.dumps(params) + "\n")


def main():
    single()
    sharded()
    meta("llama2", 2, 1, {}, num_hidden_layers=1, vocab_size=12)
    meta("llama3", 2, 0, {"n_kv_heads": 2, "rope_theta": 500000.0, "use_scaled_rope": True, "ffn_dim_multiplier": 1.3},
         num_hidden_layers=1, num_attention_heads=4, hidden_size=16, vocab_size=12)


main()
