#!/usr/bin/env python3
"""The peer of bench/trainer and bench/gpu: the same training step in transformers + PyTorch, on the CPU or a GPU.

Prints one JSON line: tokens_per_s of each measured step, peak memory (resident; on a GPU what PyTorch took of it),
versions. With --ranks N it runs FSDP2 over gloo, N processes of --threads threads each.

    peer_torch.py --shape llama33m --batch 4 --length 256 --steps 5 --threads 2
    peer_torch.py --shape llama33m --batch 2 --length 256 --steps 5 --threads 1 --ranks 2
    peer_torch.py --shape llama852m --batch 1 --length 2048 --steps 8 --dtype bf16 --device cuda --compile
"""
import argparse
import json
import os
import resource
import time

import torch
import transformers

SHAPES = {
    "llama33m": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=8000, hidden_size=512, intermediate_size=1376, num_hidden_layers=8, num_attention_heads=8,
        num_key_value_heads=8, max_position_embeddings=2048)),
    "llama852m": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=16, num_attention_heads=32,
        num_key_value_heads=8, max_position_embeddings=2048)),
    "opt125m": lambda: transformers.OPTForCausalLM(transformers.OPTConfig(dropout=0.0)),
    "demo": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=2000, hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=256)),
}


def build(arguments):
    torch.manual_seed(1)
    with torch.device(arguments.device):
        model = SHAPES[arguments.shape]()
    if arguments.dtype == "bf16":
        model = model.to(torch.bfloat16)
    if arguments.lora:
        import peft
        model = peft.get_peft_model(model, peft.LoraConfig(
            r=arguments.lora, lora_alpha=2 * arguments.lora,
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]))
    if arguments.ranks > 1:
        from torch.distributed.fsdp import fully_shard
        layers = model.model.layers if arguments.shape != "opt125m" else model.model.decoder.layers
        for layer in layers:
            fully_shard(layer)
        fully_shard(model)
    if arguments.compile:
        model.compile()
    return model


def peak_bytes(device):
    if device == "cuda":
        return torch.cuda.max_memory_reserved()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def train(rank, arguments):
    torch.set_num_threads(arguments.threads)
    if arguments.ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(arguments.port), GLOO_SOCKET_IFNAME="lo")
        torch.distributed.init_process_group("gloo", rank=rank, world_size=arguments.ranks)
    model = build(arguments)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, fused=arguments.fused)
    generator = torch.Generator().manual_seed(rank)
    vocabulary = model.config.vocab_size
    rates = []
    for step in range(arguments.warm_up + arguments.steps):
        ids = torch.randint(0, vocabulary, (arguments.batch, arguments.length), generator=generator)
        ids = ids.to(arguments.device)
        begin = time.perf_counter()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if arguments.device == "cuda":
            torch.cuda.synchronize()
        if step >= arguments.warm_up:
            tokens = arguments.batch * arguments.length * arguments.ranks
            rates.append(tokens / (time.perf_counter() - begin))
    if rank == 0:
        print(json.dumps({"tokens_per_s": [round(rate, 1) for rate in rates],
                          "peak_bytes": peak_bytes(arguments.device), "torch": torch.__version__,
                          "transformers": transformers.__version__}))
    if arguments.ranks > 1:
        torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="llama33m")
    parser.add_argument("--batch", type=int, default=4, help="rows a rank")
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2, help="a process")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--port", type=int, default=29571)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--compile", action="store_true", help="torch.compile; its time is in the first warm-up step")
    parser.add_argument("--lora", type=int, default=0, help="rank of the adapters; 0: full training")
    parser.add_argument("--no-fused", dest="fused", action="store_false", help="the default AdamW instead of the fused")
    arguments = parser.parse_args()
    if arguments.ranks == 1:
        return train(0, arguments)
    torch.multiprocessing.spawn(train, args=(arguments,), nprocs=arguments.ranks)


if __name__ == "__main__":
    main()
