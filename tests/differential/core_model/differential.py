#!/usr/bin/env python3
"""Runs random op scripts with the answers of the model through `kvpool exec --check`.

Usage: differential.py PROGRAM FIRST_SEED COUNT. KVPOOL_TEST_SCALE=long multiplies the count by 20. A script that
fails is kept, and its name printed."""
import json
import os
import subprocess
import sys
import tempfile

from random_script import Engine

STEPS = 40


def run(program, seed, folder):
    lines = Engine(seed).write(STEPS)
    path = os.path.join(folder, f"kvpool-differential-{seed}.jsonl")
    with open(path, "w", encoding="utf-8") as script:
        script.writelines(json.dumps(line) + "\n" for line in lines)
    result = subprocess.run([program, "exec", "--check", path], capture_output=True, text=True, check=False)
    if result.returncode == 0:
        os.remove(path)
        return len(lines), True
    print(f"seed {seed}: status {result.returncode}: {(result.stdout + result.stderr)[:800]}\n  script: {path}\n"
          f"  {json.dumps(lines[0])}")
    return len(lines), False


def main():
    program, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if os.environ.get("KVPOOL_TEST_SCALE") == "long":
        count *= 20
    results = [run(program, seed, tempfile.gettempdir()) for seed in range(first, first + count)]
    failed = sum(1 for _, equal in results if not equal)
    print(f"{count} scripts, {sum(lines for lines, _ in results)} operations, {failed} scripts differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
