#!/usr/bin/env python3
"""Turns the JSON of `kvpool bench` into the table and the plots of docs/performance.md.

    kvpool bench --json > figures.json
    tools/plot_bench.py figures.json [more.json ...]

A row that stands in several files is taken from the first of them. The text between the two marks in the document is
replaced, the plots are written beside it. Figures that were disturbed by other processes carry a star.
"""

import argparse
import json
import math
import pathlib
import sys
from dataclasses import dataclass

BEGIN = "<!-- figures of the pool: written by tools/plot_bench.py -->"
END = "<!-- end of the figures of the pool -->"
POOLS = ["kvpool", "lean", "spin", "std", "card", "locked"]
COLOURS = {"kvpool": "#c02020", "lean": "#2060c0", "spin": "#209050", "std": "#8050a0", "card": "#c08020",
           "locked": "#707070"}


class Missing(Exception):
    """A row that the files do not have."""


class Figures:
    """The rows of all files by name, pool and number of threads; remembers which of them a value was made of."""

    def __init__(self, documents):
        self.rows = {}
        self.disturbed = False
        for document in documents:
            for row in document["rows"]:
                self.rows.setdefault((row["name"], row["pool"], row["threads"]), row)

    def get(self, name, pool, threads, *path):
        row = self.rows.get((name, pool, threads))
        if row is None:
            raise Missing(f"{name} {pool} {threads}")
        self.disturbed = self.disturbed or not row.get("reliable", True)
        value = row
        for key in path:
            value = value[key]
        return value

    def ns(self, name, pool, threads=1):
        return self.get(name, pool, threads, "ns_per_block")

    def tail(self, name, pool, threads, quantile):
        return self.get(name, pool, threads, "latency_us", quantile)

    def threads_of(self, name):
        return sorted({threads for row, _, threads in self.rows if row == name})


@dataclass
class Bar:
    number: str
    what: str
    floor: float
    goal: float
    unit: str
    value: object  # Figures -> float
    more_is_better: bool = True

    def verdict(self, value):
        for limit, word in ((self.goal, "goal"), (self.floor, "floor")):
            if (value >= limit) if self.more_is_better else (value <= limit):
                return word
        return "missed"


def over(name, pool, threads):
    return lambda f: f.ns(name, pool, threads) / f.ns(name, "kvpool", threads)


def own(threads, base):
    return lambda f: f.ns("prefix", "kvpool", base) / f.ns("prefix", "kvpool", threads)


def tails(name, quantile):
    return lambda f: f.tail(name, "lean", 8, quantile) / f.tail(name, "kvpool", 8, quantile)


def in_additions(name):
    return lambda f: f.get(name, "kvpool", 1, "xadd")


def list_ratio(f):
    return f.ns("allocate_release_blank", "kvpool") / (f.ns("list_allocate", "unlocked") + f.ns("list_free", "unlocked"))


def hit_rate_loss(f):
    row = "prefix_hit_rate"
    return 100 * (f.get(row, "one_shard", 1, "hit_rate") - f.get(row, "kvpool", 1, "hit_rate"))


def beside_idle(f):
    return f.tail("allocate_beside_match", "beside", 2, "p999") / f.tail("allocate_beside_match", "idle", 1, "p999")


def feature(row, other):
    def value(f):
        threads = f.threads_of(row)[-1:] or [8]
        return f.ns(row, "kvpool", threads[0]) / f.ns(row, other, threads[0])
    return value


def metadata(shards):
    return lambda f: f.get("metadata", f"{shards}_shards", 1, "bytes_per_block")


def low(number, what, floor, goal, unit, value):
    return Bar(number, what, floor, goal, unit, value, more_is_better=False)


