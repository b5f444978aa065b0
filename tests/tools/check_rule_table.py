#!/usr/bin/env python3
"""Every test and script that docs/rules_and_tests.md names must exist. Usage: check_rule_table.py PROJECT"""
import pathlib
import re
import sys


def main():
    root = pathlib.Path(sys.argv[1])
    table = (root / "docs" / "rules_and_tests.md").read_text()
    tests = set()
    for source in (root / "tests").glob("**/*.cpp"):
        tests |= {f"{suite}.{name}" for suite, name in
                  re.findall(r"TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)", source.read_text())}
    scripts = {path.name[:2] for path in (root / "tests" / "data" / "golden" / "scenarios").iterdir()}
    named = set(re.findall(r"`([A-Z]\w*\.[A-Z]\w*)`", table))
    numbers = set(re.findall(r"`(\d\d)`", table))
    missing = sorted(named - tests) + sorted(numbers - scripts)
    for name in missing:
        print(f"docs/rules_and_tests.md names {name}, which does not exist")
    print(f"{len(named)} tests and {len(numbers)} scripts named")
    return 1 if missing or not named else 0


if __name__ == "__main__":
    sys.exit(main())
