"""Makes tests/fixtures/tokenizers/kinds.json: what the tokenizers library makes of odd texts with tokenizer.json files of
every kind that trainer/tokenizer reads.

Run after make_tokenizer_goldens.py with a Python (3.11: Unicode 14) that has tokenizers 0.23.3, transformers 5.23,
sentencepiece and protobuf:
    python tests/numerics/make_tokenizer_kinds_goldens.py
    python tests/numerics/make_tokenizer_kinds_goldens.py --texts 100000 --only '^split' --out F   # ATOLL_TOKENIZER_KINDS=F
    python tests/numerics/make_tokenizer_kinds_goldens.py --seeds DIR              # each kind whole, for the fuzzer
    python tests/numerics/make_tokenizer_kinds_goldens.py --tables                 # of trainer/tokenizer/unicode_classes.cpp

A kind is a tokenizer.json without its vocabulary, merges and (where they are null) added tokens, which are those of one of
the models. `digests` has eight digits a text: of the ids (32 bits each) and, behind them, of what they and the same in
reverse are decoded to.
`control` changes one value of the tokenizer.json, and `control_differs` is how many of the first 1000 texts have another
digest then.
"""

import argparse
import copy
import hashlib
import json
import pathlib
import random
import re
import struct
import sys
import tempfile
import unicodedata

import tokenizers
import transformers
from tokenizers import AddedToken, models, pre_tokenizers, trainers

from make_tokenizer_goldens import FIXTURES, TEXT

BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
MARK = "\u2581"
CONTROL_TEXTS = 1000


# The models.


def saved(tokenizer) -> dict:
    """The tokenizer.json that transformers saves of it."""
    with tempfile.TemporaryDirectory() as directory:
        tokenizer.save_pretrained(directory)
        return json.loads((pathlib.Path(directory) / "tokenizer.json").read_text())


def llama() -> dict:
    return saved(transformers.LlamaTokenizer.from_pretrained(FIXTURES / "small"))


def gemma(model: dict) -> dict:
    vocab = dict(model["vocab"])
    for old, new in (("<s>", "<bos>"), ("</s>", "<eos>")):
        vocab[new] = vocab.pop(old)
    for token in ("<pad>", "<mask>"):
        vocab[token] = len(vocab)
    return saved(transformers.GemmaTokenizer(vocab=vocab, merges=[tuple(merge) for merge in model["merges"]]))


def partial_model(whole: dict, over_spaces: bool) -> dict:
    """Few characters, some bytes, and merges that may reach over spaces."""
    kept = [token for token in whole["vocab"] if len(token) == 1 and token in "abcdeilnorst.,1▁<>ù"]
    tokens = ["<unk>", *sorted(kept), "<0x0A>", "<0xC3>", "<0xA8>", "<0xE4>", "<0xB8>", "<0x80>"]
    merges = [("a", "▁"), ("▁", "▁"), ("▁▁", "▁▁"), ("e", "▁"), ("e▁", "d"), ("▁", "t"), ("▁t", "r"), ("i", "l"), ("▁", "il"),
              ("o", "▁▁"), ("<0xC3>", "<0xA8>"), ("<unk>", "a"), ("1", "1"), ("s", "t"), ("st", "▁")]
    merges = [(left, right) for left, right in merges if over_spaces or MARK not in (left + right).lstrip(MARK)]
    for left, right in merges:
        if left + right not in tokens:
            tokens.append(left + right)
    return {"vocab": {token: index for index, token in enumerate(tokens)}, "merges": [list(merge) for merge in merges]}


def bytes_model() -> dict:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, special_tokens=["<|endoftext|>"])
    tokenizer.train_from_iterator(TEXT.strip().splitlines(keepends=True) * 3, trainer)
    return json.loads(tokenizer.to_str())["model"]


# The kinds.


def split(pattern: str, behavior: str = "Isolated", invert: bool = False, regex: bool = True) -> dict:
    return {"type": "Split", "pattern": {"Regex" if regex else "String": pattern}, "behavior": behavior, "invert": invert}


def sequence(key: str, *steps: dict) -> dict:
    return {"type": "Sequence", key: list(steps)}


