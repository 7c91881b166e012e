"""Settings of a store: chosen when it is created, and never changed."""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from hamtarget.codes import check_n_bits
from hamtarget.encoders.protocol import Encoder
from hamtarget.encoders.usual_radius import usual_radius
from hamtarget.errors import CorruptFileError, DtypeError, InputError
from hamtarget.search.embeddings import Embeddings
from hamtarget.search.multi import MultiIndex
from hamtarget.store.vectors.kept_vectors import VectorChoice, kind_of_vectors, vectors_for

Durability = Literal["full", "os"]
"""A put waits for the disk ("full"), or for the operating system only ("os")."""

_CHECKSUM = "checksum"
# The paper's radius at 64 bits, where neither the caller nor the encoder says another.
_RADIUS = 2


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a store, which never change.

    Attributes:
        n_bits: bits of a code.
        radius: that of searches that do not name one.
        substrings: substrings that a database is asked by, and tables of an index in memory: see `index_substrings`.
        embeddings: kind of the embeddings that are kept with the codes, if any.
        durability: a put waits for the disk ("full") or for the operating system ("os").
        has_encoder: True if an encoder is saved with the store.
        keeps_vectors: True if the embeddings are the vectors that the encoder takes, and not its logits.
    """

    n_bits: int
    radius: int
    substrings: int
    embeddings: Embeddings | None = None
    durability: Durability = "full"
    has_encoder: bool = False
    keeps_vectors: bool = False

    @property
    def index_substrings(self) -> int | None:
        """Number of tables of an index in memory; None: it chooses them by its rows.

        Where nobody said another number, there are radius + 1. Codes that are kept with embeddings may be probed, and
        may have been trained for this very number.
        """
        return None if self.substrings == self.radius + 1 and self.embeddings is None else self.substrings

    def as_texts(self) -> dict[str, str]:
        """Return every setting by name, as JSON, and the checksum of all of them."""
        texts = {name: json.dumps(value) for name, value in asdict(self).items()}
        return {**texts, _CHECKSUM: _checksum(texts)}


def settings_of(texts: dict[str, str]) -> Settings:
    """Return the settings that `Settings.as_texts` wrote.

    Raises:
        CorruptFileError: they are something else.
    """
    texts = dict(texts)
    try:
        if texts.pop(_CHECKSUM) != _checksum(texts):
            raise ValueError("their checksum is wrong")
        found = {name: json.loads(text) for name, text in texts.items()}
        embeddings = found.pop("embeddings")
        settings = Settings(**found, embeddings=None if embeddings is None else Embeddings(**embeddings))
        _check_possible(settings)
        return settings
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _damaged(error) from error


def _check_possible(settings: Settings) -> None:
    """Check settings whose checksum is right, but which somebody may have forged.

    Raises:
        InputError, TypeError: no store has such settings.
    """
    numbers = (settings.n_bits, settings.radius, settings.substrings)
    if not all(type(number) is int for number in numbers) or not all(
        type(flag) is bool for flag in (settings.has_encoder, settings.keeps_vectors)
    ):
        raise TypeError("one of them has another type than it should have")
    if settings.keeps_vectors and (settings.embeddings is None or not settings.has_encoder):
        raise InputError("vectors are kept without an encoder, or without their kind")
    if settings.durability not in get_args(Durability):
        raise InputError(f"durability is {str(settings.durability)[:60]!r}")
    # An empty index knows what settings there can be.
    MultiIndex(settings.n_bits, settings.radius, substrings=settings.substrings, embeddings=settings.embeddings)


def _damaged(error: Exception) -> CorruptFileError:
    return CorruptFileError(f"the settings of the store are damaged ({error}); restore it from a copy")


def _checksum(texts: dict[str, str]) -> str:
    return str(zlib.crc32(repr(sorted(texts.items())).encode()))


def choose_settings(
    encoder: Encoder | None,
    *,
    n_bits: int | None,
    radius: int | None,
    substrings: int | None,
    embeddings: Embeddings | None,
    vectors: VectorChoice | None,
    durability: Durability,
) -> Settings:
    """Return the settings of a new store: what is not given comes from the encoder.

    Raises:
        InputError: something is missing, out of range, or contradicts the encoder.
    """
    if encoder is not None:
        if not isinstance(encoder, Encoder):
            raise DtypeError(f"encoder is {encoder!r}; expected one that can be saved and opened again, as HashEncoder")
        if n_bits not in (None, encoder.n_bits):
            raise InputError(f"n_bits is {n_bits}, but the encoder's codes have {encoder.n_bits} bits; leave it out")
        n_bits = encoder.n_bits
    if n_bits is None:
        raise InputError("neither encoder nor n_bits is given; a store needs one of them")
    n_bits = check_n_bits(n_bits)
    if substrings is None and radius is None:
        # Codes that were trained to be probed were trained for a number of tables.
        substrings = getattr(encoder, "substrings", None)
    if radius is None:
        usual = None if encoder is None else usual_radius(encoder)
        radius = min(_RADIUS if usual is None else usual, n_bits - 1)
        if substrings is not None:
            radius = max(radius, substrings - 1)
    metric = vectors_for(encoder, vectors, has_embeddings=embeddings is not None)
    if metric is not None and encoder is not None:
        embeddings = kind_of_vectors(encoder.input_shape[0], metric)
    if durability not in get_args(Durability):
        raise InputError(f"durability is {durability!r}; expected 'full' or 'os'")
    # An empty index knows what settings there can be.
    index = MultiIndex(n_bits, radius, substrings=substrings, embeddings=embeddings)
    return Settings(
        n_bits,
        int(radius),
        index.substrings,
        embeddings,
        durability,
        has_encoder=encoder is not None,
        keeps_vectors=metric is not None,
    )
