"""Makes tests/fixtures/tokenizers/set.json: digests of what the references encode large sets of odd strings to.

The strings are not in the file but the rule that makes them (trainer/tokenizer/tokenizer_set_test.cpp has it too): every
assigned character of every plane, and random texts from alphabets. Run after make_tokenizer_goldens.py with a Python
whose unicodedata is not newer than the libraries' (3.11: Unicode 14):
    python tests/numerics/make_tokenizer_set_goldens.py
"""

import hashlib
import json
import pathlib
import struct
import unicodedata

import sentencepiece
import tokenizers
import transformers

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "tokenizers"
CHARACTERS_A_TEXT = 32


def ranges_of(plane: int) -> list[list[int]]:
    """The assigned characters; of the private planes the first and last 256."""
    ranges: list[list[int]] = []
    first = plane * 0x10000
    for code in range(first, first + 0x10000):
        if unicodedata.category(chr(code)) in ("Cn", "Cs"):
            continue
        if plane >= 15 and 256 <= code - first < 0xFF00 - 2:
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return ranges


def texts_of_ranges(ranges: list[list[int]]) -> list[bytes]:
    """Characters one after another, and the same with a space before each."""
    characters = [chr(code) for low, high in ranges for code in range(low, high + 1)]
    texts = []
    for at in range(0, len(characters), CHARACTERS_A_TEXT):
        piece = characters[at : at + CHARACTERS_A_TEXT]
        texts += ["".join(piece).encode(), "".join(" " + character for character in piece).encode()]
    return texts


class Draws:
    """Knuth's 64-bit linear congruential generator, the upper bits."""

    def __init__(self, seed: int):
        self.state = seed

    def below(self, count: int) -> int:
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % count


def texts_of_alphabet(group: dict) -> list[bytes]:
    draws = Draws(group["seed"])
    alphabet = [bytes.fromhex(piece) for piece in group["alphabet_hex"]]
    texts = []
    for _ in range(group["texts"]):
        texts.append(b"".join(alphabet[draws.below(len(alphabet))] for _ in range(draws.below(group["pieces_max"]) + 1)))
    return texts


def alphabet_group(name: str, seed: int, texts: int, pieces_max: int, alphabet: list) -> dict:
    pieces = [piece if isinstance(piece, bytes) else piece.encode() for piece in alphabet]
    return {"name": name, "seed": seed, "texts": texts, "pieces_max": pieces_max, "alphabet_hex": [p.hex() for p in pieces]}


