"""Table 2, measured anew: recall and cost of exact look-up with re-ranking (HDT-E) on SIFT 1M.

For every (n, r) and lambda of the paper, a model is trained on the learning set only, for a number of steps that was
fixed before. The ten nearest neighbours of each vector are similar. Queries are looked up in a `MultiIndex` of r + 1
substrings, and the rows within r bits are ranked by the stored embeddings.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hamtarget.errors import InputError
from hamtarget.evaluation.provenance import provenance, write_json
from research.datasets.vector_sets import VectorSet
from research.paper.lookup import exact_lookup
from research.paper.vector_codes import NamedProgress
from research.paper.vector_models import LAMBDAS, LENGTHS, WAYS, Training, lookup_model

# recall@100 and comparisons as printed. The paper used other SIFT descriptors, so only trends can be compared.
PAPER = {
    (16, 100.0): (0.324, 1463.0),
    (16, 300.0): (0.206, 366.0),
    (16, 1000.0): (0.120, 80.6),
    (32, 100.0): (0.594, 4984.0),
    (32, 300.0): (0.420, 1324.0),
    (32, 1000.0): (0.265, 247.0),
    (64, 100.0): (0.901, 42851.0),
    (64, 300.0): (0.781, 12709.0),
    (64, 1000.0): (0.645, 4105.0),
}


def measure(
    vectors: VectorSet,
    models: Path,
    training: Training,
    *,
    lengths: tuple[tuple[int, int], ...] = LENGTHS,
    lambdas: tuple[float, ...] = LAMBDAS,
    ways: tuple[str, ...] = tuple(WAYS),
    tell: Callable[[dict[str, Any]], None] | None = None,
    progress: NamedProgress | None = None,
) -> list[dict[str, Any]]:
    """Return one record for each cell of the table, ready for JSON.

    Args:
        vectors: the set; its queries are used for the figures only.
        models: folder of trained models; a model in it is not trained again.
        training: how long models are trained.
        lengths: the (n_bits, radius) of the table.
        lambdas: values of `dissimilar_weight`.
        ways: names in `WAYS`.
        tell: called with each record as soon as there is one.
        progress: called with a model's name, the steps done and all steps.
    """
    records = []
    for way in ways:
        for n_bits, radius in lengths:
            for weight in lambdas:
                model = lookup_model(n_bits, radius, weight, way, training)
                trained = model.trained(vectors, models, progress=progress)
                record = {
                    "n_bits": n_bits,
                    "radius": radius,
                    "dissimilar_weight": weight,
                    "way": way,
                    "steps": training.steps,
                    "seed": training.seed,
                    "training_seconds": trained.seconds,
                    "trained_on": trained.provenance["machine"],
                    **exact_lookup(trained.encoder, vectors, radius),
                }
                records.append(record)
                if tell is not None:
                    tell(record)
    return records


def write_table2(
    vectors: VectorSet,
    out: Path,
    models: Path,
    training: Training,
    *,
    n_bits: tuple[int, ...] = (),
    progress: NamedProgress | None = None,
) -> list[dict[str, Any]]:
    """Measure the table, or some lengths of codes, and write `out`/table2.json after every model.

    Raises:
        InputError: the table has no codes of such a length.
    """
    lengths = tuple(each for each in LENGTHS if not n_bits or each[0] in n_bits)
    if len(lengths) < len(set(n_bits)):
        raise InputError(f"n_bits is {', '.join(map(str, n_bits))}; expected 16, 32 or 64, as in the paper")
    records: list[dict[str, Any]] = []

    def note(record: dict[str, Any]) -> None:
        records.append(record)
        told = {"data": vectors.name, "provenance": provenance(seed=training.seed), "records": records}
        write_json(out / "table2.json", told)

    measure(vectors, models, training, lengths=lengths, tell=note, progress=progress)
    return records


def table2_records(out: Path, vectors: VectorSet) -> list[dict[str, Any]]:
    """Return the records in `out`/table2.json if they are of the same vectors; none if there is no such file."""
    try:
        told = json.loads((out / "table2.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    records: list[dict[str, Any]] = told["records"] if told["data"] == vectors.name else []
    return records


def text(records: list[dict[str, Any]]) -> str:
    """Return the table as text: each cell beside the paper's."""
    lines = [
        "n   r  lambda  way        recall@100  nearest within  candidates  comparisons    paper: recall, comparisons"
    ]
    for record in records:
        printed = PAPER.get((record["n_bits"], record["dissimilar_weight"]))
        paper = f"{printed[0]:.3f}, {printed[1]:,.0f}" if printed else ""
        lines.append(
            f"{record['n_bits']:<3} {record['radius']:<2} {record['dissimilar_weight']:<7g} {record['way']:<10} "
            f"{record['recall_at_100']:<11.3f} {record['nearest_within']:<15.3f} {record['candidates']:<11,.0f} "
            f"{record['comparisons']:<14,.0f} {paper}"
        )
    return "\n".join(lines) + "\n"
