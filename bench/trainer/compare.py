#!/usr/bin/env python3
"""Times atoll-trainer against transformers + PyTorch, in turns, and prints a table of ratios.

  compare.py [ROW…] --python PYTHON-WITH-TORCH [--trainer build/release/bin/atoll-trainer] [--repeats 5] [--busy-core]

Each repeat runs every row's own and its peer's program once, one after the other, so that both share whatever else the
machine does. A run is a few steps after two that are not counted; its rate is the median of its steps. Printed are the
medians over the repeats, the spread, the median of the ratios of each repeat and the peak resident memory of a rank.
--busy-core keeps one core busy meanwhile. OPENBLAS_* and OMP_* are taken out of the environment of both.
"""
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

LLAMA_33M = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 8000, "hidden_size": 512,
             "intermediate_size": 1376, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 8,
             "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
             "tie_word_embeddings": False, "torch_dtype": "float32"}
OPT_125M = {"architectures": ["OPTForCausalLM"], "model_type": "opt", "vocab_size": 50272, "hidden_size": 768,
            "ffn_dim": 3072, "num_hidden_layers": 12, "num_attention_heads": 12, "max_position_embeddings": 2048,
            "word_embed_proj_dim": 768, "do_layer_norm_before": True, "activation_function": "relu", "dropout": 0.0,
            "tie_word_embeddings": True, "torch_dtype": "float32"}
LORA = ["--lora-rank", "8", "--lora-alpha", "16", "--lora-targets", "all-linear"]
INSTRUCTION_SETS = {"avx2": {"ATOLL_INSTRUCTION_SET": "avx2", "OPENBLAS_CORETYPE": "Haswell"}}
OFFLOAD = ["--offload-optimizer", "nvme", "--offload-dir", "{directory}"]
# name: (config, rows a rank, length, ranks, flags of ours, flags of the peer; a tuple: our own program is the peer)
ROWS = {
    "llama33m": (LLAMA_33M, 4, 256, 1, ["--threads", "2"], ["--threads", "2"]),
    "llama33m-2-ranks": (LLAMA_33M, 2, 256, 2, ["--threads", "1", "--sharding", "full_shard"],
                         ["--threads", "1", "--ranks", "2"]),
    "opt125m": (OPT_125M, 1, 512, 1, ["--threads", "2"], ["--shape", "opt125m", "--threads", "2"]),
    "llama33m-bf16": (LLAMA_33M, 4, 256, 1, ["--threads", "2", "--precision", "bf16"], ("--threads", "2")),
    "llama33m-bf16-compute": (LLAMA_33M, 4, 256, 1,
                              ["--threads", "2", "--precision", "bf16", "--compute-dtype", "bf16"], ("--threads", "2")),
    "llama33m-bf16-moments": (LLAMA_33M, 4, 256, 1,
                              ["--threads", "2", "--precision", "bf16", "--moments-dtype", "bf16"], ("--threads", "2")),
    "llama33m-offload": (LLAMA_33M, 4, 256, 1, ["--threads", "2", *OFFLOAD], ("--threads", "2")),
    "llama33m-bf16-offload": (LLAMA_33M, 4, 256, 1, ["--threads", "2", "--precision", "bf16", *OFFLOAD],
                              ("--threads", "2", "--precision", "bf16")),
    "llama33m-feed-forward": (LLAMA_33M, 4, 256, 1, ["--threads", "2", "--activation-checkpointing", "feed-forward"],
                              ("--threads", "2")),
    "llama33m-selective": (LLAMA_33M, 4, 256, 1, ["--threads", "2", "--activation-checkpointing", "selective"],
                           ("--threads", "2")),
    "llama33m-all-but-attention": (LLAMA_33M, 4, 256, 1,
                                   ["--threads", "2", "--activation-checkpointing", "all-but-attention"],
                                   ("--threads", "2")),
    "llama33m-full": (LLAMA_33M, 4, 256, 1, ["--threads", "2", "--activation-checkpointing", "full"], ("--threads", "2")),
    "llama33m-lora": (LLAMA_33M, 4, 256, 1, ["--threads", "2", *LORA], ["--threads", "2", "--lora", "8"]),
    "llama33m-lora-int8": (LLAMA_33M, 4, 256, 1, ["--threads", "2", *LORA, "--quantize", "int8"],
                           ("--threads", "2", *LORA)),
    "llama33m-lora-nf4": (LLAMA_33M, 4, 256, 1, ["--threads", "2", *LORA, "--quantize", "nf4"],
                          ("--threads", "2", *LORA)),
}