def alphabet_groups() -> list[dict]:
    spaces = [" ", "  ", "\t", "\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\xa0", "\u1680", "\u180e", "\u2003",
              "\u200b", "\u2028", "\u2029", "\u202f", "\u3000", "\ufeff", "\u2581"]
    digits = [*"0123456789", "٣", "९", "²", "½", "Ⅷ", "①", "一", "𝟗", ".", ",", "-", "e", " ", "x"]
    italian = [*"abcdefghilmnopqrstuvz", *"aeiou", *"àèéìòù", *"ÀÈÉ", "che", "gli", "l'", "un'", "c'è", "perché", " ", " ", " ", ". ", ", "]
    czech = [*"abcdefghijklmnoprstuvyz", *"áčďéěíňóřšťúůýž", *"ČŘŠŽ", "ch", "ř", "ů", "příliš", "žluť", "kůň", " ", " ", " ", ". ", ", "]
    marks = [*"aeiouAEI", "\u0300", "\u0301", "\u0302", "\u0303", "\u0306", "\u0307", "\u0308", "\u030a", "\u031b", "\u0323", "\u0327", "\u0328",
             "\u0334", "\u0338", "\u0345", "\u0360", "\u05b0", "\u05bc", "\u064b", "\u0651", "\u093c", "\u0915", "\u094d", "\u09c7", "\u09be",
             "\u0f71", "\u0f72", "\u1100", "\u1161", "\u11a8", "\uac00", "\u1e63", "\u01d5", "\u212b", "\u2126", "\u3099", "か", "\ufb01",
             "\uff21", "½", "\ufdfa", "\uf900", "\U0002f800", "\u0344", "\u2adc", "\U0001d15e",
             # since the references' tables
             "\u1df6", "\u1dfa", "\u0898", "\u08ca", "\u09fe", "\u1abf", "\u32ff", "\U00010781", "\U00011935", "\U00011930", "\U00011938", "\U0001e08f", "\U0001fbf0",
             " ", "x"]
    decomposed = [*"aeioucrszyu", "\u0300", "\u0301", "\u030c", "\u030a", "\u0308", " "]
    code = [*"{}[]()<>;:.,!?#@&*/\\|\"'`~^%$=+-_", "if", "for", "x1", "\n", "\n    ", "\t", "'s", "'LL", "'t", " "]
    raw = [bytes([byte]) for byte in range(256)] + [piece.encode() for piece in ("è", "ř", "😀", " ", "a", "\n")]
    return [
        alphabet_group("whitespace", 1, 4000, 40, [*spaces, "a", "b1", "è"]),
        alphabet_group("digits", 2, 3000, 40, digits),
        alphabet_group("italian", 3, 3000, 120, italian),
        alphabet_group("czech", 4, 3000, 120, czech),
        alphabet_group("decomposed", 5, 2000, 60, decomposed),
        alphabet_group("code", 6, 3000, 80, code),
        alphabet_group("bytes", 7, 4000, 40, raw),
        alphabet_group("long", 8, 6, 40000, [*"aaabè \n", "parola ", "  "]),
        alphabet_group("marks", 9, 6000, 40, marks),
    ]


def digest(texts: list[bytes], encode) -> str:
    hash = hashlib.sha256()
    for text in texts:
        ids = encode(text)
        hash.update(struct.pack(f"<{len(ids) + 1}i", len(ids), *ids))
    return hash.hexdigest()


def normalized(texts: list[bytes], form: str) -> str:
    normalizer = getattr(tokenizers.normalizers, form)()
    return hashlib.sha256(b"".join(
        normalizer.normalize_str(text.decode("utf-8", errors="replace")).encode() + b"\n" for text in texts)).hexdigest()


def main() -> None:
    processor = sentencepiece.SentencePieceProcessor(model_file=str(FIXTURES / "small" / "tokenizer.model"))
    encoders = {"small": processor.encode}
    for name in ("gpt2", "llama3", "qwen"):
        tokenizer = tokenizers.Tokenizer.from_file(str(FIXTURES / name / "tokenizer.json"))
        tokenizer.encode_special_tokens = True
        encoders[name] = lambda text, tokenizer=tokenizer: tokenizer.encode(
            text.decode("utf-8", errors="replace"), add_special_tokens=False).ids
    opt = transformers.GPT2Tokenizer.from_pretrained(FIXTURES / "opt", split_special_tokens=True)
    encoders["opt"] = lambda text: opt.encode(text.decode("utf-8", errors="replace"), add_special_tokens=False)
    groups = [{"name": f"plane {plane}", "ranges": ranges_of(plane)} for plane in range(17)]
    groups = [group for group in groups if group["ranges"]] + alphabet_groups()
    for group in groups:
        texts = texts_of_ranges(group["ranges"]) if "ranges" in group else texts_of_alphabet(group)
        group["count"] = len(texts)
        group["normalized"] = {form: normalized(texts, form) for form in ("NFC", "NFD", "NFKC", "NFKD")}
        group["sha256"] = {name: digest(texts, encode) for name, encode in encoders.items()}
    lines = ",\n".join(json.dumps(group, separators=(",", ":")) for group in groups)
    made_by = (f"sentencepiece {sentencepiece.__version__}, tokenizers {tokenizers.__version__}, "
               f"transformers {transformers.__version__}, Unicode {unicodedata.unidata_version}")
    (FIXTURES / "set.json").write_text(f'{{"made_by": "{made_by}", "groups": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
