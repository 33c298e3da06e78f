"""Makes tests/fixtures/tokenizers: small tokenizers and what the references encode odd strings to.

Run with a Python that has sentencepiece, tokenizers and transformers (and, for a cross-check, protobuf):
    python tests/numerics/make_tokenizer_goldens.py
"""

import io
import json
import pathlib
import random
import sys
import unicodedata

import sentencepiece
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "tokenizers"

# Written for this purpose, so that the fixture has no other licence than the project's.
TEXT = """
Il treno parte alle sette e arriva a Bologna prima di mezzogiorno, se non piove.
La modella entra nella sala con un vestito rosso e nessuno dice una parola.
Perché la città è così bella quando il sole scende dietro le colline?
Non c'è fretta: il lago resta lì, più quieto di ieri, e l'acqua è già fredda.
Vlak odjíždí v sedm hodin a do Ostravy přijede před polednem, pokud neprší.
Řeka teče pomalu, žlutý kůň stojí u břehu a děti házejí kamínky do vody.
Příliš mnoho ořechů leželo pod stromem; veverka je počítala až do večera.
Proč je město tak krásné, když slunce zapadá za kopce? Nikdo to neví.
A small model learns from every text, but the texts stay where they are.
The weights travel between the sites at night, 12 of them, 345 megabytes each.
1 2 3 4 5 6 7 8 9 0, 1999, 2024, 3.14159; (a) [b] {c} <d> "e" 'f' #g @h &i *j
"""


def train_model() -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.strip().splitlines() * 3),
        model_writer=model,
        model_type="bpe",
        vocab_size=480,
        byte_fallback=True,
        split_digits=True,
        allow_whitespace_only_pieces=True,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        character_coverage=1.0,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()


# Llama 3's, and with it that of most models since.
LLAMA3_EXPRESSION = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


# Qwen 2's: as Llama 3's, with digits one by one.
QWEN_EXPRESSION = LLAMA3_EXPRESSION.replace(r"\p{N}{1,3}", r"\p{N}")


def train_byte_level(kind: str, directory: pathlib.Path) -> tokenizers.Tokenizer:
    """kind "gpt2": as GPT-2 and OPT have it; "llama3": with a Split, ignore_merges and a beginning token; "qwen": with a
    Split and a normalizer, no beginning token."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    gpt2 = kind == "gpt2"
    begin, end = ("</s>", "</s>") if gpt2 else ("<|begin_of_text|>", "<|end_of_text|>")
    if kind == "qwen":
        tokenizer.normalizer = normalizers.NFC()
    if gpt2:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    else:
        expression = QWEN_EXPRESSION if kind == "qwen" else LLAMA3_EXPRESSION
        split = pre_tokenizers.Split(tokenizers.Regex(expression), behavior="isolated")
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    trainer = trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(TEXT.strip().splitlines(keepends=True) * 3, trainer)
    tokenizer.add_special_tokens(sorted({begin, end, "<|pad|>"}))
    if kind == "qwen":  # found in the text as it is, or in the normalized text
        tokenizer.add_tokens([tokenizers.AddedToken(token, normalized=False) for token in ("<tool>", "<tool>x", "e\u0301!")])
        tokenizer.add_tokens(["ku\u030an\u030c", "l<tool"])
    else:
        tokenizer.add_tokens(["città", "<tool>", "<tool>x"])
    tokenizer.decoder = decoders.ByteLevel()
    if kind != "qwen":
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A", special_tokens=[(begin, tokenizer.token_to_id(begin))])
    if kind == "llama3":
        # As in Llama 3: words that are tokens are taken whole, although no merges may lead there.
        described = json.loads(tokenizer.to_str())
        described["model"]["ignore_merges"] = True
        dropped = [merge for merge in described["model"]["merges"] if "".join(merge) in ("Ġla", "Ġil", "the")]
        described["model"]["merges"] = [merge for merge in described["model"]["merges"] if merge not in dropped]
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(described))
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tokenizer.json").write_text(tokenizer.to_str() + "\n")
    (directory / "tokenizer_config.json").write_text(json.dumps({"bos_token": begin, "eos_token": {"content": end}}) + "\n")
    # A special token that is written out in a text is text.
    tokenizer.encode_special_tokens = True
    return tokenizer


def write_opt(gpt2: tokenizers.Tokenizer, directory: pathlib.Path):
    """The same merges in GPT-2's two files with OPT's special tokens; returns transformers' tokenizer of them."""
    from transformers import GPT2Tokenizer

    described = json.loads(gpt2.to_str())["model"]
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *reversed(described["vocab"]), "madeupword0000", "<mask>"]
    vocab = {token: index for index, token in enumerate(tokens)}
    added = {token: len(vocab) + index for index, token in enumerate(["città", "<tool>", "<tool>x"])}
    options = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True}
    specials = {key: {"content": "</s>", **options} for key in ("bos_token", "eos_token", "unk_token")}
    specials["pad_token"] = {"content": "<pad>", **options}
    config = {key: {"__type": "AddedToken", **token} for key, token in specials.items()}
    config |= {"errors": "replace", "add_prefix_space": False, "add_bos_token": True, "tokenizer_class": "GPT2Tokenizer"}
    directory.mkdir(parents=True, exist_ok=True)
    merges = ["#version: 0.2", *(" ".join(merge) for merge in described["merges"])]
    (directory / "merges.txt").write_text("\n".join(merges) + "\n")
    for name, value in (("vocab", vocab), ("added_tokens", added), ("special_tokens_map", specials), ("tokenizer_config", config)):
        (directory / f"{name}.json").write_text(json.dumps(value) + "\n")
    tokenizer = GPT2Tokenizer.from_pretrained(directory, split_special_tokens=True)
    assert tokenizer("the")["input_ids"] == [2, *tokenizer.encode("the", add_special_tokens=False)]
    return tokenizer


