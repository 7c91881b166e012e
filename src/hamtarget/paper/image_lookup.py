"""How much a search within two bits finds at a precision of .9, with codes as they are and decoded to their classes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hamtarget.decoding import decode
from hamtarget.metrics import by_label, precision_recall_by_radius
from hamtarget.paper.image_runs import RunCodes, kept_runs
from hamtarget.paper.provenance import provenance, write_json

LOOKUP_BITS = 64
LOOKUP_METHODS = ("HDT", "CSQ", "OrthoHash")
RADIUS = 2
PRECISION = 0.9


def write_lookup(runs: Path, out: Path) -> list[dict[str, Any]]:
    """The `lookup_records` of the runs in a folder; also in `out`/lookup.json, if there are any."""
    records = lookup_records(kept_runs(runs))
    if records:
        write_json(out / "lookup.json", {"provenance": provenance(seed=0), "records": records})
    return records


def lookup_records(runs: Iterable[tuple[dict[str, Any], RunCodes]]) -> list[dict[str, Any]]:
    """Precision and recall of each method's runs on the whole task, of plain and of decoded codes.

    How many bits are corrected is chosen on rows that were kept aside: what finds most there with enough precision.

    Args:
        runs: facts and codes, of all tasks.
    """
    codes = {
        (run["method"], run["task"], run["seed"]): found
        for facts, found in runs
        if (run := facts["run"])["n_bits"] == LOOKUP_BITS and not run["variant"]
    }
    records = []
    for method in LOOKUP_METHODS:
        aside = codes.get((method, "held_out", 0))
        if aside is None:
            continue
        tried = [(within, *_found(aside, within)) for within in range(LOOKUP_BITS // 4 + 1)]
        enough = [trial for trial in tried if trial[1] >= PRECISION]
        if not enough:
            continue
        within = max(enough, key=lambda trial: trial[2])[0]
        for (name, task, seed), found in codes.items():
            if name == method and task == "whole":
                plain, decoded = _found(found, None), _found(found, within)
                records.append(
                    {
                        "method": method,
                        "seed": seed,
                        "within": within,
                        "plain": dict(zip(("precision", "recall"), plain, strict=True)),
                        "decoded": dict(zip(("precision", "recall"), decoded, strict=True)),
                    }
                )
    return records


def text(records: list[dict[str, Any]]) -> str:
    """A line a run."""
    lines = [f"{LOOKUP_BITS} bits, precision / recall within {RADIUS}: plain; decoded to classes"]
    for record in records:
        plain, decoded = (
            f"{found['precision']:.3f} / {found['recall']:.3f}" for found in (record["plain"], record["decoded"])
        )
        lines.append(f"{record['method']:<11}{plain}; {decoded} (up to {record['within']} bits, seed {record['seed']})")
    return "\n".join(lines) + "\n" if records else ""


def _found(codes: RunCodes, within: int | None) -> tuple[float, float]:
    """Precision and recall within the radius, of codes as they are or decoded."""
    queries, database = codes.queries, codes.database
    if within is not None:
        queries, database = (
            decode(each, codes.class_codes, codes.n_bits, within=within) for each in (queries, database)
        )
    relevant = by_label(codes.query_labels, codes.database_labels)
    curve = precision_recall_by_radius(queries, database, relevant, n_bits=codes.n_bits, max_radius=RADIUS)
    return float(curve.precision[RADIUS]), float(curve.recall[RADIUS])
