"""The peer: averaging as the original experiment's script does it, with PyTorch. Needs torch and safetensors.

  peer_torch.py make DIR COUNT MIB      writes COUNT random fp16 models of MIB MiB each to DIR/in0, DIR/in1, …
  peer_torch.py average OUT DIR DIR…    loads them, averages in fp32, saves fp16
"""
import os
import sys

import torch
from safetensors.torch import load_file, save_file


def make(directory, count, mib):
    torch.manual_seed(0)
    rows = 4096
    tensors = max(1, mib // 16)
    for i in range(count):
        model = {f"layers.{j}.weight": (torch.randn(rows, 2048) * 0.02).half() for j in range(tensors)}
        path = os.path.join(directory, f"in{i}")
        os.makedirs(path, exist_ok=True)
        save_file(model, os.path.join(path, "model.safetensors"), metadata={"format": "pt"})
        with open(os.path.join(path, "config.json"), "w") as config:
            config.write("{}")


def average(out, directories):
    models = [load_file(os.path.join(directory, "model.safetensors")) for directory in directories]
    mean = {}
    for name in models[0]:
        mean[name] = torch.stack([model[name].float() for model in models]).mean(dim=0).half()
    os.makedirs(out, exist_ok=True)
    save_file(mean, os.path.join(out, "model.safetensors"), metadata={"format": "pt"})


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        average(sys.argv[2], sys.argv[3:])
