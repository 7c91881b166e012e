"""Show the examples of docstrings as code: the parser of the site knows the heading "Examples" only."""

from __future__ import annotations

import re
from typing import Any

import griffe


class ExamplesExtension(griffe.Extension):
    """An extension of griffe that gives the section "Example" of a docstring the name that griffe knows."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename the section in the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