def digits(individual: bool) -> dict:
    return {"type": "Digits", "individual_digits": individual}


def byte_level(prefix: bool = False, regex: bool = True) -> dict:
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def metaspace(scheme: str, split: bool, replacement: str = MARK) -> dict:
    return {"type": "Metaspace", "replacement": replacement, "prepend_scheme": scheme, "split": split}


def replace(pattern: str, content: str, regex: bool = False) -> dict:
    return {"type": "Replace", "pattern": {"Regex" if regex else "String": pattern}, "content": content}


def prepend(content: str = MARK) -> dict:
    return {"type": "Prepend", "prepend": content}


STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
LLAMA_DECODER = sequence("decoders", replace(MARK, " "), {"type": "ByteFallback"}, {"type": "Fuse"}, STRIP)
LLAMA_NORMALIZER = sequence("normalizers", prepend(), replace(" ", MARK))
BYTE_DECODER = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}

DEEPSEEK_V2 = sequence(
    "pretokenizers", split("[\r\n]"), split("\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u0370-\u0373\u0400-\u0481]+"),
    split("\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"), split("\\s+$"),
    split("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"), digits(True), byte_level(regex=False))
DEEPSEEK_V3 = sequence(
    "pretokenizers", split("\\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
    split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
          "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"), byte_level(regex=False))
FALCON = sequence(
    "pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"}, byte_level(), digits(False), split("[0-9][0-9][0-9]"))


def added_tokens(vocab: dict) -> list[dict]:
    """A special token of the vocabulary, and others that are found in texts."""
    def token(content: str, special: bool = False, normalized: bool = False, lstrip: bool = False, rstrip: bool = False) -> dict:
        known = vocab.get(content)
        return {"content": content, "single_word": False, "lstrip": lstrip, "rstrip": rstrip, "normalized": normalized,
                "special": special, "id": known if known is not None else -1}
    tokens = [token(next(name for name in ("<unk>", "<|endoftext|>") if name in vocab), special=True), token("<tool>"),
              token("<left>", lstrip=True), token("<right>", rstrip=True), token("la città", normalized=True), token("a b", normalized=True)]
    size = len(vocab)
    for entry in tokens:
        if entry["id"] < 0:
            entry["id"], size = size, size + 1
    return tokens


