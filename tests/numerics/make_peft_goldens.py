#!/usr/bin/env python3
"""Makes goldens of how peft reads an adapter_config.json, and of the regular expressions in it.

Usage: make_peft_goldens.py OUT_DIR    (needs peft; written with peft 0.21.2 and Python 3.11)

Everything is made by chance from one seed. Writes into OUT_DIR
  patterns.json    {"names": [...], "patterns": [{"pattern", "supported", "whole": "0" or "1" of each name, "key": likewise}]}:
                   whether re.fullmatch finds it in a name, and whether peft takes it as a key of rank_pattern for it
  configs.json     {"modules": [...], "configs": [{"config": adapter_config.json, "linears": [of each module [rank, scaling], or 0]}]}:
                   which modules get an adapter, and of what rank and scale
"""

import json
import math
import pathlib
import random
import re
import sys
import warnings

import peft
from peft.tuners.tuners_utils import check_target_module_exists
from peft.utils.other import get_pattern_key

LINEARS = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
           "mlp.down_proj"]
MODULES = ([f"model.layers.{layer}.{linear}" for layer in (0, 1, 2, 10, 21) for linear in LINEARS]
           + ["lm_head", "model.decoder.layers.3.fc1", "model.decoder.layers.3.self_attn.out_proj", "model.decoder.project_in",
              "transformer.h.1.attn.q_proj", "model.layers.1.experts.2.up_proj", "layers.2.q_proj", "q_proj",
              "model.blocks.2.q_proj", "model.layers.2x.q_proj", "model.xlayers.2.up_proj"])
UNSUPPORTED = [r"(?<=a)b", r"(?<!a)b", r"(a)\1", r"(?i)a", r"(?>a)b", r"a++", r"\x41", r"(?P<a>b)(?P=a)", "é"]
WRONG = ["(", ")", "[", "a**", "*a", "{2}", "a{3,1}", "[z-a]", r"[\d-a]", "\\", r"\q", "^*", "(?:", "a|+"]
HAND = [r".*\.(q|v)_proj", r"model\.layers\.(0|1[0-9])\..*", r"^(?!.*lm_head).*_proj$", r".*self_attn.*", r".*", "", "a{", "a{}",
        "a{,2}", "x{1,", "[]a]", "[^]a]", "[a-]", "[-a]", r"\bmodel\b.*", r".*\Bproj", r"\Amodel.*up_proj\Z",
        r"(?:.*?(?:language|text).*?(?:self_attn|mlp).*?(?:k_proj|v_proj|q_proj).*?)|(?:\bmodel\.layers\.[\d]{1,}\."
        r"(?:self_attn|mlp)\.(?:(?:q_proj|k_proj|up_proj)))", r"(?P<layer>model\.layers\.\d+)\.mlp\.\w+", r"[\w.]+_proj",
        r"(?=.*mlp)(?=.*up).*", r"(?:[a-z_]+\.|\d+\.)*[a-z_]+_proj", "q_proj|v_proj", r"layers\.1\.mlp.up_proj", "(a?){3}",
        "_proj{1}", r"model\.layers\.[^0]\.self_attn\.[qk]_proj", r"(?!model).*", r"(?:mlp|self_attn)\.[^.]*$"]


def atom(rng, depth):
    kind = rng.random()
    if kind < 0.45:
        return re.escape(rng.choice(["model", "layers", "mlp", "self_attn", "q_proj", "up", "_proj", ".", "1", "2", "a"]))
    if kind < 0.6:
        return rng.choice([".", r"\d", r"\w", r"\W", r"[0-9]", "[a-z_]", r"[^.]", r"[\w.]", "[qkv]", r"[^\d]", r"\."])
    if kind < 0.65:
        return rng.choice(["^", "$", r"\b", r"\B"])
    if depth == 0:
        return rng.choice(["l", "o", "."])
    inner = either(rng, depth - 1)
    return rng.choice(["(%s)", "(?:%s)", "(?:%s)", "(?=%s)", "(?!%s)"]) % inner


def item(rng, depth):
    text = atom(rng, depth)
    if text in ("^", "$", r"\b", r"\B") or rng.random() < 0.6:
        return text
    if len(text) > 1 and text[0] not in "([\\":
        text = f"(?:{text})"
    # A long repetition of what repeats is refused, so that matching ends.
    counts = ["*", "+", "*?", "+?", "{2,}"] if not any(c in text for c in "*+}") else []
    return text + rng.choice([*counts, "?", "??", "{1}", "{0,2}", "{,2}"])


def sequence(rng, depth):
    return "".join(item(rng, depth) for _ in range(rng.randint(1, 4)))


def either(rng, depth):
    return "|".join(sequence(rng, depth) for _ in range(rng.choice([1, 1, 1, 2, 3])))


