#!/usr/bin/env python3
"""Makes the golden numbers of adapters on a quantised base with bitsandbytes, transformers and peft, on the CPU.

Usage: make_qlora_goldens.py OUT_DIR ATOLL_TRAINER    (needs torch, transformers, peft, bitsandbytes, safetensors;
                                                       written with torch 2.15, transformers 5.23, peft 0.21.2 and
                                                       bitsandbytes 0.50.2, one thread)

The base is that of `atoll-trainer init --seed 3` with OUT_DIR/config.json (rows of matrices are multiples of 64: where
they are not, bitsandbytes' CPU kernel for dequantize_4bit gives other values), the rows are those of
make_training_goldens.py. Writes
  adapter/           an adapter on every linear as peft saves it (fp32), with an A and a B that are not zero
  steps_nf4.json     {"loss": [20], "grad_norm": [20]} of AdamW on it, in fp64, on what bitsandbytes' quantize_4bit
                     (nf4, double quantisation) and dequantize_4bit leave of the layers' matrices
  steps_int8.json    the same with its int8_vectorwise_quant and int8_vectorwise_dequant: weights alone, while
                     LLM.int8() quantises activations as well
It also trains on bitsandbytes' own Linear4bit modules in fp32 and checks that their losses are those of steps_nf4.json.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import bitsandbytes.functional as bnb
import peft
import torch
from torch.nn.functional import cross_entropy
from transformers import BitsAndBytesConfig, LlamaForCausalLM

from make_lora_goldens import make_adapter
from make_training_goldens import BATCH, ROWS, STEPS, VOCABULARY, rows

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def base(directory, **options):
    return LlamaForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager", **options)


def exact_scales(weight, state):
    """The CPU kernel for fp32 may be one code off next to a tie; that for fp64 is exact, as the CUDA kernel is."""
    blocks = weight.reshape(-1, 64).abs().amax(1) - state.offset
    exact, _ = torch.ops.bitsandbytes.quantize_blockwise(blocks.double(), state.state2.code, 256)
    assert (exact.flatten().int() - state.absmax.flatten().int()).abs().max() <= 1
    state.absmax = exact.view_as(state.absmax)


def through_nf4(weight):
    codes, state = bnb.quantize_4bit(weight, blocksize=64, quant_type="nf4", compress_statistics=True)
    exact_scales(weight, state)
    return bnb.dequantize_4bit(codes, state)


def through_int8(weight):
    codes, magnitudes, _ = torch.ops.bitsandbytes.int8_vectorwise_quant(weight)
    return bnb.int8_vectorwise_dequant(codes, magnitudes).view_as(weight)


def quantized(model, through):
    for name, module in model.named_modules():
        if name.split(".")[-1] in TARGETS:
            module.weight.data = through(module.weight.data.contiguous()).float()
    return model


def losses_of(model):
    ids, labels = rows()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=5e-3, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.1)
    losses, norms = [], []
    for step in range(STEPS):
        at = [(step * BATCH + i) % ROWS for i in range(BATCH)]
        logits = model(input_ids=ids[at]).logits
        loss = cross_entropy(logits[:, :-1].reshape(-1, VOCABULARY), labels[at][:, 1:].reshape(-1), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(trained, 1.0)))
        losses.append(loss.item())
        optimizer.step()
    return {"loss": losses, "grad_norm": norms}


def main():
    out, trainer = pathlib.Path(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([trainer, "init", "--config", out / "config.json", "--out", directory, "--seed", "3"], check=True)
        make_adapter(base(directory), TARGETS, out / "adapter")

        def adapted(model):
            return peft.PeftModel.from_pretrained(model, out / "adapter", is_trainable=True)

        steps = {name: losses_of(adapted(quantized(base(directory), through)).double())
                 for name, through in {"nf4": through_nf4, "int8": through_int8}.items()}
        for name, numbers in steps.items():
            (out / f"steps_{name}.json").write_text(json.dumps(numbers, indent=1) + "\n")
        modules = base(directory, device_map="cpu", quantization_config=BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.float32))
        weights = base(directory).state_dict()
        for name, module in modules.named_modules():
            if name.split(".")[-1] in TARGETS:
                exact_scales(weights[name + ".weight"], module.weight.quant_state)
        own = losses_of(adapted(modules).train())  # in eval() the modules go to bf16
        worst = max(abs(a / b - 1) for a, b in zip(own["loss"], steps["nf4"]["loss"]))
        print(f"Linear4bit in fp32 against fp64: {worst:.1e}", file=sys.stderr)
        assert worst < 1e-5


main()
