#!/usr/bin/env python3
"""Times how atoll-trainer saves and loads a state of a gigabyte, in turns with another build of it and with `cp` and
fsync of as many bytes, and prints a line for each.

  state_compare.py --trainer build/release/bin/atoll-trainer [--before OTHER-TRAINER] [--mpirun tests/mpirun.sh]
                   [--dir DIRECTORY] [--ranks 1,2,4] [--repeats 5]

What a save costs a run is the time between two step lines beyond the step's own (rows × tokens ÷ tokens_per_s), and
beyond the median of the steps without a save. With --save-async on, that of all steps until the state is there counts,
and how much longer those steps themselves take beside the writing is a column of its own. What loading costs is the time
until the first step line of a run with --resume, beyond that of a run which begins anew. Medians over the repeats, with
the smallest and the largest.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

MODEL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 8000, "hidden_size": 768,
         "intermediate_size": 2048, "num_hidden_layers": 10, "num_attention_heads": 12, "num_key_value_heads": 12,
         "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
         "tie_word_embeddings": False, "torch_dtype": "float32"}
ROWS, LENGTH, GLOBAL_BATCH = 64, 16, 4
AT_ONCE, ASIDE = 4, 10  # the step after which a state is saved; a run ends before it would be saved again


def make_inputs(trainer, directory):
    (directory / "config.json").write_text(json.dumps(MODEL))
    numbers = random.Random(1)
    ids = struct.pack(f"<{ROWS * LENGTH}i", *(numbers.randrange(MODEL["vocab_size"]) for _ in range(ROWS * LENGTH)))
    header = json.dumps({"input_ids": {"dtype": "I32", "shape": [ROWS, LENGTH], "data_offsets": [0, len(ids)]}}).encode()
    (directory / "data.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + ids)
    subprocess.run([trainer, "init", "--config", directory / "config.json", "--out", directory / "model"], check=True)


class Run:
    """A training, with the time at which each of its step lines came."""

    def __init__(self, options, trainer, ranks, steps, flags):
        command = ([options.mpirun, str(ranks)] if ranks > 1 else []) + [
            trainer, "train", "--model", "model", "--data", "data.safetensors", "--out", "out", "--threads", "1",
            "--global-batch-size", str(GLOBAL_BATCH), "--sharding", "full_shard", "--steps", str(steps), *flags]
        began = time.monotonic()
        self.lines, self.at = [], []
        with subprocess.Popen([str(part) for part in command], cwd=options.dir, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                if line.startswith('{"step"'):
                    self.lines.append(json.loads(line))
                    self.at.append(time.monotonic() - began)
        if process.returncode != 0:
            sys.exit(f"failed: {command}")

    def step_s(self, step):
        return GLOBAL_BATCH * LENGTH / self.lines[step - 1]["tokens_per_s"]

    # Between the line of a step and the next one's, without that one's own time.
    def pause_s(self, step):
        return self.at[step] - self.at[step - 1] - self.step_s(step + 1)


def clear(options):
    for name in ("out", "out.state"):
        shutil.rmtree(options.dir / name, ignore_errors=True)


def measure_save(options, trainer, ranks, every, flags=()):
    clear(options)
    run = Run(options, trainer, ranks, 2 * every - 1, ["--save-every", every, *flags])
    quiet, after = range(2, every), range(every, 2 * every - 1)
    pause = sum(run.pause_s(step) for step in after) - len(after) * statistics.median(run.pause_s(s) for s in quiet)
    usual_s = statistics.median(run.step_s(step) for step in quiet)
    return pause, sum(run.step_s(step + 1) - usual_s for step in after)


def measure_load(options, trainer, ranks):
    clear(options)
    fresh = Run(options, trainer, ranks, AT_ONCE, ["--time-limit", 0.000001])
    files = list((options.dir / "out.state").iterdir())
    size = sum(file.stat().st_size for file in files)
    resumed = Run(options, trainer, ranks, AT_ONCE, ["--time-limit", 0.000001, "--resume"])
    return resumed.at[0] - resumed.step_s(1) - (fresh.at[0] - fresh.step_s(1)), size


def measure_copy(options, size):
    source, target = options.dir / "source", options.dir / "target"
    if not source.exists() or source.stat().st_size != size:
        source.write_bytes(random.Random(1).randbytes(1 << 20) * (size >> 20) + bytes(size & ((1 << 20) - 1)))
    target.unlink(missing_ok=True)
    began = time.monotonic()
    subprocess.run(["cp", source, target], check=True)
    descriptor = os.open(target, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    return time.monotonic() - began


def text(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def measure(options, ranks):
    builds = {"now": options.trainer} | ({"before": options.before} if options.before else {})
    times = {}
    for _ in range(options.repeats):
        for build, trainer in builds.items():
            times.setdefault(build + " save", []).append(measure_save(options, trainer, ranks, AT_ONCE)[0])
            load, size = measure_load(options, trainer, ranks)
            times.setdefault(build + " load", []).append(load)
        pause, slower = measure_save(options, options.trainer, ranks, ASIDE, ["--save-async", "on"])
        times.setdefault("async", []).append(pause)
        times.setdefault("async slower steps", []).append(slower)
        times.setdefault("cp", []).append(measure_copy(options, size))
    return {name: text(values) for name, values in times.items()} | {"size": f"{size / 1e9:.2f} GB"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", required=True, type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--before", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--mpirun", default=pathlib.Path(__file__).resolve().parents[2] / "tests/mpirun.sh")
    parser.add_argument("--dir", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()))
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    options.dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.dir) as scratch:
        options.dir = pathlib.Path(scratch)
        make_inputs(options.trainer, options.dir)
        for ranks in (int(count) for count in options.ranks.split(",")):
            for name, value in measure(options, ranks).items():
                print(f"{ranks} ranks | {name:20} | {value}", flush=True)


if __name__ == "__main__":
    main()
