"""Makes tests/fixtures/chat/rows.json: rows as ShareGPT and TRL have them, made by chance, and the messages that TRL makes of
them, with the roles' names mapped to those of chat templates, and which messages its completion mask counts.

Run with a Python that has trl, transformers and datasets:
    python tests/numerics/make_conversation_goldens.py
"""

import json
import pathlib
import random

from trl.data_utils import is_conversational, maybe_convert_to_chatml

OUT = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "chat" / "rows.json"
WORDS = ["", "A che ora parte?", "Alle sette.", " \n", "žlutý\tkůň", "<|im_end|>", "{{content}}", "123"]
# What Axolotl and Unsloth map, by their defaults: TRL leaves a role as it is called.
ROLES = {"human": "user", "user": "user", "input": "user", "gpt": "assistant", "assistant": "assistant", "output": "assistant",
         "system": "system", "tool": "tool"}


def talk(rng: random.Random, sharegpt: bool, first: str = "user", turns: int | None = None) -> list[dict]:
    names = {"user": ["human", "user", "input"], "assistant": ["gpt", "assistant", "output"], "system": ["system"]}
    roles = ["system"] if first == "user" and rng.random() < 0.3 else []
    turns = rng.randint(1, 4) if turns is None else turns
    order = ["user", "assistant"] if first == "user" else ["assistant", "user"]
    roles += [order[i % 2] for i in range(turns)]
    messages = []
    for role in roles:
        text = rng.choice(WORDS)
        keys = ("from", "value") if sharegpt and rng.random() < 0.9 else ("role", "content")
        messages.append({keys[0]: rng.choice(names[role]) if keys[0] == "from" else role, keys[1]: text})
    return messages


def make_row(rng: random.Random) -> dict:
    kind = rng.randrange(4)
    if kind == 0:
        row = {"conversations": talk(rng, True)}
    elif kind == 1:
        row = {"messages": talk(rng, rng.random() < 0.3)}
    elif kind == 2:
        row = {"prompt": talk(rng, rng.random() < 0.3), "completion": talk(rng, rng.random() < 0.3, "assistant", 1)}
    else:
        row = {"prompt": rng.choice(WORDS), "completion": rng.choice(WORDS)}
    if rng.random() < 0.3:
        row |= {"id": rng.randint(1, 9), "source": None}
    return row


def reference(row: dict) -> list[list] | None:
    """[role, content, counts] of each message; None where the conversation has no answer."""
    converted = maybe_convert_to_chatml(json.loads(json.dumps(row)))
    if not is_conversational(converted):  # two texts, which TRL only appends to each other
        return [["user", row["prompt"], False], ["assistant", row["completion"], True]]
    if "prompt" in converted:  # completion_only_loss, TRL's default for such rows
        messages = [(m, False) for m in converted["prompt"]] + [(m, True) for m in converted["completion"]]
    else:  # assistant_only_loss
        messages = [(m, True) for m in converted["messages"]]
    out = [[ROLES[m["role"]], m["content"], counts and ROLES[m["role"]] == "assistant"] for m, counts in messages]
    return out if any(counts for _, _, counts in out) else None


def main() -> None:
    rng = random.Random(37)
    cases = [{"row": row, "messages": reference(row)} for row in (make_row(rng) for _ in range(200))]
    OUT.write_text(json.dumps(cases, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(len(cases), "rows, of which without an answer:", sum(case["messages"] is None for case in cases))


main()
