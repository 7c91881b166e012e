"""Order of hits at equal distance: by embedding where there is one, else by a hash of the id.

A store gives them in the order in which it keeps them. Where a folder for each class was added, that is by class, and a
limit that cuts a tie would show nothing but the first class.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes
from hamtarget.filters import Filter
from hamtarget.items import Id
from hamtarget.search import BatchHits
from hamtarget.search.limits import Limits
from hamtarget.store import Store

MOST_TIED = 5000
"""Hits that are put in order, at most: of more at one distance, those that the store keeps first take part."""


def mixed_ties(
    store: Store,
    hits: BatchHits,
    code: Codes,
    *,
    limit: int,
    embedding: NDArray[Any] | None,
    filter: Filter | None,
    threads: int,
    limits: Limits,
) -> BatchHits:
    """Return the first `limit` hits of one query in the order of distance, embedding distance and hash of the id.

    The first hits of a larger limit are those of a smaller one, as long as both are at most `MOST_TIED`.

    Args:
        store: where they were found.
        hits: the first `limit` hits by distance, in any order; ranked if there is an embedding.
        code: code of the query, (1, n_bits / 8).
        limit: most hits.
        embedding: of the query, (1, n_dims); None where it is not known, or the store keeps none.
        filter: filter of the search.
        threads: threads of the search for the rest of a tie.
        limits: bounds on the work.

    Raises:
        LimitError: the work reached one of its limits.
    """
    last = int(hits.distances.max(initial=0))
    # Nothing lies beyond all bits, and no radius reaches there.
    if len(hits.rows) == limit and last < store.n_bits:
        # The limit may have cut a tie: find all of it before choosing.
        most = max(limit, MOST_TIED)
        whole = store.search_batch(
            codes=code,
            radius=last,
            limit=most,
            filter=filter,
            rerank=None if embedding is None else most,
            embedding=embedding,
            threads=threads,
            cost=True,
            limits=limits,
        )
        if hits.costs is not None and whole.costs is not None:
            whole = whole.with_costs(hits.costs + whole.costs)
        hits = whole
    close = hits.embedding_distances
    hashes = np.array([_hash(id) for id in hits.ids.tolist()], dtype=np.uint64)
    keys = (hashes, hits.distances) if close is None else (hashes, close, hits.distances)
    order = np.lexsort(keys)[:limit]
    return replace(
        hits,
        offsets=np.array([0, len(order)], dtype=np.int64),
        rows=hits.rows[order],
        distances=hits.distances[order],
        embedding_distances=None if close is None else close[order],
    )


def _hash(id: Id) -> int:
    """Return a number that depends on nothing but the id; 1 and "1" have two."""
    content = f"{'i' if isinstance(id, int) else 's'}{id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
