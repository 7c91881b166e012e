"""Order of hits at equal distance: by embedding where there is one, else by a hash of the id.

A store gives them in the order in which it keeps them. Where a folder for each class was added, that is by class, and a
limit that cuts a tie would show nothing but the first class.
"""

from __future__ import annotations

import hashlib

import numpy as np

from hamtarget.answer import Answer
from hamtarget.items import Id
from hamtarget.query import Asked, Query, Work
from hamtarget.store import Store

MOST_TIED = 5000
"""Hits that are put in order, at most: of more at one distance, those that the store keeps first take part."""


def mixed_ties(store: Store, hits: Answer, asked: Asked, query: Query, work: Work) -> Answer:
    """Return the first hits of one query in the order of distance, embedding distance and hash of the id.

    The first hits of a larger limit are those of a smaller one, as long as both are at most `MOST_TIED`.

    Args:
        store: where they were found.
        hits: the first hits by distance, in any order; ranked if there is an embedding.
        asked: code of the query, (1, n_bits / 8), and its embedding where it is known.
        query: its limit is that of the hits; its filter is that of the search.
        work: bounds on the work, and threads of the search for the rest of a tie.

    Raises:
        LimitError: the work reached one of its bounds.
    """
    limit = query.limit or len(hits.rows)
    last = int(hits.distances.max(initial=0))
    # Nothing lies beyond all bits, and no radius reaches there.
    if len(hits.rows) == limit and last < store.n_bits:
        # The limit may have cut a tie: find all of it before choosing.
        most = max(limit, MOST_TIED)
        tied = Query(last, most, filter=query.filter, rerank=None if asked.embeddings is None else most)
        whole = store.answer(asked, tied, work)
        if hits.costs is not None and whole.costs is not None:
            whole = whole.with_costs(hits.costs + whole.costs)
        hits = whole
    close = hits.embedding_distances
    hashes = np.array([_hash(id) for id in hits.ids.tolist()], dtype=np.uint64)
    keys = (hashes, hits.distances) if close is None else (hashes, close, hits.distances)
    order = np.lexsort(keys)[:limit]
    return hits.select(order, np.array([0, len(order)], dtype=np.int64))


def _hash(id: Id) -> int:
    """Return a number that depends on nothing but the id; 1 and "1" have two."""
    content = f"{'i' if isinstance(id, int) else 's'}{id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
