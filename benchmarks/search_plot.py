"""The picture of a run: queries a second of each exact method on each set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot


def plot(results: dict[str, Any], path: Path) -> None:
    """Write the picture."""
    figure, axes = pyplot.subplots()
    figure.savefig(path)
    pyplot.close(figure)
