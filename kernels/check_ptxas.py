#!/usr/bin/env python3
"""Compiles device sources with -Xptxas -v and fails when a kernel spills registers.

usage: check_ptxas.py --nvcc NVCC --include DIR [--include DIR] --arch 80,90 FILE.cu...

For every kernel and architecture ptxas says how many registers it takes, how large its stack frame is and how many bytes
it spills. Spills are an error everywhere, a stack frame is one in the attention kernels. No kernel at all is an error as
well: an output without ptxas lines proves nothing.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\S+)'")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")


def kernels(lines):
    """Yields (name, architecture, stack bytes, spilled bytes, registers)."""
    name = arch = None
    frame = spills = 0
    for line in lines:
        if match := ENTRY.search(line):
            name, arch = match.groups()
            frame = spills = 0
        elif match := FRAME.search(line):
            frame = int(match[1])
            spills = int(match[2]) + int(match[3])
        elif (match := REGISTERS.search(line)) and name:
            yield name, arch, frame, spills, int(match[1])
            name = None


def compile_file(options, source, folder):
    target = os.path.join(folder, os.path.basename(source) + ".o")
    command = [options.nvcc, "-std=c++20", "-O3", "-Xptxas", "-v", "-c", source, "-o", target]
    command += [f"-I{path}" for path in options.include]
    for arch in options.arch.split(","):
        command += ["-gencode", f"arch=compute_{arch},code=sm_{arch}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("--arch", default="80,90")
    parser.add_argument("sources", nargs="+")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        outputs = list(pool.map(lambda source: compile_file(options, source, folder), options.sources))
    failures = []
    registers = []
    for source, (code, text) in zip(options.sources, outputs):
        if code != 0:
            print(text, file=sys.stderr)
            failures.append(f"{source} does not compile")
        for name, arch, frame, spills, used in kernels(text.splitlines()):
            registers.append(used)
            if spills:
                failures.append(f"{arch} {name}: {spills} bytes spilled")
            if frame and "attend_" in name:
                failures.append(f"{arch} {name}: stack frame of {frame} bytes")
    if not registers:
        failures.append("ptxas named no kernel")
    for failure in failures:
        print(failure, file=sys.stderr)
    print(f"{len(registers)} kernels for sm {options.arch}, at most {max(registers, default=0)} registers, "
          f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
