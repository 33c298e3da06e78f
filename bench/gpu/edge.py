#!/usr/bin/env python3
"""What `plan` says of a card's memory beside what runs take of it, up to its edge and over it.

    edge.py --trainer PROGRAM --device cuda --scratch FOLDER [--small]

Three runs of a step or more: the Llama of 33.5 M, the one of 852 M, and the latter with as many rows of 64 tokens as
the card has room for by plan, which says how much that is. Planned is what a run allocates of the device and what its backend keeps; taken is the
largest that nvidia-smi saw above what was taken before, so what the driver keeps is in the difference. A fourth run,
planned to be a twentieth larger than the card, has to be refused before it asks for memory: exit code 3, and a message with settings that fit. With --device cpu taken is
the largest resident size and planned all of the plan. Where the card is one of `plan --card` its plan without the card
is compared with its own.
"""
import argparse
import subprocess
import threading

from stage import BF16, Stage, Trainer, trainer_environment

LENGTH = 64
REFUSED = 3


class MemoryWatch:
    """The largest number of bytes of card 0 that were in use while it was open, above those in use before."""

    def __init__(self, device):
        self.device, self.before, self.most = device, 0, 0

    @staticmethod
    def query(field):
        command = ["nvidia-smi", "--id=0", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
        return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout) << 20

    def __enter__(self):
        if self.device == "cuda":
            self.before = self.query("memory.used")
            self.process = subprocess.Popen(["nvidia-smi", "--id=0", "--query-gpu=memory.used",
                                             "--format=csv,noheader,nounits", "-lms", "100"],
                                            stdout=subprocess.PIPE, text=True)
            self.thread = threading.Thread(target=self.follow)
            self.thread.start()
        return self

    def follow(self):
        for line in self.process.stdout:
            if line.strip().isdigit():
                self.most = max(self.most, int(line) << 20)

    def __exit__(self, *_):
        if self.device == "cuda":
            self.process.terminate()
            self.process.wait()
            self.thread.join()

    def taken(self):
        return max(0, self.most - self.before)


def planned_bytes(plan, device):
    if device == "cpu":
        return plan["total_bytes"]
    return plan["allocated_bytes"] - plan["pinned_bytes"] + plan["backend_bytes"]


def compare(trainer, name, flags, steps, **shape):
    stage, device = trainer.stage, trainer.device
    plan = trainer.plan(f"memory.{name}.plan", flags, **shape)
    if not plan:
        return
    with MemoryWatch(device) as watch:
        lines = trainer.train(f"memory.{name}", flags, steps, **shape, least_s=15 if device == "cuda" else 5)
    if not lines:
        return
    planned = planned_bytes(plan, device)
    taken = lines[-1]["peak_bytes"] if device == "cpu" else watch.taken()
    stage.measure(f"memory.{name}", planned_bytes=planned, taken_bytes=taken, value=(taken - planned) / 2**20,
                  unit="MiB taken beyond the plan", tokens_per_s=lines[-1]["tokens_per_s"])


CARDS = {"NVIDIA H100 80GB HBM3": "h100", "NVIDIA H200": "h200", "NVIDIA GH200 480GB": "gh200",
         "NVIDIA A100-SXM4-40GB": "a100-40", "NVIDIA A100-SXM-64GB": "a100-64", "NVIDIA A100-SXM4-80GB": "a100-80",
         "NVIDIA A10": "a10", "NVIDIA A40": "a40", "NVIDIA L4": "l4", "NVIDIA L40": "l40", "NVIDIA L40S": "l40s"}


def compare_card(trainer, flags):
    """What `plan --card` says without the card, beside what is planned on it."""
    command = ["nvidia-smi", "--id=0", "--query-gpu=name", "--format=csv,noheader"]
    name = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    if name not in CARDS:
        return trainer.stage.leave_out("memory.card", f"plan --card knows no {name}")
    here = trainer.plan("memory.card.here", flags)
    there = trainer.plan("memory.card.there", [*flags, "--card", CARDS[name]])
    if here and there:
        more = planned_bytes(there, "cuda") - planned_bytes(here, "cuda")
        trainer.stage.measure("memory.card", card=CARDS[name], attention_from=there["attention_from"],
                              available_bytes=here["device_available_bytes"],
                              available_bytes_without=there["device_available_bytes"], value=more / 2**20,
                              unit="MiB planned beyond the card's own plan")
    return None


def rows_that_fill(trainer, flags):
    """From the plans of two sizes, which differ by activations alone; None where there is no plan. A rehearsal has no
    memory to fill."""
    plans = [(rows, trainer.plan(f"memory.edge.plan-{rows}", flags, batch=rows, data=trainer.rows(rows, LENGTH)))
             for rows in (64, 128)]
    if not all(plan for _, plan in plans):
        return None
    (few, small), (many, large) = plans
    if "device_available_bytes" not in small:
        return (few + many) // 2
    needs = [plan["allocated_bytes"] - plan["pinned_bytes"] for plan in (small, large)]
    return int(few + (small["device_available_bytes"] - needs[0]) / (needs[1] - needs[0]) * (many - few))


def refuse(trainer, flags, rows):
    stage = trainer.stage
    if stage.left_s() < 15:
        return stage.leave_out("memory.over", f"{max(stage.left_s(), 0):.0f} s were left")
    command = trainer.command("train", ["--out", trainer.directory / "out", "--overwrite", "--steps", "1", *flags], rows,
                              trainer.rows(rows, LENGTH))
    try:
        result = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=stage.left_s(),
                                env=trainer_environment(), check=False)
    except subprocess.TimeoutExpired:
        return stage.leave_out("memory.over", "it was not done in time")
    message = result.stderr.strip()[-600:]
    stage.measure("memory.over", rows=rows, exit_code=result.returncode, message=message)
    if result.returncode != REFUSED:
        stage.fail("memory.over", f"a run that is larger than the card ended with {result.returncode}, not {REFUSED}")
    elif "the nearest that fits" not in message:
        stage.fail("memory.over", "the message names no settings that fit")
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--scratch", required=True)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    stage = Stage()
    on_card = options.device == "cuda"
    flags = [*BF16, "--peak-tflops", "1"]
    small, large = (Trainer(stage, options.trainer, options.device, options.scratch, model)
                    for model in (("tiny", "tiny") if options.small else ("33m", "852m")))
    if small.prepare():
        compare(small, small.model, flags, 3)
    if large.prepare():
        compare(large, f"{large.model}-again" if options.small else large.model, flags, 1)
        if on_card:
            compare_card(large, flags)
        rows = rows_that_fill(large, flags)
        if rows:
            compare(large, "edge", flags, 1, batch=rows, data=large.rows(rows, LENGTH))
        if rows and on_card:
            refuse(large, flags, int(1.05 * rows))
    stage.end()


if __name__ == "__main__":
    main()
