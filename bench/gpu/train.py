#!/usr/bin/env python3
"""Trains a Llama on a card, in turns with transformers + PyTorch in the same formats on as many tokens.

    train.py 33m|852m --trainer PROGRAM --device cuda --scratch FOLDER [--turns 2] [--compiled | --adapters]

Each turn is one run of ours and one of the peer's. A run's rate is the median of its steps after the first two (the
peer's: three). The first turn of ours has few steps; later ones as many as go into three seconds. --compiled: the
peer alone, with torch.compile. Both keep weights and moments in bf16 and nothing beside them; gradients of parameters
are fp32 here and bf16 there. After the turns ours runs once with masters and moments in fp32, its default, and once
without CUDA graphs. --adapters: ours alone, LoRA on the model and on its weights in NF4.
"""
import argparse
import statistics
import sys

from stage import BF16, HERE, MODELS, Stage, Trainer, has_torch, spread

PEAK_TFLOPS = "989.5"  # dense bf16 of H100 and H200 by their data sheets: what mfu is a part of
FIRST_STEPS = {"33m": 60, "852m": 3, "tiny": 3}
PEER_STEPS = {"33m": 60, "852m": 8, "tiny": 3}


def our_rates(trainer, name, flags, steps, environment=None):
    lines = trainer.train(name, [*flags, "--peak-tflops", PEAK_TFLOPS], steps + 2, least_s=15, environment=environment)
    if not lines:
        return None
    rates = [line["tokens_per_s"] for line in lines[2:]]
    trainer.stage.measure(f"{name}.run", tokens_per_s=rates, first_loss=lines[0]["loss"],
                          last_loss=lines[-1]["loss"], mfu=lines[-1].get("mfu"))
    return rates


def peer_rates(stage, options, name):
    _, batch, length, shape = MODELS[options.model]
    flags = ["--compile"] if options.compiled else []
    command = [sys.executable, HERE.parent / "trainer" / "peer_torch.py", "--shape", shape, "--batch", batch, "--length",
               length, "--steps", PEER_STEPS[options.model], "--warm-up", 3, "--dtype", "bf16", "--device",
               options.device, *flags]
    lines = stage.run(name, command, 20 if options.device == "cuda" else 5)
    if not lines:
        return None
    stage.measure(f"{name}.run", **lines[-1])
    return lines[-1]["tokens_per_s"]


def note(stage, name, runs, **values):
    if runs:
        stage.measure(name, unit="tokens/s", **spread([statistics.median(run) for run in runs]), **values)


def train_in_turns(stage, options, has_peer):
    trainer = Trainer(stage, options.trainer, options.device, options.scratch, options.model)
    if not trainer.prepare():
        return
    base = f"train.{options.model}"
    steps, ours, theirs = FIRST_STEPS[options.model], [], []
    tokens = trainer.batch * trainer.length
    for _ in range(options.turns):
        mine = our_rates(trainer, f"{base}.ours", BF16, steps)
        peer = peer_rates(stage, options, f"{base}.torch_eager") if has_peer else None
        ours += [mine] if mine else []
        theirs += [peer] if peer else []
        note(stage, f"{base}.ours", ours, tokens_a_step=tokens)
        note(stage, f"{base}.torch_eager", theirs, tokens_a_step=tokens)
        if mine and peer:
            ratio = statistics.median(mine) / statistics.median(peer)
            stage.measure(f"{base}.ratio", value=ratio, unit="of PyTorch eager")
        if mine:
            steps = max(FIRST_STEPS[options.model], min(200, int(3 * statistics.median(mine) / tokens)))
    masters = our_rates(trainer, f"{base}.ours_with_masters", ["--precision", "bf16"], FIRST_STEPS[options.model])
    note(stage, f"{base}.ours_with_masters", [masters] if masters else [], tokens_a_step=tokens)
    plain = our_rates(trainer, f"{base}.ours_without_graphs", BF16, FIRST_STEPS[options.model], {"ATOLL_GPU_GRAPHS": "off"})
    note(stage, f"{base}.ours_without_graphs", [plain] if plain else [], tokens_a_step=tokens)


def train_adapters(stage, options):
    trainer = Trainer(stage, options.trainer, options.device, options.scratch, options.model)
    if not trainer.prepare():
        return
    flags = ["--precision", "bf16", "--compute-dtype", "bf16", "--lora-rank", "16", "--lora-targets", "all-linear"]
    steps, base = 2 * FIRST_STEPS[options.model], f"train.{options.model}"
    rates = {}
    for kind, more in (("lora", []), ("qlora", ["--quantize", "nf4"])):
        rates[kind] = our_rates(trainer, f"{base}_{kind}.ours", [*flags, *more], steps)
        note(stage, f"{base}_{kind}.ours", [rates[kind]] if rates[kind] else [],
             tokens_a_step=trainer.batch * trainer.length)
    if all(rates.values()):
        part = statistics.median(rates["qlora"]) / statistics.median(rates["lora"])
        stage.measure(f"{base}_qlora.part_of_lora", value=part, unit="of LoRA")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--trainer", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--scratch", required=True)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--adapters", action="store_true")
    options = parser.parse_args()
    stage = Stage()
    if options.adapters:
        train_adapters(stage, options)
        stage.end()
    has_peer = has_torch()
    if not has_peer:
        stage.leave_out(f"train.{options.model}.torch", f"{sys.executable} has no torch and transformers")
    if not options.compiled:
        train_in_turns(stage, options, has_peer)
    elif has_peer:
        name = f"train.{options.model}.torch_compiled"
        rates = peer_rates(stage, options, name)
        note(stage, name, [rates] if rates else [])
    stage.end()


if __name__ == "__main__":
    main()
