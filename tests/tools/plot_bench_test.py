#!/usr/bin/env python3
"""The table and the plots of tools/plot_bench.py say what the rows say."""

import json
import pathlib
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import plot_bench  # noqa: E402

MACHINE = {"processor": "P", "logical_processors": 2, "system": "S", "compiler": "C", "command": "kvpool bench",
           "date": "2026-01-02"}


def throughput_row(pool, threads, ns, reliable=True):
    return {"name": "prefix", "pool": pool, "threads": threads, "ns_per_block": ns, "ops_per_second": 1e9 / ns,
            "latency_us": None, "reliable": reliable}


def written(documents):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "document.md").write_text(f"before\n{plot_bench.BEGIN}\nold\n{plot_bench.END}\nafter\n")
        files = []
        for i, rows in enumerate(documents):
            files.append(root / f"{i}.json")
            files[-1].write_text(json.dumps({"rows": rows, "machine": MACHINE}))
        plot_bench.main([*map(str, files), "--document", str(root / "document.md")])
        return (root / "document.md").read_text(), {p.name: p.read_text() for p in root.glob("*.svg")}


class PlotBench(unittest.TestCase):
    def test_ratios_and_verdicts(self):
        text, _ = written([[throughput_row("kvpool", 8, 10), throughput_row("std", 8, 60),
                            throughput_row("lean", 8, 11), throughput_row("card", 8, 90, reliable=False)]])
        self.assertIn("| 1 | 8 threads, throughput against std | 6.00 x | 5 | 8 | floor |", text)
        self.assertIn("| 2 | 8 threads against lean | 1.10 x | 1.15 | 1.6 | missed |", text)
        self.assertIn("| 4 | 8 threads against card, bare | 9.00* x | 5 | 8 | goal |", text)
        self.assertTrue(text.startswith("before\n") and text.endswith("\nafter\n"))
        self.assertNotIn("old", text)
        self.assertNotIn("\n| 5 |", text)  # no row, no figure

    def test_smaller_is_better_where_it_is(self):
        rows = [{"name": "metadata", "pool": "2_shards", "threads": 1, "bytes_per_block": 250.0, "reliable": True}]
        text, plots = written([rows])
        self.assertIn("| 26 | metadata, 2 shards | 250 B/block | 300 | 192 | floor |", text)
        self.assertEqual(plots, {})

    def test_the_first_file_wins_and_plots_are_xml(self):
        first = [throughput_row("kvpool", t, 20 / t) for t in (1, 2, 8)] + [throughput_row("lean", 1, 30)]
        text, plots = written([first, [throughput_row("kvpool", 8, 999)]])
        self.assertIn("| 8 | 400 |", text)
        lines = [e for e in xml.etree.ElementTree.fromstring(plots["pool_throughput.svg"]) if e.tag.endswith("polyline")]
        self.assertEqual([len(line.get("points").split()) for line in lines], [3, 1])


if __name__ == "__main__":
    unittest.main()
