"""What a store was made for; it never changes."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import asdict, dataclass
from typing import Any, get_args

from hamtarget.codes import check_n_bits, check_radius
from hamtarget.errors import CorruptFileError, InputError
from hamtarget.search import Embeddings
from hamtarget.store.database import Durability

# The paper's radius at 64 bits, where neither the caller nor the encoder says another.
_RADIUS = 2


@dataclass(frozen=True, slots=True)
class Settings:
    """What a store was made for.

    Attributes:
        n_bits: bits of a code.
        radius: what a search without a radius of its own looks within.
        substrings: number of tables of the index; None: radius + 1.
        embeddings: what embeddings are kept with the codes, if any.
        durability: whether a put waits for the disk ("full") or for the operating system ("os").
        has_encoder: whether the folder holds an encoder.
    """

    n_bits: int
    radius: int
    substrings: int | None = None
    embeddings: Embeddings | None = None
    durability: Durability = "full"
    has_encoder: bool = False

    def as_texts(self) -> dict[str, str]:
        """Every setting by name, as JSON."""
        return {name: json.dumps(value) for name, value in asdict(self).items()}


def read_settings(connection: sqlite3.Connection) -> Settings:
    """The settings in a database.

    Raises:
        CorruptFileError: they are not those of a store.
    """
    try:
        found = {name: json.loads(text) for name, text in connection.execute("SELECT name, value FROM settings")}
        embeddings = found.pop("embeddings")
        return Settings(**found, embeddings=None if embeddings is None else Embeddings(**embeddings))
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFileError(f"the settings of the store are damaged ({error}); restore the folder") from error


def choose_settings(
    encoder: Any,
    *,
    n_bits: int | None,
    radius: int | None,
    substrings: int | None,
    embeddings: Embeddings | None,
    durability: Durability,
) -> Settings:
    """Settings of a new store: what is not given comes from the encoder.

    Raises:
        InputError: something is missing, out of range, or contradicts the encoder.
    """
    if encoder is None and n_bits is None:
        raise InputError("neither encoder nor n_bits is given; a store needs one of them")
    if encoder is not None and n_bits not in (None, encoder.n_bits):
        raise InputError(f"n_bits is {n_bits}, but the encoder's codes have {encoder.n_bits} bits; leave it out")
    n_bits = check_n_bits(encoder.n_bits if n_bits is None else n_bits)
    if radius is None:
        trained = getattr(encoder, "radius", None)
        # Of several targets, the smallest is the one that a look-up in tables suits best.
        radius = min(trained) if isinstance(trained, tuple | list) else _RADIUS if trained is None else trained
        radius = min(radius, n_bits - 1)
    if durability not in get_args(Durability):
        raise InputError(f"durability is {durability!r}; expected 'full' or 'os'")
    return Settings(
        n_bits, check_radius(radius, n_bits), substrings, embeddings, durability, has_encoder=encoder is not None
    )
