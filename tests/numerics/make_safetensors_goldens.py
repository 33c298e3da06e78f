"""Makes tests/fixtures/safetensors: small model files as the reference writes them, one for each dtype.

Run with a Python that has torch and safetensors:
    python tests/numerics/make_safetensors_goldens.py
"""

import json
import pathlib

import safetensors.torch
import torch

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "safetensors"


def main() -> None:
    generator = torch.Generator().manual_seed(1)
    # Beside ordinary weights: subnormal and largest values, both zeros.
    corners = {
        torch.float32: [0.0, -0.0, 1e-45, -1e-39, 3.4028234e38, 1.1754944e-38],
        torch.float16: [0.0, -0.0, 5.9604645e-08, -6e-5, 65504.0, 6.1035e-05],
        torch.bfloat16: [0.0, -0.0, 9.2e-41, -1e-39, 3.3895314e38, 1.1754944e-38],
    }
    for dtype, values in corners.items():
        directory = FIXTURES / str(dtype).removeprefix("torch.")
        directory.mkdir(parents=True, exist_ok=True)
        tensors = {
            "model.embed_tokens.weight": torch.randn(5, 3, generator=generator).to(dtype),
            "model.norm.weight": torch.tensor(values, dtype=torch.float64).to(dtype),
            "lm_head.weight": torch.randn(7, generator=generator).mul(0.02).to(dtype),
        }
        safetensors.torch.save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
        values = {name: tensor.to(torch.float64).flatten().tolist() for name, tensor in tensors.items()}
        (directory / "values.json").write_text(json.dumps(values) + "\n")
        (directory / "config.json").write_text(json.dumps({"dtype": directory.name, "architectures": ["None"]}) + "\n")


if __name__ == "__main__":
    main()