BARS = [
    Bar("1", "8 threads, throughput against std", 5, 8, "x", over("prefix", "std", 8)),
    Bar("2", "8 threads against lean", 1.15, 1.6, "x", over("prefix", "lean", 8)),
    Bar("3", "2 threads against lean", 4, 7, "x", over("prefix", "lean", 2)),
    Bar("3", "2 threads against spin", 2, 3, "x", over("prefix", "spin", 2)),
    Bar("4", "8 threads against card, bare", 5, 8, "x", over("prefix", "card", 8)),
    Bar("4", "8 threads against card as LockedBlockPool", 5, 8, "x", over("prefix", "locked", 8)),
    Bar("5", "32 threads against lean", 1.8, 2.8, "x", over("prefix", "lean", 32)),
    Bar("6", "2 threads against own 1 thread", 1.05, 1.4, "x", own(2, 1)),
    Bar("7", "32 threads against own 8 threads", 0.85, 0.97, "x", own(32, 8)),
    Bar("8", "1 thread against lean", 0.55, 0.9, "x", over("prefix", "lean", 1)),
    Bar("9", "p99.9 of all calls, 8 threads: lean / kvpool", 12, 40, "x", tails("prefix_latency", "p999")),
    Bar("10", "p99.99 without preempted calls, 8 threads: lean / kvpool", 50, 150, "x",
        tails("prefix_latency_undisturbed", "p9999")),
    low("11", "p99 / p50, 8 threads", 6, 3, "x",
        lambda f: f.tail("prefix_latency", "kvpool", 8, "p99") / f.tail("prefix_latency", "kvpool", 8, "p50")),
    low("14", "pin and release, shared block", 5, 3, "xadd", in_additions("pin_release_shared")),
    low("14", "pin and release, block of the LRU order", 8, 4.5, "xadd", in_additions("pin_release_lru")),
    low("15", "evicting allocation", 4, 2.5, "xadd", in_additions("allocate_evicting")),
    low("15", "publication", 4, 2.5, "xadd", in_additions("publish")),
    low("15", "release of cached blocks", 3.5, 2.2, "xadd", in_additions("release_cached")),
    low("16", "allocate and release blank blocks", 2.5, 1.3, "xadd", in_additions("allocate_release_blank")),
    low("16", "the same against an unlocked list", 2.5, 1.3, "x", list_ratio),
    low("17", "release of 32 hot blocks, p99.9 / p50", 10, 5, "x",
        lambda f: f.get("hot_release", "kvpool", 1, "p999_over_p50")),
    low("17", "release of 32 hot blocks, maximum", 1, 0.3, "ms",
        lambda f: f.tail("hot_release", "kvpool", 1, "max") / 1000),
    Bar("18", "index, erase and insert: oneTBB / kvpool", 5, 10, "x", over("index_replace", "tbb", 1)),
    Bar("18", "index, miss: oneTBB / kvpool", 3, 5, "x", over("index_miss", "tbb", 1)),
    Bar("18", "index, hit: oneTBB / kvpool", 1.5, 2, "x", over("index_hit", "tbb", 1)),
    low("19", "index, miss after 50 million replacements / fresh", 1.2, 1.05, "x",
        lambda f: f.ns("index_miss_aged", "aged") / f.ns("index_miss_aged", "fresh")),
    low("20", "hit rate lost by sharding", 1, 0.3, "points", hit_rate_loss),
    low("24", "p99.9 of an allocation beside a look-up of 8,192 blocks / idle", 3, 1.5, "x", beside_idle),
    Bar("25", "throughput with events / without", 0.75, 0.9, "x", feature("events", "announcing")),
    low("26", "metadata, 2 shards", 300, 192, "B/block", metadata(2)),
    low("26", "metadata, 8 shards", 480, 256, "B/block", metadata(8)),
    low("-", "evict and publish one block, 1,000,000 cached blocks / 1,000", 3, 1.5, "x",
        lambda f: f.get("recycle_one", "1000000", 1, "over_first")),
    low("-", "number of free blocks, 1,000,000 cached blocks / 1,000", 1.5, 1.05, "x",
        lambda f: f.get("count_free", "1000000", 1, "over_first")),
    low("-", "blocks without content, caching off / on", 1, 0.9, "x",
        lambda f: f.get("blank_requests", "no_caching", 1, "over_first")),
    low("-", "a chain announced block by block, 2,048 blocks / 512", 5, 4.2, "x",
        lambda f: f.get("announced_chain", "2048", 1, "over_first")),
    low("-", "cost of the counters", 2, 0, "%",
        lambda f: 100 * (1 - feature("metrics", "without_metrics")(f) ** -1)),
    low("-", "construction of 4,194,304 blocks", 2, 1, "s", lambda f: f.get("construct", "kvpool", 1, "seconds")),
]


def three_digits(value):
    if value == 0 or not math.isfinite(value):
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(decimals, 3)}f}"


def bar_table(figures):
    lines = ["| row | what | measured | floor | goal | |", "|---|---|---|---|---|---|"]
    for bar in BARS:
        figures.disturbed = False
        try:
            value = bar.value(figures)
        except Missing:
            continue
        star = "*" if figures.disturbed else ""
        lines.append(f"| {bar.number} | {bar.what} | {three_digits(value)}{star} {bar.unit} | {bar.floor:g} | {bar.goal:g} "
                     f"| {bar.verdict(value)} |")
    return lines


def sweep_table(figures, name, title, cell):
    threads = figures.threads_of(name)
    if not threads:
        return []
    lines = [f"{title}:", "", "| threads | " + " | ".join(POOLS) + " |", "|---" * (len(POOLS) + 1) + "|"]
    for count in threads:
        cells = []
        for pool in POOLS:
            figures.disturbed = False
            try:
                cells.append(three_digits(cell(figures, pool, count)) + ("*" if figures.disturbed else ""))
            except Missing:
                cells.append("")
        lines.append(f"| {count} | " + " | ".join(cells) + " |")
    return lines + [""]


