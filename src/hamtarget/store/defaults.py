"""Defaults of stores of copies, of texts and of codes for probing: how they are kept and searched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hamtarget.encoders.texts.simhash import SimHash64
from hamtarget.search.embeddings import Embeddings

if TYPE_CHECKING:
    from hamtarget.encoders.protocol import Encoder
    from hamtarget.store.store import Store

_LEAST_BUDGET = 1000
_BUDGET_SHARE = 0.01
CHOSEN_FOR_EACH_HIT = 10
"""Items that codes choose for each one that is shown, ranked by embeddings."""


def is_made_for_copies(store: Store) -> bool:
    """Return True if the store's encoder tells copies of a picture or text from all others: its radius is the answer.

    Such encoders take the whole picture. Encoders of what a picture shows take the part at its centre. Of texts, hashes
    of words do so.
    """
    if store.has_encoder and isinstance(store.encoder, SimHash64):
        return True
    form = getattr(store.encoder, "picture_form", None) if store.has_encoder else None
    return form is not None and form.fit != "crop"


@dataclass(frozen=True, slots=True)
class ProbingDefaults:
    """The budget and the radius of a probe, where nobody gives others.

    Attributes:
        budget: most rows read for a query.
        radius: largest distance of a hit.
    """

    budget: int
    radius: int


def default_budget(n_items: int) -> int:
    """Return the usual budget of a search: a hundredth of the items, at least 1,000 rows."""
    return max(_LEAST_BUDGET, int(_BUDGET_SHARE * n_items))


def is_made_for_probing(store: Store) -> bool:
    """Return True if the store's encoder was trained for probing: its codes have no radius of their own."""
    if not store.has_encoder or store.encoder.radius is not None or is_made_for_copies(store):
        return False
    # The signs of a sentence model's embedding were not trained at all.
    return getattr(store.encoder, "has_head", True)


def default_radius(store: Store) -> int:
    """Return the radius of a probe: where codes were made for probing, every row that is read is a hit."""
    return store.n_bits - 1 if is_made_for_probing(store) else store.radius


def probing_defaults(store: Store) -> ProbingDefaults:
    """Return the budget and the radius with which the command and the service probe a store by default."""
    return ProbingDefaults(default_budget(len(store)), default_radius(store))


def default_embeddings(encoder: Encoder | None) -> Embeddings | None:
    """Return the embeddings that a new store keeps if it is not told: for texts by a sentence model, in int8."""
    if encoder is None or not hasattr(encoder, "max_tokens"):
        return None
    return Embeddings(encoder.n_bits, "int8", "cosine")


def ranks_texts(store: Store) -> bool:
    """Return True if codes of the store's texts are signs of embeddings, which rank what the codes choose."""
    return store.has_encoder and store.embeddings is not None and getattr(store.encoder, "has_head", True) is False