def kind(name: str, model: str, vocab: dict, *, normalizer=None, pre_tokenizer=None, decoder=None, added=True, **flags) -> dict:
    options = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
               "fuse_unk": False, "byte_fallback": False, "ignore_merges": False} | flags
    return {"name": name, "model": model, "tokenizer": {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": None if added else [],
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": decoder, "model": options}}


def saved_kind(name: str, model: str, tokenizer: dict) -> dict:
    tokenizer = copy.deepcopy(tokenizer)
    for key in ("vocab", "merges"):
        del tokenizer["model"][key]
    return {"name": name, "model": model, "tokenizer": tokenizer}


def named_kinds(whole: dict, part: dict, bytes_: dict) -> list[dict]:
    sp = {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}
    made = [
        kind("llama-of-transformers-4", "whole", whole, normalizer=LLAMA_NORMALIZER, decoder=LLAMA_DECODER, **sp),
        kind("llama-without-bytes", "part", part, normalizer=LLAMA_NORMALIZER, decoder=LLAMA_DECODER, **sp),
        kind("unknown-tokens-apart", "part", part, normalizer=LLAMA_NORMALIZER, decoder=LLAMA_DECODER, unk_token="<unk>"),
        kind("unknown-characters-vanish", "part", part, pre_tokenizer=metaspace("first", False), decoder=LLAMA_DECODER),
        kind("characters-vanish-between-spaces", "spaces", part, normalizer=LLAMA_NORMALIZER, decoder=LLAMA_DECODER),
        kind("first-of-replaced", "whole", whole, pre_tokenizer=metaspace("first", False), decoder=LLAMA_DECODER, normalizer=sequence(
            "normalizers", replace(r"\A[A-Ma-m]", "X", True), replace(r"\A[n-zN-Z ]{2}", "Y", True)), **sp),
        kind("merges-ignored", "part", part, pre_tokenizer=metaspace("always", True), decoder=metaspace("always", True),
             unk_token="<unk>", ignore_merges=True),
        kind("no-decoder", "whole", whole, pre_tokenizer=metaspace("never", True), **sp),
        kind("sentencepiece-of-transformers-5", "whole", whole, normalizer=sequence(
            "normalizers", replace(r"\A +| +\z", "", True), replace(" {2,}", " ", True), replace(" ", MARK), replace(r"\A▁", "▁▁", True)),
            pre_tokenizer=sequence("pretokenizers", metaspace("always", False), split("▁il|nte")), decoder=LLAMA_DECODER, **sp),
        kind("first-of-prepended", "whole", whole, normalizer=sequence("normalizers", prepend(), replace("x", "")),
             pre_tokenizer=sequence("pretokenizers", split(MARK, regex=False), metaspace("first", True)), decoder=LLAMA_DECODER, **sp),
        kind("smollm2", "bytes", bytes_, pre_tokenizer=sequence("pretokenizers", digits(True), byte_level()), decoder=BYTE_DECODER),
        kind("deepseek-v2", "bytes", bytes_, pre_tokenizer=DEEPSEEK_V2, decoder=BYTE_DECODER),
        kind("deepseek-v3", "bytes", bytes_, pre_tokenizer=DEEPSEEK_V3, decoder=BYTE_DECODER),
        kind("falcon", "bytes", bytes_, pre_tokenizer=FALCON, decoder=BYTE_DECODER),
        kind("prefix-of-each-word", "bytes", bytes_, pre_tokenizer=sequence("pretokenizers", digits(True), byte_level(prefix=True)),
             decoder=BYTE_DECODER),
        kind("normalized-bytes", "bytes", bytes_, normalizer=sequence("normalizers", {"type": "NFC"}, prepend(" "), replace("l", "LL")),
             pre_tokenizer=sequence("pretokenizers", split(" ", "MergedWithNext", regex=False), byte_level(regex=False)),
             decoder=BYTE_DECODER),
    ]
    for scheme in ("first", "always", "never"):
        for splits in (False, True):
            made.append(kind(f"metaspace-{scheme}-{splits}", "whole", whole, pre_tokenizer=metaspace(scheme, splits),
                             decoder=metaspace(scheme, splits), **sp))
    for behavior in BEHAVIORS:
        for model, vocab, rest in (("bytes", bytes_, [byte_level(regex=False)]), ("whole", whole, [])):
            options = {"decoder": BYTE_DECODER} if rest else {"decoder": LLAMA_DECODER, **sp}
            for text, regex in ((" ", False), ("▁" if rest else "e", False), (r"\s+|\d", True), ("[aeiou]t?", True)):
                for invert in (False, True):
                    steps = sequence("pretokenizers", split(text, behavior, invert, regex), *rest)
                    made.append(kind(f"split-{behavior}-{invert}-{model}-{text}", model, vocab, pre_tokenizer=steps, **options))
            steps = sequence("pretokenizers", {"type": "Punctuation", "behavior": behavior}, *rest)
            made.append(kind(f"punctuation-{behavior}-{model}", model, vocab, pre_tokenizer=steps, **options))
    for individual in (False, True):
        made.append(kind(f"digits-{individual}", "whole", whole, pre_tokenizer=digits(individual), decoder=LLAMA_DECODER, **sp))
        for regex in (False, True):
            steps = sequence("pretokenizers", digits(individual), byte_level(individual, regex))
            made.append(kind(f"digits-{individual}-bytes-{regex}", "bytes", bytes_, pre_tokenizer=steps, decoder=BYTE_DECODER))
    return made


def random_step(draw: random.Random) -> dict:
    patterns = [(" ", False), (MARK, False), ("e", False), ("ll", False), ("\n", False), (r"\s+", True), (r"\p{L}+", True), (r"\p{N}", True),
                ("[^a-z]", True), (r" ?\p{L}+", True), (r"\n+$", True)]
    which = draw.randrange(8)
    if which < 4:
        text, regex = draw.choice(patterns)
        return split(text, draw.choice(BEHAVIORS), draw.random() < 0.3, regex)
    if which == 4:
        return digits(draw.random() < 0.5)
    if which == 5:
        return {"type": "Punctuation", "behavior": draw.choice(BEHAVIORS)}
    return metaspace(draw.choice(["first", "always", "never"]), draw.random() < 0.5, draw.choice([MARK, MARK, "_", "e"]))


def random_kind(index: int, whole: dict, part: dict, bytes_: dict) -> dict:
    draw = random.Random(1000 + index)
    model, vocab = draw.choice([("whole", whole), ("part", part), ("part", part), ("bytes", bytes_)])
    steps = [random_step(draw) for _ in range(draw.randrange(4))]
    if model == "bytes":
        steps.append(byte_level(draw.random() < 0.3, draw.random() < 0.5))
        later = [random_step(draw) for _ in range(draw.randrange(2))]
        steps += [step for step in later if step["type"] != "Metaspace"]
    texts = [(" ", MARK), ("a", "e "), ("ll", "l"), ("x", ""), (MARK, " "), ("e", "\u00e8")]
    normalizer = [draw.choice([prepend(), prepend("ab"), replace(*draw.choice(texts)), replace(r"\s+", " ", True), replace(" ", MARK),
                               replace(" ", MARK)])
                  for _ in range(draw.randrange(4))]
    decoders = [LLAMA_DECODER, metaspace("always", True), metaspace("never", False), None, {"type": "ByteFallback"}, STRIP | {"start": 2},
                sequence("decoders", {"type": "Fuse"}, STRIP | {"content": "e"}, replace("l", "L")), BYTE_DECODER]
    decoder = BYTE_DECODER if model == "bytes" else draw.choice(decoders)
    return kind(f"random-{index}", model, vocab, normalizer=sequence("normalizers", *normalizer) if normalizer else None,
                pre_tokenizer=sequence("pretokenizers", *steps) if steps else None, decoder=decoder, added=draw.random() < 0.5,
                unk_token=draw.choice([None, "<unk>"]) if model != "bytes" else None, fuse_unk=draw.random() < 0.5,
                byte_fallback=draw.random() < 0.5, ignore_merges=draw.random() < 0.3)


# The controls: one thing changed.


def changes(tokenizer: dict):
    """Places in the tokenizer.json, as JSON pointers, and values for them."""
    pre_tokenizer = tokenizer["pre_tokenizer"] or {}
    steps = {f"/pre_tokenizer/pretokenizers/{index}": step for index, step in enumerate(pre_tokenizer.get("pretokenizers", []))}
    for place, step in (steps or {"/pre_tokenizer": pre_tokenizer}).items():
        if "behavior" in step:
            for behavior in BEHAVIORS:
                yield f"{place}/behavior", behavior
        if "prepend_scheme" in step:
            yield f"{place}/prepend_scheme", "never" if step["prepend_scheme"] != "never" else "always"
        for key in ("individual_digits", "use_regex", "split"):
            if key in step:
                yield f"{place}/{key}", not step[key]
    yield "/normalizer", None
    for key in ("byte_fallback", "fuse_unk", "ignore_merges"):
        yield f"/model/{key}", not tokenizer["model"][key]
    yield "/added_tokens", []
    yield "/normalizer", prepend("e")


def changed(tokenizer: dict, pointer: str, value) -> dict:
    result = copy.deepcopy(tokenizer)
    *path, last = pointer.split("/")[1:]
    where = result
    for key in path:
        where = where[int(key)] if isinstance(where, list) else where[key]
    where[last] = value
    return result


# The texts.


def characters_of(category: str) -> list[str]:
    return [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)).startswith(category)]