def made_pattern(rng):
    """Often around a name's own parts, so that many match."""
    if rng.random() < 0.5:
        return either(rng, 2)
    parts = []
    for part in rng.choice(MODULES).split("."):
        parts.append(rng.choice([re.escape(part)] * 4 + [r"[^.]+", r"\w*", f"(?:{re.escape(part)}|{sequence(rng, 1)})"]))
    return rng.choice(["", "", ".*", "(?:.*)"]) + r"\.".join(parts[rng.choice([0, 0, 1, 2]):]) + rng.choice(["", "", ".*", "$"])


def compiles(pattern):
    try:
        re.compile(pattern)
        re.compile(rf"(.*\.)?({pattern})$")
        return True
    except re.error:
        return False


def answers(pattern, supported):
    one = {"pattern": pattern, "supported": supported}
    if supported:
        one["whole"] = "".join(str(int(re.fullmatch(pattern, name) is not None)) for name in MODULES)
        one["key"] = "".join(str(int(get_pattern_key({pattern: 1}, name) == pattern)) for name in MODULES)
    return one


def make_patterns(rng):
    made = [made_pattern(rng) for _ in range(400)]
    good = [pattern for pattern in HAND + made if compiles(pattern)]
    bad = [pattern for pattern in WRONG if not compiles(pattern)]
    assert len(bad) == len(WRONG)
    return {"names": MODULES, "patterns": [answers(pattern, True) for pattern in good]
            + [answers(pattern, False) for pattern in bad + UNSUPPORTED]}


def pattern_values(rng, values):
    """A rank_pattern or alpha_pattern without two keys that say different things of one module."""
    keys = ["q_proj", "up_proj", r"layers\.0\..*", "self_attn.v_proj", "^model.layers.10.mlp.down_proj", "lm_head", ".*mlp.*",
            r"layers\.(1|2)\.self_attn\.(q|k)_proj", "model.layers.21.self_attn.o_proj", "fc1|project_in"]
    chosen = {}
    for key in rng.sample(keys, rng.randint(0, 4)):
        taken = [name for name in MODULES if any(get_pattern_key([other], name) == other for other in chosen)]
        if not any(get_pattern_key([key], name) == key for name in taken):
            chosen[key] = rng.choice(values)
    return chosen


def made_config(rng):
    names = ["q_proj", "v_proj", "up_proj", "down_proj", "lm_head", "fc1", "project_in", "self_attn.k_proj", "not_there",
             "model.layers.1.mlp.gate_proj", "layers.2.self_attn.o_proj"]
    config = dict(r=rng.choice([1, 2, 8, 16]), lora_alpha=rng.choice([1, 8, 16, 12.5]), use_rslora=rng.random() < 0.5,
                  rank_pattern=pattern_values(rng, [1, 3, 4, 32]), alpha_pattern=pattern_values(rng, [2, 5, 0.5]))
    if rng.random() < 0.35:
        config["target_modules"] = rng.choice([r".*\.(q|v)_proj", r"model\.layers\.(1|2|10)\..*_proj", r".*mlp\.\w+", "lm_head|.*fc1",
                                               r"^(?!.*\.0\.).*_proj$", made_pattern(rng)])
        return config
    config["target_modules"] = sorted(rng.sample(names, rng.randint(1, 5)))
    if rng.random() < 0.7:
        config["layers_to_transform"] = rng.choice([0, 2, [1], [1, 2, 10], [], [3, 21]])
        if rng.random() < 0.6:
            config["layers_pattern"] = rng.choice(["layers", "h", ["blocks", "layers"], "model.layers", ["experts", "layers"]])
    return config


def scaling(config, module):
    """As peft's LoraModel and LoraLayer compute it."""
    rank = config.rank_pattern.get(get_pattern_key(config.rank_pattern.keys(), module), config.r)
    alpha = config.alpha_pattern.get(get_pattern_key(config.alpha_pattern.keys(), module), config.lora_alpha)
    return [rank, alpha / math.sqrt(rank) if config.use_rslora else alpha / rank]


def make_configs(rng):
    configs = []
    while len(configs) < 300:
        settings = made_config(rng)
        if isinstance(settings["target_modules"], str) and not compiles(settings["target_modules"]):
            continue
        config = peft.LoraConfig(**settings)
        linears = [scaling(config, module) if check_target_module_exists(config, module) else 0 for module in MODULES]
        written = {key: sorted(value) if isinstance(value, set) else value for key, value in config.to_dict().items()}
        # All keys in some of them; else those that say something.
        full = len(configs) < 5
        configs.append({"config": {key: value for key, value in written.items() if full or key in settings or key == "peft_type"},
                        "linears": linears})
    return {"modules": MODULES, "configs": configs}


def write(path, value):
    path.write_text(json.dumps(value, default=str, separators=(",", ":")).replace('{"pattern"', '\n{"pattern"').replace('{"config"', '\n{"config"') + "\n")


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    rng = random.Random(20)
    write(out / "patterns.json", make_patterns(rng))
    write(out / "configs.json", make_configs(rng))


if __name__ == "__main__":
    main()
