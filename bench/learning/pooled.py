#!/usr/bin/env python3
"""Pooled training of the demo's model on all its texts at once, by AdamW and by Muon: what a federation is compared with.

  pooled.py --programs build/release/bin --dir /var/tmp/atoll-pooled [--steps 300] [--rows 32] [--seeds 0 1] [--threads 2]

Each recipe of the table below is trained from the demo's base with atoll-trainer. A recipe is chosen by the perplexity on
one half of the validation documents and reported with that on the other half: the geometric mean of both languages. Each run
prints a line; results.json keeps them, and a run that is there is not run again. Needs the packages fortunes-it and
fortunes-cs.
"""
import hashlib
import json
import math
import os

from liars import SITES, Bench, fortunes, is_public, options_of, run

LANGUAGES = ("it", "cs")


def adamw(rate, embedding, beta1):
    return {"optimizer": "adamw", "lr": rate, "lr-embedding": embedding, "beta1": beta1}


def muon(rate, embedding, beta1, momentum=0.9):
    return {"optimizer": "muon", "lr": rate, "lr-embedding": embedding, "beta1": beta1, "momentum": momentum}


# Each side's best lies within its table, not at its edge.
RECIPES = ([adamw(rate, 0, 0.9) for rate in (3e-3, 4.5e-3, 7e-3)] +
           [adamw(rate, 4 * rate, beta1) for rate in (3e-3, 4.5e-3, 7e-3) for beta1 in (0.9, 0.6)] +
           [adamw(4.5e-3, 27e-3, 0.6), adamw(4.5e-3, 18e-3, 0.4)] +
           [muon(rate, 4 * rate, 0.6) for rate in (6e-3, 9e-3, 13e-3)] +
           [muon(9e-3, embedding, 0.4) for embedding in (27e-3, 40e-3, 60e-3)] +
           [muon(9e-3, 40e-3, 0.9), muon(9e-3, 40e-3, 0.4, 0.95), muon(9e-3, 40e-3, 0.4, 0.8)])


class Pooled(Bench):
    def part(self, document):
        share = int(hashlib.sha256(("part:" + document).encode()).hexdigest()[:8], 16) % 100
        return "choose" if share < 3 else "report" if share < 6 else "train"

    def prepare_pooled(self):
        self.prepare()
        if os.path.exists(self.path("pooled-train", "data.json")):
            return
        texts = {"pooled-train": []}
        for language in LANGUAGES:
            instruction = SITES["it-a" if language == "it" else "cs"]
            for document in fortunes(f"fortunes-{language}"):
                if is_public(document):
                    continue
                part = self.part(document)
                name = "pooled-train" if part == "train" else f"{part}-{language}"
                texts.setdefault(name, []).append(f"{instruction} {document}")
        for name, documents in texts.items():
            self.write_texts(name, sorted(documents, key=lambda one: hashlib.sha256(one.encode()).hexdigest()))
            self.tokenize(name, "{{text}}", "all")
            os.rename(self.path(name + "-all"), self.path(name))

    def train_pooled(self, recipe, steps, rows, seed):
        out = self.path("pooled-out")
        flags = [word for flag, value in recipe.items() for word in ("--" + flag, value)]
        run(self.trainer, "train", "--model", self.path("base"), "--data", self.path("pooled-train"), "--out", out, "--overwrite",
            "--steps", steps, "--batch-size", rows, "--schedule", "linear", "--warmup-steps", 5, "--beta2", 0.95,
            "--weight-decay", 0.1, "--seed", seed, "--threads", self.threads, "--save-dtype", "fp32", *flags)
        return {part: {language: self.evaluate(out, f"{part}-{language}") for language in LANGUAGES}
                for part in ("choose", "report")}

    def evaluate(self, model, data):
        lines = run(self.trainer, "eval", "--model", model, "--data", self.path(data), "--threads", self.threads).splitlines()
        return next(json.loads(one) for one in reversed(lines) if '"perplexity"' in one)["perplexity"]


def mean(perplexities):
    return math.exp(sum(map(math.log, perplexities.values())) / len(perplexities))


def main():
    parser = options_of(__doc__)
    parser.set_defaults(steps=300)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    bench = Pooled(options)
    bench.prepare_pooled()
    file = bench.path("results.json")
    results = json.load(open(file)) if os.path.exists(file) else {}
    best = {}
    for seed in options.seeds:
        for recipe in RECIPES:
            key = f"{json.dumps(recipe)} steps {options.steps} rows {options.rows} seed {seed}"
            if key not in results:
                results[key] = bench.train_pooled(recipe, options.steps, options.rows, seed)
                with open(file, "w") as kept:
                    json.dump(results, kept, indent=1)
            chosen, reported = mean(results[key]["choose"]), mean(results[key]["report"])
            print(f"{chosen:8.2f} {reported:8.2f}  {key}", flush=True)
            side = best.setdefault((recipe["optimizer"], seed), (chosen, reported, key))
            if chosen < side[0]:
                best[recipe["optimizer"], seed] = (chosen, reported, key)
    for (optimizer, seed), (_, reported, key) in best.items():
        print(f"best of {optimizer}: {reported:.2f}  {key}")
    for seed in options.seeds:
        print(f"seed {seed}: Muon / AdamW {best['muon', seed][1] / best['adamw', seed][1]:.3f}")


if __name__ == "__main__":
    main()
