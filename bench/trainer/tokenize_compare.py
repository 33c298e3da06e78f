"""Tokenisation beside the reference libraries: MB/s of text on two threads, and the peak memory.

    python bench/trainer/tokenize_compare.py --trainer build/release/bin/atoll-trainer --out DIR [--rounds 5]
        [--megabytes 40] [--only byte_level]

Needs a Python with sentencepiece and tokenizers. The text is Debian's fortunes (fortunes-it, fortunes-cs, fortunes) in
random order with repetition, as JSON lines. Each library encodes it in turns with `atoll-trainer tokenize`, each in a
process of its own; a peer's time is reading the lines and encoding them (batches, its own threads), atoll's is all that
the command does: reading, encoding, packing, hashing and writing.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

FORTUNES = pathlib.Path("/usr/share/games/fortunes")
LLAMA3_EXPRESSION = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BATCH = 2000
KINDS = ("sentencepiece", "byte_level")


def documents() -> list[str]:
    texts = []
    for path in sorted(FORTUNES.rglob("*")):
        if path.is_file() and path.suffix == "" and not path.is_symlink():
            texts += path.read_text(encoding="utf-8", errors="ignore").split("\n%\n")
    return [text.strip() for text in texts if len(text.strip()) > 20]


def write_corpus(path: pathlib.Path, megabytes: int) -> None:
    draw, texts, written = random.Random(1), documents(), 0
    with path.open("w", encoding="utf-8") as file:
        while written < megabytes * 1_000_000:
            text = "\n".join(draw.choice(texts) for _ in range(4))
            written += len(text.encode())
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")


def train_tokenizers(trainer: str, corpus: pathlib.Path, out: pathlib.Path) -> None:
    sample = out / "sample.jsonl"
    with corpus.open(encoding="utf-8") as file:
        sample.write_text("".join(line for line, _ in zip(file, range(8000))), encoding="utf-8")
    subprocess.run([trainer, "tokenizer-train", "--input", str(sample), "--vocab-size", "8000", "--out",
                    str(out / "sentencepiece")], check=True)
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3_EXPRESSION), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        (json.loads(line)["text"] for line in sample.open(encoding="utf-8")),
        trainers.BpeTrainer(vocab_size=8000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    (out / "byte_level").mkdir(exist_ok=True)
    tokenizer.save(str(out / "byte_level" / "tokenizer.json"))


def batches(path: str):
    batch = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            batch.append(json.loads(line)["text"])
            if len(batch) == BATCH:
                yield batch
                batch = []
    if batch:
        yield batch


def run_peer(kind: str, directory: str, corpus: str) -> None:
    """In a process of its own: prints seconds and tokens."""
    if kind == "sentencepiece":
        import sentencepiece

        processor = sentencepiece.SentencePieceProcessor(model_file=directory + "/tokenizer.model")
        encode = lambda texts: sum(map(len, processor.encode(texts, num_threads=2)))  # noqa: E731
    else:
        import tokenizers

        tokenizer = tokenizers.Tokenizer.from_file(directory + "/tokenizer.json")
        encode = lambda texts: sum(len(e.ids) for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False))  # noqa: E731
    start = time.perf_counter()
    tokens = sum(encode(batch) for batch in batches(corpus))
    print(json.dumps({"wall_s": time.perf_counter() - start, "tokens": tokens}))


def measured(command: list[str]) -> dict:
    """The last JSON line that the command prints, with its peak memory."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               env={**os.environ, "RAYON_NUM_THREADS": "2"})
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{command[0]} failed: {status}")
    return {**json.loads(output.strip().splitlines()[-1]), "peak_mib": usage.ru_maxrss / 1024,
            "cpu_s": usage.ru_utime + usage.ru_stime}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trainer", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=40)
    parser.add_argument("--only", choices=KINDS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    corpus = options.out / "corpus.jsonl"
    # In a process of its own: what this one holds would count as its children's peak memory.
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(write_corpus, (corpus, options.megabytes))
        pool.apply(train_tokenizers, (options.trainer, corpus, options.out))

    def ours(kind: str, inputs: int = 1) -> dict:
        return measured([options.trainer, "tokenize", "--tokenizer", str(options.out / kind), "--input",
                         *[str(corpus)] * inputs, "--out", str(options.out / "data"), "--overwrite", "--seq-len", "1024",
                         "--threads", "2"])

    def peer(kind: str) -> dict:
        return measured([sys.executable, __file__, "--peer", kind, str(options.out / kind), str(corpus)])

    print("| tokenizer | who | MB/s median | min–max | CPU s | peak MiB | ratio median | min–max |")
    print("|---|---|---|---|---|---|---|---|")
    for kind in [options.only] if options.only else KINDS:
        runs = {"peer": [], "atoll": []}
        for _ in range(options.rounds):
            runs["peer"].append(peer(kind))
            runs["atoll"].append(ours(kind))
        megabytes = runs["atoll"][0]["bytes"] / 1e6
        ratios = [p["wall_s"] / a["wall_s"] for p, a in zip(runs["peer"], runs["atoll"])]
        for who, results in runs.items():
            rates = [megabytes / run["wall_s"] for run in results]
            ratio = f"{statistics.median(ratios):.2f} | {min(ratios):.2f}–{max(ratios):.2f}" if who == "atoll" else "1 | –"
            print(f"| {kind} | {who} | {statistics.median(rates):.1f} | {min(rates):.1f}–{max(rates):.1f} | "
                  f"{statistics.median(run['cpu_s'] for run in results):.1f} | "
                  f"{max(run['peak_mib'] for run in results):.0f} | {ratio} |")
        print(f"\n{kind}: peak of atoll with the input four times over: {ours(kind, 4)['peak_mib']:.0f} MiB\n")


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] == "--peer":
        run_peer(*sys.argv[2:])
    else:
        main()
