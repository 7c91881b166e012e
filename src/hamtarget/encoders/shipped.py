"""Learned picture hashes that come with the package, and what was measured of all picture hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from hamtarget._reading import parse_json
from hamtarget.errors import CorruptFileError

_FOLDER = Path(__file__).parent / "models"


@cache
def shipped_names() -> tuple[str, ...]:
    """Return the names of the networks that come with the package."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.onnx")))


def shipped_path(name: str) -> Path:
    """Return the ONNX file of a network that comes with the package."""
    return _FOLDER / f"{name}.onnx"


def recorded_figures(name: str | None, content: bytes | None = None) -> Mapping[str, Any] | None:
    """Return what was measured of the codes of a picture hash that comes with the package.

    `share_within` lists, for each radius from 0 on, the share of pairs of different pictures within it;
    `recall_within` the same of copies, by alteration.

    Args:
        name: name of the hash.
        content: the ONNX file of a learned hash. Another file of the same name has other codes, and no figures.

    Returns:
        The figures, or None if there are none.
    """
    if name is None or not name.isalnum():
        return None
    figures = _read_figures(_FOLDER / f"{name}.json")
    if figures is None or figures.get("sha256") != (None if content is None else hashlib.sha256(content).hexdigest()):
        return None
    return figures


@cache
def _read_figures(path: Path) -> Mapping[str, Any] | None:
    try:
        found = parse_json(path.read_text(encoding="utf-8"), where=str(path))
    except (OSError, UnicodeDecodeError, CorruptFileError):
        # Encoders work without them.
        return None
    return found if isinstance(found, dict) else None
