#!/usr/bin/env python3
"""Both pools must declare the same members, and pool_members_test.cpp must name each. Usage: same_members.py PROJECT"""
import pathlib
import re
import sys


def public_members(header, pool, reservation):
    """The public declarations of one class, as a set of lines without comments, layout and the class's own names."""
    text = re.sub(r"//.*", "", header.read_text())
    members = set()
    for name in (pool, reservation):
        body = re.search(rf"^class (?:\[\[nodiscard\]\] )?{name} {{\n public:\n(.*?)^ private:", text, re.M | re.S).group(1)
        body = re.sub(r"\{[^{}]*\}", ";", body)  # bodies that stand in the header
        for statement in body.split(";"):
            statement = re.sub(rf"\b{pool}\b", "Pool", " ".join(statement.split()))
            members.add(re.sub(rf"\b{reservation}\b", "Units", statement))
    return members - {""}


def main():
    root = pathlib.Path(sys.argv[1])
    headers = root / "include" / "kvpool" / "pool"
    plain = public_members(headers / "block_pool.hpp", "BlockPool", "Reservation")
    locked = public_members(headers / "locked_block_pool.hpp", "LockedBlockPool", "LockedReservation")
    faults = [f"only BlockPool declares: {member}" for member in sorted(plain - locked)]
    faults += [f"only LockedBlockPool declares: {member}" for member in sorted(locked - plain)]
    checked = (root / "tests" / "unit" / "pool" / "pool_members_test.cpp").read_text()
    # constructors, destructors and assignments are checked by type traits
    functions = {match.group(1) for member in plain if (match := re.search(r"(?<!~)\b([a-z]\w*)\(", member))}
    faults += [f"pool_members_test.cpp does not name {name}" for name in sorted(functions)
               if not re.search(rf"&(?:Pool|Unit)::{name}\b", checked)]
    print("\n".join(faults + [f"{len(plain)} declarations, {len(functions)} member functions by name"]))
    return 1 if faults or len(functions) < 30 else 0


if __name__ == "__main__":
    sys.exit(main())