def is_old(text: str) -> bool:
    """Only characters that were assigned in Unicode 13, which every library here knows."""
    return all(unicodedata.category(character) != "Cn" for character in text)


def odd_strings() -> list[bytes]:
    texts = [
        "", " ", "  ", "   a", "a ", "a  b   c", "\n", "a\nb\r\n\tc", "\t\t", "\u00a0x\u2003y\u3000z\u200b",
        "perché è così", "Perche\u0301 e\u0300", "žluťoučký kůň úpěl ďábelské ódy", "ŽLUŤOUČKÝ", "Straße ſt ﬁ ﬀ",
        "0", "12345678901234567890", "3.14159e-10", "x1y22z333", "٣٤٥", "一二三", "中文没有空格", "日本語テキスト", "한국어 문장",
        "العربية نص", "עברית", "हिन्दी पाठ", "ไทย", "😀", "👩‍👩‍👧‍👦 family", "🇮🇹🇨🇿", "a\u0301\u0302\u0303\u0304", "\u202eabc\u202c",
        "\ufeffbom", "\ufffd", "\ufffe\uffff", "\U0001d518\U0001d52b", "\U00020000\U0002a6d6", "\U000e0001\U000e0020",
        "\U000f0000\U0010fffd", "\u0000", "a\u0000b", "\u0001\u007f\u0080\u009f", "\u2028\u2029\u0085",
        "\u2581", "\u2581\u2581a\u2581b", " \u2581 ", "a\u2581", "\u2585", "<unk>", "<s>", "</s>", "<0x0A>", "<s> a </s>", "<0x41>",
        "{{text}}", "scrivi un seguente documento:: Il treno", "Napište dokument:: Řeka teče",
        "the the the the", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ababababababababababab", "!!!???...,,,---", "don't l'acqua c'è",
        "http://example.org/a?b=c&d=%20", "\\n \\u0041 \\", "\"quoted\" 'single' `back`", "tab\there", "mixed  \n  runs \n\n of \t space",
        TEXT, "x" * 600, ("parola " * 80).strip(), " " * 200,
    ]
    texts += [  # for the expressions of byte-level tokenizers
        "I'm you'RE we'Ve it'S 'LL'd 'ſ 'T", "a'b''s's", "12 123 1234 12345 1a2b", "\r\n\r\n  \n x", "a \n", "a  \n  b", "...\n\n!!\r",
        "\u180ea\u180e b", "\u0085a\u0085\u0085 b", "\u200a\u202f\u205f \u3000x", "\x1c\x1d\x1e\x1f a", "\x0b\x0c a", "²³¼Ⅷ①",
        "cafe\u0301! e\u0301 é!", "ku\u030aň l<tool>x l<tool l<tool>", "e\u0323\u0301! a\u0345\u0334\u1dfa\u0334 ㋿ ㌀",
        "<tool>", "a<tool>xb", "<tool> x <tool", "cittàcittà la città", "<|begin_of_text|>a<|pad|>", "la il the la\til", " la", "Ġla",
    ]
    raw = [text.encode("utf-8") for text in texts]
    raw += [  # not UTF-8: stray, truncated, overlong, surrogate, beyond U+10FFFF
        b"\x80", b"a\xffb", b"\xc3", b"caff\xc3", b"\xc3(", b"\xe2\x82", b"\xe2\x28\xa1", b"\xf0\x9f\x98", b"\xf0\x28\x8c\xbc",
        b"\xc0\xaf", b"\xe0\x80\xaf", b"\xf0\x80\x80\xaf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80",
        b"\xfe\xff", b" \xff \xff ", bytes(range(128, 256)), bytes(range(256)),
    ]
    generator = random.Random(1)
    planes = [(0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x52F), (0x4E00, 0x9FFF), (0x1F300, 0x1FAFF), (0x20000, 0x2A6DF)]
    words = TEXT.split()
    for index in range(60):
        pieces = []
        for _ in range(generator.randrange(1, 25)):
            if generator.random() < 0.5:
                pieces.append(generator.choice(words))
            else:
                low, high = planes[generator.randrange(len(planes))] if index % 2 else planes[0]
                pieces.append("".join(chr(generator.randint(low, high)) for _ in range(generator.randrange(1, 8))))
            pieces.append(generator.choice(["", " ", " ", "  ", "\n", "\t"]))
        raw.append("".join(pieces).encode("utf-8"))
    return raw


