"""The budget and the radius of probes by the command and the service, where nobody gives others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hamtarget.store.defaults.copy_defaults import is_made_for_copies

if TYPE_CHECKING:
    from hamtarget.store.store import Store

_LEAST_BUDGET = 1000
_BUDGET_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class ProbingDefaults:
    """The budget and the radius of a probe, where nobody gives others.

    Attributes:
        budget: most rows read for a query.
        radius: hits lie within so many bits.
    """

    budget: int
    radius: int


def default_budget(n_items: int) -> int:
    """Return how many rows a probe of so many items reads for a query: a hundredth of them, at least 1,000."""
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
