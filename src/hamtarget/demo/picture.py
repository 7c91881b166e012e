"""Draw the demo's picture: queries with their nearest images, the curves of three methods, and copies found."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hamtarget._files import write_atomically
from hamtarget.datasets.sample import Sample
from hamtarget.demo.copies import DuplicateCount
from hamtarget.demo.walk import SHOWN_HITS, Score
from hamtarget.errors import MissingExtraError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SAME, _OTHER, _INK = "#2a7f3f", "#c0392b", "black"


def draw_demo(
    path: Path,
    sample: Sample,
    queries: list[int],
    nearest: list[list[tuple[int, int]]],
    scores: list[Score],
    *,
    radius: int,
    duplicates: DuplicateCount,
) -> None:
    """Draw the picture to `path`.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        # A Figure of its own needs no display, whatever backend the user's settings name.
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib is not installed; to draw: pip install 'hamtarget[demo]'") from error
    figure = Figure(figsize=(14.5, 6.6), layout="constrained")
    parts: Any = figure.subfigures(1, 2, width_ratios=(2.2, 1))
    left, right = parts
    _draw_nearest(left, sample, queries, nearest)
    above, below = right.subfigures(2, 1, height_ratios=(2, 1))
    _draw_curves(above, scores, radius)
    _draw_copies(below, duplicates)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    write_atomically(path, picture.getvalue())


def _draw_nearest(figure: Any, sample: Sample, queries: list[int], nearest: list[list[tuple[int, int]]]) -> None:
    """Draw a row for each query: the query, then its nearest images, framed in green if the class is the same."""
    axes = figure.subplots(len(queries), 1 + SHOWN_HITS)
    for row, (query, hits) in enumerate(zip(queries, nearest, strict=True)):
        label = sample.query_labels[query]
        _draw_image(axes[row][0], sample.query_images[query], f"query: {sample.class_names[label]}", _INK)
        for axis, (item, distance) in zip(axes[row][1:], hits, strict=True):
            same = sample.labels[item] == label
            _draw_image(axis, sample.images[item], _in_bits(distance), _SAME if same else _OTHER)
    figure.suptitle("Nearest by Hamming distance; green: same class as the query, red: another", fontsize=10)


def _draw_curves(figure: Any, scores: list[Score], radius: int) -> None:
    axis = figure.subplots()
    for score in scores:
        shown = score.curve.hits > 0
        axis.plot(score.curve.recall[shown], score.curve.precision[shown], label=score.name)
        axis.plot(score.recall, score.precision, "o", color=axis.lines[-1].get_color())
    axis.set(xlabel="recall", ylabel="precision", xlim=(0, 1.02), ylim=(0, 1.02))
    axis.set_title(f"All radii; dots: within {_in_bits(radius)}", fontsize=10)
    axis.legend(fontsize=9)


def _draw_copies(figure: Any, duplicates: DuplicateCount) -> None:
    columns = max(1, len(duplicates.shown))
    axes = figure.subplots(2, columns, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for column, (original, copy) in enumerate(duplicates.shown):
        _draw_image(axes[0][column], duplicates.images[original], "", _INK)
        _draw_image(axes[1][column], duplicates.images[copy], "", _INK)
    figure.suptitle(f"Altered copies: {duplicates.found} of {duplicates.planted} found", fontsize=10)


def _draw_image(axis: Any, image: NDArray[Any], title: str, colour: str) -> None:
    from matplotlib.patches import Rectangle

    height, width = image.shape
    axis.imshow(255 - image, cmap="gray", vmin=0, vmax=255)
    axis.set_title(title, fontsize=7.5, color=colour)
    axis.set_axis_off()
    axis.add_patch(Rectangle((-0.5, -0.5), width, height, fill=False, edgecolor=colour, linewidth=2.0))


def _in_bits(distance: int) -> str:
    return f"{distance} bit{'' if distance == 1 else 's'}"
