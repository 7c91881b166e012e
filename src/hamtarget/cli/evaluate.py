"""`hamtarget evaluate`: measures how well a model's codes find what is relevant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hamtarget.cli.terminal.arguments import AsJson, Key, Model, Seed, Workers
from hamtarget.cli.terminal.bars import progress_on_stderr
from hamtarget.cli.terminal.output import Column, write_json, write_table
from hamtarget.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hamtarget.encoders.protocol import Encoder
    from hamtarget.evaluation.metrics import Relevance
    from hamtarget.evaluation.report import Evaluation

_ENCODED_ROWS = 4096
# Radii beyond the chosen one that the table shows, too.
_MORE_RADII = 4


def evaluate(
    model: Model,
    source: Annotated[
        Path, typer.Argument(metavar="INPUT", help="Database: class folder, CSV, or vectors, as for train.")
    ],
    queries: Annotated[
        Path | None,
        typer.Option(metavar="INPUT", help="Queries of the same kind; by default rows taken out of the database."),
    ] = None,
    n_queries: Annotated[
        int, typer.Option(min=1, metavar="N", help="Queries to use; at most half of the database.")
    ] = 1000,
    radius: Annotated[
        int | None, typer.Option(min=0, metavar="R", help="Radius to measure; by default the model's own.")
    ] = None,
    k: Annotated[int, typer.Option(min=1, metavar="K", help="Ranks counted by MAP and recall.")] = 1000,
    neighbors: Annotated[
        int, typer.Option(min=1, metavar="N", help="Vectors without labels: the N nearest are relevant.")
    ] = 10,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw precision and recall by radius (png, svg, pdf).")
    ] = None,
    key: Key = None,
    seed: Seed = 0,
    workers: Workers = 0,
    as_json: AsJson = False,
) -> None:
    """Measure MAP, recall, and precision by radius.

    Rows with the query's label are relevant to it; for vectors without labels, its exact nearest neighbours are.
    """
    import numpy as np

    from hamtarget.encoders import open_encoder
    from hamtarget.evaluation.report import draw_evaluation, evaluate_codes

    encoder = open_encoder(model)
    database, labels = _read(source, encoder, key, workers)
    if queries is not None:
        asked, asked_labels = _read(queries, encoder, key, workers)
        asked, asked_labels = asked[:n_queries], None if asked_labels is None else asked_labels[:n_queries]
    else:
        order = np.random.default_rng(seed).permutation(len(database))
        taken = min(n_queries, len(database) // 2)
        if taken < 1:
            raise InputError(f"{source} holds {len(database)} rows; expected at least 2, to search one with the other")
        out, left = np.sort(order[:taken]), np.sort(order[taken:])
        asked, database = database[out], database[left]
        asked_labels, labels = (None, None) if labels is None else (labels[out], labels[left])
    if (labels is None) != (asked_labels is None):
        raise InputError("only one of database and queries has labels; expected both or none")
    relevant = _relevance(asked, database, asked_labels, labels, neighbors)
    asked_codes = _encode(encoder, asked, "Encoding queries")
    codes = _encode(encoder, database, "Encoding")
    with progress_on_stderr("Measuring") as tell:
        found = evaluate_codes(
            asked_codes,
            codes,
            relevant,
            n_bits=encoder.n_bits,
            radius=_radius(radius, encoder),
            k=k,
            progress=tell,
        )
    if plot is not None:
        draw_evaluation(plot, found)
    if as_json:
        write_json(found.as_dict())
        return
    _show(found, plot)


def _read(source: Path, encoder: Encoder, key: str | None, workers: int) -> tuple[NDArray[Any], NDArray[Any] | None]:
    from hamtarget.cli.train import read_training_data

    shape = encoder.input_shape
    data = read_training_data(source, shape=shape, key=key, sample=None, seed=0, workers=workers)
    if data.inputs.shape[1:] != shape:
        raise InputError(f"{source} holds rows of shape {data.inputs.shape[1:]}; this model takes {shape}")
    return data.inputs, data.labels


def _relevance(
    asked: NDArray[Any],
    database: NDArray[Any],
    asked_labels: NDArray[Any] | None,
    labels: NDArray[Any] | None,
    neighbors: int,
) -> Relevance:
    from hamtarget.datasets import exact_neighbors
    from hamtarget.evaluation.metrics import by_label
    from hamtarget.evaluation.report import NearestRows

    if labels is not None and asked_labels is not None:
        return by_label(asked_labels, labels)
    with progress_on_stderr("Exact neighbours") as tell:
        nearest = exact_neighbors(asked, database, min(neighbors, len(database)), progress=tell)
    return NearestRows(nearest, len(database))


def _encode(encoder: Encoder, rows: NDArray[Any], what: str) -> NDArray[np.uint8]:
    import numpy as np

    codes = np.empty((len(rows), encoder.n_bits // 8), dtype=np.uint8)
    with progress_on_stderr(what) as tell:
        for start in range(0, len(rows), _ENCODED_ROWS):
            codes[start : start + _ENCODED_ROWS] = encoder.encode(rows[start : start + _ENCODED_ROWS])
            tell(min(start + _ENCODED_ROWS, len(rows)), len(rows))
    return codes


def _radius(radius: int | None, encoder: Encoder) -> int:
    if radius is not None:
        return radius
    own = encoder.radius
    return 2 if own is None else int(max(own) if isinstance(own, tuple) else own)


def _show(found: Evaluation, plot: Path | None) -> None:
    typer.echo(f"{found.n_queries:,} queries in {found.n_rows:,} rows, {found.n_bits}-bit codes")
    typer.echo(f"MAP@{found.k:,}: {found.mean_average_precision:.4f}")
    typer.echo(f"recall@{found.k:,}: {found.recall_at_k:.4f}")
    columns = [Column(heading, number=True) for heading in ("radius", "precision", "recall", "hits", "rows read")]
    rows = [
        (
            f"{radius}{' *' if radius == found.radius else ''}",
            f"{found.precision[radius]:.4f}",
            f"{found.recall[radius]:.4f}",
            f"{found.hits[radius]:,.1f}",
            f"{found.candidates:,.1f}" if radius == found.radius else "",
        )
        for radius in range(min(found.radius + _MORE_RADII, found.n_bits) + 1)
    ]
    write_table(columns, rows)
    if plot is not None:
        typer.echo(f"Plot: {plot}")
