#!/usr/bin/env python3
"""Times PyTorch's causal attention, by cuDNN and by FlashAttention, on shapes of kernel_bench: what ours is held to.

    sdpa.py --device cuda [--small]
"""
import argparse
import statistics

from stage import Stage, has_torch

SHAPES = {"852m": (1, 32, 2048, 64), "7b": (1, 32, 4096, 128)}
SMALL = {"852m": (1, 4, 64, 16), "7b": (1, 4, 64, 32)}
CALLS = 15


def timed(torch, device, call):
    """Milliseconds of a call, by the device's clock where it is a card."""
    import time
    if device == "cpu":
        begin = time.perf_counter()
        call()
        return (time.perf_counter() - begin) * 1e3
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


def measure(stage, torch, device, name, shape, backend):
    batch, heads, length, channels = shape
    draw = {"dtype": torch.bfloat16, "device": device}
    q, k, v = (torch.randn(shape, requires_grad=True, **draw) for _ in range(3))
    gradient = torch.randn(shape, **draw)
    product = batch * heads * length * length * channels
    with torch.nn.attention.sdpa_kernel(backend):
        def forward():
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

        out = forward()
        calls = {"forward": (2 * product, forward),
                 "backward": (5 * product, lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True))}
        for direction, (operations, call) in calls.items():
            times = [timed(torch, device, call) for _ in range(CALLS + 3)][3:]
            ms = statistics.median(times)
            stage.measure(f"{name}_{direction}", ms=ms, TFLOP_per_s=operations / ms / 1e9)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", required=True)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    stage = Stage()
    if not has_torch():
        stage.leave_out("torch_sdpa", "there is no torch and transformers")
        stage.end()
    import torch
    backends = {"torch_cudnn": [torch.nn.attention.SDPBackend.CUDNN_ATTENTION],
                "torch_flash": [torch.nn.attention.SDPBackend.FLASH_ATTENTION]}
    if options.device == "cpu":
        backends = {"torch": [torch.nn.attention.SDPBackend.MATH]}
    for kind, backend in backends.items():
        for name, shape in (SMALL if options.small else SHAPES).items():
            try:
                measure(stage, torch, options.device, f"{kind}.attention_{name}", shape, backend)
            except RuntimeError as error:
                stage.fail(f"{kind}.attention_{name}", str(error)[:400])
    stage.end()


if __name__ == "__main__":
    main()
