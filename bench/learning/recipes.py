#!/usr/bin/env python3
"""Federations by a table of recipes, beside pooled training of the same texts: what each recipe comes to, round by round.

  recipes.py --programs build/release/bin --dir /var/tmp/atoll-recipes [--only NAME…] [--sites 2] [--rounds 10] [--steps 30]
             [--unequal] [--away 4 7] [--seeds 0 1] [--curves FILE.svg]

Sites hold Italian or Czech texts of the demo, in turn; each trains with atoll-trainer, and each round is made by `atoll aggregate`
with the strategy that a job would name. All sites of a step have 32 rows together; with --unequal the Italian ones have three
times as many as the Czech ones. --away: the last site has no update in these rounds. A recipe is chosen by the perplexity on one half of the validation
documents and reported with that on the other half: the geometric mean of both languages, and its ratio to pooled AdamW and Muon.
results.json keeps each run, and a run that is there is not run again. Needs the packages fortunes-it and fortunes-cs.
"""
import dataclasses
import hashlib
import json
import math
import os
import shutil

from curves import draw
from liars import SITES, fortunes, is_public, options_of, run
from pooled import LANGUAGES, Pooled, adamw, mean, muon

ROWS = 32
FEDERATED_MUON = muon(9e-3, 27e-3, 0.6)
NESTEROV = {"optimizer": "nesterov", "lr": 1.1, "momentum": 0.3}
PLAIN = {"name": "fedavg", "weighting": "uniform"}
BY_ROWS = PLAIN | {"row_weights": "tokens"}
VARIATE = {"control_variate": 0.7}


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How sites train and how their updates are combined."""
    optimizer: dict
    strategy: dict
    keeps: bool = True  # moments at the sites, one schedule over the steps of all rounds, linear to zero
    update: str = "model"
    feedback: bool = True  # what rounding lost is added to the next change
    absent: str = "left_out"


RECIPES = {
    "plain mean": Recipe(adamw(3e-3, 0, 0.9), PLAIN, keeps=False),
    "AdamW": Recipe(adamw(3e-3, 12e-3, 0.6), PLAIN),
    "AdamW, rows": Recipe(adamw(3e-3, 12e-3, 0.6), BY_ROWS),
    "Muon": Recipe(FEDERATED_MUON, PLAIN),
    "Muon, Nesterov": Recipe(FEDERATED_MUON, PLAIN | {"outer": NESTEROV}),
    "Muon, rows": Recipe(FEDERATED_MUON, BY_ROWS),
    "Muon, rows, Nesterov": Recipe(FEDERATED_MUON, BY_ROWS | {"outer": NESTEROV}),
    "Muon, rows, Nesterov, int8": Recipe(FEDERATED_MUON, BY_ROWS | {"outer": NESTEROV}, update="int8"),
    "Muon, rows, Nesterov, int4": Recipe(FEDERATED_MUON, BY_ROWS | {"outer": NESTEROV}, update="int4"),
    "Muon, rows, Nesterov, variate": Recipe(FEDERATED_MUON, BY_ROWS | {"outer": NESTEROV} | VARIATE),
    "Muon, rows, Nesterov, variate, int4": Recipe(FEDERATED_MUON, BY_ROWS | {"outer": NESTEROV} | VARIATE, update="int4"),
    "Muon, rows, Nesterov, variate, int4, no_change": Recipe(FEDERATED_MUON, BY_ROWS | {"outer": NESTEROV} | VARIATE, update="int4",
                                                             absent="no_change"),
    "Muon, rows, Nesterov, int4 alone": Recipe(FEDERATED_MUON, BY_ROWS | {"outer": NESTEROV}, update="int4", feedback=False),
    "Muon, rows, Nesterov, int4, no_change": Recipe(FEDERATED_MUON, BY_ROWS | {"outer": NESTEROV}, update="int4", absent="no_change"),
}
# With the rates that pooled.py found.
POOLED = {"pooled AdamW": adamw(4.5e-3, 18e-3, 0.6), "pooled Muon": muon(9e-3, 40e-3, 0.4)}


class Recipes(Pooled):
    def __init__(self, options):
        super().__init__(options)
        self.count, self.unequal, self.away = options.sites, options.unequal, set(options.away)
        self.sites = [f"{LANGUAGES[i % 2]}{i // 2}of{self.count // 2}" for i in range(self.count)]
        self.results_file = self.path("results.json")
        self.results = json.load(open(self.results_file)) if os.path.exists(self.results_file) else {}

    def prepare_sites(self):
        self.prepare_pooled()
        for i, site in enumerate(self.sites):
            if os.path.exists(self.path(site + "-all", "data.json")):
                continue
            language = LANGUAGES[i % 2]
            instruction = SITES["it-a" if language == "it" else "cs"]
            mine = [f"{instruction} {one}" for one in fortunes(f"fortunes-{language}")
                    if not is_public(one) and self.part(one) == "train" and self.holds(i // 2, one)]
            self.write_texts(site, mine)
            self.tokenize(site, "{{text}}", "all")

    def holds(self, place, document):
        return int(hashlib.sha256(("site:" + document).encode()).hexdigest()[:8], 16) % (self.count // 2) == place

    def rows_of(self, site):
        if not self.unequal:
            return ROWS // self.count
        return ROWS * (3 if site.startswith("it") else 1) // (2 * self.count)

    def train_site(self, recipe, base, site, number, seed):
        out, before = self.path("rounds", f"{site}-{number}"), self.last.get(site)
        flags = [word for flag, value in recipe.optimizer.items() for word in ("--" + flag, value)]
        if recipe.keeps:
            flags += ["--schedule", "linear", "--schedule-runs", self.rounds, "--schedule-run", number, "--keep-optimizer"]
            flags += ["--optimizer-from", before] if before else []
        else:  # the rate by round, as a job's lr_round_schedule
            flags[flags.index("--lr") + 1] *= 0.5 * (1 + math.cos(math.pi * (number - 1) / self.rounds))
            flags += ["--schedule", "constant"]
        if recipe.update != "model":
            flags += ["--update-format", recipe.update]
            flags += ["--rounding-error-from", before] if before and recipe.feedback else []
        if "row_weights" in recipe.strategy:
            flags += ["--token-counts"]
        if "control_variate" in recipe.strategy:
            flags += ["--control-variate", recipe.strategy["control_variate"]]
            flags += ["--control-variate-from", before] if before else []
        run(self.trainer, "train", "--model", base, "--data", self.path(site + "-all"), "--out", out, "--steps", self.steps,
            "--batch-size", self.rows_of(site), "--beta2", 0.95, "--weight-decay", 0.1, "--warmup-steps", 5, "--warmup-from-zero",
            "off", "--precision", "fp32", "--seed", number - 1 + 1000 * seed, "--threads", self.threads, *flags)
        self.last[site] = out
        return out

    def make_round(self, recipe, base, number, seed):
        updates, weights, missing = [], [], []
        for site in self.sites:
            if site == self.sites[-1] and number in self.away:
                missing += [self.rows_of(site)] if recipe.absent == "no_change" else []
                continue
            updates.append(self.train_site(recipe, base, site, number, seed))
            weights.append(self.rows_of(site))
        out = self.path("rounds", f"made{number}")
        absent = ["--absent", ",".join(map(str, missing))] if missing else []
        run(self.atoll, "aggregate", "--json", "--strategy", json.dumps(recipe.strategy), "--base", base, "--weights",
            ",".join(map(str, weights)), *absent, "--out", out, *updates)
        return out

    def perplexities(self, model, part):
        return {language: self.evaluate(model, f"{part}-{language}") for language in LANGUAGES}

    def federate(self, recipe, seed):
        base = self.path("base")
        shutil.rmtree(self.path("rounds"), ignore_errors=True)
        os.makedirs(self.path("rounds"))
        rounds, self.last = [], {}  # of each site, its last training: the next goes on from there
        for number in range(1, self.rounds + 1):
            base = self.make_round(recipe, base, number, seed)
            rounds.append(mean(self.perplexities(base, "choose")))
        update = self.path("rounds", f"{self.sites[0]}-{self.rounds}")
        sizes = [os.path.getsize(os.path.join(update, name))
                 for name in ("model.safetensors", "delta.safetensors", "control_variate.safetensors")
                 if os.path.exists(os.path.join(update, name))]
        return {"rounds": rounds, "choose": self.perplexities(base, "choose"), "report": self.perplexities(base, "report"),
                "bytes_up": sum(sizes)}

    def result(self, name, seed):
        """That of a recipe or of a pooled run, run if it was not yet."""
        case = [name, seed, self.rounds, self.steps]
        if name in RECIPES:
            case += [str(RECIPES[name]), self.count, self.unequal, sorted(self.away)]
        else:
            case += [str(POOLED[name]), self.unequal]
        key = json.dumps(case)
        if key not in self.results:
            self.results[key] = (self.federate(RECIPES[name], seed) if name in RECIPES
                                 else self.train_pooled(POOLED[name], self.rounds * self.steps, ROWS, seed))
            with open(self.results_file, "w") as file:
                json.dump(self.results, file, indent=1)
        return self.results[key]


def main():
    parser = options_of(__doc__)
    parser.add_argument("--only", nargs="*", choices=RECIPES)
    parser.add_argument("--sites", type=int, default=2, choices=(2, 4, 8))
    parser.add_argument("--unequal", action="store_true")
    parser.add_argument("--away", nargs="*", type=int, default=[])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--curves")
    options = parser.parse_args()
    bench = Recipes(options)
    bench.prepare_sites()
    curves = {}
    for seed in options.seeds:
        pooled = {name: bench.result(name, seed) for name in POOLED}
        for name, one in pooled.items():
            print(f"seed {seed}  {name:34} {mean(one['choose']):7.2f} chosen  {mean(one['report']):7.2f} reported", flush=True)
        for name in options.only or RECIPES:
            one = bench.result(name, seed)
            reported = mean(one["report"])
            ratios = "  ".join(f"{reported / mean(other['report']):5.2f} x {who}" for who, other in pooled.items())
            worse = max((b / a - 1 for a, b in zip(one["rounds"], one["rounds"][1:])), default=0)
            print(f"seed {seed}  {name:34} {mean(one['choose']):7.2f} chosen  {reported:7.2f} reported  it {one['report']['it']:6.1f}"
                  f"  cs {one['report']['cs']:6.1f}  {ratios}  worst round {100 * worse:+5.1f} %  {one['bytes_up']} bytes up", flush=True)
            curves[f"{name}, seed {seed}" if len(options.seeds) > 1 else name] = one["rounds"]
    if options.curves:
        draw(options.curves, curves, "round", "perplexity, geometric mean of both languages")


if __name__ == "__main__":
    main()
