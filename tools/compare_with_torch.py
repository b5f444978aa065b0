#!/usr/bin/env python3
"""kvpool's paged decode beside PyTorch's scaled_dot_product_attention on contiguous KV of the same shape, on the CPU.

    tools/compare_with_torch.py --kvpool build/dev/bin/kvpool > torch.json

Installs PyTorch into a virtual environment in a temporary folder, which is deleted at the end; --pip hands further
arguments to pip (another index, a wheel, a version). --environment keeps it in a folder of one's own and uses it again:
`--install-only` fills it, so that a later call measures at once. Runs kvpool and PyTorch by turns and prints the medians
as JSON. Not part of any build or test.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

BARS = {"fp32": "attention_decode_fp32_hnd", "bf16": "attention_decode_bf16_hnd", "fp16": "attention_decode_fp16_hnd"}
TURNS = 3

PEER = """
import json, sys, time, torch
name, threads = sys.argv[1], int(sys.argv[2])
torch.manual_seed(1)
torch.set_num_threads(threads)
kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[name]
B, H, G, D, L, layers, turns = 8, 8, 4, 128, 8192, 2, 5
k = [torch.randn(B, H, L, D).to(kind) for _ in range(layers)]
v = [torch.randn(B, H, L, D).to(kind) for _ in range(layers)]
q = torch.randn(B, H * G, 1, D).to(kind)
attend = torch.nn.functional.scaled_dot_product_attention
def step():
    for i in range(layers):
        attend(q, k[i], v[i], enable_gqa=True)
with torch.inference_mode():
    step()
    times = []
    for _ in range(turns):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
size = 2 * layers * B * H * L * D * k[0].element_size()
print(json.dumps({"version": torch.__version__, "gb_per_s": size / sorted(times)[turns // 2] * 1e-9}))
"""


def output(command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def kvpool_rates(kvpool, bar):
    # Status 3 says that the machine was disturbed; the figures are there all the same.
    done = subprocess.run([kvpool, "bench", "--filter", f"^{re.escape(bar)}$", "--json"], stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 3):
        sys.exit(f"kvpool bench ended with status {done.returncode}")
    rows = json.loads(done.stdout)["rows"]
    return {row["threads"]: row["gb_per_s"] for row in rows if row["name"] == bar}


def make_environment(folder, pip):
    """The folder's Python, with PyTorch in it."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    if subprocess.run([str(python), "-c", "import torch, numpy"], stderr=subprocess.DEVNULL).returncode != 0:
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "torch", "numpy", *pip.split()], check=True,
                       stdout=sys.stderr)
    return str(python)


def compare(python, kvpool, types):
    rows, version = [], None
    for name, bar in ((name, BARS[name]) for name in types):
        own, peer = {}, {}
        for _ in range(TURNS):
            for threads, rate in kvpool_rates(kvpool, bar).items():
                own.setdefault(threads, []).append(rate)
                answer = json.loads(output([python, "-c", PEER, name, str(threads)]))
                version = answer["version"]
                peer.setdefault(threads, []).append(answer["gb_per_s"])
        rows += [{"type": name, "threads": threads, "kvpool_gb_per_s": statistics.median(own[threads]),
                  "torch_gb_per_s": statistics.median(peer[threads])} for threads in sorted(own)]
    return {"version": version, "turns": TURNS, "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvpool", required=True, help="the program, from an optimised build")
    parser.add_argument("--pip", default="", help="further arguments for pip install")
    parser.add_argument("--environment", type=pathlib.Path, help="folder of an environment that is kept")
    parser.add_argument("--install-only", action="store_true", help="make the environment and measure nothing")
    parser.add_argument("--types", default=",".join(BARS), help="of the cache, separated by commas")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        python = make_environment(options.environment or pathlib.Path(folder), options.pip)
        if not options.install_only:
            print(json.dumps(compare(python, options.kvpool, options.types.split(","))))


if __name__ == "__main__":
    main()