def made_texts(count: int) -> list[str]:
    draw = random.Random(7)
    numbers, marks, punctuation, others = (characters_of(c) for c in ("N", "M", "P", "S"))
    ranges = [(0x20, 0x7E), (0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x10A0, 0x11FF),
              (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1F300, 0x1F64F), (0x20000, 0x2A6DF)]
    letters = [[chr(code) for code in range(low, high + 1) if unicodedata.category(chr(code)) != "Cn"] for low, high in ranges]
    words = TEXT.split()
    odd = ["<tool>", "<left>", " <left>", "<right> ", "la città", "a b", "<unk>", "<s>", "</s>", "<|endoftext|>", "<0x41>", "<0x0A>", "<0xC3>",
           MARK, MARK * 3, "Ġ", "Ċ", "\ufffd", "\ufffe", "\uffff", "\U0010ffff", "\ue000", "\U000f0000", "\u200d", "\ufeff", "\u202e", "\u2028",
           "\u0085", "\u00a0", "\u3000", "\u200b", "\u0000", "\u0001", "\x1c", "\x7f", "\u0080", "👩‍👩‍👧‍👦", "🇮🇹", "e\u0301", "o\u0323\u0302", "\u0301",
           "it's", "we'LL", "_", "²", "½", "Ⅷ", "一", "٣", "x", "e ", "ll", "l'"]
    spaces = ["", "", " ", " ", " ", "  ", "   ", " " * 17, "\n", "\r\n", "\n\n", "\t", "\r"]

    def piece() -> str:
        which = draw.randrange(10)
        if which < 3:
            return draw.choice(words)
        if which < 5:
            return "".join(draw.choice(draw.choice(letters)) for _ in range(draw.randrange(1, 6)))
        if which == 5:
            block = draw.choice(letters)
            return "".join(draw.choice(block) for _ in range(draw.randrange(1, 8)))
        if which == 6:
            return "".join(draw.choice(draw.choice([numbers, "0123456789"])) for _ in range(draw.randrange(1, 7)))
        if which == 7:
            return "".join(draw.choice(draw.choice([punctuation, others, marks, "!?.,;:'-"])) for _ in range(draw.randrange(1, 4)))
        return draw.choice(odd)

    texts = ["", " ", "a", "  a", "a  ", MARK, " " * 300, "\r\n" * 20, "x" * 300, TEXT]
    while len(texts) < count:
        texts.append("".join(draw.choice(spaces) + piece() for _ in range(draw.randrange(1, 12))) + draw.choice(spaces))
    return texts[:count]


