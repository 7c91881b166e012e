"""The steps of `hamtarget demo` on the bundled images: learn, store, search, compare, find duplicates."""

import importlib.util

from hamtarget.errors import MissingExtraError


def check_installed() -> None:
    """Check that everything the demo needs is there, before it learns for a minute.

    Raises:
        MissingExtraError: a package is not installed.
    """
    missing = [name for name in ("torch", "safetensors", "matplotlib") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"the demo needs {' and '.join(missing)}: pip install 'hamtarget[demo]'")
