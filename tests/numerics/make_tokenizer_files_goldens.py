"""Makes tests/fixtures/tokenizers/saved, the small fixture's tokenizer.model as transformers 5 saves it, and
tests/fixtures/tokenizers/files.json: what AutoTokenizer reads from directories whose files say different things.

A case is a fixture's directory with some files put in the place of its own, and tokenizer.json edited by a JSON Patch
(RFC 6902; test, copy and move are not used). Run after make_tokenizer_goldens.py with a Python that has transformers 5,
sentencepiece and protobuf:
    python tests/numerics/make_tokenizer_files_goldens.py
"""

import itertools
import json
import pathlib
import shutil
import tempfile

import transformers

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "tokenizers"
BASES = {"chat/tokenizer": FIXTURES.parent / "chat" / "tokenizer"}  # else in FIXTURES
ABSENT = object()

TEXTS = ["the weights travel", "a<tool>b", "a <newer> b", "the<new>the<|im_end|>the", "x<|pad|>y </s>", "à 123\n z", "x  y",
         "a <tool> b<|pad|>  <|im_end|> c<|end_of_text|>"]
BEGIN_WITH_SPACE = [" the weights", "  a"]  # left out where SentencePiece, or the steps of the file, differ: README.md

LLAMA_TOKENS = {"0": "<unk>", "1": "<s>", "2": "</s>"}


def token(content: str, special: bool = False) -> dict:
    return {"content": content, "special": special, "normalized": False, "lstrip": False, "rstrip": False, "single_word": False}


def patched(document, patch: list[dict]):
    for step in patch:
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        place = document
        for part in parents:
            place = place[int(part) if isinstance(place, list) else part]
        if isinstance(place, list):
            at = len(place) if last == "-" else int(last)
            if step["op"] != "add":
                del place[at]
            if step["op"] != "remove":
                place.insert(at, step["value"])
        elif step["op"] == "remove":
            del place[last]
        else:
            place[last] = step["value"]
    return document


