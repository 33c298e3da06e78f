#!/usr/bin/env python3
"""Times a coordinator with a million finished tasks of history beside the same coordinator without any.

  history.py --bin build/release/bin [--tasks 1000000] [--state /var/tmp/atoll-history-bench] [--keep]

Starts a stack of its own, measures, adds the history by SQL, measures the same again, and takes the stack down. No
facility is worked with: theirs is a directory of this machine that may not be used for an hour. Prints the median and the
spread of each request through the gateway and the CPU time of the idle services and their database.
"""
import argparse
import http.client
import json
import os
import statistics
import struct
import subprocess
import sys
import time
import urllib.parse

SITES = 128


class Stack:
    def __init__(self, options):
        self.atoll = os.path.join(options.bin, "atoll")
        self.state = options.state
        subprocess.run([self.atoll, "up", "--port-base", "0", "--state", self.state], check=True)
        with open(os.path.join(self.state, "stack.json")) as file:
            self.description = json.load(file)
        with open(os.path.join(self.state, "tokens", "admin.token")) as file:
            self.token = file.read().strip()
        self.gateway = http.client.HTTPConnection(urllib.parse.urlparse(self.description["gateway"]).netloc)

    def call(self, method, path, body=None):
        headers = {"Authorization": "Bearer " + self.token, "Content-Type": "application/json"}
        self.gateway.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = self.gateway.getresponse()
        text = answer.read()
        if answer.status >= 300:
            sys.exit(f"{method} {path}: {answer.status} {text.decode()}")
        return json.loads(text)

    def sql(self, script):
        command = ["psql", "-qAt", "-v", "ON_ERROR_STOP=1", self.description["postgres"]]
        environment = dict(os.environ, PGOPTIONS="-c search_path=dispatch")
        return subprocess.run(command, input=script, env=environment, text=True, check=True, capture_output=True).stdout

    def down(self):
        subprocess.run([self.atoll, "down", "--delete", "--yes", "--cancel-jobs", "--state", self.state], check=True)


