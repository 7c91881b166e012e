"""How a store of texts keeps embeddings and is searched by default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hamtarget.search.embeddings import Embeddings

if TYPE_CHECKING:
    from hamtarget.encoders.protocol import Encoder
    from hamtarget.store.store import Store

CHOSEN_FOR_EACH_HIT = 10
"""Items that codes choose for each one that is shown, ranked by embeddings."""


def default_embeddings(encoder: Encoder | None) -> Embeddings | None:
    """Return the embeddings that a new store keeps if it is not told: for texts by a sentence model, in int8."""
    if encoder is None or not hasattr(encoder, "max_tokens"):
        return None
    return Embeddings(encoder.n_bits, "int8", "cosine")


def ranks_texts(store: Store) -> bool:
    """Return True if codes of the store's texts are signs of embeddings, which rank what the codes choose."""
    return store.has_encoder and store.embeddings is not None and getattr(store.encoder, "has_head", True) is False