def with_model(tokenizer: dict, model: dict) -> dict:
    whole = copy.deepcopy(tokenizer)
    whole["model"] |= {key: model[key] for key in ("vocab", "merges")}
    if whole["added_tokens"] is None:
        whole["added_tokens"] = model["added_tokens"]
    return whole


def digests(tokenizer: dict, model: dict, texts: list[str]) -> list[str]:
    reference = tokenizers.Tokenizer.from_str(json.dumps(with_model(tokenizer, model)))
    reference.encode_special_tokens = True
    result = []
    for at in range(0, len(texts), 1000):
        ids = [encoding.ids for encoding in reference.encode_batch(texts[at : at + 1000], add_special_tokens=False)]
        reversed_ids = [sequence_of_text[::-1] for sequence_of_text in ids]
        for sequence_of_text, decoded, backwards in zip(ids, reference.decode_batch(ids), reference.decode_batch(reversed_ids)):
            data = struct.pack(f"<{len(sequence_of_text)}i", *sequence_of_text) + decoded.encode() + backwards.encode()
            result.append(hashlib.sha256(data).hexdigest()[:8])
    return result


def check_with_transformers(tokenizer: dict, texts: list[str], config: dict) -> None:
    """AutoTokenizer gives the same ids of what it saved."""
    reference = tokenizers.Tokenizer.from_str(json.dumps(tokenizer))
    reference.encode_special_tokens = True
    with tempfile.TemporaryDirectory() as directory:
        (pathlib.Path(directory) / "tokenizer.json").write_text(json.dumps(tokenizer))
        (pathlib.Path(directory) / "tokenizer_config.json").write_text(json.dumps(config))
        own = transformers.AutoTokenizer.from_pretrained(directory, split_special_tokens=True)
        for text in texts:
            assert own.encode(text, add_special_tokens=False) == reference.encode(text, add_special_tokens=False).ids, text


