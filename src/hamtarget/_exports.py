"""Let a package show names whose modules are imported at first use."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_exports(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions `__getattr__` and `__dir__` of a package that imports nothing until a name is asked for.

    Args:
        package: the package's own name, its `__name__`.
        homes: for each public name, the module that defines it. `dir` of the package shows these names only.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(homes[name]), name)
        # The next access finds it without coming here.
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted(homes)
