"""Makes tests/fixtures/texts/goldens.json: CSV, TSV and JSON arrays made by chance, and what Python's csv and json modules
read in them. Needs Python 3.11 alone:
    python tests/numerics/make_text_goldens.py
"""

import csv
import io
import json
import pathlib
import random

OUT = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "texts" / "goldens.json"
WORDS = ["il", "treno", "città", "žlutý kůň", "中文", "😀", "", " ", "  x ", "a,b", "c;d", "e\tf", 'say "hi"', '"', '""', "l1\nl2",
         "l1\r\nl2", "\r", "\n", "5\" disk", "{}", "[", "]", "\\", "\\\"", "null", "1.50", "\u2028", "\ufeff"]


def field(rng: random.Random, delimiter: str) -> str:
    """A field as some program writes it: mostly right, now and then not."""
    text = rng.choice(WORDS)
    needs = any(c in text for c in delimiter + '"\r\n')
    if rng.random() < 0.04:
        return text  # as it is, where it may need quotes
    if needs or rng.random() < 0.2:
        text = '"' + text.replace('"', '""') + '"'
    if rng.random() < 0.01:
        text += rng.choice(['"', "x", '"x'])
    return text


def table(rng: random.Random, delimiter: str) -> str:
    width = rng.randint(2 if delimiter == ";" else 1, 4)  # one column tells no delimiter, and is taken for commas
    names = rng.sample(["id", "text", "the text", 'a"b', "x\ny", "città", "7"], width)
    ending = rng.choice(["\n", "\n", "\r\n", "\r"])
    quote = lambda name: '"' + name.replace('"', '""') + '"' if any(c in name for c in '"\r\n') or rng.random() < 0.3 else name
    lines = [delimiter.join(map(quote, names))]
    for _ in range(rng.randint(0, 6)):
        count = width if rng.random() < 0.97 else rng.randint(1, 5)
        lines.append(delimiter.join(field(rng, delimiter) for _ in range(count)))
        if rng.random() < 0.1:
            lines.append("")
    text = ending.join(lines) + rng.choice(["", ending])
    return ("\ufeff" if rng.random() < 0.2 else "") + text


def read_table(text: str, delimiter: str):
    """The rows by column; None where Python's csv, or a table's shape, is wrong."""
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True) if row]
    except csv.Error:
        return None
    if any(len(row) != len(rows[0]) for row in rows):
        return None
    return [dict(zip(rows[0], row)) for row in rows[1:]]


def value(rng: random.Random, depth: int):
    kind = rng.randrange(8 if depth > 0 else 6)
    if kind == 6:
        return [value(rng, depth - 1) for _ in range(rng.randint(0, 3))]
    if kind == 7:
        return {word: value(rng, depth - 1) for word in rng.sample(WORDS, rng.randint(0, 3))}
    return [rng.choice(WORDS), rng.randint(-9, 10**18), rng.random(), True, None, rng.choice(WORDS)][kind]


def array(rng: random.Random) -> str:
    elements = [rng.choice(WORDS) if rng.random() < 0.3 else {"text": rng.choice(WORDS), "n": value(rng, 2)}
                for _ in range(rng.randint(0, 6))]
    text = json.dumps(elements, ensure_ascii=rng.random() < 0.3, indent=rng.choice([None, None, 0, 2]))
    if rng.random() < 0.15 and len(text) > 2:  # damage
        at = rng.randrange(1, len(text))
        text = rng.choice([text[:at], text[:at] + text[at + 1:], text[:at] + rng.choice(',]}"x') + text[at:]])
    return rng.choice(["", "", "\ufeff", "\n "]) + text + rng.choice(["", "\n"])


def refuse_twice(pairs: list) -> dict:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def read_array(text: str):
    try:
        rows = json.loads(text, object_pairs_hook=refuse_twice)
    except ValueError:
        return None
    return [{"text": row} if isinstance(row, str) else row for row in rows] if isinstance(rows, list) else None


def main() -> None:
    rng = random.Random(37)
    cases = []
    for i in range(400):
        name = ("csv", "tsv", "semicolon", "array")[i % 4]
        delimiter = {"csv": ",", "tsv": "\t", "semicolon": ";"}.get(name)
        text = table(rng, delimiter) if delimiter else array(rng)
        plain = text.removeprefix("\ufeff")
        rows = read_table(plain, delimiter) if delimiter else read_array(plain)
        cases.append({"kind": name, "text": text, "rows": rows})
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(cases, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(len(cases), "cases, of which refused:", sum(case["rows"] is None for case in cases))


main()