class Plot:
    """Lines over the number of threads, both axes logarithmic."""

    WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 400, 70, 110, 40, 50

    def __init__(self, title, unit, threads, lines):
        self.title, self.unit, self.threads, self.lines = title, unit, threads, lines
        values = [v for points in lines.values() for _, v in points if v > 0]
        self.low = 10 ** math.floor(math.log10(min(values)))
        self.high = 10 ** math.ceil(math.log10(max(values) * 1.0001))

    def x(self, threads):
        first, last = math.log(self.threads[0]), math.log(self.threads[-1])
        share = (math.log(threads) - first) / (last - first) if last > first else 0.5
        return self.LEFT + share * (self.WIDTH - self.LEFT - self.RIGHT)

    def y(self, value):
        share = (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return self.HEIGHT - self.BOTTOM - share * (self.HEIGHT - self.TOP - self.BOTTOM)

    def grid(self):
        right = self.WIDTH - self.RIGHT
        parts = []
        value = self.low
        while value <= self.high * 1.0001:
            y = self.y(value)
            parts.append(f'<path d="M{self.LEFT} {y:.1f}H{right}" stroke="#ddd"/>')
            parts.append(f'<text x="{self.LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
            value *= 10
        for count in self.threads:
            x = self.x(count)
            parts.append(f'<path d="M{x:.1f} {self.TOP}V{self.HEIGHT - self.BOTTOM}" stroke="#eee"/>')
            parts.append(f'<text x="{x:.1f}" y="{self.HEIGHT - self.BOTTOM + 18}" text-anchor="middle">{count}</text>')
        parts.append(f'<text x="{(self.LEFT + right) / 2:.0f}" y="{self.HEIGHT - 12}" text-anchor="middle">threads</text>')
        return parts

    def labels(self):
        """Names at the ends of the lines, moved apart where they would cover each other."""
        ends = sorted((self.y(points[-1][1]), pool) for pool, points in self.lines.items())
        parts, last = [], -math.inf
        for y, pool in ends:
            last = max(y, last + 14)
            parts.append(f'<text x="{self.WIDTH - self.RIGHT + 8}" y="{last + 4:.1f}" fill="{COLOURS[pool]}">{pool}</text>')
        return parts

    def svg(self):
        parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.WIDTH}" height="{self.HEIGHT}" '
                 'font-family="sans-serif" font-size="12">',
                 f'<rect width="{self.WIDTH}" height="{self.HEIGHT}" fill="white"/>',
                 f'<text x="{self.LEFT}" y="22" font-size="14">{self.title}, {self.unit}</text>', *self.grid()]
        for pool, points in self.lines.items():
            path = " ".join(f"{self.x(t):.1f},{self.y(v):.1f}" for t, v in points)
            width = 2.5 if pool == "kvpool" else 1.5
            parts.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[pool]}" stroke-width="{width}"/>')
            parts += [f'<circle cx="{self.x(t):.1f}" cy="{self.y(v):.1f}" r="3" fill="{COLOURS[pool]}"/>' for t, v in points]
        return "\n".join(parts + self.labels() + ["</svg>", ""])


def plot_of(figures, name, title, unit, cell):
    lines = {}
    for pool in POOLS:
        points = []
        for count in figures.threads_of(name):
            try:
                points.append((count, cell(figures, pool, count)))
            except Missing:
                pass
        if points:
            lines[pool] = points
    return Plot(title, unit, figures.threads_of(name), lines).svg() if lines else None


def throughput(figures, pool, threads):
    return figures.get("prefix", pool, threads, "ops_per_second") * 1e-6


def tail_latency(figures, pool, threads):
    return figures.tail("prefix_latency", pool, threads, "p999")


def description(documents):
    machine = documents[0]["machine"]
    commands = list(dict.fromkeys(d["machine"]["command"] for d in documents))
    dates = sorted({d["machine"]["date"] for d in documents})
    return [f"{machine['processor']}, {machine['logical_processors']} logical processors, {machine['system']}, "
            f"{machine['compiler']}, {' and '.join(dates)}. Medians of five alternating runs. A star: other processes "
            "disturbed every try.", "", *[f"    {command}" for command in commands], ""]


def section(figures, documents, plots):
    lines = description(documents) + bar_table(figures) + [""]
    lines += sweep_table(figures, "prefix", "Workload `prefix`, million block operations a second", throughput)
    lines += sweep_table(figures, "prefix_latency", "Workload `prefix`, p99.9 of a call in microseconds", tail_latency)
    lines += [f"![{title}]({path})" for title, path in plots]
    return "\n".join(lines)


def replaced(text, body):
    if BEGIN not in text or END not in text:
        raise SystemExit(f"the document lacks the marks {BEGIN} and {END}")
    before, rest = text.split(BEGIN, 1)
    return f"{before}{BEGIN}\n\n{body}\n\n{END}{rest.split(END, 1)[1]}"


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path, help="JSON of kvpool bench")
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--document", type=pathlib.Path, default=root / "docs/performance.md")
    options = parser.parse_args(arguments)
    documents = [json.loads(path.read_text()) for path in options.files]
    figures = Figures(documents)
    plots = []
    for name, row, title, unit, cell in (
            ("pool_throughput.svg", "prefix", "Workload prefix: throughput", "million block operations a second", throughput),
            ("pool_tail.svg", "prefix_latency", "Workload prefix: p99.9 of a call", "microseconds", tail_latency)):
        svg = plot_of(figures, row, title, unit, cell)
        if svg is not None:
            (options.document.parent / name).write_text(svg)
            plots.append((title, name))
    text = options.document.read_text()
    options.document.write_text(replaced(text, section(figures, documents, plots)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
