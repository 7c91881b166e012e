"""How a store of copies is searched by default."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hamtarget.store.store import Store


def is_made_for_copies(store: Store) -> bool:
    """Return True if the store's encoder tells copies of a picture from all others: its radius is then the answer.

    Such encoders take the whole picture. Encoders of what a picture shows take the part at its centre.
    """
    form = getattr(store.encoder, "picture_form", None) if store.has_encoder else None
    return form is not None and form.fit != "crop"
