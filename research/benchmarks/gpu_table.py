"""Print a file that gpu_scan.py wrote as the tables of docs/gpu.md.

python -m research.benchmarks.gpu_table research/results/gpu_scan.json
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any


def tables(results: dict[str, Any]) -> str:
    """Return the tables in Markdown."""
    limits = results["limits"]
    gpu = results["provenance"]["machine"]["gpu"]
    lines = [
        f"{gpu}; memory {limits['bytes'] / 1e12:.2f} TB/s, torch's product of int8 matrices "
        f"{limits['multiplications'] / 1e12:.0f} T multiplications/s, "
        f"stated by the vendor {(limits['stated_multiplications'] or math.nan) / 1e12:.0f} T.",
        "",
        "| bits | rows | one code, q/s | share of memory | 1,024 codes, q/s | comparisons/s | share of torch's product "
        "| of the vendor's figure | 10 nearest: one, ms | 10 nearest: 1,024, q/s | plain torch, q/s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for size in results["sizes"]:
        one, many = size["batch_1"], size["batch_1024"]
        lines.append(
            f"| {size['n_bits']:,} | {size['rows'] // 10**6}M | {one['queries_per_second']:,.0f} "
            f"| {one['share_of_limit']:.2f} | {many['queries_per_second']:,.0f} "
            f"| {many['comparisons_per_second'] / 1e12:.2f}T | {many['share_of_limit']:.2f} "
            f"| {many.get('share_of_stated', math.nan):.2f} "
            f"| {1e3 * one['nearest_seconds']:.1f} | {many['nearest_queries_per_second']:,.0f} "
            f"| {size['plain_torch_queries_per_second']:,.0f} |"
        )
    lines += [
        "",
        "| bits | rows | CPU, q/s | its threads | GPU, q/s | plain torch on it, q/s |",
        "|---|---|---|---|---|---|",
    ]
    sizes = {(size["n_bits"], size["rows"]): size for size in results["sizes"]}
    for cpu in results["cpu"]:
        size = sizes[cpu["n_bits"], cpu["rows"]]
        lines.append(
            f"| {cpu['n_bits']:,} | {cpu['rows'] // 10**6}M | {cpu['queries_per_second']:,.0f} | {cpu['threads']} "
            f"| {size['batch_1024']['queries_per_second']:,.0f} | {size['plain_torch_queries_per_second']:,.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the tables of a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="file that gpu_scan.py wrote")
    print(tables(json.loads(parser.parse_args().results.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
