"""The folder for results that can be computed again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder for files that have no better place: HAMTARGET_CACHE, or ~/.cache/hamtarget.

    Raises:
        RuntimeError: neither the variable nor a home folder is there.
    """
    chosen = os.environ.get("HAMTARGET_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "hamtarget"
