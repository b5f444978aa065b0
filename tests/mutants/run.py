#!/usr/bin/env python3
"""Plants every seeded fault in a copy of the tree, builds the layers that should notice, and shows which one did.

Usage: tests/mutants/run.py [--only TEXT] [--skip N] [--first N] [--work FOLDER]

The copy has the files of the working tree that git does not ignore. Every layer is run without a fault first: a layer
that fails anyway catches nothing. A fault is caught when the program of a layer fails, or does not end, within
the bar. Exit status 1: a fault was caught by nobody, or its text is no longer in the source.
"""
import argparse
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAYER_TIMEOUT_S = 120
ARGUMENTS = {"model_memory_orders": ["20000"]}
FIRST_FAILURE = re.compile(r"\[  FAILED  \] ([\w/.]+)|^([\w ]+?) +\d+ executions.*WRONG", re.MULTILINE)


class Fault:
    def __init__(self, promise, name, file, layers):
        self.promise, self.name, self.file, self.layers = promise, name, file, layers
        self.places = []  # (lines to replace, lines that replace them)

    def add(self, sign, line):
        if sign == "-" and (not self.places or self.places[-1][1]):
            self.places.append(([], []))
        self.places[-1]["-+".index(sign)].append(line)


def read_faults():
    faults, promise = [], ""
    for line in (ROOT / "tests/mutants/faults.txt").read_text().splitlines():
        if line.startswith("## "):
            promise = line[3:]
        elif line[:2] in ("- ", "+ "):
            faults[-1].add(line[0], line[2:])
        elif line and not line.startswith("#"):
            name, file, layers = (part.strip() for part in line.split("|"))
            faults.append(Fault(promise, name, file, layers.split()))
    return faults


def planted(fault, text):
    """The source with the fault in it, indentation ignored; None unless each place is there exactly once."""
    for old, new in fault.places:
        pattern = r"\n".join(r"[ ]*" + re.escape(line.strip()) for line in old)
        matches = list(re.finditer(pattern, text))
        if len(matches) != 1:
            return None
        text = text[:matches[0].start()] + "\n".join(new) + text[matches[0].end():]
    return text


class Tree:
    """A copy of the working tree, with a build folder beside it for the project in tests/mutants."""

    def __init__(self, folder):
        self.root = pathlib.Path(folder) / "tree"
        names = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                               capture_output=True, text=True, check=True).stdout
        for name in names.split("\n"):
            if not name or not (ROOT / name).is_file():
                continue
            target = self.root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists() or target.read_bytes() != (ROOT / name).read_bytes():
                shutil.copyfile(ROOT / name, target)
                shutil.copymode(ROOT / name, target)
        self.build = pathlib.Path(folder) / "build"
        self.env = dict(os.environ, CCACHE_BASEDIR=str(folder), CCACHE_NOHASHDIR="1")
        launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        self.call(["cmake", "-S", str(self.root / "tests/mutants"), "-B", str(self.build), "-G", "Ninja",
                   "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG"] + launcher)

    def call(self, command):
        done = subprocess.run(command, cwd=self.root, env=self.env, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")

    def make(self, layers):
        """Builds the layers' programs and nothing else; False when something does not compile."""
        command = ["cmake", "--build", str(self.build), "-j", str(os.cpu_count() or 1), "--target"] + layers
        return subprocess.run(command, env=self.env, capture_output=True).returncode == 0

    def run(self, layer):
        """What the layer says: None when it passes, else what failed first."""
        program = next(path for path in self.build.rglob(layer) if path.is_file())
        command = [str(program)] + ARGUMENTS.get(layer, ["--gtest_fail_fast", "--gtest_brief=1"])
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=LAYER_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return "does not end"
        if done.returncode == 0:
            return None
        named = FIRST_FAILURE.search(done.stdout)
        return next(filter(None, named.groups())) if named else f"status {done.returncode}"

    @contextlib.contextmanager
    def changed(self, name, text):
        path = self.root / name
        original = path.read_text()
        path.write_text(text)
        try:
            yield
        finally:
            path.write_text(original)


def hunt(tree, fault):
    """Asks the fault's layers in their order. Answers (caught, what to print, seconds that the catching run took)."""
    with_fault = planted(fault, (tree.root / fault.file).read_text())
    if with_fault is None:
        return False, f"its text does not stand once in {fault.file}: renew the fault", 0.0
    with tree.changed(fault.file, with_fault):
        for layer in fault.layers:
            if not tree.make([layer]):
                return False, "does not compile", 0.0
            start = time.monotonic()
            failure = tree.run(layer)
            if failure is not None:
                return True, f"{layer}: {failure}", time.monotonic() - start
    return False, "SURVIVED " + " ".join(fault.layers), 0.0


def check_layers(tree, faults):
    layers = sorted({layer for fault in faults for layer in fault.layers})
    if not tree.make(layers):
        sys.exit("the tree does not compile without a fault: " + " ".join(layers))
    for layer in layers:
        start = time.monotonic()
        failure = tree.run(layer)
        if failure is not None:
            sys.exit(f"{layer} fails without a fault ({failure}): nothing it says would count")
        print(f"  {layer:60} passes without a fault {time.monotonic() - start:6.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="faults whose name contains this")
    parser.add_argument("--skip", type=int, default=0, help="leave the first N out")
    parser.add_argument("--first", type=int, default=1000, help="then take N")
    parser.add_argument("--work", help="folder for the copy, kept and used again")
    options = parser.parse_args()
    faults = [f for f in read_faults() if options.only in f.name][options.skip:][:options.first]
    with contextlib.ExitStack() as stack:
        tree = Tree(options.work or stack.enter_context(tempfile.TemporaryDirectory()))
        check_layers(tree, faults)
        survivors, promise, slowest = [], "", 0.0
        for fault in faults:
            if fault.promise != promise:
                promise = fault.promise
                print(f"\n{promise}")
            caught, what, seconds = hunt(tree, fault)
            slowest = max(slowest, seconds)
            if not caught:
                survivors.append(fault.name)
            print(f"  {fault.name:50} {what:78} {seconds:6.1f} s", flush=True)
    print(f"\n{len(faults) - len(survivors)} of {len(faults)} faults caught, each within {slowest:.1f} s")
    for name in survivors:
        print(f"  not caught: {name}")
    return 1 if survivors or not faults else 0


if __name__ == "__main__":
    sys.exit(main())
