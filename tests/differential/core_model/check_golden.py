#!/usr/bin/env python3
"""The model against the recorded scripts below FOLDER: every answer must agree. Scripts with another hash than the
model's are left out, as are operations that are refused. Usage: check_golden.py FOLDER"""
import gzip
import json
import pathlib
import sys

from script import Machine


def check(path):
    opener = gzip.open if path.endswith(".gz") else open
    machine, count = None, 0
    with opener(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            op = json.loads(line)
            if op["op"] == "config":
                if op["hash_algo"] != "sha256_cbor":
                    return 0
                machine = Machine(op)
                continue
            expected = op.get("expect")
            if op["op"] == "barrier" or (expected and "error" in expected):
                continue
            try:
                answer = json.loads(json.dumps(machine.run(op)))
            except Exception as error:
                raise SystemExit(f"{path}:{number}: {op['op']}: {error!r}")
            if expected is not None and answer != expected:
                if "usage" in answer and abs(answer["usage"] - expected["usage"]) < 1e-9:
                    continue
                raise SystemExit(f"{path}:{number}: {op['op']}: expected {expected}, got {answer}")
            count += 1
    return count


def main():
    counts = [check(str(path)) for path in sorted(pathlib.Path(sys.argv[1]).glob("*/*.jsonl*"))]
    print(f"{sum(counts)} answers of {sum(1 for count in counts if count)} scripts agree")
    return 0 if sum(counts) > 10_000 else 1


if __name__ == "__main__":
    sys.exit(main())
