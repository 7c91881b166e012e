"""Measure recall, speed, comparisons and memory of vector indexes: the peers' part of figure 4."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hamtarget.errors import CorruptFileError, InputError
from hamtarget.evaluation.metrics import recall_at_k
from research.datasets.vector_sets import VectorSet, content_checksum
from research.peers.faiss_peers import VectorPeer, faiss_version


def measure_peers(
    peers: Iterable[VectorPeer],
    vectors: VectorSet,
    *,
    k: int = 100,
    repeats: int = 5,
    timed_queries: int = 1000,
    seed: int = 0,
    cache: Path | None = None,
    report: Callable[[str], None] | None = None,
) -> list[dict[str, Any]]:
    """Return a row for each peer and setting, ready for JSON: recall, speed, comparisons and size.

    The keys of a row are

    - `peer`, `setting`: its name, and the parameters of the search;
    - `recall`: share of all queries whose true nearest neighbour is among the `k` found;
    - `queries_per_second`: of one thread, for a batch of `timed_queries`, by the median of `repeats`; all settings of a
      peer are timed in turns, so that a slow moment of the machine does not hit one of them alone;
    - `queries_per_cpu_second`: the same by CPU time. On a shared machine, this is close to the speed of an idle one;
    - `seconds`, `cpu_seconds`: of each repeat;
    - `rows`, `centroids`, `refined`: what a query is compared with, on average (see `Comparisons`);
    - `bytes_per_row`, `build_seconds` (None if the index came from the cache), `k`, `timed_queries`.

    Args:
        peers: built one after another, and unloaded when they are measured.
        vectors: the peers learn from `learn`, hold `base`, and are judged by `neighbors`.
        k: ids asked for.
        repeats: of the timing.
        timed_queries: how many of the queries are timed; recall and comparisons are of all.
        seed: of the building.
        cache: folder for built indexes, from which later runs take them.
        report: called with a line of text for each peer and setting that is done.

    Raises:
        InputError: `repeats` or `timed_queries` is below 1.
        MissingExtraError: faiss is not installed.
    """
    if repeats < 1 or timed_queries < 1:
        raise InputError(f"repeats is {repeats} and timed_queries {timed_queries}; expected at least 1")
    tell = report or (lambda line: None)
    contents = content_checksum(vectors.base, vectors.learn, label=f"peers {faiss_version()} {seed}").hex()
    rows: list[dict[str, Any]] = []
    for peer in peers:
        took = _build(peer, vectors, seed=seed, cache=cache, contents=contents)
        size = peer.bytes_per_row()
        tell(f"{peer.name}: {'from the cache' if took is None else f'built in {took:.0f} s'}, {size:.1f} bytes a row")
        rows += _measure(peer, vectors, k=k, repeats=repeats, timed_queries=timed_queries, tell=tell)
        for row in rows[-len(peer.settings) :]:
            row |= {"bytes_per_row": size, "build_seconds": took}
        # Together, the indexes of a million rows take gigabytes.
        peer.unload()
    return rows


def _build(peer: VectorPeer, vectors: VectorSet, *, seed: int, cache: Path | None, contents: str) -> float | None:
    """Return the seconds of building, or None if the index was in the cache."""
    path = None
    if cache is not None:
        # The name is for people; the checksum tells one cached index from another.
        plain = "".join(letter if letter.isalnum() else "-" for letter in peer.name)
        path = cache / f"{plain}-{contents[:16]}.faiss"
        if path.exists():
            try:
                peer.load(path)
                return None
            except CorruptFileError:
                # Built again and replaced below.
                pass
    start = time.perf_counter()
    peer.build(vectors.base, vectors.learn, seed=seed)
    took = time.perf_counter() - start
    if path is not None:
        peer.save(path)
    return took


def _measure(
    peer: VectorPeer, vectors: VectorSet, *, k: int, repeats: int, timed_queries: int, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    timed = vectors.queries[:timed_queries]
    seconds: list[list[float]] = [[] for _ in peer.settings]
    cpu_seconds: list[list[float]] = [[] for _ in peer.settings]
    for _ in range(repeats):
        for place, setting in enumerate(peer.settings):
            # CPU time of all threads: if faiss used more than one, it would show here.
            start, cpu_start = time.perf_counter(), time.process_time()
            peer.search(timed, k, setting=setting)
            cpu_seconds[place].append(time.process_time() - cpu_start)
            seconds[place].append(time.perf_counter() - start)
    rows = []
    for setting, took, cpu_took in zip(peer.settings, seconds, cpu_seconds, strict=True):
        compared = peer.comparisons(vectors.queries, k, setting=setting)
        found = peer.search(vectors.queries, k, setting=setting)
        row = {
            "peer": peer.name,
            "setting": dict(setting),
            "recall": recall_at_k(found, vectors.neighbors[:, 0], k),
            "queries_per_second": len(timed) / statistics.median(took),
            "queries_per_cpu_second": len(timed) / statistics.median(cpu_took),
            "seconds": took,
            "cpu_seconds": cpu_took,
            "rows": compared.rows,
            "centroids": compared.centroids,
            "refined": compared.refined,
            "k": k,
            "timed_queries": len(timed),
        }
        rows.append(row)
        tell(
            f"  {setting}: recall@{k} {row['recall']:.4f}, {row['queries_per_second']:,.0f} queries/s "
            f"({row['queries_per_cpu_second']:,.0f} by CPU time), "
            f"{compared.rows:,.0f} rows + {compared.centroids:,.0f} centroids compared"
        )
    return rows
