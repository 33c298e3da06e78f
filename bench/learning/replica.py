#!/usr/bin/env python3
"""A federation of two sites, one Italian and one Czech, beside a replica of it in PyTorch: the same rows in the same order, round
by round, with a warm-up in each round that begins at rate 0 (as transformers does) and with one that does not (as a job's does).

  replica.py --programs build/release/bin --dir /var/tmp/atoll-replica [--rounds 10] [--steps 30] [--torch]

The trainer's rounds are held against replica.json, what the replica came to on the same rows; with --torch the replica runs, too
(it needs torch, numpy and safetensors), and replica.json is written. Exit 1: a perplexity is further off than TOLERANCE; 77: the
rows are not those of replica.json, as fortunes-it or fortunes-cs are of another version.
"""
import hashlib
import json
import math
import os
import shutil
import sys

from liars import MODEL, SITES, Bench, fortunes, is_public, options_of, run

TEMPLATES = {"it": SITES["it-a"] + " {{text}}", "cs": SITES["cs"] + " {{text}}"}
TOLERANCE = 0.01
RATE, WARM_UP, ROWS, ROW = 3e-3, 5, 16, 128  # as Bench.train and Bench.tokenize have them
GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "replica.json")


def rate_of(number, rounds):
    return RATE * 0.5 * (1 + math.cos(math.pi * (number - 1) / rounds))


class Federation(Bench):
    """By the trainer and `atoll aggregate`."""

    def prepare_sites(self):
        self.prepare()
        for language, template in TEMPLATES.items():
            if os.path.exists(self.path(f"{language}-validation")):
                continue
            self.write_texts(language, [one for one in fortunes(f"fortunes-{language}") if not is_public(one)])
            for split in ("train", "validation"):
                shutil.rmtree(self.path(f"{language}-{split}"), ignore_errors=True)
                self.tokenize(language, template, split)

    def rows_sha256(self):
        digest = hashlib.sha256()
        for site in TEMPLATES:
            for split in ("train", "validation"):
                with open(self.path(f"{site}-{split}", "data.safetensors"), "rb") as file:
                    digest.update(file.read())
        return digest.hexdigest()

    def perplexities(self, from_zero):
        base, found = self.path("base"), []
        for number in range(1, self.rounds + 1):
            updates = []
            for site in TEMPLATES:
                out = self.path(f"{site}-update")
                self.train(base, self.path(site + "-train"), out, self.steps, rate_of(number, self.rounds), number - 1,
                           "--overwrite", "--warmup-from-zero", "on" if from_zero else "off", rows=ROWS)
                updates.append(out)
            made = self.path(f"made{number % 2}")
            shutil.rmtree(made, ignore_errors=True)
            run(self.atoll, "aggregate", "--json", "--base", base, "--out", made, *updates)
            base = made
            found.append([self.perplexity(base, [site]) for site in TEMPLATES])
        return found


# ---- the replica ----

MASK = (1 << 64) - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def row_at(position, rows, seed):
    """As trainer/dataset/row_order.cpp."""
    epoch, value = divmod(position, rows)
    half = ((rows - 1).bit_length() + 1) // 2
    key, mask = mix(seed ^ mix(epoch)), (1 << half) - 1
    while True:
        left, right = value >> half, value & mask
        for number in range(8):
            left, right = right, left ^ (mix(right ^ mix((key + number) & MASK)) & mask)
        value = left << half | right
        if value < rows:
            return value


