#!/usr/bin/env python3
"""What one lying site of several costs a federation, on the demo's rows: three sites, two of which hold Italian text and
one Czech, ten rounds of thirty steps (the recipe of tests/e2e/demo). The third site lies; Italian perplexity is compared
with what the two Italian sites reach alone.

  liars.py --programs build/release/bin --dir /var/tmp/atoll-liars [--only NAME…] [--rounds 10] [--steps 30]
           [--clip 1.4] [--check]

Every site trains with atoll-trainer, every round is made by `atoll aggregate` with the settings that a job has by
default (or those of the case), and the trained updates of a round are the same for cases that begin alike. Each case
prints a line with the perplexities of both languages; results-CLIP.json keeps them, and a case that is there is not run
again. --check ends with 1 where a liar costs more than is allowed (most_of), an honest site loses more than it may
(HONEST), or the plain mean bears the liar that it cannot bear. Needs the packages fortunes-it and fortunes-cs.
"""
import argparse
import hashlib
import json
import math
import os
import random
import shutil
import struct
import subprocess

COUNTS = "token_counts.safetensors"
FORTUNES = "/usr/share/games/fortunes"
SITES = {"it-a": "scrivi un seguente documento::", "it-b": "scrivi un seguente documento::", "cs": "Napište dokument::"}
MODEL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 2000, "hidden_size": 128,
         "intermediate_size": 352, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4,
         "hidden_act": "silu", "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
         "tie_word_embeddings": False, "torch_dtype": "float16", "initializer_range": 0.02, "bos_token_id": 1,
         "eos_token_id": 2}


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stderr[-2000:]}")
    return done.stdout


def fortunes(package):
    """The package's documents, each once, in the demo's order."""
    listed = subprocess.run(["dpkg-query", "--listfiles", package], capture_output=True, text=True, check=True).stdout
    seen = {}
    for path in sorted(listed.splitlines()):
        if not path.startswith(FORTUNES + "/") or path.endswith((".dat", "-sk")) or os.path.islink(path):
            continue
        if not os.path.isfile(path):
            continue
        with open(path, encoding="utf-8", errors="replace") as file:
            for document in ("\n" + file.read()).split("\n%\n"):
                if document.strip():
                    seen.setdefault(document.strip())
    return list(seen)


def is_public(document):
    return int(hashlib.sha256(("public:" + document).encode()).hexdigest()[:8], 16) % 10 == 0


