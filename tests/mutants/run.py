#!/usr/bin/env python3
"""Plants every seeded fault in a copy of the tree, builds the layers that should notice, and shows which one did.

Usage: tests/mutants/run.py [--only TEXT] [--first N]      exit status 1: a fault was caught by nobody
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAYER_TIMEOUT_S = 120
# a layer is a test program and, where the whole program is too much, the arguments that select its core
ARGUMENTS = {"model_memory_orders": ["20000"]}


class Fault:
    def __init__(self, promise, name, file, layers):
        self.promise, self.name, self.file, self.layers = promise, name, file, layers
        self.old, self.new = [], []


def read_faults():
    faults, promise = [], ""
    for line in (ROOT / "tests/mutants/faults.txt").read_text().splitlines():
        if line.startswith("## "):
            promise = line[3:]
        elif line.startswith("- "):
            faults[-1].old.append(line[2:])
        elif line.startswith("+ "):
            faults[-1].new.append(line[2:])
        elif line and not line.startswith("#"):
            name, file, layers = (part.strip() for part in line.split("|"))
            faults.append(Fault(promise, name, file, layers.split()))
    return faults


def plant(fault, tree):
    """Replaces the fault's lines, ignoring indentation; the text must stand exactly once."""
    path = tree / fault.file
    text = path.read_text()
    pattern = r"\n".join(r"[ ]*" + re.escape(line.strip()) for line in fault.old)
    matches = list(re.finditer(pattern, text))
    if len(matches) != 1:
        return f"text found {len(matches)} times in {fault.file}"
    at = matches[0]
    path.write_text(text[:at.start()] + "\n".join(fault.new) + text[at.end():])
    return None


def build_and_run(build, layer):
    built = subprocess.run(["cmake", "--build", str(build), "--target", layer, "-j2"], capture_output=True, text=True)
    if built.returncode != 0:
        return "does not compile"
    program = next(p for p in build.rglob(layer) if p.is_file())
    try:
        ran = subprocess.run([str(program)] + ARGUMENTS.get(layer, []), capture_output=True, timeout=LAYER_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return "timed out"
    return None if ran.returncode == 0 else "failed"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="faults whose name contains this")
    parser.add_argument("--first", type=int, default=1000)
    options = parser.parse_args()
    faults = [f for f in read_faults() if options.only in f.name][: options.first]
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder) / "tree"
        files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
        for name in files:
            target = tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
        build = tree / "build/mutants"
        subprocess.run(["cmake", "--preset", "dev", "-B", str(build), "-DCMAKE_CXX_FLAGS=-O1"], cwd=tree, check=True,
                       stdout=subprocess.DEVNULL)
        survivors, promise = [], ""
        for fault in faults:
            original = (tree / fault.file).read_text()
            if fault.promise != promise:
                promise = fault.promise
                print(f"\n{promise}")
            start = time.monotonic()
            verdict = plant(fault, tree)
            caught = None
            if verdict is None:
                for layer in fault.layers:
                    outcome = build_and_run(build, layer)
                    if outcome == "does not compile":
                        verdict = outcome
                        break
                    if outcome is not None:
                        caught = f"{layer} {outcome}"
                        break
                else:
                    verdict = "SURVIVED: " + " ".join(fault.layers)
            (tree / fault.file).write_text(original)
            if caught is None:
                survivors.append(fault.name)
            print(f"  {fault.name:52} {caught or verdict:44} {time.monotonic() - start:5.0f} s", flush=True)
    print(f"\n{len(faults) - len(survivors)} of {len(faults)} faults caught")
    return 1 if survivors or not faults else 0


if __name__ == "__main__":
    sys.exit(main())
