#!/usr/bin/env python3
"""Times GET of a job through the gateway beside nginx proxying a static answer of the same size, in turns.

  gateway.py --bin build/release/bin [--connections 64] [--seconds 10] [--repeats 5] [--state /var/tmp/atoll-gateway-bench]

Starts a stack of its own with a running job of three participants, and an nginx as many workers strong that passes the
same bytes on from a second server block over a unix socket. wrk (Debian package wrk) asks both, on the same cores.
Prints requests a second and the latency's median and 99th percentile, with the spread over the repeats.
"""
import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

from stack import Stack, prepare, submit

NGINX = """daemon off; worker_processes 2; pid {dir}/nginx.pid; error_log stderr warn;
events {{ worker_connections 1024; }}
http {{
    access_log {dir}/access.log;
    upstream answer {{ server unix:{dir}/answer.sock; keepalive 16; }}
    server {{ listen unix:{dir}/answer.sock; location / {{ root {dir}; default_type application/json; }} }}
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass http://answer; }}
    }}
}}
"""
WRK = """done = function(summary, latency, requests)
  io.write(string.format("RESULT %f %f %f %d\\n", summary.requests / (summary.duration / 1e6),
    latency:percentile(50) / 1000, latency:percentile(99) / 1000, summary.errors.status + summary.errors.read +
    summary.errors.connect + summary.errors.timeout))
end
"""


def start_static(directory, body, port):
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    with open(os.path.join(directory, "job"), "w") as file:
        file.write(body)
    configuration = os.path.join(directory, "nginx.conf")
    with open(configuration, "w") as file:
        file.write("user root;\n" * (os.geteuid() == 0) + NGINX.format(dir=directory, port=port))
    nginx = "/usr/sbin/nginx" if os.path.exists("/usr/sbin/nginx") else "nginx"
    return subprocess.Popen([nginx, "-e", "stderr", "-p", directory, "-c", configuration])


def ask(url, script, options, token=None):
    headers = ["-H", "Authorization: Bearer " + token] if token else []
    out = subprocess.run(["wrk", "-t1", f"-c{options.connections}", f"-d{options.seconds}s", "-s", script, *headers, url],
                         capture_output=True, text=True, check=True).stdout
    rate, median, p99, errors = map(float, re.search(r"RESULT (\S+) (\S+) (\S+) (\S+)", out).groups())
    if errors:
        sys.exit(f"{url}: {errors:.0f} requests failed\n{out}")
    return rate, median, p99


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--port", type=int, default=7499, help="of the nginx with the static answer")
    parser.add_argument("--state", default="/var/tmp/atoll-gateway-bench")
    options = parser.parse_args()
    stack = Stack(options.bin, options.state)
    static = None
    try:
        prepare(stack, 3)
        path = "/dispatch/v1/jobs/" + submit(stack, "bench", 3)
        body = stack.text("GET", path)
        static = start_static(os.path.join(options.state, "static"), body, options.port)
        script = os.path.join(options.state, "result.lua")
        with open(script, "w") as file:
            file.write(WRK)
        time.sleep(1)
        gateway = stack.description["gateway"]
        sides = {"GET of a job": (gateway + path, stack.token), "nginx, static": (f"http://127.0.0.1:{options.port}/job", None)}
        results = {name: [] for name in sides}
        for _ in range(options.repeats):
            for name, (url, token) in sides.items():
                results[name].append(ask(url, script, options, token))
        print(f"\nan answer of {len(body)} bytes, {options.connections} connections, {options.repeats} × {options.seconds} s\n")
        print("| what | requests/s | min–max | median ms | p99 ms | worst p99 |\n|---|---|---|---|---|---|")
        for name, samples in results.items():
            rates, medians, p99s = zip(*samples)
            print(f"| {name} | {statistics.median(rates):.0f} | {min(rates):.0f}–{max(rates):.0f} |"
                  f" {statistics.median(medians):.1f} | {statistics.median(p99s):.1f} | {max(p99s):.1f} |")
        ratios = [ours[0] / peer[0] for ours, peer in zip(*results.values())]
        print(f"\nratio {statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f});"
              f" load of the machine: {os.getloadavg()[0]:.1f}")
    finally:
        if static:
            static.terminate()
            static.wait()
        stack.down()


if __name__ == "__main__":
    main()
