#!/usr/bin/env python3
"""Writes the attention section of docs/performance.md and its plot from `kvpool bench --filter attention --json`.

    kvpool bench --filter attention --json > attention.json
    tools/attention_report.py attention.json --date 2026-11-30 [--torch torch.json]

The section lies between two marker lines and is replaced as a whole; the plot is docs/attention.svg.
"""
import argparse
import json
import pathlib

BEGIN, END = "<!-- attention: begin -->", "<!-- attention: end -->"
DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"


def title(row):
    name = row["name"].removeprefix("attention_").replace("_", " ")
    threads = "1 thread" if row["threads"] == 1 else f"{row['threads']} threads"
    return f"{name} / {row['pool']}, {threads}"


def verdict(row):
    if row.get("floor") == 0:
        return "no bar"
    if "us" in row:
        reached = "good" if row["us"] <= row["good"] else "floor" if row["us"] <= row["floor"] else "missed"
        return reached if row["reliable"] else reached + ", disturbed"
    if not row.get("judged"):
        return "not judged: the limit varied too much"
    reached = "good" if row["ratio"] >= row["good"] else "floor" if row["ratio"] >= row["floor"] else "missed"
    return reached if row["reliable"] else reached + ", disturbed"


def figure(row):
    if "us" in row:
        return f"{row['us']:.1f} us"
    if "ratio" not in row:
        return "-"
    return f"{row['ratio']:.2f} ({row['ratio_min']:.2f}-{row['ratio_max']:.2f})"


def table(rows):
    shown = lambda row, key: f"{row[key]:g}" if row[key] else "-"
    lines = ["| bar | median (least-most) | floor | good | reached | GB/s | limit GB/s |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        rates = [f"{row[key]:.1f}" if key in row else "" for key in ("gb_per_s", "limit_gb_per_s")]
        lines.append(f"| {title(row)} | {figure(row)} | {shown(row, 'floor')} | {shown(row, 'good')} | {verdict(row)} | "
                     f"{rates[0]} | {rates[1]} |")
    return lines


def plot(rows):
    """Bars of ratios up to 1.2; a long tick at the floor, a short one at the good mark."""
    shown = [row for row in rows if "ratio" in row and 0 < row["good"] <= 1]
    left, width, step = 330, 420, 22
    x = lambda value: left + width * min(value, 1.2) / 1.2
    height = step * len(shown) + 40
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 70}" height="{height}" '
           'font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="white"/>']
    for i, row in enumerate(shown):
        y = 10 + i * step
        colour = {"good": "#2a7f3f", "floor": "#c58a1b"}.get(verdict(row).split(",")[0], "#b03a2e")
        out.append(f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{title(row)}</text>')
        out.append(f'<rect x="{left}" y="{y + 2}" width="{x(row["ratio"]) - left:.0f}" height="14" fill="{colour}"/>')
        out.append(f'<line x1="{x(row["floor"]):.0f}" x2="{x(row["floor"]):.0f}" y1="{y}" y2="{y + 18}" stroke="black"/>')
        out.append(f'<line x1="{x(row["good"]):.0f}" x2="{x(row["good"]):.0f}" y1="{y + 5}" y2="{y + 13}" stroke="black"/>')
        out.append(f'<text x="{x(row["ratio"]) + 5:.0f}" y="{y + 13}">{row["ratio"]:.2f}</text>')
    out.append(f'<line x1="{x(1):.0f}" x2="{x(1):.0f}" y1="5" y2="{height - 25}" stroke="gray" stroke-dasharray="4"/>')
    out.append(f'<text x="{x(1):.0f}" y="{height - 10}" text-anchor="middle">the limit</text></svg>')
    return "\n".join(out) + "\n"


def section(report, date, torch):
    machine, rows = report["machine"], report["rows"]
    lines = [BEGIN, "", f"{machine['processor']}, {machine['logical_processors']} logical processors, "
             f"{machine['system']}, {machine['compiler']}, {date}: `kvpool bench --filter attention --json`.", ""]
    lines += table(rows)
    missed = [title(row) for row in rows if verdict(row).startswith("missed")]
    unjudged = [title(row) for row in rows if verdict(row).startswith("not judged")]
    lines += ["", "Below the floor: " + ("; ".join(missed) if missed else "none") + "."]
    if unjudged:
        lines += ["Not judged: " + "; ".join(unjudged) + "."]
    if torch:
        lines += ["", f"PyTorch {torch['version']}, `scaled_dot_product_attention` on contiguous KV of the same shape, by turns with kvpool on "
                  f"pages ({torch.get('turns', 1)} turns, medians; same machine and day): `tools/compare_with_torch.py --kvpool bin/kvpool`.", "",
                  "| type | threads | kvpool GB/s | PyTorch GB/s |", "|---|---|---|---|"]
        lines += [f"| {r['type']} | {r['threads']} | {r['kvpool_gb_per_s']:.1f} | {r['torch_gb_per_s']:.1f} |"
                  for r in torch["rows"]]
    lines += ["", "![ratios to the limit](attention.svg)", "", END]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report")
    parser.add_argument("--date", required=True)
    parser.add_argument("--torch", help="what compare_with_torch.py wrote")
    options = parser.parse_args()
    report = json.loads(pathlib.Path(options.report).read_text())
    report["rows"] = [row for row in report["rows"] if row["name"].startswith("attention_")]
    torch = json.loads(pathlib.Path(options.torch).read_text()) if options.torch else None
    page = DOCS / "performance.md"
    text = page.read_text()
    begin, end = text.index(BEGIN), text.index(END) + len(END)
    page.write_text(text[:begin] + section(report, options.date, torch) + text[end:])
    (DOCS / "attention.svg").write_text(plot(report["rows"]))


if __name__ == "__main__":
    main()
