#!/usr/bin/env python3
"""Makes the golden numbers of low-rank adapters with PyTorch, transformers and peft.

Usage: make_lora_goldens.py OUT_DIR ATOLL_TRAINER [CASE…]    (needs torch, transformers, peft, safetensors; written with torch
                                                      2.15, transformers 5.23 and peft 0.21.2, CPU, one thread, fp64)

The bases are those of `atoll-trainer init --seed 3` with goldens/training/config.json and goldens/training/opt/config.json
(the same bits everywhere), the rows are those of make_training_goldens.py. Writes into OUT_DIR, and into OUT_DIR/opt,
  adapter/              an adapter on every linear but a tied head as peft saves it (fp32), with an A and a B that are
                        not zero
  golden.safetensors    of the first four rows: "loss", "gradient:NAME" of each A and B; "merged:NAME" of two weights
                        after merge_and_unload
  steps.json            {"loss": [20], "grad_norm": [20]} of AdamW from that adapter
  steps_dropout.json    the same with peft's lora_dropout at 0.25, where what is dropped is what atoll-trainer drops with
                        --seed 7
and into OUT_DIR/heads and OUT_DIR/opt/heads the same of models whose head is not tied, with adapters on the heads too;
config.json there is theirs. OUT_DIR/rslora, patterns, regex and layers are adapters of the Llama that only peft's files
describe, by other keys than those of plain LoRA; golden.safetensors has their "logits" of the first four rows as well.
OUT_DIR/rslora/bin is that adapter as torch.save writes it.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import peft
import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy
from transformers import LlamaForCausalLM, OPTForCausalLM

from make_training_goldens import BATCH, LENGTH, ROWS, STEPS, VOCABULARY, rows

LLAMA = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
OPT = ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2", "project_in", "project_out"]
CASES = {  # directory: (model, linears, weights whose merged values are kept)
    "": (LlamaForCausalLM, LLAMA, ["model.layers.0.self_attn.k_proj.weight", "model.layers.1.mlp.down_proj.weight"]),
    "heads": (LlamaForCausalLM, [*LLAMA, "lm_head"], ["lm_head.weight"]),
    "opt": (OPTForCausalLM, OPT, ["model.decoder.layers.0.self_attn.v_proj.weight",
                                  "model.decoder.layers.1.fc2.weight"]),
    "opt/heads": (OPTForCausalLM, [*OPT, "lm_head"], ["lm_head.weight", "model.decoder.project_in.weight"]),
}
PEFT_CASES = {  # directory: (what peft.LoraConfig is told, weights whose merged values are kept)
    "rslora": (dict(target_modules=LLAMA, use_rslora=True),
               ["model.layers.0.self_attn.q_proj.weight", "model.layers.1.mlp.down_proj.weight"]),
    "patterns": (dict(target_modules=LLAMA, use_rslora=True, rank_pattern={"k_proj": 2, r"layers\.1\.mlp\..*": 7, "o_proj": 1},
                      alpha_pattern={"v_proj": 3, "^model.layers.0.mlp.up_proj": 16.5}),
                 ["model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.v_proj.weight",
                  "model.layers.1.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight"]),
    "regex": (dict(target_modules=r"^(?!.*layers\.0\.mlp).*\.(?:q|v|up|down)_proj"),
              ["model.layers.0.self_attn.v_proj.weight", "model.layers.1.mlp.up_proj.weight",
               "model.layers.0.mlp.up_proj.weight"]),
    "layers": (dict(target_modules=["q_proj", "gate_proj", "model.layers.0.mlp.down_proj", "not_there"], layers_to_transform=[1],
                    layers_pattern="layers"),
               ["model.layers.1.self_attn.q_proj.weight", "model.layers.0.self_attn.q_proj.weight",
                "model.layers.0.mlp.down_proj.weight"]),
}
DROPOUT, SEED = 0.25, 7


def base(kind, config, trainer):
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([trainer, "init", "--config", config, "--out", directory, "--seed", "3"], check=True)
        return kind.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager")


def make_adapter(model, settings, out):
    """In fp32, so that everybody begins with the same bits."""
    torch.manual_seed(5)
    model = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=8, task_type="CAUSAL_LM", **settings))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(out)
    (out / "README.md").unlink()
    settings = json.loads((out / "adapter_config.json").read_text())
    settings["base_model_name_or_path"] = "base"  # not the directory that this ran in
    if isinstance(settings["target_modules"], list):
        settings["target_modules"].sort()
    (out / "adapter_config.json").write_text(json.dumps(settings, indent=2) + "\n")


def philox(stream, first, count):
    """Words first … first + count of Philox 4x32-10 with the key SEED: trainer/kernels/cpu/random.inl."""
    low = numpy.uint64(0xffffffff)
    blocks = numpy.arange(first // 4, (first + count + 3) // 4, dtype=numpy.uint64)
    words = [blocks & low, blocks >> numpy.uint64(32), numpy.full_like(blocks, stream & 0xffffffff),
             numpy.full_like(blocks, stream >> 32)]
    key = [SEED & 0xffffffff, SEED >> 32]
    for _ in range(10):
        a, b = numpy.uint64(0xD2511F53) * words[0], numpy.uint64(0xCD9E8D57) * words[2]
        words = [(b >> numpy.uint64(32)) ^ words[1] ^ numpy.uint64(key[0]), b & low,
                 (a >> numpy.uint64(32)) ^ words[3] ^ numpy.uint64(key[1]), a & low]
        key = [(key[0] + 0x9E3779B9) & 0xffffffff, (key[1] + 0xBB67AE85) & 0xffffffff]
    return numpy.stack(words, 1).reshape(-1)[first % 4:first % 4 + count]


class Dropout(torch.nn.Module):
    """lora_dropout that drops what atoll-trainer drops: by the linear's name and by where a row stands in the training."""

    first_row = 0

    def __init__(self, name):
        super().__init__()
        self.stream = 0xcbf29ce484222325  # FNV-1a
        for byte in name.encode():
            self.stream = (self.stream ^ byte) * 0x100000001b3 % 2**64

    def forward(self, x):
        words = philox(self.stream, Dropout.first_row * LENGTH * x.shape[-1], x.numel())
        kept = torch.from_numpy((words >= round(DROPOUT * 2**32)).reshape(tuple(x.shape)))
        return x * kept / (1 - DROPOUT)


