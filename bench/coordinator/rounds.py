#!/usr/bin/env python3
"""Times what lies between two rounds of a small model: last update in, global model made, next round's tasks in hand.

  rounds.py --bin build/release/bin [--rounds 30] [--state /var/tmp/atoll-rounds-bench]

Starts a stack of its own with two facilities of this machine, a Llama of some 40,000 parameters and a job without
evaluations. All times are those that Postgres noted: when the last training task of a round was done, when the round was
closed with its global version, and when a worker had taken each of the next round's tasks.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import time

from stack import Stack

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 320, "hidden_size": 32,
    "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
    "hidden_act": "silu", "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": False, "torch_dtype": "float16", "initializer_range": 0.02, "bos_token_id": 1, "eos_token_id": 2}
# A worker that has taken a task writes its attempt down before the first step.
TURNS = """
    WITH trained AS (SELECT round, max(finished_at) AS last FROM tasks WHERE job_id = '{job}' AND kind = 'train' GROUP BY round),
         begun AS (SELECT t.round, max(a.created_at) AS first FROM tasks t JOIN attempts a ON a.task_id = t.id
                   WHERE t.job_id = '{job}' AND t.kind = 'train' AND a.number = 1 GROUP BY t.round)
    SELECT extract(epoch FROM r.closed_at - t.last) * 1000, extract(epoch FROM b.first - t.last) * 1000
    FROM trained t JOIN rounds r ON r.job_id = '{job}' AND r.number = t.round JOIN begun b ON b.round = t.round + 1
    ORDER BY t.round"""


def write_text(path, seed):
    source = random.Random(seed)
    words = ["".join(source.choice("bcdfglmnprst") + source.choice("aeiou") for _ in range(source.choice((2, 3)))) for _ in range(60)]
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        for i in range(300):
            file.write(json.dumps({"text": " ".join(source.choices(words, k=18)) + f" {i}"}) + "\n")


def prepare(stack, programs):
    trainer, directory = os.path.join(programs, "atoll-trainer"), os.path.join(stack.state, "bench")
    text, config, tokenizer, base = (os.path.join(directory, name) for name in ("all.jsonl", "config.json", "tokenizer", "base"))
    write_text(text, 0)
    with open(config, "w") as file:
        json.dump(CONFIG, file)
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([trainer, "tokenizer-train", "--input", text, "--vocab-size", "320", "--out", tokenizer], **quiet)
    subprocess.run([trainer, "init", "--config", config, "--tokenizer", tokenizer, "--out", base, "--seed", "1"], **quiet)
    stack.run("model", "push", "tiny", base, "--kind", "base", "--tag", "base")
    for site in ("a", "b"):
        work = os.path.join(stack.state, "site-" + site)
        write_text(os.path.join(work, "corpus.jsonl"), ord(site))
        stack.run("facility", "add", site, "--local", "--batch", "local", "--work-dir", work)
        stack.call("POST", "/registry/v1/datasets",
                   {"name": "text-" + site, "language": "it", "license": "CC0-1.0", "template": "{{text}}"})
        stack.run("dataset", "prepare", "text-" + site, "--facility", site, "--input", "corpus.jsonl", "--tokenizer",
                  "tiny@base", "--seq-len", "32")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--state", default="/var/tmp/atoll-rounds-bench")
    options = parser.parse_args()
    stack = Stack(options.bin, options.state)
    try:
        prepare(stack, options.bin)
        job = stack.call("POST", "/dispatch/v1/jobs",
                         {"name": "rounds", "model": {"name": "tiny", "version": "base"}, "rounds": options.rounds,
                          "training": {"steps": 4, "batch_size": 8}, "evaluation": {"at": []},
                          "participants": [{"facility": site, "dataset": "text-" + site} for site in ("a", "b")]})["id"]
        while (state := stack.call("GET", "/dispatch/v1/jobs/" + job)["state"]) == "running":
            time.sleep(1)
        rows = [tuple(map(float, line.split("|"))) for line in stack.sql(TURNS.format(job=job)).splitlines()]
        print(f"\njob {state}, {len(rows)} turns between rounds\n\n| last update in → | median ms | quartiles | worst |\n|---|---|---|---|")
        for what, times in zip(("the round is closed with its global version", "the next round's tasks are in hand"), zip(*rows)):
            low, middle, high = statistics.quantiles(times, n=4)
            print(f"| {what} | {middle:.0f} | {low:.0f}–{high:.0f} | {max(times):.0f} |")
        print(f"\nload of the machine: {os.getloadavg()[0]:.1f}")
    finally:
        stack.down()


if __name__ == "__main__":
    main()