def make_model(directory):
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "config.json"), "w") as file:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "max_position_embeddings": 2048}, file)
    head = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    with open(os.path.join(directory, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + bytes(16))


def prepare(stack):
    make_model(os.path.join(stack.state, "model"))
    with_token = dict(os.environ, ATOLL_STATE=stack.state)
    subprocess.run([stack.atoll, "model", "push", "tiny", os.path.join(stack.state, "model"), "--tag", "base", "--state",
                    stack.state], env=with_token, check=True, stdout=subprocess.DEVNULL)
    stack.call("POST", "/registry/v1/datasets",
               {"name": "it", "language": "it", "license": "CC0-1.0", "template": "{{text}}"})
    counts = {"documents": 10, "rows": 100, "tokens": 5000}
    for i in range(SITES):
        name = f"site-{i}"
        stack.call("POST", "/dispatch/v1/facilities",
                   {"name": name, "transport": {"kind": "local"}, "batch": {"kind": "local"},
                    "work_dir": os.path.join(stack.state, "sites", name)})
        version = stack.call("POST", "/registry/v1/datasets/it/versions",
                             {"tokenizer_sha256": "b" * 64, "seq_len": 128, "batching": "packing", "train": counts,
                              "validation": counts, "fingerprint": f"{i:064x}"})["version"]
        stack.call("PUT", f"/registry/v1/datasets/it/versions/{version}/copies/{name}", {"path": f"datasets/it/{i}"})
    stack.sql("UPDATE facilities SET retry_at = now() + interval '1 hour'")


def submit(stack, name):
    return stack.call("POST", "/dispatch/v1/jobs",
                      {"name": name, "model": {"name": "tiny", "version": "base"}, "output_model": name,
                       "participants": [{"facility": f"site-{i}", "dataset": "it"} for i in range(SITES)],
                       "rounds": 2, "training": {"steps": 3}})["id"]


def add_history(stack, tasks):
    stack.sql(f"""
        SET session_replication_role = replica; SET statement_timeout = 0;
        INSERT INTO jobs (id, name, spec, base_digest, state, current_round, created_by, finished_at)
            SELECT 'h' || j, 'h', (SELECT spec FROM jobs LIMIT 1), repeat('b', 64), 'completed', 100, 't', now()
            FROM generate_series(1, 40) j;
        INSERT INTO rounds (job_id, number, state, base_digest, evaluated)
            SELECT 'h' || j, r, 'closed', repeat('b', 64), true FROM generate_series(1, 40) j, generate_series(0, 100) r;
        INSERT INTO tasks (id, job_id, round, kind, facility, params, state, attempts_max)
            SELECT 'h' || n, 'h' || (1 + n % 40), 1 + n / 40 % 100, 'train', 'site-0', '{{}}', 'done', 1
            FROM generate_series(1, {tasks}) n;
        INSERT INTO attempts (task_id, number, batch_job_name, step, progress)
            SELECT 'h' || n, 1, 'h' || n, 'done', '{{}}' FROM generate_series(1, {tasks}) n;
        INSERT INTO ended_tasks SELECT job_id, kind, state, count(*) FROM tasks WHERE id LIKE 'h%' GROUP BY 1, 2, 3;
        ANALYZE""")


def cpu_ticks(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return sum(int(fields[i]) for i in (11, 12, 13, 14))  # its own and those of children that ended


def cpu_of(stack, seconds):
    """Share of a core, by program, of what belongs to this stack: the services, and Postgres with its backends."""
    def used():
        ticks = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline") as file:
                    command = file.read()
                with open(f"/proc/{pid}/stat") as file:
                    parent = file.read().rsplit(")", 1)[1].split()[1]
                mine = stack.state in command or parent == postmaster
                name = "postgres" if command.startswith("postgres") or "bin/postgres" in command else \
                    os.path.basename(command.split("\0")[0])
                if mine and name.startswith(("atoll-", "postgres")):
                    ticks[name] = ticks.get(name, 0) + cpu_ticks(pid)
            except (FileNotFoundError, ProcessLookupError):
                pass
        return ticks

    with open(os.path.join(stack.state, "pg", "data", "postmaster.pid")) as file:
        postmaster = file.readline().strip()
    before, begin = used(), time.monotonic()
    time.sleep(seconds)
    after, length = used(), time.monotonic() - begin
    rate = os.sysconf("SC_CLK_TCK") * length / 100
    return {name: (after[name] - before.get(name, 0)) / rate for name in sorted(after)}


def timed(work, repeats):
    times = []
    for i in range(repeats):
        begin = time.monotonic()
        work(i)
        times.append(1000 * (time.monotonic() - begin))
    return times


def show(what, times):
    print(f"| {what} | {statistics.median(times):.1f} | {min(times):.1f}–{max(times):.1f} |", flush=True)


def measure(stack, label, idle_s):
    print(f"\n{label}\n\n| request | median ms | min–max |\n|---|---|---|")
    ids = []
    show(f"POST a job of {SITES} participants", timed(lambda i: ids.append(submit(stack, f"{label.split()[0].lower()}-{i}")), 5))
    show("GET the newest job", timed(lambda _: stack.call("GET", f"/dispatch/v1/jobs/{ids[-1]}"), 50))
    if label.startswith("With "):
        show("GET a job of 25,000 ended tasks", timed(lambda _: stack.call("GET", "/dispatch/v1/jobs/h1"), 50))
    show("GET jobs", timed(lambda _: stack.call("GET", "/dispatch/v1/jobs"), 50))
    # Nothing is left to do: what waits for the facilities would be looked at all the time.
    stack.sql("UPDATE tasks SET state = 'cancelled' WHERE state IN ('pending', 'running');"
              "UPDATE jobs SET state = 'cancelled', finished_at = now() WHERE state = 'running'")
    shares = cpu_of(stack, idle_s)
    print(f"\nCPU while idle, % of a core over {idle_s} s: " +
          ", ".join(f"{name} {share:.1f}" for name, share in shares.items()), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--state", default="/var/tmp/atoll-history-bench")
    parser.add_argument("--idle", type=int, default=20)
    parser.add_argument("--keep", action="store_true", help="leaves the stack running")
    options = parser.parse_args()
    stack = Stack(options)
    try:
        prepare(stack)
        measure(stack, "Without history", options.idle)
        add_history(stack, options.tasks)
        measure(stack, f"With {options.tasks} finished tasks", options.idle)
        print(f"\nload of the machine: {os.getloadavg()[0]:.1f}")
    finally:
        if not options.keep:
            stack.down()


if __name__ == "__main__":
    main()