def run(command, **variables):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENBLAS_", "OMP_"))}
    result = subprocess.run(command, env=kept | variables, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"failed: {' '.join(command)}\n{result.stderr[-2000:]}")
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


class Ours:
    """A model with random weights and random rows in a directory that goes away."""

    def __init__(self, options, directory, config, batch, length, ranks):
        trainer = options.trainer
        self.trainer, self.directory = trainer, pathlib.Path(directory)
        self.variables = INSTRUCTION_SETS[options.instruction_set] if options.instruction_set else {}
        self.batch, self.ranks = batch, ranks
        (self.directory / "config.json").write_text(json.dumps(config))
        self.write_rows(config["vocab_size"], 64, length)
        run([trainer, "init", "--config", str(self.directory / "config.json"), "--out", str(self.directory / "model")])

    def write_rows(self, vocabulary, rows, length):
        import random
        import struct
        draw = random.Random(1)
        data = struct.pack(f"<{rows * length}i", *(draw.randrange(vocabulary) for _ in range(rows * length)))
        header = json.dumps({"input_ids": {"dtype": "I32", "shape": [rows, length],
                                           "data_offsets": [0, len(data)]}}).encode()
        header += b" " * (-len(header) % 8)
        (self.directory / "rows.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)

    def rates(self, flags, steps):
        mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(self.ranks)]
        launch = mpirun if self.ranks > 1 else []
        flags = [flag.format(directory=self.directory) for flag in flags]
        lines = run([*launch, self.trainer, "train", "--model", str(self.directory / "model"), "--data",
                     str(self.directory / "rows.safetensors"), "--out", str(self.directory / "out"), "--overwrite", "--batch-size",
                     str(self.batch), "--steps", str(steps + 2), "--lr", "1e-3", *flags], **self.variables)
        measured = [line for line in lines if "step" in line and "tokens_per_s" in line][2:]
        return statistics.median(line["tokens_per_s"] for line in measured), measured[-1]["peak_bytes"]


def peer_rates(python, batch, length, flags, steps):
    line = run([python, str(HERE / "peer_torch.py"), "--batch", str(batch), "--length", str(length), "--steps",
                str(steps), *flags])[-1]
    return statistics.median(line["tokens_per_s"]), line["peak_bytes"]


@contextlib.contextmanager
def busy_core(wanted):
    spinner = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if wanted else None
    try:
        yield
    finally:
        if spinner:
            spinner.kill()
            spinner.wait()


def spread(values):
    return f"{statistics.median(values):.0f} ({min(values):.0f}–{max(values):.0f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; default: all")
    parser.add_argument("--python", required=True)
    parser.add_argument("--trainer", default=str(ROOT / "build/release/bin/atoll-trainer"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--busy-core", action="store_true")
    parser.add_argument("--instruction-set", choices=INSTRUCTION_SETS, help="for ours, products too; default: the widest")
    options = parser.parse_args()
    print("| work | ours tokens/s | peer tokens/s | ratio | ours peak MiB | peer peak MiB | memory |\n"
          "|---|---|---|---|---|---|---|", flush=True)
    for name in options.rows or ROWS:
        config, batch, length, ranks, flags, peer_flags = ROWS[name]
        with tempfile.TemporaryDirectory() as directory, busy_core(options.busy_core):
            ours = Ours(options, directory, config, batch, length, ranks)
            mine, theirs, ratios = [], [], []
            for _ in range(options.repeats):
                mine.append(ours.rates(flags, options.steps))
                theirs.append(ours.rates(peer_flags, options.steps) if isinstance(peer_flags, tuple)
                              else peer_rates(options.python, batch, length, peer_flags, options.steps))
                ratios.append(mine[-1][0] / theirs[-1][0])
            peaks = [max(peak for _, peak in samples) / 2**20 for samples in (mine, theirs)]
            print(f"| {name}{' (one core busy)' if options.busy_core else ''}"
                  f"{f' ({options.instruction_set})' if options.instruction_set else ''}"
                  f" | {spread([rate for rate, _ in mine])} | {spread([rate for rate, _ in theirs])}"
                  f" | {statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
                  f" | {peaks[0]:.0f} | {peaks[1]:.0f} | {peaks[0] / peaks[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