def cross_check(directory: pathlib.Path, cases: list[dict]) -> None:
    """transformers' LlamaTokenizer agrees wherever its own treatment of special tokens is not in play."""
    try:
        from google import protobuf  # noqa: F401  transformers reads the model with it
        from transformers import AutoTokenizer
    except ImportError as error:
        print(f"no cross-check: {error}", file=sys.stderr)
        return
    tokenizer = AutoTokenizer.from_pretrained(directory)
    differing = []
    for case in cases:
        data = bytes.fromhex(case["hex"])
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            continue
        if any(special in text for special in ("<s>", "</s>", "<unk>")):
            continue
        if tokenizer(text, add_special_tokens=False)["input_ids"] != case["small"]:
            differing.append(text[:60])
    print(f"cross-check with {type(tokenizer).__name__}: {len(differing)} differ: {differing}", file=sys.stderr)


def main() -> None:
    directory = FIXTURES / "small"
    directory.mkdir(parents=True, exist_ok=True)
    model = train_model()
    (directory / "tokenizer.model").write_bytes(model)
    config = {
        "tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
        "add_bos_token": True, "add_eos_token": False, "legacy": False,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    byte_level = {kind: train_byte_level(kind, FIXTURES / kind) for kind in ("gpt2", "llama3", "qwen")}
    opt = write_opt(byte_level["gpt2"], FIXTURES / "opt")
    cases = []
    for data in odd_strings():
        case = {"hex": data.hex(), "small": processor.encode(data)}
        if (decoded := processor.decode(case["small"]).encode("utf-8")) != data:
            case["small_decoded_hex"] = decoded.hex()
        text = data.decode("utf-8", errors="replace")
        if is_old(text):
            for kind, tokenizer in byte_level.items():
                case[kind] = tokenizer.encode(text, add_special_tokens=False).ids
                decoded = tokenizer.decode(case[kind])
                if kind == "qwen" and decoded != text:
                    case["qwen_decoded_hex"] = decoded.encode().hex()
                # The reference's decoder takes the letters of an added token for its alphabet of bytes.
                assert kind == "qwen" or "città" in text or decoded == text, text
            case["opt"] = opt.encode(text, add_special_tokens=False)
        cases.append(case)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    made_by = f"sentencepiece {sentencepiece.__version__}, tokenizers {tokenizers.__version__}"
    (FIXTURES / "goldens.json").write_text(f'{{"made_by": "{made_by}", "cases": [\n{lines}\n]}}\n')
    cross_check(directory, cases)


if __name__ == "__main__":
    main()
