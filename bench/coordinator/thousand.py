#!/usr/bin/env python3
"""Times rounds of a thousand facilities, with real Postgres, Kafka, store and aggregation; only the sites are played.

  thousand.py --bin build/bench/bin [--sites 1000] [--rounds 3] [--state /var/tmp/atoll-thousand-bench]

Starts a stack of its own whose dispatch is `simulated_sites`: sites answer at once, and each hands in an update of its own
through the gateway. All times are those that Postgres noted. Ends with 1 if an update of a round is not in its mean.
"""
import argparse
import glob
import os
import shutil
import statistics
import sys
import time

from rounds import TURNS
from stack import Stack, prepare, submit

HANDED_IN = """
    SELECT r.number, count(*) FILTER (WHERE t.state = 'done'), count(DISTINCT t.result->>'version')
    FROM rounds r JOIN tasks t ON t.job_id = r.job_id AND t.round = r.number AND t.kind = 'train'
    WHERE r.job_id = '{job}' GROUP BY r.number ORDER BY r.number"""
COMMITS = "SELECT sum(xact_commit) FROM pg_stat_database WHERE datname = current_database()"


def link_programs(programs, directory):
    """The programs, hard-linked, with simulated_sites as atoll-dispatch."""
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    for program in os.listdir(programs):
        if program.startswith("atoll") and program != "atoll-dispatch" and not program.endswith("_test"):
            os.link(os.path.join(programs, program), os.path.join(directory, program))
    os.link(os.path.join(programs, "simulated_sites"), os.path.join(directory, "atoll-dispatch"))


def peak_mib(pid_file):
    with open(pid_file) as file:
        pid = file.read().split()[0]
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--sites", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--state", default="/var/tmp/atoll-thousand-bench")
    options = parser.parse_args()
    linked = os.path.normpath(options.bin) + "-with-played-sites"  # beside it: Kafka is found from there
    link_programs(options.bin, linked)
    stack = Stack(linked, options.state)
    try:
        prepare(stack, options.sites)
        stack.sql("UPDATE facilities SET retry_at = NULL")
        before, begin = int(stack.sql(COMMITS)), time.monotonic()
        job = submit(stack, "thousand", options.sites, rounds=options.rounds, evaluation={"at": []})
        while (state := stack.call("GET", "/dispatch/v1/jobs/" + job)["state"]) == "running":
            time.sleep(2)
        seconds = time.monotonic() - begin
        handed_in = [tuple(map(int, line.split("|"))) for line in stack.sql(HANDED_IN.format(job=job)).splitlines()]
        tasks = sum(done for _, done, _ in handed_in)
        commits = int(stack.sql(COMMITS)) - before
        print(f"\njob {state} after {seconds:.0f} s: {options.rounds} rounds of {options.sites} facilities, "
              f"{tasks} tasks, {commits / max(tasks, 1):.1f} commits a task (every service's)\n")
        turns = [tuple(map(float, line.split("|"))) for line in stack.sql(TURNS.format(job=job)).splitlines()]
        for what, times in zip(("the round is closed", "the first task of the next one is in hand"), zip(*turns)):
            print(f"last update in → {what}: median {statistics.median(times):.0f} ms, worst {max(times):.0f}")
        for pid_file in sorted(glob.glob(os.path.join(stack.state, "run", "*.pid"))):
            print(f"{os.path.basename(pid_file)[:-4]}: at most {peak_mib(pid_file):.0f} MiB")
        print(f"load of the machine: {os.getloadavg()[0]:.1f}")
        whole = all(done == distinct == options.sites for _, done, distinct in handed_in)
        if state != "completed" or len(handed_in) != options.rounds or not whole:
            errors = stack.sql(f"SELECT DISTINCT error FROM tasks WHERE job_id = '{job}' AND error != '' LIMIT 3")
            sys.exit(f"updates are missing: {handed_in}; {errors}")
    finally:
        stack.down()
        shutil.rmtree(linked)


if __name__ == "__main__":
    main()
