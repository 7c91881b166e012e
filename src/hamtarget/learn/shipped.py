"""Models that come with the package, so that an index can be tried without training."""

from __future__ import annotations

from pathlib import Path

from hamtarget.errors import InputError
from hamtarget.learn.encoder import HashEncoder

_FOLDER = Path(__file__).parent / "models"


def shipped_encoder(name: str, *, device: str = "auto") -> HashEncoder:
    """The encoder of this name.

    Args:
        name: "sift-64": 64-bit codes of SIFT descriptors, 128 numbers from 0 to 255 each, for `MultiIndex.probe`.
        device: "auto": a GPU if there is one.

    Raises:
        InputError: there is none of this name; says which there are.
    """
    names = sorted(path.name for path in _FOLDER.iterdir() if path.is_dir())
    if name not in names:
        raise InputError(f"name is {name!r}; expected one of {', '.join(names)}")
    return HashEncoder.load(_FOLDER / name, device=device)