def print_tables() -> None:
    for name, step in (("kNumeric", pre_tokenizers.Digits(individual_digits=True)), ("kPunctuation", pre_tokenizers.Punctuation())):
        ranges: list[list[int]] = []
        for code in range(0x110000):
            if 0xD800 <= code < 0xE000 or len(step.pre_tokenize_str(f"a{chr(code)}b")) == 1:
                continue
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
        print(f"constexpr std::array {name} = {{", ", ".join(f"ClassRange{{{low:#x}, {high:#x}}}" for low, high in ranges), "};")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", nargs="?", help="of other goldens (make_goldens.sh names it): not used")
    parser.add_argument("--texts", type=int, default=160)
    parser.add_argument("--random-kinds", type=int, default=60)
    parser.add_argument("--out", type=pathlib.Path, default=FIXTURES / "kinds.json")
    parser.add_argument("--only", default="", help="expression that the names of the kinds match")
    parser.add_argument("--seeds", type=pathlib.Path, help="write each kind's tokenizer.json into this directory, no goldens")
    parser.add_argument("--tables", action="store_true")
    arguments = parser.parse_args()
    if arguments.tables:
        return print_tables()
    texts = made_texts(arguments.texts)
    of_llama = llama()
    of_gemma = gemma(of_llama["model"])
    whole = {key: of_llama["model"][key] for key in ("vocab", "merges")}
    models_ = {"whole": whole, "part": partial_model(whole, True), "spaces": partial_model(whole, False),
               "gemma": {key: of_gemma["model"][key] for key in ("vocab", "merges")}}
    bytes_ = bytes_model()
    models_["bytes"] = {"vocab": bytes_["vocab"], "merges": [" ".join(merge) for merge in bytes_["merges"]]}
    for name in ("whole", "part", "spaces", "bytes"):
        models_[name]["added_tokens"] = added_tokens(models_[name]["vocab"])
    check_with_transformers(of_llama, texts[:300], {"tokenizer_class": "LlamaTokenizer"})
    check_with_transformers(of_gemma, texts[:300], {"tokenizer_class": "GemmaTokenizer"})
    kinds = [saved_kind("llama-of-transformers-5", "whole", of_llama), saved_kind("gemma-of-transformers-5", "gemma", of_gemma)]
    vocabularies = [models_[name]["vocab"] for name in ("whole", "part", "bytes")]
    kinds += named_kinds(*vocabularies)
    kinds += [random_kind(index, *vocabularies) for index in range(arguments.random_kinds)]
    kinds = [entry for entry in kinds if re.search(arguments.only, entry["name"])]
    if arguments.seeds is not None:
        for index, entry in enumerate(kinds):
            text = json.dumps(with_model(entry["tokenizer"], models_[entry["model"]]))
            (arguments.seeds / f"{index}.json").write_text(text)
        return
    for entry in kinds:
        model = models_[entry["model"]]
        own = digests(entry["tokenizer"], model, texts)
        for pointer, value in changes(entry["tokenizer"]):
            other = digests(changed(entry["tokenizer"], pointer, value), model, texts[:CONTROL_TEXTS])
            if other != own[:CONTROL_TEXTS]:
                entry["control"] = {"pointer": pointer, "value": value}
                entry["control_differs"] = sum(a != b for a, b in zip(own, other))
                break
        else:
            raise SystemExit(f"{entry['name']} has no control that differs")
        entry["digests"] = "".join(own)
        print(entry["name"], entry["control_differs"], file=sys.stderr)
    made_by = f"tokenizers {tokenizers.__version__}, transformers {transformers.__version__}, Unicode {unicodedata.unidata_version}"
    compact = lambda value: json.dumps(value, separators=(",", ":"))
    lines = ",\n".join(compact(entry) for entry in kinds)
    of_models = ",\n".join(f"{compact(name)}: {compact(model)}" for name, model in models_.items())
    of_texts = ",\n".join(compact(text.encode().hex()) for text in texts)
    arguments.out.write_text(
        f'{{"made_by": "{made_by}", "models": {{\n{of_models}\n}}, "kinds": [\n{lines}\n], "texts_hex": [\n{of_texts}\n]}}\n')


if __name__ == "__main__":
    main()