def options_of(description):
    """A parser of what every bench here takes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", required=True)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    return parser


class Bench:
    def __init__(self, options):
        self.trainer = os.path.join(options.programs, "atoll-trainer")
        self.atoll = os.path.join(options.programs, "atoll")
        self.dir = options.dir
        self.rounds, self.steps, self.threads = options.rounds, options.steps, options.threads
        os.makedirs(self.dir, exist_ok=True)

    def path(self, *names):
        return os.path.join(self.dir, *names)

    # ---- data and the base model, as the demo makes them ----

    def prepare(self):
        if os.path.exists(self.path("base", "config.json")):
            return
        texts = {language: fortunes(f"fortunes-{language}") for language in ("it", "cs")}
        with open(self.path("public.jsonl"), "w") as file:
            for language, instruction in (("it", SITES["it-a"]), ("cs", SITES["cs"])):
                for document in filter(is_public, texts[language]):
                    file.write(json.dumps({"instruction": instruction, "text": document}) + "\n")
        for site in SITES:
            private = [document for document in texts[site[:2]] if not is_public(document)]
            if site != "cs":  # one half each
                private = [one for one in private
                           if int(hashlib.sha256(one.encode()).hexdigest()[:8], 16) % 2 == (site == "it-b")]
            self.write_texts(site, private)
        with open(self.path("model.json"), "w") as file:
            json.dump(MODEL, file)
        run(self.trainer, "tokenizer-train", "--input", self.path("public.jsonl"), "--vocab-size", 2000, "--out",
            self.path("tokenizer"))
        run(self.trainer, "init", "--config", self.path("model.json"), "--tokenizer", self.path("tokenizer"), "--out",
            self.path("random"), "--seed", 1)
        self.tokenize("public", "{{instruction}} {{text}}", "all")
        for site, instruction in SITES.items():
            for split in ("train", "validation"):
                self.tokenize(site, instruction + " {{text}}", split)
        self.train(self.path("random"), self.path("public-all"), self.path("base"), 60, 3e-3, 0)

    def write_texts(self, name, documents):
        with open(self.path(name + ".jsonl"), "w") as file:
            for document in documents:
                file.write(json.dumps({"text": document}) + "\n")

    def tokenize(self, name, template, split):
        parts = [] if split == "all" else ["--split", split, "--validation-percent", 6]
        run(self.trainer, "tokenize", "--tokenizer", self.path("tokenizer"), "--input", self.path(name + ".jsonl"),
            "--template", template, "--out", self.path(f"{name}-{split}"), "--seq-len", 128, "--batching", "packing",
            *parts)

    def train(self, base, data, out, steps, rate, seed, *more, rows=8):
        run(self.trainer, "train", "--model", base, "--data", data, "--out", out, "--steps", steps, "--batch-size", rows,
            "--lr", repr(rate), "--schedule", "constant", "--warmup-steps", min(5, steps), "--optimizer", "adamw",
            "--beta1", 0.9, "--beta2", 0.95, "--weight-decay", 0.1, "--max-grad-norm", 1, "--precision", "fp32",
            "--seed", seed, "--threads", self.threads, *more)

    def perplexity(self, model, sites):
        loss = tokens = 0
        for site in sites:
            lines = run(self.trainer, "eval", "--model", model, "--data", self.path(site + "-validation"), "--threads",
                        self.threads).splitlines()
            line = next(json.loads(one) for one in reversed(lines) if '"perplexity"' in one)
            loss, tokens = loss + line["loss"] * line["tokens"], tokens + line["tokens"]
        return math.exp(min(loss / tokens, 700))

    # ---- a federation ----

    def update(self, base, site, number, steps):
        """The site's honest update of that round, trained once for all cases that come to it."""
        rate = 3e-3 * 0.5 * (1 + math.cos(math.pi * (number - 1) / self.rounds))
        with open(os.path.join(base, "model.safetensors"), "rb") as file:
            key = hashlib.sha256(file.read() + f"{site} {number} {steps} {rate}".encode()).hexdigest()[:16]
        out = self.path("updates", key)
        if not os.path.exists(out):
            os.makedirs(self.path("updates"), exist_ok=True)
            self.train(base, self.path(site + "-train"), out + "-part", steps, rate, number - 1, "--token-counts")
            os.rename(out + "-part", out)
        return out

    def federate(self, case):
        base = self.path("base")
        work = self.path("work")
        shutil.rmtree(work, ignore_errors=True)
        os.makedirs(work)
        changes = []
        for number in range(1, self.rounds + 1):
            updates = []
            for site in case["sites"]:
                is_liar = site == case.get("liar") and number >= case.get("from", 1)
                honest = self.update(base, site, number, case.get("steps", {}).get(site, self.steps))
                updates.append(lie(self, case, base, honest, number, os.path.join(work, f"lie{number}"))
                               if is_liar and "lie" in case else honest)
                if is_liar and "counts" in case:
                    updates[-1] = lie_in_counts(case["counts"], updates[-1], updates[0], os.path.join(work, f"counts{number}"))
            out = os.path.join(work, f"round{number}")
            weights = ["--weights", ",".join(map(str, case["weights"]))] if "weights" in case else []
            rule = case.get("rule", self.defence) + case.get("more", [])
            if rule and "steps" in case:  # a liar trains as it likes: what it was given counts
                rule = rule + ["--steps", ",".join(str(case["steps"].get(site, self.steps)) for site in case["sites"])]
            made = run(self.atoll, "aggregate", "--json", "--base", base, *rule, *weights, "--out", out, *updates)
            changes.append([(round(one["norm"], 1), round(one["counted"], 2)) for one in json.loads(made).get("changes", [])])
            base = out
        result = {"it": self.perplexity(base, ["it-a", "it-b"]), "cs": self.perplexity(base, ["cs"]),
                  "first": changes[0], "last": changes[-1]}
        shutil.rmtree(work)
        return result


# ---- lies ----

def read_model(directory):
    with open(os.path.join(directory, "model.safetensors"), "rb") as file:
        content = file.read()
    begin = 8 + struct.unpack("<Q", content[:8])[0]
    dtypes = {one["dtype"] for name, one in json.loads(content[8:begin]).items() if name != "__metadata__"}
    assert dtypes == {"F16"}, dtypes
    return content[:begin], struct.unpack(f"<{(len(content) - begin) // 2}e", content[begin:])


def write_model(directory, like, head, values, honest):
    shutil.copytree(like, directory)
    shutil.copy(os.path.join(honest, COUNTS), directory)
    values = [max(-65504.0, min(65504.0, value)) for value in values]
    with open(os.path.join(directory, "model.safetensors"), "wb") as file:
        file.write(head + struct.pack(f"<{len(values)}e", *values))


def lie_in_counts(kind, update, first, out):
    """The update with other token counts beside it: none, all of one token, or those of the first site."""
    shutil.copytree(update, out)
    with open(os.path.join(first, COUNTS), "rb") as file:
        content = file.read()
    begin = 8 + struct.unpack("<Q", content[:8])[0]
    tokens = (len(content) - begin) // 4
    said = {"none": [0.0] * tokens, "all of one": [1e30] + [0.0] * (tokens - 1)}
    with open(os.path.join(out, COUNTS), "wb") as file:
        file.write(content if kind == "the first's" else content[:begin] + struct.pack(f"<{tokens}f", *said[kind]))
    return out


