#!/usr/bin/env python3
"""Times a coordinator with a million finished tasks of history beside the same coordinator without any.

  history.py --bin build/release/bin [--tasks 1000000] [--state /var/tmp/atoll-history-bench] [--keep]

Starts a stack of its own, measures, adds the history by SQL, measures the same again, and takes the stack down. No
facility is worked with: theirs is a directory of this machine that may not be used for an hour. Prints the median and the
spread of each request through the gateway and the CPU time of the idle services and their database.
"""
import argparse
import os
import statistics
import time

from stack import Stack, prepare, submit

SITES = 128


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
        VACUUM (ANALYZE)""")  # which autovacuum does over the months that make such a history


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
    show(f"POST a job of {SITES} participants", timed(lambda i: ids.append(submit(stack, f"{label.split()[0].lower()}-{i}", SITES)), 5))
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
    stack = Stack(options.bin, options.state)
    try:
        prepare(stack, SITES)
        measure(stack, "Without history", options.idle)
        add_history(stack, options.tasks)
        measure(stack, f"With {options.tasks} finished tasks", options.idle)
        print(f"\nload of the machine: {os.getloadavg()[0]:.1f}")
    finally:
        if not options.keep:
            stack.down()


if __name__ == "__main__":
    main()
