#!/usr/bin/env python3
"""Makes goldens of rotary scaling: what transformers computes from made configurations.

Usage: make_rope_goldens.py OUT_DIR    (needs torch and transformers; written with torch 2.15 and transformers 5.23)

Writes OUT_DIR/rope.json: [{"config": config.json, "inv_freq": [...], "attention_factor": number}], everything by chance from
one seed. "refused": true marks what transformers reads in a way of its own and the trainer refuses by name.
"""

import json
import pathlib
import random
import sys

from transformers import LlamaConfig, logging
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS


def some(rng, **choices):
    """Some of the keys, each with one of its values."""
    return {key: rng.choice(values) for key, values in choices.items() if rng.random() < 0.5}


def made_scaling(rng):
    kind = rng.choice(["linear", "dynamic", "llama3", "yarn", "yarn", "yarn", "yarn", "yarn", "yarn"])
    scaling = {rng.choice(["rope_type", "type"]): kind, "factor": rng.choice([1.0, 2, 2.5, 4.0, 8.0, 16, 40.0])}
    if kind == "llama3":
        scaling.update(low_freq_factor=rng.choice([1, 1.0, 2.0]), high_freq_factor=rng.choice([4, 4.0, 6.5]),
                       original_max_position_embeddings=rng.choice([64, 512, 8192]))
    if kind == "yarn":
        scaling.update(some(rng, original_max_position_embeddings=[16, 64, 512, 4096, 32768], beta_fast=[32, 16.0, 8, 64.5],
                            beta_slow=[1, 2.0, 0.5], attention_factor=[0.5, 1.0, 1.25, None], mscale=[0.707, 1.0, 2.0, None],
                            mscale_all_dim=[0.707, 1.0, 1.3, None], truncate=[True, False], attn_factor=[1.0, 1],
                            finetuned=[True, False]))
        if rng.random() < 0.1 and "original_max_position_embeddings" in scaling:
            scaling["factor"] = None  # then it follows from the lengths
    return scaling


def made_config(rng):
    head_dim = rng.choice([4, 8, 16, 64, 128])
    heads = rng.choice([1, 2, 4])
    config = dict(architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=61, hidden_size=head_dim * heads,
                  intermediate_size=16, num_hidden_layers=1, num_attention_heads=heads, num_key_value_heads=1, rms_norm_eps=1e-5,
                  hidden_act="silu", max_position_embeddings=rng.choice([64, 512, 4096, 131072]))
    scaling, theta = made_scaling(rng), rng.choice([50.0, 10000.0, 500000.0, 1e6])
    if rng.random() < 0.5:
        config.update(rope_theta=theta, rope_scaling=scaling)
    else:
        config["rope_parameters"] = {**scaling, "rope_theta": theta}
    return config


def golden(config):
    read = LlamaConfig(**json.loads(json.dumps(config)))
    frequencies, factor = ROPE_INIT_FUNCTIONS[read.rope_parameters["rope_type"]](read, "cpu")
    return {"config": config, "inv_freq": [float(f"{value:.8g}") for value in frequencies.tolist()], "attention_factor": factor}


def refused(change):
    config = made_config(random.Random(1))
    config.pop("rope_parameters", None)
    config["rope_theta"] = 10000.0
    config["rope_scaling"] = {"rope_type": "yarn", "factor": 4.0, **change}
    return {"config": config, "refused": True}


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    logging.set_verbosity_error()
    rng = random.Random(3)
    cases = [golden(made_config(rng)) for _ in range(240)]
    cases += [refused(change) for change in (dict(attn_factor=2.0), dict(truncate=None), dict(beta_fast=0), dict(mscale=0))]
    (out / "rope.json").write_text("[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
