#!/usr/bin/env python3
"""Makes the golden codes of quantised matrices with bitsandbytes, on the CPU.

Usage: make_quant_goldens.py OUT_DIR    (needs torch, bitsandbytes, safetensors; written with torch 2.15 and
                                         bitsandbytes 0.50.2)

The matrix follows a formula that trainer/quant/quant_test.cpp repeats: exact in fp32, every code occurs, rows of
unequal size, one block of zeros, 322 blocks of 64 (so that their magnitudes make two blocks of 256, the last one short)
and a last block of 32 elements. bitsandbytes' CPU kernel for dequantize_4bit gives other values where rows are no
multiple of 64 (48 x 96, say), so the factor of each block is stored here instead of the values. Its CPU kernel for fp32
in quantize_blockwise is one code off next to a tie; fp64 takes the library's exact path, which is what its CUDA kernel
computes as well.
"""

import pathlib
import sys

import bitsandbytes.functional as bnb
import torch
from safetensors.torch import save_file

ROWS, COLUMNS = 215, 96


def matrix():
    index = torch.arange(ROWS * COLUMNS, dtype=torch.int64)
    mixed = (index * 2654435761 + (index // 7) * 40503) % (1 << 24)
    values = (mixed - (1 << 23)).float() * 2.0**-26
    values[64:128] = 0
    return values.view(ROWS, COLUMNS) * torch.pow(2.0, torch.arange(ROWS) % 5 - 3.0)[:, None]


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    weight = matrix()
    codes, state = bnb.quantize_4bit(weight, blocksize=64, quant_type="nf4", compress_statistics=True)
    blocks = torch.cat([weight.flatten(), torch.zeros(-weight.numel() % 64)]).view(-1, 64)
    scales, magnitudes = torch.ops.bitsandbytes.quantize_blockwise(
        (blocks.abs().amax(1) - state.offset).double(), state.state2.code, 256)
    assert (scales.int() - state.absmax.flatten().int()).abs().max() <= 1
    factors = torch.ops.bitsandbytes.dequantize_blockwise(
        scales, magnitudes, state.state2.code, 256, torch.float32) + state.offset
    rows, row_magnitudes, _ = torch.ops.bitsandbytes.int8_vectorwise_quant(weight)
    save_file({
        "nf4.codes": codes.flatten().contiguous(),
        "nf4.scales": scales.contiguous(),
        "nf4.magnitudes": magnitudes.float().contiguous(),
        "nf4.mean": state.offset.reshape(1).float(),
        "nf4.factors": factors.float().flatten().contiguous(),
        "dynamic": state.state2.code.float().contiguous(),
        "nf4.code": state.code.float().contiguous(),
        "int8.codes": rows.flatten().contiguous(),
        "int8.magnitudes": row_magnitudes.contiguous(),
    }, str(out / "golden.safetensors"))


main()