def lie(bench, case, base, honest, number, out):
    kind, amount = case["lie"]
    if kind == "copy of":  # another site's update, as its own
        return bench.update(base, amount, number, bench.steps)
    if kind == "steps":  # not those that it was given
        return bench.update(base, case["liar"], number, amount)
    head, start = read_model(base)
    _, trained = read_model(honest)
    change = [b - a for a, b in zip(start, trained)]
    if kind == "times":
        change = [amount * one for one in change]
    elif kind == "noise":
        length = math.sqrt(sum(one * one for one in change) / len(change))
        dice = random.Random(number)
        change = [amount * length * dice.gauss(0, 1) for _ in change]
    elif kind == "nothing":
        change = [0.0] * len(change)
    elif kind == "constant":
        write_model(out, base, head, [amount] * len(start), honest)
        return out
    write_model(out, base, head, [a + b for a, b in zip(start, change)], honest)
    return out


def cases():
    three = ["it-a", "it-b", "cs"]
    plain = []
    named = {
        "italian alone": {"sites": three[:2], "rule": plain},
        "honest, plain mean": {"sites": three, "rule": plain},
        "honest": {"sites": three},
        "honest, cs 10 times fewer steps, plain mean": {"sites": three, "steps": {"cs": 3}, "rule": plain},
        "honest, cs 10 times fewer steps": {"sites": three, "steps": {"cs": 3}},
        "-9 x, plain mean": {"sites": three, "liar": "cs", "lie": ("times", -9), "rule": plain},
    }
    lies = {
        "-9 x": ("times", -9), "-30 x": ("times", -30), "-4 x": ("times", -4), "-3 x": ("times", -3),
        "-2.5 x": ("times", -2.5), "-1.3 x": ("times", -1.3), "-1 x": ("times", -1), "-0.5 x": ("times", -0.5),
        "+9 x": ("times", 9), "+2.5 x": ("times", 2.5), "noise of its norm": ("noise", 1),
        "noise of 2.5 x": ("noise", 2.5), "noise of 9 x": ("noise", 9), "60000 everywhere": ("constant", 60000.0),
        "a copy of the base": ("nothing", 0), "another's update": ("copy of", "it-a"),
        "300 steps instead of 30": ("steps", 300), "100 steps instead of 30": ("steps", 100),
    }
    for name, told in lies.items():
        named[name] = {"sites": three, "liar": "cs", "lie": told}
    for name in ("-9 x", "-2.5 x", "-1 x"):
        named[name + " from round 5"] = dict(named[name], **{"from": 5})
    by_rows = {"sites": three, "more": ["--row-weights", "tokens"]}
    named["honest, row weights"] = by_rows
    named["italian alone, row weights"] = dict(by_rows, sites=three[:2], rule=plain)
    for name in ("-1 x", "-2.5 x"):
        named[name + ", row weights"] = dict(named[name], **by_rows)
        for counts in ("none", "all of one", "the first's"):
            named[f"{name}, row weights, counts: {counts}"] = dict(named[name], counts=counts, **by_rows)
    named["-1 x with false samples"] = dict(named["-1 x"], weights=[1, 1, 1.1])
    return named


LOUD = ("-9 x", "-30 x", "-4 x", "+9 x", "noise of 9 x", "60000 everywhere", "300 steps instead of 30")


# What the defence may cost the honest Czech site, whose changes are like nobody else's.
HONEST = {"honest": 1.05, "honest, cs 10 times fewer steps": 1.02}


def most_of(name, case):
    """How many times the perplexity of Italian alone a case may come to; None: it is a comparison."""
    if "lie" not in case or "rule" in case:
        return None
    return 1.15 if name in LOUD else 1.4  # loud: longer than 3 times the others' changes


def main():
    parser = options_of(__doc__)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--clip", type=float, default=1.4, help="an update counts with at most so many median norms")
    options = parser.parse_args()
    bench = Bench(options)
    bench.defence = ["--clip", options.clip, "--drop", 3]
    bench.prepare()
    kept = bench.path(f"results-{options.clip:g}.json")
    results = json.load(open(kept)) if os.path.exists(kept) else {}
    wrong = []
    for name, case in cases().items():
        if options.only and name not in options.only:
            continue
        if name not in results:
            results[name] = bench.federate(case)
            with open(kept, "w") as file:
                json.dump(results, file, indent=1)
        one = results[name]
        alone = results.get("italian alone", {}).get("it")
        print(f"{name:45} it {one['it']:10.1f}  cs {one['cs']:10.1f}" +
              (f"  {one['it'] / alone:6.2f} x Italian alone" if alone else "") +
              f"  norms and parts {one['first']} … {one['last']}", flush=True)
        most = most_of(name, case)
        if alone and most and not one["it"] <= most * alone:
            wrong.append(f"{name}: {one['it'] / alone:.2f} x Italian alone, more than {most}")
        plain = results.get(name + ", plain mean", {}).get("cs")
        if plain and name in HONEST and not one["cs"] <= HONEST[name] * plain:
            wrong.append(f"{name}: Czech {one['cs'] / plain:.2f} x that of the plain mean, more than {HONEST[name]}")
        if alone and name == "-9 x, plain mean" and one["it"] < 3 * alone:
            wrong.append(f"{name}: {one['it'] / alone:.2f} x Italian alone; a mean without a defence should be lost")
    if options.check and wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