def drop(model):
    prefix = "base_model.model."
    for name, module in model.named_modules():
        if hasattr(module, "lora_dropout"):
            assert name.startswith(prefix)
            module.lora_dropout["default"] = Dropout(name[len(prefix):])
    return model


def loss_of(model, ids, labels):
    logits = model(input_ids=ids).logits
    return cross_entropy(logits[:, :-1].reshape(-1, VOCABULARY), labels[:, 1:].reshape(-1), ignore_index=-100)


def steps_of(model):
    ids, labels = rows()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=5e-3, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.1)
    losses, norms = [], []
    for step in range(STEPS):
        Dropout.first_row = step * BATCH
        at = [(step * BATCH + i) % ROWS for i in range(BATCH)]
        loss = loss_of(model, ids[at], labels[at])
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(trained, 1.0)))
        losses.append(loss.item())
        optimizer.step()
    return json.dumps({"loss": losses, "grad_norm": norms}, indent=1) + "\n"


def write_bin(out):
    """The adapter as older versions of peft saved it."""
    (out / "bin").mkdir(exist_ok=True)
    (out / "bin" / "adapter_config.json").write_text((out / "adapter" / "adapter_config.json").read_text())
    torch.save(load_file(str(out / "adapter" / "adapter_model.safetensors")), out / "bin" / "adapter_model.bin")


def make_case(kind, settings, merged, config, trainer, out, with_logits=False):
    out.mkdir(exist_ok=True)
    make_adapter(base(kind, config, trainer), settings, out / "adapter")

    def adapted():
        return peft.PeftModel.from_pretrained(base(kind, config, trainer), out / "adapter", is_trainable=True).double()

    model = adapted()
    ids, labels = rows()
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    saved = load_file(str(out / "adapter" / "adapter_model.safetensors"))  # with an adapted head the base's own too
    assert {n.replace(".default", "") for n in trained} == {n for n in saved if ".base_layer." not in n}
    loss = loss_of(model, ids[:BATCH], labels[:BATCH])
    loss.backward()
    golden = {"loss": loss.detach().reshape(1).float()}
    if with_logits:
        golden["logits"] = model(input_ids=ids[:BATCH]).logits.detach().float().contiguous()
    for name, parameter in trained.items():
        golden["gradient:" + name.replace(".default", "")] = parameter.grad.float().contiguous()
    weights = adapted().merge_and_unload().state_dict()
    golden.update({"merged:" + name: weights[name].float().contiguous() for name in merged})
    save_file(golden, str(out / "golden.safetensors"))

    (out / "steps.json").write_text(steps_of(adapted()))
    (out / "steps_dropout.json").write_text(steps_of(drop(adapted())))


def config_of(directory, training, out):
    if not directory.endswith("heads"):
        return training / directory / "config.json"
    (out / directory).mkdir(exist_ok=True)
    config = json.loads((training / directory.removesuffix("heads") / "config.json").read_text())
    config["tie_word_embeddings"] = False
    path = out / directory / "config.json"
    path.write_text(json.dumps(config, indent=1) + "\n")
    return path


def main():
    out, trainer, wanted = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    torch.set_num_threads(1)
    for directory, (kind, targets, merged) in CASES.items():
        if not wanted or directory in wanted:
            make_case(kind, {"target_modules": targets}, merged, config_of(directory, out.parent / "training", out), trainer,
                      out / directory)
    for directory, (settings, merged) in PEFT_CASES.items():
        if not wanted or directory in wanted:
            make_case(LlamaForCausalLM, settings, merged, out.parent / "training" / "config.json", trainer, out / directory, True)
            if directory == "rslora":
                write_bin(out / directory)


if __name__ == "__main__":
    main()