class Replica:
    """The demo's model in plain PyTorch, its rows, AdamW and the plain mean; weights travel as fp16, as there."""

    def __init__(self, bench):
        import safetensors.torch
        import torch
        self.torch, self.load, self.bench = torch, safetensors.torch.load_file, bench
        torch.set_num_threads(bench.threads)

    def data(self, name):
        torch, file = self.torch, self.load(self.bench.path(name, "data.safetensors"))
        ids, segments = file["input_ids"].long(), file["segment_ids"].long()
        labels = torch.full_like(ids, -100)
        goes_on = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] != 0)
        labels[:, :-1] = torch.where(goes_on, ids[:, 1:], -100)
        return ids, segments, labels

    def loss(self, weights, rows):
        """The sum over all labels."""
        torch, f = self.torch, self.torch.nn.functional
        ids, segments, labels = rows
        hidden, heads = MODEL["hidden_size"], MODEL["num_attention_heads"]
        size = hidden // heads
        # Positions within a document differ from those within a row by a constant, which rotations do not see.
        angle = torch.arange(ROW)[:, None] / 10000.0 ** (torch.arange(0, size, 2) / size)[None]
        cos, sin = (torch.cat([one, one], 1)[None, None] for one in (angle.cos(), angle.sin()))

        def norm(x, weight):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + MODEL["rms_norm_eps"]) * weight

        def rotate(x):
            return x * cos + torch.cat([-x[..., size // 2:], x[..., :size // 2]], -1) * sin

        sees = (segments[:, :, None] == segments[:, None, :]) & torch.ones(ROW, ROW, dtype=torch.bool).tril()
        x = f.embedding(ids, weights["model.embed_tokens.weight"])
        for layer in range(MODEL["num_hidden_layers"]):
            at = f"model.layers.{layer}."
            h = norm(x, weights[at + "input_layernorm.weight"])
            q, k, v = (f.linear(h, weights[f"{at}self_attn.{one}_proj.weight"]).view(*ids.shape, heads, size).transpose(1, 2)
                       for one in "qkv")
            mixed = f.scaled_dot_product_attention(rotate(q), rotate(k), v, attn_mask=sees[:, None])
            x = x + f.linear(mixed.transpose(1, 2).reshape(*ids.shape, hidden), weights[at + "self_attn.o_proj.weight"])
            h = norm(x, weights[at + "post_attention_layernorm.weight"])
            gate, up = (f.linear(h, weights[f"{at}mlp.{one}_proj.weight"]) for one in ("gate", "up"))
            x = x + f.linear(f.silu(gate) * up, weights[at + "mlp.down_proj.weight"])
        logits = f.linear(norm(x, weights["model.norm.weight"]), weights["lm_head.weight"])
        return f.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1), ignore_index=-100, reduction="sum")

    def train(self, start, rows, number, from_zero):
        torch = self.torch
        weights = {name: one.clone().requires_grad_() for name, one in start.items()}
        optimizer = torch.optim.AdamW(weights.values(), betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
        for step in range(self.bench.steps):
            rising = min(1, (step if from_zero else step + 1) / WARM_UP)
            optimizer.param_groups[0]["lr"] = rate_of(number, self.bench.rounds) * rising
            chosen = torch.tensor([row_at(step * ROWS + i, len(rows[0]), number - 1) for i in range(ROWS)])
            batch = [one[chosen] for one in rows]
            optimizer.zero_grad()
            (self.loss(weights, batch) / (batch[2] >= 0).sum()).backward()
            torch.nn.utils.clip_grad_norm_(weights.values(), 1)
            optimizer.step()
        return {name: one.detach().half().float() for name, one in weights.items()}

    def perplexity(self, weights, rows):
        with self.torch.no_grad():
            loss = sum(float(self.loss(weights, [one[i:i + 32] for one in rows])) for i in range(0, len(rows[0]), 32))
        return math.exp(loss / int((rows[2] >= 0).sum()))

    def perplexities(self, from_zero):
        training = [self.data(site + "-train") for site in TEMPLATES]
        validation = [self.data(site + "-validation") for site in TEMPLATES]
        weights = {name: one.float() for name, one in self.load(self.bench.path("base", "model.safetensors")).items()}
        found = []
        for number in range(1, self.bench.rounds + 1):
            updates = [self.train(weights, rows, number, from_zero) for rows in training]
            weights = {name: (sum(one[name] for one in updates) / len(updates)).half().float() for name in weights}
            found.append([self.perplexity(weights, rows) for rows in validation])
            print(f"replica, round {number}: {found[-1][0]:.2f} {found[-1][1]:.2f}", file=sys.stderr, flush=True)
        return found


def main():
    parser = options_of(__doc__)
    parser.add_argument("--torch", action="store_true", help="run the replica and write replica.json")
    options = parser.parse_args()
    bench = Federation(options)
    bench.prepare_sites()
    made_of = {"rows_sha256": bench.rows_sha256(), "rounds": options.rounds, "steps": options.steps}
    ways = {"from zero": True, "not from zero": False}
    if options.torch:
        replica = Replica(bench)
        golden = {**made_of, **{name: replica.perplexities(way) for name, way in ways.items()}}
        with open(GOLDEN, "w") as file:
            json.dump(golden, file, indent=1)
            file.write("\n")
    with open(GOLDEN) as file:
        golden = json.load(file)
    if {key: golden[key] for key in made_of} != made_of:
        print("replica.json is of other rows: fortunes-it or fortunes-cs are of another version", file=sys.stderr)
        return 77
    furthest = 0
    for name, way in ways.items():
        for number, (ours, theirs) in enumerate(zip(bench.perplexities(way), golden[name]), 1):
            furthest = max([furthest] + [abs(a / b - 1) for a, b in zip(ours, theirs)])
            print(f"warm-up {name:14} round {number:2}  " + "  ".join(
                f"{site} {a:7.2f}, the replica {b:7.2f}" for site, a, b in zip(TEMPLATES, ours, theirs)), flush=True)
    print(f"furthest off: {100 * furthest:.2f} %")
    return int(furthest > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
