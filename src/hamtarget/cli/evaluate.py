"""`hamtarget evaluate`: measures how well a model's codes find what is relevant."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, runtime_checkable

import typer

from hamtarget.cli.inputs.training_data import holds_pictures, read_training_data
from hamtarget.cli.terminal.arguments import AsJson, Key, Model, Seed, Workers
from hamtarget.cli.terminal.bars import progress_on_stderr
from hamtarget.cli.terminal.output import Column, note, write_json, write_table
from hamtarget.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hamtarget.datasets import ImageSet
    from hamtarget.encoders.protocol import Encoder
    from hamtarget.evaluation.metrics import Relevance
    from hamtarget.evaluation.report import Evaluation
    from hamtarget.learn.fitting.pictures import EncodedPictures
    from hamtarget.progress import Progress

_ENCODED_ROWS = 4096
# Images that are in memory at a time.
_DECODED_ROWS = 512
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
        int, typer.Option(min=1, metavar="N", help="Without labels: the N nearest are relevant.")
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

    Rows with the query's label are relevant to it; without labels, its exact nearest neighbours are: of images, those
    that a pretrained network sees as alike.
    """
    import numpy as np

    from hamtarget.evaluation.report import draw_evaluation, evaluate_codes

    encoder = _opened(model, source)
    database = _encoded(source, encoder, key, workers)
    if queries is not None:
        asked = _encoded(queries, encoder, key, workers).take(slice(n_queries))
    else:
        n_rows = len(database.codes)
        order = np.random.default_rng(seed).permutation(n_rows)
        taken = min(n_queries, n_rows // 2)
        if taken < 1:
            raise InputError(f"{source} holds {n_rows} rows; expected at least 2, to search one with the other")
        asked, database = database.take(np.sort(order[:taken])), database.take(np.sort(order[taken:]))
        if database.labels is not None:
            note(
                f"hamtarget: {taken:,} of these rows are the queries. If the model was trained on them, the figures "
                "flatter it: pass others by --queries"
            )
    if (database.labels is None) != (asked.labels is None):
        raise InputError("only one of database and queries has labels; expected both or none")
    relevant = _relevance(asked, database, neighbors)
    with progress_on_stderr("Measuring") as tell:
        found = evaluate_codes(
            asked.codes,
            database.codes,
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


@runtime_checkable
class _SeesImages(Protocol):
    """An encoder that keeps what it sees in images."""

    def encode_images(self, images: ImageSet, *, workers: int, progress: Progress | None) -> EncodedPictures:
        """Return the codes of image files."""
        ...


@dataclass(frozen=True, eq=False)
class Encoded:
    """Codes of rows, their labels if there are any, and the vectors by which rows without labels are neighbours."""

    codes: NDArray[np.uint8]
    labels: NDArray[Any] | None
    vectors: NDArray[Any] | None
    class_names: tuple[str, ...] = ()

    def take(self, rows: Any) -> Encoded:
        """Return some of the rows."""
        labels, vectors = (None if part is None else part[rows] for part in (self.labels, self.vectors))
        return Encoded(self.codes[rows], labels, vectors, self.class_names)

    def labels_by(self, names: list[str]) -> NDArray[Any] | None:
        """Return the labels by the numbers that their classes have among `names`; as they are if classes have none."""
        import numpy as np

        if self.labels is None or not self.class_names:
            return self.labels
        numbers = np.array([names.index(name) for name in self.class_names])
        if self.labels.ndim == 1:
            return np.asarray(numbers[self.labels])
        labels = np.zeros((len(self.labels), len(names)), dtype=self.labels.dtype)
        labels[:, numbers] = self.labels
        return labels


def _opened(model: str, source: Path) -> Encoder:
    """Open a model: for images with torch if it can be, since features of images may then be in the cache."""
    from hamtarget.encoders import open_encoder

    if not holds_pictures(source) or not Path(model, "model.safetensors").is_file():
        return open_encoder(model)
    try:
        from hamtarget.learn import HashEncoder

        return HashEncoder.load(model)
    except (InputError, MissingExtraError):
        # It was built on a network of the caller's own, or there is no torch.
        return open_encoder(model)


def _encoded(source: Path, encoder: Encoder, key: str | None, workers: int) -> Encoded:
    if holds_pictures(source):
        return _encoded_pictures(source, encoder, workers)
    data = read_training_data(source, shape=encoder.input_shape, key=key, sample=None, seed=0, workers=workers)
    if data.inputs.shape[1:] != encoder.input_shape:
        raise InputError(
            f"{source} holds rows of shape {data.inputs.shape[1:]}; this model takes {encoder.input_shape}"
        )
    import numpy as np

    codes = np.empty((len(data.inputs), encoder.n_bits // 8), dtype=np.uint8)
    with progress_on_stderr("Encoding") as tell:
        for start in range(0, len(codes), _ENCODED_ROWS):
            codes[start : start + _ENCODED_ROWS] = encoder.encode(data.inputs[start : start + _ENCODED_ROWS])
            tell(min(start + _ENCODED_ROWS, len(codes)), len(codes))
    return Encoded(codes, data.labels, data.inputs)


def _encoded_pictures(source: Path, encoder: Encoder, workers: int) -> Encoded:
    import numpy as np

    from hamtarget._picture_form import form_of
    from hamtarget.datasets import ImageSet

    images = ImageSet.from_folder(source) if source.is_dir() else ImageSet.from_csv(source)
    features, broken, rows, codes = None, {}, [], [np.empty((0, encoder.n_bits // 8), dtype=np.uint8)]
    with progress_on_stderr("Encoding images") as tell:
        if isinstance(encoder, _SeesImages):
            seen = encoder.encode_images(images, workers=workers, progress=tell)
            codes, rows, broken, features = [seen.codes], seen.rows.tolist(), seen.broken, seen.features
        else:
            for start in range(0, len(images), _DECODED_ROWS):
                some = np.arange(start, min(start + _DECODED_ROWS, len(images)))
                decoded = images.take(some).decode(form_of(encoder), workers=workers)
                codes.append(encoder.encode(decoded.images))
                rows += some[decoded.rows].tolist()
                broken |= {start + row: reason for row, reason in decoded.broken.items()}
                tell(start + len(some), len(images))
    for row, reason in broken.items():
        note(f"hamtarget: left out image {row:,}: {reason}")
    labels = None if images.labels is None else images.labels[rows]
    if features is not None:
        # Images are alike if their features point in one direction.
        features = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    return Encoded(np.concatenate(codes), labels, features, images.class_names)


def _relevance(asked: Encoded, database: Encoded, neighbors: int) -> Relevance:
    from hamtarget.evaluation import exact_neighbors
    from hamtarget.evaluation.metrics import by_label
    from hamtarget.evaluation.report import NearestRows

    # A class has another number in a folder that lacks one of the classes before it.
    names = sorted({*asked.class_names, *database.class_names})
    asked_labels, labels = asked.labels_by(names), database.labels_by(names)
    if asked_labels is not None and labels is not None:
        return by_label(asked_labels, labels)
    if database.vectors is None or asked.vectors is None:
        raise InputError("the images have no labels; expected a folder for each class, or a CSV of paths and labels")
    n_rows = len(database.codes)
    with progress_on_stderr("Exact neighbours") as tell:
        nearest = exact_neighbors(asked.vectors, database.vectors, min(neighbors, n_rows), progress=tell)
    return NearestRows(nearest, n_rows)


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
