"""How make_llama_goldens.py and make_opt_goldens.py write a case: a folder with config.json and golden.safetensors."""
import json

from safetensors.torch import save_file


def config_text(config, architecture):
    text = {key: value for key, value in config.to_dict().items() if key != "_attn_implementation"}
    text["architectures"] = [architecture]
    text["dtype"] = "float32"
    return text


def save_case(folder, text, tensors):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(text, indent=1, sort_keys=True, default=str) + "\n")
    save_file({key: value.contiguous() for key, value in tensors.items()}, folder / "golden.safetensors")
    print(folder.name, float(tensors["loss"]))
