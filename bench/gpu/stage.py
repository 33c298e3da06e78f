"""What the Python stages of run.sh share: their limit, their measures, the models that they train.

A stage finds in its environment what stages.sh promises: STAGE_LIMIT_S, STAGE_ENDS_MS, STAGE_MEASURES, STAGE_WHY.
"""
import importlib.util
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "trainer"))
from compare import LLAMA_33M  # noqa: E402

IN_PART = 75
MARGIN_S = 4  # of a limit, for ending a run and for writing down what it measured

LLAMA_852M = LLAMA_33M | {"vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 16,
                          "num_attention_heads": 32, "num_key_value_heads": 8}
LLAMA_TINY = LLAMA_33M | {"vocab_size": 2000, "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 4,
                          "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 256}
# name: config, rows a step, tokens a row, the peer's name of the shape
MODELS = {"33m": (LLAMA_33M, 8, 256, "llama33m"), "852m": (LLAMA_852M, 1, 2048, "llama852m"),
          "tiny": (LLAMA_TINY, 2, 64, "demo")}
# As the peer's: weights, moments and activations in bf16, no masters. (Gradients of parameters are fp32 here.)
BF16 = ["--precision", "bf16", "--masters", "none", "--moments-dtype", "bf16", "--compute-dtype", "bf16"]


class Stage:
    """Its limit, what it measured and what it left out."""

    def __init__(self):
        limit_s = float(os.environ.get("STAGE_LIMIT_S", "600"))
        self.ends_s = min(time.time() + limit_s, float(os.environ.get("STAGE_ENDS_MS", "inf")) / 1000)
        self.left_out = []
        self.failed = False

    def left_s(self):
        return self.ends_s - time.time() - MARGIN_S

    def measure(self, name, **values):
        line = json.dumps({"name": name} | values)
        print(line, flush=True)
        if path := os.environ.get("STAGE_MEASURES"):
            with open(path, "a", encoding="utf-8") as file:
                file.write(line + "\n")

    def leave_out(self, name, why):
        self.measure(name, left_out=why)
        self.left_out.append(f"{name}: {why}")
        self.explain("; ".join(self.left_out))

    def fail(self, name, why):
        self.failed = True
        self.measure(name, failed=why)

    def explain(self, text):
        print(text, file=sys.stderr, flush=True)
        if path := os.environ.get("STAGE_WHY"):
            pathlib.Path(path).write_text(text, encoding="utf-8")

    def end(self):
        sys.exit(1 if self.failed else IN_PART if self.left_out else 0)

    def run(self, name, command, least_s=5, environment=None):
        """The JSON lines that a command prints; None where it failed, or had too little time, which is noted."""
        limit = self.left_s()
        if limit < least_s:
            self.leave_out(name, f"{max(limit, 0):.0f} s were left, and it takes {least_s} at least")
            return None
        print("$", " ".join(map(str, command)), flush=True)
        try:
            result = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=limit,
                                    env=environment, check=False)
        except subprocess.TimeoutExpired:
            self.leave_out(name, f"it was not done after {limit:.0f} s")
            return None
        if result.returncode != 0:
            self.fail(name, f"exit {result.returncode}: {(result.stderr or result.stdout).strip()[-800:]}")
            return None
        return json_lines(result.stdout)


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def trainer_environment():
    """Of our own programs: the bundle's libraries come first, which a Python beside them must not see."""
    libraries = os.environ.get("ATOLL_GPU_LIBRARIES", "")
    return os.environ | ({"LD_LIBRARY_PATH": libraries} if libraries else {})


def has_torch():
    return importlib.util.find_spec("torch") is not None and importlib.util.find_spec("transformers") is not None


def write_rows(path, ids, length):
    data = struct.pack(f"<{len(ids)}i", *ids)
    header = json.dumps({"input_ids": {"dtype": "I32", "shape": [len(ids) // length, length],
                                       "data_offsets": [0, len(data)]}}).encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


class Trainer:
    """atoll-trainer with a model of random weights, made once, and rows of random tokens."""

    def __init__(self, stage, program, device, scratch, model):
        self.stage, self.program, self.device, self.model = stage, program, device, model
        self.config, self.batch, self.length, self.shape = MODELS[model]
        self.directory = pathlib.Path(scratch) / f"model-{model}"
        self.directory.mkdir(parents=True, exist_ok=True)

    def prepare(self):
        """Whether the model is there."""
        if (self.directory / "model" / "config.json").exists():
            return True
        config = self.directory / "config.json"
        config.write_text(json.dumps(self.config | {"torch_dtype": "bfloat16"}))
        self.rows(64, self.length)
        return self.stage.run(f"init.{self.model}", [self.program, "init", "--config", config, "--out",
                                                     self.directory / "model"], 5, trainer_environment()) is not None

    def rows(self, count, length):
        path = self.directory / f"rows-{count}-{length}.safetensors"
        if not path.exists():
            draw = random.Random(1)
            write_rows(path, [draw.randrange(self.config["vocab_size"]) for _ in range(count * length)], length)
        return path

    def command(self, verb, flags, batch=None, data=None):
        return [self.program, verb, "--model", self.directory / "model", "--data",
                data or self.rows(64, self.length), "--batch-size", str(batch or self.batch), "--device", self.device,
                *flags]

    def train(self, name, flags, steps, batch=None, data=None, least_s=5, environment=None):
        """The lines of its steps; None where there are none, which is noted."""
        command = self.command("train", ["--out", self.directory / "out", "--overwrite", "--steps", str(steps), "--lr",
                                         "1e-3", *flags], batch, data)
        lines = self.stage.run(name, command, least_s, trainer_environment() | (environment or {}))
        return None if lines is None else [line for line in lines if "step" in line and "tokens_per_s" in line]

    def plan(self, name, flags, batch=None, data=None):
        lines = self.stage.run(name, self.command("plan", ["--steps", "1", *flags], batch, data), 2,
                               trainer_environment())
        return lines[-1] if lines else None


def spread(values):
    return {"value": statistics.median(values), "min": min(values), "max": max(values), "all": values}
