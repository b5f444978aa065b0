#!/usr/bin/env python3
"""Times scaled_dot_product_attention on contiguous K and V of the shapes that the bars step measured.

usage: torch_peer.py FOLDER     reads FOLDER/bars.tsv, appends ratios to FOLDER/peer.tsv

A row "peer B L" of the bars holds our time in microseconds for B sequences of L tokens, 8 KV heads, group 4, head size
128, bf16. Paging must cost nothing: time / peer <= 1.15 (floor), <= 1.0 (good).
"""

import statistics
import sys

import torch


def time_peer(sequences, length, repeats=20, warm_up=3):
    """Median time of a decode step in microseconds; K and V alternate between copies larger than the L2 cache."""
    bytes_per_set = 2 * sequences * 8 * length * 128 * 2
    sets = 1 + int(512e6 // bytes_per_set)
    shape = (sequences, 8, length, 128)
    keys = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(sets)]
    values = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(sets)]
    query = torch.randn((sequences, 32, 1, 128), device="cuda", dtype=torch.bfloat16)
    times = []
    for i in range(warm_up + repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        torch.nn.functional.scaled_dot_product_attention(query, keys[i % sets], values[i % sets], enable_gqa=True)
        end.record()
        end.synchronize()
        if i >= warm_up:
            times.append(start.elapsed_time(end) * 1e3)
    return statistics.median(times)


def main():
    folder = sys.argv[1]
    with open(f"{folder}/bars.tsv", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    with open(f"{folder}/peer.tsv", "a", encoding="utf-8") as out:
        for row in rows:
            words = row[1].split()
            if words[:1] != ["peer"]:
                continue
            sequences, length, ours = int(words[1]), int(words[2]), float(row[2])
            peer = time_peer(sequences, length)
            ratio = ours / peer
            verdict = "good" if ratio <= 1.0 else "floor" if ratio <= 1.15 else "below"
            out.write(f"peer\ttime / PyTorch SDPA, {sequences} x {length}\t{ratio:.3f}\t\t1.15\t1\t{verdict}\t"
                      f"{ours:.1f} us against {peer:.1f} us, PyTorch {torch.__version__}\n")
            out.flush()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