class Cases:
    def __init__(self, made_in: pathlib.Path):
        self.directory = made_in
        self.cases: list[dict] = []

    def add(self, bases: list[str], config: dict, files: dict | None = None, patch: list[dict] | None = None, spaces: bool = True):
        """`config` is laid over the base's tokenizer_config.json; `spaces`: with texts that begin with white space."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir()
        for base in bases:
            for file in BASES.get(base, FIXTURES / base).iterdir():
                if not (self.directory / file.name).exists():
                    shutil.copy(file, self.directory / file.name)
        whole = json.loads((self.directory / "tokenizer_config.json").read_text())
        if isinstance(whole.get("eos_token"), dict) and "__type" not in whole["eos_token"]:
            whole["eos_token"] = whole["eos_token"]["content"]  # which transformers does not read as an object
        whole.update(config)
        files = {"tokenizer_config.json": {key: value for key, value in whole.items() if value is not ABSENT}, **(files or {})}
        for name, content in files.items():
            (self.directory / name).write_text(json.dumps(content))
        if patch:
            path = self.directory / "tokenizer.json"
            path.write_text(json.dumps(patched(json.loads(path.read_text()), patch)))
        tokenizer = transformers.AutoTokenizer.from_pretrained(self.directory)
        texts = TEXTS + (BEGIN_WITH_SPACE if spaces else [])
        ids = [tokenizer(text, split_special_tokens=True)["input_ids"] for text in texts]
        self.cases.append({"bases": bases, "files": files, "patch": patch or [], "eos": tokenizer.eos_token_id, "ids": ids})


def next_id(base: str) -> int:
    """Behind all tokens of the base."""
    if base in ("small", "saved"):
        return 480
    if base == "opt":
        return max(json.loads((FIXTURES / base / "added_tokens.json").read_text()).values()) + 1
    described = json.loads((FIXTURES / base / "tokenizer.json").read_text())
    return 1 + max([*described["model"]["vocab"].values(), *(entry["id"] for entry in described["added_tokens"])])


def add_prefix_space(cases: Cases) -> None:
    """Whose add_prefix_space counts, and for what."""
    older = [{"op": "add", "path": "/normalizer", "value": {"type": "Sequence", "normalizers": [
                 {"type": "Prepend", "prepend": "▁"},
                 {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}},
             {"op": "add", "path": "/pre_tokenizer", "value": None}]
    for value, legacy in itertools.product([ABSENT, None, True, False], [ABSENT, True, False]):
        for name in ("LlamaTokenizer", "LlamaTokenizerFast"):
            config = {"add_prefix_space": value, "legacy": legacy, "tokenizer_class": name,
                      "added_tokens_decoder": {**{i: token(text, True) for i, text in LLAMA_TOKENS.items()}, "480": token("<tool>")}}
            cases.add(["small"], config, spaces=value is False)
            cases.add(["saved", "small"], config, spaces=value is False or legacy is not True)
            # What the file's own steps say of a space behind <tool> and before a text that begins with one is kept.
            if legacy is not True:
                cases.add(["saved"], config)
            if value is False:
                cases.add(["saved"], config, patch=older)
        for name in ("PreTrainedTokenizerFast", "TokenizersBackend"):
            cases.add(["saved"], {"add_prefix_space": value, "legacy": legacy, "tokenizer_class": name})
            cases.add(["saved"], {"add_prefix_space": value, "legacy": legacy, "tokenizer_class": name}, patch=older)


def lists_of_tokens(cases: Cases) -> None:
    """Which lists make a token of added_tokens.json special."""
    names = ["<newer>", "<|im_end|>", "<new>"]
    for base in ("small", "saved", "llama3", "qwen", "opt"):
        own = {} if base != "opt" else json.loads((FIXTURES / base / "added_tokens.json").read_text())
        added = {"added_tokens.json": {**own, **{name: next_id(base) + i for i, name in enumerate(names)}}}
        roles = json.loads((FIXTURES / base / "special_tokens_map.json").read_text()) if base == "opt" else {}
        config = {"extra_special_tokens": ABSENT, "add_bos_token": True} if base == "small" else {"extra_special_tokens": ABSENT}
        settings = [({}, {}), ({}, {"pad_token": "<new>"}), ({}, {"image_token": "<newer>"})]
        for key in ("additional_special_tokens", "extra_special_tokens"):
            settings += [({key: names}, {}), ({}, {key: names}), ({key: names[:1]}, {key: names[1:]}), ({key: []}, {key: names}),
                         ({key: [token(names[0], True) | {"__type": "AddedToken"}]}, {})]
        settings += [({"additional_special_tokens": names[:1]}, {"extra_special_tokens": names[1:]}),
                     ({"extra_special_tokens": names[:1]}, {"additional_special_tokens": names[1:]}),
                     ({"additional_special_tokens": names[:1], "extra_special_tokens": names[2:]}, {}),
                     ({"additional_special_tokens": names[:1], "extra_special_tokens": []}, {}),
                     ({"eos_token": "<|im_end|>", "additional_special_tokens": names[:1]}, {})]
        for in_config, in_map in settings:
            cases.add([base], config | in_config, {**added, "special_tokens_map.json": roles | in_map}, spaces=base != "small")


def flags(cases: Cases) -> None:
    """What an added_tokens_decoder may change of the tokens of tokenizer.json."""
    for base, tokens in {"llama3": {422: "<|pad|>", 421: "<|end_of_text|>", 424: "<tool>"},
                         "qwen": {422: "<|pad|>", 423: "<tool>"}, "chat/tokenizer": {427: "<|im_end|>", 424: "<tool>"}}.items():
        for (index, content), special, normalized, lstrip, rstrip in itertools.product(tokens.items(), *[[True, False]] * 4):
            changed = token(content, special) | {"normalized": normalized, "lstrip": lstrip, "rstrip": rstrip}
            cases.add([base], {"added_tokens_decoder": {str(index): changed}})


def both_files(cases: Cases) -> None:
    """tokenizer.json beside a tokenizer.model that says something else."""
    saved = json.loads((FIXTURES / "saved" / "tokenizer.json").read_text())["model"]
    text_of = {i: text for text, i in saved["vocab"].items()}

    def swap(a: int, b: int) -> list[dict]:
        return [{"op": "add", "path": "/model/vocab/" + text_of[a].replace("/", "~1"), "value": b},
                {"op": "add", "path": "/model/vocab/" + text_of[b].replace("/", "~1"), "value": a}]

    never = [{"op": "add", "path": "/pre_tokenizer", "value": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": False}}]
    last = [{"op": "remove", "path": f"/model/merges/{len(saved['merges']) - 1 - i}"} for i in range(40)]
    first = [{"op": "remove", "path": "/model/merges/0"}, {"op": "add", "path": "/model/merges/-", "value": saved["merges"][0]}]
    more = [{"op": "add", "path": "/model/vocab/<newer>", "value": 480},
            {"op": "add", "path": "/added_tokens/-", "value": {"id": 480, **token("<newer>")}}]
    new = [{"op": "add", "path": "/added_tokens/-", "value": {"id": 480, **token("<tool>")}},
           {"op": "add", "path": "/added_tokens/-", "value": {"id": 481, **token("<|im_end|>", True)}}]
    patches = {"none": [], "swap": swap(287, 316), "swap unseen": swap(470, 471), "never": never, "last merges": last,
               "first merge last": first, "more": more, "new": new, "swap and never": swap(399, 326) + never, "new and swap": new + swap(283, 402)}
    for patch in patches.values():
        for name in ("LlamaTokenizer", "LlamaTokenizerFast", "PreTrainedTokenizerFast", "TokenizersBackend", ABSENT):
            llama = name is not ABSENT and name.startswith("Llama")
            # Of this class, steps of the file that the class would replace count where the model cannot be taken.
            if llama and never[0] in patch and patch is not never:
                continue
            cases.add(["saved", "small"], {"tokenizer_class": name, "legacy": ABSENT, "extra_special_tokens": ABSENT}, patch=patch,
                      spaces=not (llama and patch is never))


def beginning(cases: Cases) -> None:
    """The beginning token of a tokenizer.model, with and without the key."""
    for value, name, legacy in itertools.product([ABSENT, None, True, False], ["LlamaTokenizer", "LlamaTokenizerFast", "CodeLlamaTokenizer"], [ABSENT, True]):
        # CodeLlama's own tokens would be added behind the vocabulary.
        own = {} if name != "CodeLlamaTokenizer" else {key: None for key in ("prefix_token", "middle_token", "suffix_token", "eot_token", "fill_token")}
        cases.add(["small"], {"add_bos_token": value, "tokenizer_class": name, "legacy": legacy, **own}, spaces=False)
        cases.add(["small"], {"add_bos_token": value, "tokenizer_class": name, "bos_token": "</s>", **own}, spaces=False)


def main() -> None:
    small = transformers.AutoTokenizer.from_pretrained(FIXTURES / "small")
    with tempfile.TemporaryDirectory() as made_in:
        small.save_pretrained(made_in)
        (FIXTURES / "saved").mkdir(exist_ok=True)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            described = json.loads((pathlib.Path(made_in) / name).read_text())
            for key in ("is_local", "local_files_only", "backend"):
                described.pop(key, None)
            (FIXTURES / "saved" / name).write_text(json.dumps(described, ensure_ascii=False, separators=(",", ":")) + "\n")
        groups = {}
        for make in (add_prefix_space, lists_of_tokens, flags, both_files, beginning):
            cases = Cases(pathlib.Path(made_in) / "case")
            make(cases)
            groups[make.__name__] = cases.cases
            print(make.__name__, len(cases.cases))
    lines = ",\n".join(
        f'"{name}": [\n' + ",\n".join(json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in cases) + "\n]"
        for name, cases in groups.items())
    texts = json.dumps(TEXTS + BEGIN_WITH_SPACE, ensure_ascii=False)
    (FIXTURES / "files.json").write_text(f'{{"made_by": "transformers {transformers.__version__}", "texts": {texts},\n{lines}\n}}\n')


if __name__ == "__main__":
    main()
