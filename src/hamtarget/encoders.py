"""Opening a trained encoder from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def open_encoder(folder: str | Path) -> Any:
    """The encoder that was saved in `folder`.

    Raises:
        FileError: there is none. CorruptFileError: it is damaged. UnsupportedFileError: it is too new.
    """
    from hamtarget.learn import HashEncoder

    return HashEncoder.load(folder)
