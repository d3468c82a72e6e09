#!/usr/bin/env python3
"""Compiles the kernels for every architecture of TABLE and compares their registers with it.

cubins.py NVCC ROOT TABLE [--write]

A kernel that spills fails. So does one whose registers or stack are not the table's, when the table was made by this nvcc;
with another, that part is skipped (exit 77). --write makes the table anew. Nothing of this runs on a GPU.
"""
import os
import re
import subprocess
import sys
import tempfile

ARCHS = ("80", "90", "100")
SOURCES = ("nets/cuda/launch.cu", "client/memory/cuda/launch.cu")


def compile_all(nvcc, root):
    """{(kernel, arch): (registers, stack bytes, spilled bytes)}"""
    gencode = [word for a in ARCHS for word in ("-gencode", f"arch=compute_{a},code=sm_{a}")]
    gencode += ["-gencode", f"arch=compute_{ARCHS[-1]},code=compute_{ARCHS[-1]}"]
    said = []
    for source in SOURCES:
        with tempfile.TemporaryDirectory() as folder:
            command = [nvcc, "-std=c++17", "-O2", "-fmad=false", "-I", root, "-Xptxas", "-v", "-c", *gencode,
                       os.path.join(root, source), "-o", os.path.join(folder, "launch.o")]
            run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(run.stderr)
        said += run.stderr.splitlines()
    rows, key, stack = {}, None, (0, 0)
    for line in said:
        if m := re.search(r"Compiling entry function '(\w+)' for 'sm_(\w+)'", line):
            key = (m[1], m[2])
        elif m := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            stack = (int(m[1]), int(m[2]) + int(m[3]))
        elif (m := re.search(r"Used (\d+) registers", line)) and key is not None:
            rows[key] = (int(m[1]), *stack)
            key = None
    return rows


def kernels_of(root):
    """The names of all kernels: those of values.cuh are compiled for each type of values."""
    def named(file, pattern):
        with open(os.path.join(root, file), encoding="ascii") as f:
            return set(re.findall(pattern, f.read(), re.M))
    values = named("nets/cuda/values.cuh", r"^VALUE_KERNEL\((\w+)\)")
    found = values | {k + "_bf16" for k in values}
    for file in ("nets/cuda/kernels.cuh", "nets/cuda/norm.cuh", "client/memory/cuda/kernels.cuh", "client/memory/cuda/codecs.cuh"):
        found |= named(file, r"^(?:KERNEL |LOSS_KERNEL\()(\w+)[(,]")
    return found


def main():
    nvcc, root, table = sys.argv[1:4]
    version = re.search(r"V[\d.]+", subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout)[0]
    found = compile_all(nvcc, root)
    header = f"# nvcc {version}: kernel, architecture, registers, bytes of stack, bytes spilled\n"
    lines = [f"{k}\tsm_{a}\t{r}\t{s}\t{p}\n" for (k, a), (r, s, p) in sorted(found.items())]
    if sys.argv[4:] == ["--write"]:
        with open(table, "w", encoding="ascii") as out:
            out.writelines([header, *lines])
        return
    kernels = kernels_of(root)
    missing = [f"{k} for sm_{a}" for k in sorted(kernels) for a in ARCHS if (k, a) not in found]
    if missing or not kernels:
        sys.exit("not compiled: " + ", ".join(missing))
    spilled = [f"{k} for sm_{a} spills {p} bytes" for (k, a), (_, _, p) in sorted(found.items()) if p > 0]
    if spilled:
        sys.exit("\n".join(spilled))
    with open(table, encoding="ascii") as f:
        expected = f.readlines()
    if expected[0] != header:
        print(f"this is nvcc {version}; registers are not compared with the table, which says: {expected[0]}")
        sys.exit(77)
    differ = sorted(set(lines) ^ set(expected[1:]))
    if differ:
        sys.exit("kernels are not as in the table (cubins.py --write makes it anew):\n" + "".join(
            ("now:   " if line in lines else "table: ") + line for line in differ))
    print(f"{len(kernels)} kernels for sm_{', sm_'.join(ARCHS)}: registers as in the table, no spills")


main()
