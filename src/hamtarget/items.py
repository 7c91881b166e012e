"""Items: what a store keeps, and what its service and its client take and give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["Item"]

Id = str | int
"""The name of an item: a string, or an integer that int64 holds. 1 and "1" are two ids."""

Payload = Mapping[str, Any]
"""A JSON object that is kept with an item."""

MAX_CODES = 64
"""Most codes of an item."""


# No `==`: comparing arrays gives arrays.
@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """One thing in a store: what `put` takes, and `get` and `scan` give.

    An item has one code, or several: those of the frames of a video, of crops or rotations of a picture. Of `input`,
    `code`, `inputs` and `codes`, one is given. `get` gives `code` for an item that has one, and `codes` for an item
    that has several, whatever it was put by; `embedding` and `embeddings` go with them.

    Example:
        >>> Item("cat.jpg", code=[7, 0, 0, 0, 0, 0, 0, 1], payload={"year": 2024})
        Item(id='cat.jpg', code=[7, 0, 0, 0, 0, 0, 0, 1], payload={'year': 2024})

    Attributes:
        id: a string of at most 1,024 bytes of UTF-8, or an integer that int64 holds; 1 and "1" are two ids.
        input: what the store's encoder takes: a vector, an image path, an image. It is encoded and not kept.
        code: packed uint8, (n_bits / 8,), where there is no input.
        embedding: (n_dims,), where the store keeps embeddings; that of the encoder by default.
        payload: a JSON object of at most 16 MiB, or None.
        inputs: 1 to 64 of what the store's encoder takes.
        codes: packed uint8, (codes, n_bits / 8): 1 to 64 of them.
        embeddings: (codes, n_dims), one for each of several codes or inputs.
    """

    id: Id
    input: Any = None
    code: ArrayLike | None = None
    embedding: ArrayLike | None = None
    payload: Payload | None = None
    inputs: Any = None
    codes: ArrayLike | None = None
    embeddings: ArrayLike | None = None

    def __repr__(self) -> str:
        """Return the fields in a line, without those that are None."""
        given = ((field.name, getattr(self, field.name)) for field in fields(self))
        return f"Item({', '.join(f'{name}={value!r}' for name, value in given if value is not None)})"


class CodePair(NamedTuple):
    """A code of a query and a code of an item that lie within the radius of each other."""

    query: int
    """Which of the query's codes it is, from 0 on."""
    item: int
    """Which of the item's codes it is, from 0 on."""
    distance: int
    """Hamming distance between them."""


class Match(NamedTuple):
    """An item that was matched by codes of a query: k of n of them, on both sides.

    A code is matched if at least one code of the other side lies within the radius. So one code of the query may match
    several of the item, and the other way about: the two numbers of matched codes need not be the same.
    """

    id: Id
    """The item's id."""
    distance: int
    """The smallest Hamming distance between their codes."""
    n_query_matched: int
    """How many codes of the query are matched: k of `n_query_codes`."""
    n_query_codes: int
    """How many codes the query has."""
    n_item_matched: int
    """How many codes of the item are matched: k of `n_item_codes`."""
    n_item_codes: int
    """How many codes the item has."""
    pairs: tuple[CodePair, ...]
    """All pairs of codes within the radius, by the query's code and then the item's."""

    @property
    def query_share(self) -> float:
        """Share of the query's codes that are matched, above 0 and up to 1."""
        return self.n_query_matched / self.n_query_codes

    @property
    def item_share(self) -> float:
        """Share of the item's codes that are matched, above 0 and up to 1."""
        return self.n_item_matched / self.n_item_codes


def __dir__() -> list[str]:
    return __all__
