"""check_plans.py TOOLKIT FOLDER [--write]: plans attention by cuDNN for cards that are not here, without a GPU.

Every shape below must have a plan on the cards of cards/, or none, and take the workspace that the table has,
attention_plans.txt, which --write makes anew. TOOLKIT is CUDA's, with cuDNN and its frontend among the Python packages
beside it; FOLDER gets the program that plans and a libcuda.so.1 that does nothing."""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
TABLE = HERE / "attention_plans.txt"
CARDS = ["h100", "a100", "l40s"]
# format, sequences, tokens, query heads, key/value heads, channels, places for documents (0: each sequence is one)
SHAPES = [
    "bf16 1 4096 32 32 128 0",  # Llama 2 7B
    "bf16 1 8192 32 8 128 0",  # Llama 3 8B
    "bf16 2 4096 32 8 128 0",
    "bf16 4 512 32 8 128 0",
    "bf16 1 2048 32 32 64 0",  # 852 M
    "bf16 8 2048 32 32 64 0",
    "bf16 8 256 8 8 64 0",  # 33.5 M
    "bf16 1 4096 32 8 80 0",
    "bf16 1 4096 32 8 96 0",
    "bf16 1 4096 8 4 256 0",
    "bf16 1 1000 16 8 128 0",  # tokens that no tile divides
    "bf16 3 333 14 2 64 0",
    "bf16 2 77 4 4 128 0",
    "bf16 1 2048 16 1 112 0",
    "bf16 1 2048 16 4 192 0",
    "fp16 1 4096 32 32 128 0",
    "bf16 1 8192 32 8 128 2",
    "bf16 1 8192 32 8 128 32",
    "bf16 1 8192 32 8 128 1024",
    "bf16 4 2048 32 32 64 128",
    "bf16 8 256 8 8 64 64",
    "bf16 2 1000 12 4 64 4",
]
SOURCES = ["trainer/kernels/gpu/testing/attention_plans.cpp", "trainer/kernels/gpu/sdpa_cudnn.cpp",
           "trainer/tensor/tensor.cpp", "shared/base/check.cpp", "shared/base/result.cpp"]


def run(*command, **options):
    ran = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True, **options)
    if ran.returncode != 0:
        sys.exit(f"{command[0]} failed:\n{ran.stderr[-4000:]}")
    return ran


def build(packages, folder):
    toolkit = packages / "nvidia/cu13"
    includes = [toolkit / "include", packages / "nvidia/cudnn/include", packages / "include"]
    program = folder / "attention_plans"
    run("g++", "-std=c++20", "-O1", f"-I{ROOT}", *(word for folder in includes for word in ("-isystem", folder)), *SOURCES,
        f"-L{toolkit}/lib", "-l:libcudart.so.13", "-ldl", "-o", program)
    run("cc", "-shared", "-fPIC", "-o", folder / "libcuda.so.1", HERE / "testing/libcuda_stub.c")
    return program


def plan(program, packages, card):
    """A line of the table for each shape, and what cuDNN said."""
    folders = [program.parent, packages / "nvidia/cudnn/lib", packages / "nvidia/cu13/lib"]
    ran = run(program, HERE / f"cards/{card}.json", input="\n".join(SHAPES) + "\n",
              env=os.environ | {"LD_LIBRARY_PATH": ":".join(map(str, folders))})
    return [f"{card} {line}" for line in ran.stdout.splitlines()], ran.stderr.splitlines()


def main():
    toolkit, folder = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    packages = toolkit.parents[1]
    folder.mkdir(parents=True, exist_ok=True)
    program = build(packages, folder)
    lines, said = [], []
    for card in CARDS:
        of_card, words = plan(program, packages, card)
        lines += of_card
        said += words
    library = said[0]
    header = [f"# {library}, bytes of workspace of attention's passes: by `./dev cuda --check --write`",
              "# card, format, sequences, tokens, query heads, key/value heads, channels, places for documents, forward, backward"]
    if "--write" in sys.argv:
        TABLE.write_text("\n".join(header + lines) + "\n")
    known = TABLE.read_text().splitlines()
    errors = [f"{line}: not in {TABLE.name}" for line in header + lines if line not in known]
    errors += [f"{line}: in {TABLE.name} and no longer so" for line in known if line not in header + lines]
    print("\n".join(errors + said) if errors else f"{len(lines)} shapes of attention are planned as they should be by {library}")
    sys.exit(1 if errors else 0)


main()
