#!/usr/bin/env python3
"""What run.sh measured: puts a call's stages into one file, and prints files beside what was predicted.

    results.py collect CALL --out FOLDER --scratch FOLDER --deadline S [--rehearsal]
    results.py table [FILE…]       default: the files in bench/gpu/results

predictions.json has a figure a line: what it was before (measured), what it is expected to be or to reach, and where
that comes from. Nothing in it was measured but what says so.
"""
import argparse
import datetime
import json
import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LOG_TAIL = 3000  # characters, of a stage that is not done


def json_lines(path):
    lines = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
        try:
            lines.append(json.loads(line))
        except ValueError:  # the stage was stopped while it wrote
            lines.append({"name": "a line that broke off", "text": line[:200]})
    return lines


def find(stages, name):
    return next((measure for stage in stages for measure in stage["measures"] if measure.get("name") == name), {})


def describe(stages, scratch):
    """The card and the versions, from the stage `facts` of this call or of the one before."""
    facts = stages if find(stages, "card") else [{"measures": json_lines(pathlib.Path(scratch) / "facts.jsonl")}]
    card = find(facts, "card")
    libraries = {measure["name"].split(".", 1)[1]: measure.get("version") for measure in facts[0]["measures"]
                 if measure.get("name", "").startswith("library.")}
    return {"card": card.get("name_of_card"), "card_lacks": card.get("lacks"), "driver": card.get("driver_version"),
            "libraries": libraries, "packages": find(facts, "packages") or None}


def collect(options):
    out, scratch = pathlib.Path(options.out), pathlib.Path(options.scratch)
    stages = json_lines(out / f"{options.call}.stages.jsonl")
    for stage in stages:
        stage["measures"] = json_lines(scratch / f"{stage['stage']}.jsonl") if stage["status"] != "left out" else []
        log = scratch / f"{stage['stage']}.log"
        if stage["status"] not in ("done", "left out") and log.exists():
            stage["log_tail"] = log.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL:]
    now = datetime.datetime.now(datetime.timezone.utc)
    result = {"call": options.call, "date": now.isoformat(timespec="seconds"), "rehearsal": options.rehearsal}
    result |= describe(stages, scratch)
    bundle = ROOT / "build/gpu/bundle.json"
    result["programs"] = json.loads(bundle.read_text()) if bundle.exists() else None
    result |= {"seconds": sum(stage["seconds"] for stage in stages), "deadline_s": options.deadline, "stages": stages}
    card = re.sub(r"[^a-z0-9]+", "-", (result["card"] or "no-card").lower()).strip("-")
    kind = f"rehearsal-{card}" if options.rehearsal else card
    path = out / f"{kind}-{options.call}-{now:%Y%m%d-%H%M}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    (out / f"{options.call}.stages.jsonl").unlink()
    print(f"written: {path}")


def short(value):
    if value is None:
        return "–"
    if not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def chosen(value, card):
    """Of a figure that is another on each card: this card's."""
    if not isinstance(value, dict):
        return value
    return next((own for name, own in value.items() if name in (card or "")), value.get("H100"))


def measured(result, figure):
    """The last measure of that name that has the figure's field."""
    field = figure.get("field", "value")
    values = [measure for stage in result["stages"] for measure in stage["measures"]
              if measure.get("name") == figure["name"]]
    for measure in reversed(values):
        if field in measure:
            return measure[field]
    notes = [note for measure in values for key in ("left_out", "failed") if (note := measure.get(key))]
    return f"({notes[-1][:60]})" if notes else None


def print_table(paths):
    predictions = json.loads((HERE / "predictions.json").read_text())["figures"]
    results = [json.loads(path.read_text()) for path in paths]
    for result in results:
        missing = [f"{stage['stage']}: {stage['status']}{', ' + stage['why'] if stage['why'] else ''}"
                   for stage in result["stages"] if stage["status"] != "done"]
        card = f"{result['card']}, driver {result['driver']}" if result["card"] else result["card_lacks"]
        print(f"{result['call']}, {result['date']}, {card}, {result['seconds']:.0f} s of {result['deadline_s']}"
              f"{', a rehearsal' if result['rehearsal'] else ''}")
        for line in missing:
            print(f"  {line}")
    print("\n| figure | unit | before | must (predicted) | goal (predicted) | measured | measured ÷ must |\n"
          "|---|---|---|---|---|---|---|")
    for figure in predictions:
        value, card = None, None
        for result in results:
            if (found := measured(result, figure)) is not None:
                value, card = found, result["card"]
        must = chosen(figure.get("must"), card)
        ratio = value / must if isinstance(value, (int, float)) and must else None
        print(f"| {figure['name']} | {figure['unit']} | {short(chosen(figure.get('before'), card))} | {short(must)} | "
              f"{short(chosen(figure.get('goal'), card))} | {short(value)} | {short(ratio)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect")
    collecting.add_argument("call")
    collecting.add_argument("--out", required=True)
    collecting.add_argument("--scratch", required=True)
    collecting.add_argument("--deadline", type=int, required=True)
    collecting.add_argument("--rehearsal", action="store_true")
    table = commands.add_parser("table")
    table.add_argument("files", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    if options.command == "collect":
        return collect(options)
    return print_table(options.files or sorted((HERE / "results").glob("*.json")))


if __name__ == "__main__":
    main()
