"""How a store of copies is searched by default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hamtarget.encoders.texts.simhash import SimHash64

if TYPE_CHECKING:
    from hamtarget.store.store import Store


def is_made_for_copies(store: Store) -> bool:
    """Return True if the store's encoder tells copies of a picture or text from all others: its radius is the answer.

    Such encoders take the whole picture. Encoders of what a picture shows take the part at its centre. Of texts, hashes
    of words do so.
    """
    if store.has_encoder and isinstance(store.encoder, SimHash64):
        return True
    form = getattr(store.encoder, "picture_form", None) if store.has_encoder else None
    return form is not None and form.fit != "crop"
