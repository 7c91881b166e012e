"""Find the networks that come in a package of their own, `hamtarget-models`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from hamtarget.errors import MissingExtraError

_PACKAGE = "hamtarget_models"


def shipped_folder() -> Path:
    """Return the folder of the networks that `hamtarget[learn]` brings.

    Raises:
        MissingExtraError: the package `hamtarget-models` is not installed.
    """
    found = importlib.util.find_spec(_PACKAGE)
    folders = None if found is None else found.submodule_search_locations
    if not folders:
        raise MissingExtraError(
            "hamtarget-models is not installed; for the networks that come with hamtarget: "
            "pip install hamtarget-models (in a checkout: pip install ./packages/models)"
        )
    return Path(folders[0])
