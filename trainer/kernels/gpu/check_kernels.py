"""check_kernels.py TOOLKIT FOLDER [--write]: compiles the GPU's kernels and checks their machine code, without a GPU.

A kernel must not spill registers, unless the table says that it does. One that takes vectors (Packs<…, 8>) must not read
or write two bytes at a time. No kernel may need so many registers that fewer of its blocks fit a multiprocessor than by
the table, kernels_sm_90a.txt, which --write makes anew: registers, bytes of spills, kernel. TOOLKIT is CUDA's, FOLDER
gets the code."""

import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
ARCHITECTURE = "sm_90a"
TABLE = HERE / f"kernels_{ARCHITECTURE}.txt"
REGISTERS = 65536  # of a multiprocessor
THREADS = 256  # of a block

ENTRY = re.compile(
    r"Compiling entry function '(\S+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers", re.S
)
NARROW = re.compile(r"\b(?:LDG|STG|LD|ST)\.E\.(?:[A-Z0-9.]*\.)?(?:U16|S16)\b")


def short_names(mangled):
    """Kernels by the names that the table has: without namespaces, and formats by their names."""
    lines = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True, check=True).stdout
    names = {}
    for symbol, name in zip(mangled, lines.splitlines()):
        name = name.replace("atl::kernels::gpu::", "").replace("(anonymous namespace)::", "")
        name = re.sub(r"^void run_kernel<(.*?) ?>\(.*$", r"\1", name)
        for number, format_name in enumerate(["f32", "bf16", "any"]):
            name = name.replace(f"(Format){number}", format_name)
        names[symbol] = re.sub(r"Packs<(\w+), (\d)>", r"\1x\2", name)
    return names


def compile_source(source, toolkit, folder):
    """Registers and bytes of spills of each kernel of a source, and those that read or write two bytes at a time."""
    cubin = folder / f"{source.stem}.cubin"
    command = [toolkit / "bin/nvcc", "-std=c++20", "-O3", "--expt-relaxed-constexpr", f"-I{ROOT}", f"-arch={ARCHITECTURE}"]
    ran = subprocess.run([*command, "-Xptxas", "-v", "-cubin", source, "-o", cubin], capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(ran.stderr)
    entries = ENTRY.findall(ran.stderr)
    if not entries:
        return {}, set()
    names = short_names([entry[0] for entry in entries])
    kernels = {names[symbol]: (int(used), int(stores) + int(loads)) for symbol, stores, loads, used in entries}
    code = subprocess.run([toolkit / "bin/nvdisasm", "-c", cubin], capture_output=True, text=True, check=True).stdout
    narrow, kernel = set(), ""
    for line in code.splitlines():
        if line.startswith(".text."):
            kernel = names.get(line[len(".text."):].rstrip(":"), "")
        elif NARROW.search(line):
            narrow.add(kernel)
    return kernels, narrow


def blocks_that_fit(registers):
    return REGISTERS // (THREADS * ((registers + 7) // 8 * 8))


def read_table():
    rows = [line.split(maxsplit=2) for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    return {name: (int(registers), int(spills)) for registers, spills, name in rows}


def write_table(kernels):
    rows = [f"{registers:3} {spills:4} {name}" for name, (registers, spills) in sorted(kernels.items())]
    TABLE.write_text("# registers, bytes of spills, kernel: by `./dev cuda --check --write`\n" + "\n".join(rows) + "\n")


def main():
    toolkit, folder = (pathlib.Path(argument) for argument in sys.argv[1:3])
    folder.mkdir(parents=True, exist_ok=True)
    kernels, narrow = {}, set()
    for source in sorted(HERE.glob("*.cu")):
        of_source, narrow_ones = compile_source(source, toolkit, folder)
        kernels |= of_source
        narrow |= narrow_ones
    if "--write" in sys.argv:
        write_table(kernels)
    table = read_table()
    errors = [f"{name} takes vectors, and reads or writes two bytes at a time" for name in narrow if "x8" in name]
    for name, (registers, spills) in kernels.items():
        known_registers, known_spills = table.get(name, (0, 0))
        if spills > known_spills:
            errors.append(f"{name} spills {spills} bytes of registers; the table has {known_spills}")
        if known_registers and blocks_that_fit(registers) < blocks_that_fit(known_registers):
            errors.append(f"{name} takes {registers} registers; the table has {known_registers}, with which more blocks fit")
    if set(table) != set(kernels):
        errors.append("the table has other kernels than the sources: run `./dev cuda --check --write`")
    print("\n".join(errors) if errors else f"{len(kernels)} kernels for {ARCHITECTURE} are as they should be")
    sys.exit(1 if errors else 0)


main()
