#!/usr/bin/env python3
"""Includes point only downward. Fails with file, line and both layers where one does not."""
import pathlib
import re
import subprocess
import sys

RANK = {
    "foundation": 0, "block": 1, "config": 1, "queue": 2, "prefix": 2, "pool": 3, "manager": 4, "transfer": 5,
    "multigpu": 6, "kernels": 6, "tools": 7, "stress": 7, "python": 7,
}
# Layers of one rank are blind to each other.
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
# multigpu and kernels stand beside the core: they know what a block is, not how it is managed.
BESIDE = {"multigpu": {"foundation", "config", "block"}, "kernels": {"foundation", "config", "block"}}
# A third-party name has few homes.
HOMES = {
    re.compile(r"<boost/intrusive"): ("src/pool/", "stress/", "tools/bench/", "tests/"),
    re.compile(r"<boost/lockfree"): ("src/pool/", "tests/"),
    re.compile(r"<boost/context"): ("kernels/simt/", "tests/", "stress/"),
    re.compile(r"<mpi\.h>"): ("multigpu/mpi_", "tests/multigpu/", "tests/launch/"),
    re.compile(r"<nccl\.h>"): ("multigpu/nccl_",),
    re.compile(r"<cuda_runtime"): ("kernels/cuda/", "kernels/simt/", "multigpu/cuda_", "multigpu/nccl_", "tools/launch/rank/cuda_", "tools/gpu_check/"),
    re.compile(r"<nlohmann/"): ("tools/", "tests/", "stress/"),
}


def layer_of(path: str):
    parts = path.split("/")
    if parts[0] == "include":
        parts = parts[2:]
    elif parts[0] == "src":
        parts = parts[1:]
    return parts[0] if parts[0] in RANK else None


def target_layer(include: str):
    parts = include.split("/")
    if parts[0] == "kvpool":
        parts = parts[1:]
    return parts[0] if parts[0] in RANK else None


def main() -> int:
    files = subprocess.run(["git", "ls-files", "*.hpp", "*.cpp", "*.cuh", "*.cu"], capture_output=True, text=True, check=True)
    errors, includes = [], 0
    for name in files.stdout.split():
        here = layer_of(name)
        public = name.startswith("include/")
        for number, line in enumerate(pathlib.Path(name).read_text().splitlines(), 1):
            for pattern, homes in HOMES.items():
                if "#include" in line and pattern.search(line) and (public or not name.startswith(homes)):
                    errors.append(f"{name}:{number}: {line.strip()} belongs in {', '.join(homes)} only")
            match = INCLUDE.match(line)
            if not match or here is None:
                continue
            there = target_layer(match.group(1))
            if there is None or there == here:
                continue
            includes += 1
            if here in BESIDE and there not in BESIDE[here]:
                errors.append(f"{name}:{number}: {here} stands beside the core and may not include {there}")
            elif RANK[there] > RANK[here]:
                errors.append(f"{name}:{number}: {here} (rank {RANK[here]}) includes {there} (rank {RANK[there]}) above it")
            elif RANK[there] == RANK[here] < 7:
                errors.append(f"{name}:{number}: {here} and {there} are siblings and blind to each other")
            elif public and not match.group(1).startswith("kvpool/"):
                errors.append(f"{name}:{number}: a public header includes a private one")
    print(f"layers: {includes} includes between layers, {len(errors)} wrong")
    print("\n".join(errors), file=sys.stderr)
    return 1 if errors or includes == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
