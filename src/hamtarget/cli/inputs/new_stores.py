"""A store that a verb fills: the one that is there, or a new one by the verb's options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hamtarget.cli.inputs.stores import open_store
from hamtarget.errors import FileError, InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hamtarget._metric import MetricName
    from hamtarget.encoders.protocol import Encoder
    from hamtarget.search.embeddings import ElementName
    from hamtarget.store import Store

# Two models are the same if their codes of so many random inputs differ by rounding at most: this share of the bits.
_PROBES = 64
_ROUNDING = 0.01


@dataclass(frozen=True)
class WantedStore:
    """Options of a new store; None where they are not given."""

    encoder: Encoder | None
    bits: int | None
    radius: int | None
    embeddings: str | None
    metric: MetricName | None = None


def chosen_encoder(model: Path | None, encoder: str | None) -> Encoder | None:
    """Return the encoder of a new store; None if none is given.

    Args:
        model: folder of a model.
        encoder: name of an encoder.

    Raises:
        InputError: both are given.
        FileError: there is no such encoder.
    """
    if model is not None and encoder is not None:
        raise InputError(f"--model {model} and --encoder {encoder} are both given; a store has one of them")
    chosen = encoder if model is None else model
    if chosen is None:
        return None
    from hamtarget.encoders import open_encoder

    return open_encoder(chosen)


def open_existing(place: str) -> Store | None:
    """Open the store at a folder or address for writing; return None if there is none yet.

    Raises:
        FileError: there is one that cannot be used.
    """
    try:
        return open_store(place, read_only=False)
    except FileError as error:
        # Its kinds mean that there is a store which cannot be used.
        if type(error) is not FileError:
            raise
        return None


def create_store(place: str, wanted: WantedStore, *, code_bytes: int | None = None) -> Store:
    """Create a store.

    Args:
        place: folder or address.
        wanted: what the options say.
        code_bytes: length of the codes that come first, if they are codes.

    Raises:
        FileError: neither an encoder nor the length of codes is known, or there is something at the place.
        InputError: options contradict each other.
    """
    from hamtarget.search import Embeddings
    from hamtarget.store import Store
    from hamtarget.store.defaults import default_embeddings

    encoder, bits = wanted.encoder, wanted.bits
    if encoder is None and bits is None:
        if code_bytes is None:
            raise FileError(
                f"{place} is no store yet, and the first input is no code; for images or texts, pass --model or "
                "--encoder; codes are lines of hexadecimal digits, or of JSON: "
                '{"id": "a", "code": "8f3c02d1a4b7e690"}'
            )
        bits = 8 * code_bytes
    if encoder is None and wanted.metric is not None:
        raise InputError(f"--metric is {wanted.metric}, but the source has no vectors; leave it out")
    kind = default_embeddings(encoder) if wanted.embeddings is None else None
    if wanted.embeddings not in (None, "none"):
        if encoder is None:
            raise InputError("--embeddings is given without --model or --encoder, which make them")
        kind = Embeddings(encoder.n_bits, cast("ElementName", wanted.embeddings), "cosine")
    return Store.create(
        place,
        encoder=encoder,
        n_bits=bits,
        radius=wanted.radius,
        embeddings=kind,
        vectors=wanted.metric or "auto",
    )


def check_same(store: Store, wanted: WantedStore) -> None:
    """Check that options for a new store agree with this one.

    Raises:
        InputError: one of them does not.
    """
    kept = "none" if store.embeddings is None else store.embeddings.dtype
    for name, given, own in (
        ("bits", wanted.bits, store.n_bits),
        ("radius", wanted.radius, store.radius),
        ("embeddings", wanted.embeddings, kept),
        ("metric", wanted.metric, store.vectors or "none"),
    ):
        if given is not None and given != own:
            raise InputError(f"--{name} is {given}; {store.path} has {own}: leave the option out, or make a new store")
    if wanted.encoder is not None and not (store.has_encoder and _same_codes(wanted.encoder, store.encoder)):
        raise InputError(
            f"--model or --encoder is another model than that of {store.path}, whose codes mean something else: "
            "leave the option out, or make a new store"
        )


def _same_codes(left: Encoder, right: Encoder) -> bool:
    import numpy as np

    from hamtarget.encoders.texts.text_inputs import takes_texts

    if (left.n_bits, left.input_shape) != (right.n_bits, right.input_shape):
        return False
    # Two encoders of one shape may see different parts of a picture.
    if getattr(left, "picture_form", None) != getattr(right, "picture_form", None):
        return False
    if takes_texts(left) or takes_texts(right):
        words = [f"{number} {number * number}" for number in range(_PROBES)]
        return takes_texts(left) == takes_texts(right) and _differ_by_rounding(left.encode(words), right.encode(words))
    probes = np.random.default_rng(0).integers(0, 256, (_PROBES, *left.input_shape)).astype(np.float32)
    return _differ_by_rounding(left.encode(probes), right.encode(probes))


def _differ_by_rounding(left: NDArray[np.uint8], right: NDArray[np.uint8]) -> bool:
    import numpy as np

    return bool(np.bitwise_count(left ^ right).sum() <= _ROUNDING * 8 * left.size)
