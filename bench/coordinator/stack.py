"""What the benchmarks of the coordinator share: a stack of their own, a tiny model, sites that are never reached."""
import http.client
import json
import math
import os
import struct
import subprocess
import sys
import urllib.parse


class Stack:
    """A coordinator of this machine on free ports, with an administrator's token; down() deletes it."""

    def __init__(self, programs, state):
        self.atoll = os.path.join(programs, "atoll")
        self.state = state
        subprocess.run([self.atoll, "up", "--port-base", "0", "--state", self.state], check=True)
        with open(os.path.join(self.state, "stack.json")) as file:
            self.description = json.load(file)
        with open(os.path.join(self.state, "tokens", "admin.token")) as file:
            self.token = file.read().strip()
        self.gateway = http.client.HTTPConnection(urllib.parse.urlparse(self.description["gateway"]).netloc)

    def text(self, method, path, body=None):
        headers = {"Authorization": "Bearer " + self.token, "Content-Type": "application/json"}
        self.gateway.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = self.gateway.getresponse()
        text = answer.read().decode()
        if answer.status >= 300:
            sys.exit(f"{method} {path}: {answer.status} {text}")
        return text

    def call(self, method, path, body=None):
        return json.loads(self.text(method, path, body))

    def run(self, *arguments):
        subprocess.run([self.atoll, *arguments, "--state", self.state], check=True, stdout=subprocess.DEVNULL)

    def sql(self, script):
        command = ["psql", "-qAt", "-v", "ON_ERROR_STOP=1", self.description["postgres"]]
        environment = dict(os.environ, PGOPTIONS="-c search_path=dispatch")
        return subprocess.run(command, input=script, env=environment, text=True, check=True, capture_output=True).stdout

    def down(self):
        subprocess.run([self.atoll, "down", "--delete", "--yes", "--cancel-jobs", "--state", self.state], check=True)


HIDDEN, INNER, HEADS, HEAD_DIM = 64, 96, 2, 32


def tensors_of(rows):
    """Names and shapes of the tensors of a Llama of one layer, by file: embedding and layer, head."""
    layer, heads = "model.layers.0.", HEADS * HEAD_DIM
    first = {"model.embed_tokens.weight": [rows, HIDDEN], "model.norm.weight": [HIDDEN]}
    first |= {layer + f"self_attn.{name}_proj.weight": [heads, HIDDEN] for name in "qkv"}
    first |= {layer + "self_attn.o_proj.weight": [HIDDEN, heads], layer + "mlp.down_proj.weight": [HIDDEN, INNER]}
    first |= {layer + f"mlp.{name}_proj.weight": [INNER, HIDDEN] for name in ("gate", "up")}
    first |= {layer + f"{name}_layernorm.weight": [HIDDEN] for name in ("input", "post_attention")}
    return [first, {"lm_head.weight": [rows, HIDDEN]}]


def make_model(directory, rows=32, values=bytes):
    """A model directory of two safetensors files; values(count) gives as many bytes of fp32 numbers."""
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "config.json"), "w") as file:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": rows,
                   "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": 1,
                   "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "head_dim": HEAD_DIM,
                   "max_position_embeddings": 2048, "tie_word_embeddings": False}, file)
    weight_map, shards = {}, tensors_of(rows)
    for i, tensors in enumerate(shards):
        name = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        header, end = {}, 0
        for tensor, shape in tensors.items():
            begin, end = end, end + 4 * math.prod(shape)
            header[tensor] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
            weight_map[tensor] = name
        head = json.dumps(header).encode()
        with open(os.path.join(directory, name), "wb") as file:
            file.write(struct.pack("<Q", len(head)) + head)
            for begin in range(0, end, 1 << 20):
                file.write(values(min(1 << 20, end - begin)))
    with open(os.path.join(directory, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {}, "weight_map": weight_map}, file)


def prepare(stack, sites):
    """Model tiny, dataset it, and that many facilities with a version of it each, which are left alone for an hour."""
    make_model(os.path.join(stack.state, "model"))
    stack.run("model", "push", "tiny", os.path.join(stack.state, "model"), "--tag", "base")
    stack.call("POST", "/registry/v1/datasets",
               {"name": "it", "language": "it", "license": "CC0-1.0", "template": "{{text}}"})
    counts = {"documents": 10, "rows": 100, "tokens": 5000}
    for i in range(sites):
        name = f"site-{i}"
        stack.call("POST", "/dispatch/v1/facilities",
                   {"name": name, "transport": {"kind": "local"}, "batch": {"kind": "local"},
                    "work_dir": os.path.join(stack.state, "sites", name)})
        version = stack.call("POST", "/registry/v1/datasets/it/versions",
                             {"tokenizer_sha256": "b" * 64, "seq_len": 128, "batching": "packing", "train": counts,
                              "validation": counts, "fingerprint": f"{i:064x}"})["version"]
        stack.call("PUT", f"/registry/v1/datasets/it/versions/{version}/copies/{name}", {"path": f"datasets/it/{i}"})
    stack.sql("UPDATE facilities SET retry_at = now() + interval '1 hour'")


def submit(stack, name, sites, **settings):
    """A job of two rounds at all sites, with settings in place of these; its id."""
    job = {"name": name, "model": {"name": "tiny", "version": "base"}, "output_model": name,
           "participants": [{"facility": f"site-{i}", "dataset": "it"} for i in range(sites)],
           "rounds": 2, "training": {"steps": 3}}
    return stack.call("POST", "/dispatch/v1/jobs", job | settings)["id"]
