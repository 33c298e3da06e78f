#!/usr/bin/env python3
"""Makes the golden numbers of low-rank adapters with PyTorch, transformers and peft.

Usage: make_lora_goldens.py OUT_DIR ATOLL_TRAINER    (needs torch, transformers, peft, safetensors; written with torch
                                                      2.15, transformers 5.23 and peft 0.21.2, CPU, one thread, fp64)

The base is that of `atoll-trainer init --seed 3` with goldens/training/config.json (the same bits everywhere), the rows
are those of make_training_goldens.py. Writes
  adapter/              an adapter on every linear as peft saves it (fp32), with an A and a B that are not zero
  golden.safetensors    of the first four rows: "loss", "gradient:NAME" of each A and B; "merged:NAME" of two weights
                        after merge_and_unload
  steps.json            {"loss": [20], "grad_norm": [20]} of AdamW from that adapter
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import peft
import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy
from transformers import LlamaForCausalLM

from make_training_goldens import BATCH, ROWS, STEPS, VOCABULARY, rows

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
MERGED = ["model.layers.0.self_attn.k_proj.weight", "model.layers.1.mlp.down_proj.weight"]


def base(config, trainer):
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([trainer, "init", "--config", config, "--out", directory, "--seed", "3"], check=True)
        return LlamaForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager")


def make_adapter(config, trainer, out):
    """In fp32, so that everybody begins with the same bits."""
    torch.manual_seed(5)
    model = peft.get_peft_model(base(config, trainer), peft.LoraConfig(
        r=4, lora_alpha=8, target_modules=TARGETS, task_type="CAUSAL_LM"))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(out)
    (out / "README.md").unlink()
    settings = json.loads((out / "adapter_config.json").read_text())
    settings["base_model_name_or_path"] = "base"  # not the directory that this ran in
    settings["target_modules"] = sorted(settings["target_modules"])
    (out / "adapter_config.json").write_text(json.dumps(settings, indent=2) + "\n")


def loss_of(model, ids, labels):
    logits = model(input_ids=ids).logits
    return cross_entropy(logits[:, :-1].reshape(-1, VOCABULARY), labels[:, 1:].reshape(-1), ignore_index=-100)


def main():
    out, trainer = pathlib.Path(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    config = out.parent / "training" / "config.json"
    make_adapter(config, trainer, out / "adapter")
    model = peft.PeftModel.from_pretrained(base(config, trainer), out / "adapter", is_trainable=True).double()
    ids, labels = rows()
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert sorted(n.replace(".default", "") for n in trained) == sorted(
        load_file(str(out / "adapter" / "adapter_model.safetensors")))

    loss = loss_of(model, ids[:BATCH], labels[:BATCH])
    loss.backward()
    golden = {"loss": loss.detach().reshape(1).float()}
    for name, parameter in trained.items():
        golden["gradient:" + name.replace(".default", "")] = parameter.grad.float().contiguous()
    model.zero_grad()

    optimizer = torch.optim.AdamW(trained.values(), lr=5e-3, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.1)
    losses, norms = [], []
    for step in range(STEPS):
        at = [(step * BATCH + i) % ROWS for i in range(BATCH)]
        loss = loss_of(model, ids[at], labels[at])
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(trained.values(), 1.0)))
        losses.append(loss.item())
        optimizer.step()
    (out / "steps.json").write_text(json.dumps({"loss": losses, "grad_norm": norms}, indent=1) + "\n")

    merged = peft.PeftModel.from_pretrained(base(config, trainer), out / "adapter").double().merge_and_unload()
    weights = merged.state_dict()
    golden.update({"merged:" + name: weights[name].float().contiguous() for name in MERGED})
    save_file(golden, str(out / "golden.safetensors"))


main()
