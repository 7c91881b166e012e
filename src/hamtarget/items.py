"""Items: what a store keeps, and what its service and its client take and give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["Item"]

Id = str | int
"""The name of an item: a string, or an integer that int64 holds. 1 and "1" are two ids."""

Payload = Mapping[str, Any]
"""A JSON object that is kept with an item."""


# No `==`: comparing arrays gives arrays.
@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """One thing in a store: what `put` takes, and `get` and `scan` give.

    Example:
        >>> Item("cat.jpg", code=[7, 0, 0, 0, 0, 0, 0, 1], payload={"year": 2024})
        Item(id='cat.jpg', input=None, code=[7, 0, 0, 0, 0, 0, 0, 1], embedding=None, payload={'year': 2024})

    Attributes:
        id: a string of at most 1,024 bytes of UTF-8, or an integer that int64 holds; 1 and "1" are two ids.
        input: what the store's encoder takes: a vector, an image path, an image. It is encoded and not kept.
        code: packed uint8, (n_bits / 8,), where there is no input.
        embedding: (n_dims,), where the store keeps embeddings; that of the encoder by default.
        payload: a JSON object of at most 16 MiB, or None.
    """

    id: Id
    input: Any = None
    code: ArrayLike | None = None
    embedding: ArrayLike | None = None
    payload: Payload | None = None


def __dir__() -> list[str]:
    return __all__
