#!/usr/bin/env python3
"""Weak scaling of `kvpool launch`: heads per rank stay the same while the ranks become more; draws the result.

    tools/launch/weak_scaling.py --program build/dev/bin/kvpool --trace TRACE --svg docs/launch_weak_scaling.svg

With P ranks the model has P times the heads, so that every rank has the same work in every step and only the sums
over ranks grow. Ideal is the time of one rank, as long as each rank has a core of its own; with P ranks on C cores
it is P / C times that. The runs alternate, medians count.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

RANKS = (1, 2, 4)
HEADS_PER_RANK = 4
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 560, 340, 64, 52, 44, 20


def run(program, trace, ranks, first, folder):
    model = pathlib.Path(folder) / f"model-{ranks}.json"
    model.write_text(json.dumps({
        "num_hidden_layers": 2, "hidden_size": 512, "num_attention_heads": HEADS_PER_RANK * ranks,
        "num_key_value_heads": ranks, "head_dim": 64}))
    command = [program, "launch", "--trace", trace, "--first", str(first), "--model", str(model), "--memory", "64MiB",
               "--ranks-as-threads", str(ranks), "--compute-threads", "1", "--schedulers", "1", "--json"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return report["seconds"] / report["steps"], report["time_share"]["communication"]


def measure(arguments):
    seconds = {ranks: [] for ranks in RANKS}
    shares = {ranks: [] for ranks in RANKS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.repetitions):
            for ranks in RANKS:
                step, share = run(arguments.program, arguments.trace, ranks, arguments.first, folder)
                seconds[ranks].append(step)
                shares[ranks].append(share)
    return [{"ranks": ranks, "ms_per_step": 1e3 * statistics.median(seconds[ranks]),
             "least": 1e3 * min(seconds[ranks]), "most": 1e3 * max(seconds[ranks]),
             "communication": statistics.median(shares[ranks])} for ranks in RANKS]


def svg(rows, cores):
    ideal = [(row["ranks"], rows[0]["ms_per_step"] * max(1.0, row["ranks"] / cores)) for row in rows]
    top = 1.15 * max([row["most"] for row in rows] + [value for _, value in ideal])

    def x(ranks):
        return LEFT + (WIDTH - LEFT - RIGHT) * (ranks - 0.5) / (max(RANKS) + 0.2 - 0.5)

    def y(value):
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / top

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
             'font-size="12">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
             f'<text x="{LEFT}" y="20" font-size="14">Weak scaling: {HEADS_PER_RANK} query heads a rank, '
             f'{cores} cores</text>']
    for tick in range(5):
        value = top * tick / 4.6
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.1f}</text>')
    points = " ".join(f"{x(ranks):.1f},{y(value):.1f}" for ranks, value in ideal)
    parts.append(f'<polyline points="{points}" fill="none" stroke="#888" stroke-dasharray="5 4"/>')
    points = " ".join(f'{x(row["ranks"]):.1f},{y(row["ms_per_step"]):.1f}' for row in rows)
    parts.append(f'<polyline points="{points}" fill="none" stroke="#1f6fb4" stroke-width="2"/>')
    for row in rows:
        place = x(row["ranks"])
        parts.append(f'<line x1="{place:.1f}" x2="{place:.1f}" y1="{y(row["least"]):.1f}" y2="{y(row["most"]):.1f}" '
                     'stroke="#1f6fb4"/>')
        parts.append(f'<circle cx="{place:.1f}" cy="{y(row["ms_per_step"]):.1f}" r="4" fill="#1f6fb4"/>')
        parts.append(f'<text x="{place:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{row["ranks"]}</text>')
    parts.append(f'<text x="{WIDTH / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle">ranks (threads of one process); '
                 'dashed: one rank\'s time x ranks / cores</text>')
    parts.append(f'<text x="14" y="{HEIGHT / 2:.0f}" transform="rotate(-90 14 {HEIGHT / 2:.0f})" '
                 'text-anchor="middle">ms per step</text>')
    return "\n".join(parts + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--trace", required=True)
    parser.add_argument("--first", type=int, default=12, help="requests of the trace")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--svg", help="file to draw into")
    arguments = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    rows = measure(arguments)
    for row in rows:
        print(f'{row["ranks"]} ranks: {row["ms_per_step"]:.2f} ms a step ({row["least"]:.2f} to {row["most"]:.2f}), '
              f'{row["ms_per_step"] / rows[0]["ms_per_step"]:.2f} times one rank, '
              f'communication {100 * row["communication"]:.1f} %')
    if arguments.svg:
        pathlib.Path(arguments.svg).write_text(svg(rows, cores))
    return 0


if __name__ == "__main__":
    sys.exit(main())
