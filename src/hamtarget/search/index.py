"""What every index does: store codes under ids, find them by distance, and go to a file and back."""

from __future__ import annotations

import os
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget import _native
from hamtarget.codes import Codes, check_codes, check_radius, check_vectors
from hamtarget.errors import DtypeError, InputError, ShapeError, UnsupportedFileError
from hamtarget.search.embeddings import Embeddings
from hamtarget.search.results import Cost, Costs, Hit, Hits, QueryHits

# More rows than any index has: as good as no limit, and within the range of the core's numbers.
_HUGE = 2**62
_MAX_THREADS = 1024


class CodeIndex:
    """Codes of `n_bits` bits and their ids, with embeddings if wanted. Use `MultiIndex` or `FlatIndex`.

    Any number of threads may search while one adds, deletes or replaces: a search sees the index as it was when the
    search began. Searches release the GIL.
    """

    n_bits: int
    """Bits of a code."""
    radius: int | None
    """What a search without a radius of its own looks within."""
    embeddings: Embeddings | None
    """What the embeddings are, if rows have some."""
    _has_tables: ClassVar[bool]
    # What the hits of one query are made of, a tuple of tuples; made by the core, without a detour through Python.
    _hits_type: ClassVar[type[tuple[Any, ...]]] = QueryHits
    _hit_type: ClassVar[type[tuple[Any, ...]]] = Hit
    # What they show in place of row numbers, if anything.
    _row_names: _native.RowNames | None

    def __init__(self, n_bits: int, *, substrings: int, radius: int | None, embeddings: Embeddings | None) -> None:
        """An empty index; without substrings it has no tables, and every search reads all rows."""
        kind: tuple[int, _native.Element, _native.Metric] | tuple[()] = ()
        if embeddings is not None:
            element, metric = _native.Element[embeddings.dtype], _native.Metric[embeddings.metric]
            kind = (embeddings.n_dims, element, metric)
        self._hold(_native.MultiIndex(n_bits // 8, substrings, radius or 0, *kind), embeddings)

    def _hold(self, core: _native.MultiIndex, embeddings: Embeddings | None) -> None:
        self._core = core
        self.n_bits = 8 * core.n_bytes
        self.radius = core.radius if core.n_tables else None
        self.embeddings = embeddings
        self._row_names = None

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._core)

    def __contains__(self, id: object) -> bool:
        """Whether there is a row with this id."""
        if not isinstance(id, int | np.integer) or isinstance(id, bool):
            return False
        number = int(id)
        return -(2**63) <= number < 2**63 and number in self._core

    def __iter__(self) -> Iterator[int]:
        """All ids, ascending, as they are now."""
        return iter(self._core.ids().tolist())

    @property
    def memory(self) -> int:
        """Bytes that rows, ids and tables take."""
        return self._core.memory

    def add(self, ids: ArrayLike, codes: ArrayLike, embeddings: ArrayLike | None = None) -> None:
        """Store rows under new ids: all of them or none.

        Args:
            ids: (rows,) of int64; no id twice.
            codes: (rows, n_bits / 8) of packed uint8.
            embeddings: (rows, n_dims), where the index has embeddings.

        Raises:
            InputError: an id is there twice or is in the index already; embeddings are missing or not wanted.
            DtypeError: the codes are not uint8, the ids not integers that int64 holds, or int8 embeddings not int8.
            ShapeError: a code does not have `n_bits` bits, or there is not one id or embedding for each code.
            NotFiniteError: an embedding holds NaN or infinity.
        """
        self._core.add(*self._rows(ids, codes, embeddings))

    def delete(self, ids: ArrayLike) -> None:
        """Remove the rows of these ids: all of them or none.

        Raises:
            InputError: an id is not in the index, or is given twice.
            DtypeError: the ids are not integers that int64 holds.
            ShapeError: the ids are not (rows,).
        """
        self._core.delete(_check_ids(ids))

    def replace(self, ids: ArrayLike, codes: ArrayLike, embeddings: ArrayLike | None = None) -> None:
        """Give ids that are there other codes and embeddings: all or none; a search sees the old or the new ones.

        Raises:
            As `add`; InputError also where an id is not in the index.
        """
        self._core.replace(*self._rows(ids, codes, embeddings))

    def get(self, ids: ArrayLike) -> Codes | tuple[Codes, NDArray[Any]]:
        """Codes of these ids, (rows, n_bits / 8), and their embeddings where the index has some.

        Raises:
            InputError: an id is not in the index.
            DtypeError: the ids are not integers that int64 holds.
            ShapeError: the ids are not (rows,).
        """
        wanted = _check_ids(ids)
        flat_codes, flat_embeddings = self._core.get(wanted)
        codes = flat_codes.reshape(len(wanted), self.n_bits // 8)
        if self.embeddings is None:
            return codes
        return codes, flat_embeddings.view(self.embeddings.dtype).reshape(len(wanted), self.embeddings.n_dims)

    def compact(self) -> None:
        """Rebuild everything as one piece without what was deleted: for the fastest searches and the smallest file.

        Adding and deleting keep the index in good order by themselves; this is for the end of many changes.
        """
        self._core.compact()

    def search(
        self,
        codes: ArrayLike,
        radius: int | None = None,
        *,
        limit: int | None = None,
        filter: ArrayLike | Set[int] | None = None,
        rerank: int | None = None,
        queries: ArrayLike | None = None,
        threads: int = 1,
        cost: bool = False,
    ) -> QueryHits | Hits:
        """Every row within `radius` bits and no other, or the first `limit` of them, by distance and then id.

        Args:
            codes: of the queries, (rows, n_bits / 8) of packed uint8, or of one query, (n_bits / 8,).
            radius: from 0 to n_bits - 1; a row at exactly this distance is a hit. The index's own by default.
            limit: most hits for each query; all of them by default.
            filter: the only ids that may be hits: a set, list or array of ids, or a boolean array whose element i
                says whether id i may be.
            rerank: so many of the hits (after `limit`), the closest by embedding, by embedding distance and then id.
            queries: embeddings of the queries, (rows, n_dims), for `rerank`.
            threads: the queries of a batch are shared among so many.
            cost: whether the result says what each query took.

        Returns:
            `Hits` for a batch of queries, the hits alone for one query.

        Raises:
            InputError: a number is out of range, or `rerank` without embeddings.
            DtypeError: the codes are not uint8, or a number is not an integer.
            ShapeError: a query does not have `n_bits` bits, or `queries` have another shape than expected.
            NotFiniteError: `queries` hold NaN or infinity.
        """
        wanted = check_codes(codes, self.n_bits)
        within = self._radius(radius)
        request = self._request(wanted, within, limit, filter, rerank, queries)
        return self._run(request, np.ndim(codes) == 1, threads, cost)

    def nearest(
        self,
        codes: ArrayLike,
        k: int,
        *,
        filter: ArrayLike | Set[int] | None = None,
        rerank: int | None = None,
        queries: ArrayLike | None = None,
        threads: int = 1,
        cost: bool = False,
    ) -> QueryHits | Hits:
        """The `k` nearest rows, exactly, by distance and then id; all of them where there are fewer.

        Args:
            codes: of the queries, (rows, n_bits / 8) of packed uint8, or of one query, (n_bits / 8,).
            k: hits for each query, at least 1.
            filter: as in `search`.
            rerank: so many of the k, the closest by embedding, by embedding distance and then id.
            queries: as in `search`.
            threads: as in `search`.
            cost: as in `search`.

        Returns:
            `Hits` for a batch of queries, the hits alone for one query.

        Raises:
            As `search`.
        """
        wanted = check_codes(codes, self.n_bits)
        k = _check_count(k, name="k")
        request = self._request(wanted, self.n_bits, k, filter, rerank, queries)
        return self._run(request, np.ndim(codes) == 1, threads, cost)

    def probe(
        self,
        logits: ArrayLike,
        budget: int,
        *,
        radius: int | None = None,
        limit: int | None = None,
        filter: ArrayLike | Set[int] | None = None,
        rerank: int | None = None,
        queries: ArrayLike | None = None,
        comparisons: int | None = None,
        threads: int = 1,
        cost: bool = False,
    ) -> QueryHits | Hits:
        """What reading at most `budget` rows for a query finds of `search`: the likeliest rows are read first.

        The query's code has a 1 where its logit is above 0. Buckets of all tables are read in the order of the sum of
        |logit| over the bits in which they differ from it. A larger budget finds all that a smaller one finds; one of
        `len(index)` or more finds exactly what `search` does. A large `radius`, up to n_bits - 1, takes in everything
        that is read: with `rerank`, this is approximate search for nearest neighbours. Embeddings lie far apart in
        memory: `comparisons` saves most of that time by comparing only rows that are near by their codes. Where sums of
        |logit| choose or rank rows, they are counted in 63 steps up to the query's largest.

        Args:
            logits: of the queries, (rows, n_bits), or of one query, (n_bits,).
            budget: most rows read for each query; an empty bucket counts as one row.
            radius: as in `search`.
            limit: as in `search`.
            filter: as in `search`.
            rerank: as in `search`. An index without embeddings ranks by the query's logits instead: by the sum of
                |logit| over the bits in which a row differs, which `embedding_distance` then is.
            queries: as in `search`.
            comparisons: most rows whose embeddings are compared, for each query: of the hits, those with the smallest
                sum of |logit| over the bits in which they differ from the query, then by id. All hits by default.
            threads: as in `search`.
            cost: as in `search`.

        Returns:
            `Hits` for a batch of queries, the hits alone for one query.

        Raises:
            As `search`; InputError also where `comparisons` is given without `rerank` or with `limit`;
            NotFiniteError also where a logit is NaN or infinite.
        """
        one = np.ndim(logits) == 1
        real = check_vectors(np.atleast_2d(np.asarray(logits)), name="logits", n_columns=self.n_bits)
        codes = np.packbits(real > 0, axis=1, bitorder="little")
        if comparisons is not None:
            comparisons = min(_check_count(comparisons, name="comparisons"), _HUGE)
            if rerank is None:
                raise InputError(
                    "comparisons is given without rerank; it says of how many rows embeddings are compared"
                )
            if self.embeddings is None:
                raise InputError("comparisons is given; this index keeps no embeddings to compare")
            if limit is not None:
                raise InputError("comparisons and limit are given; both choose rows to be re-ranked: pass one of them")
        if rerank is not None and limit is not None and self.embeddings is None:
            raise InputError("rerank and limit are given; without embeddings both choose hits: pass one of them")
        probing = (np.ascontiguousarray(real), min(_check_count(budget, name="budget"), _HUGE), comparisons)
        request = self._request(codes, self._radius(radius), limit, filter, rerank, queries, *probing)
        return self._run(request, one, threads, cost)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Put the index, as it is now, at `path`: a reader finds the old file or the new one, even after a crash.

        Raises:
            OSError: the file cannot be written; what was at `path` is as it was.
        """
        self._core.save(os.fspath(Path(path)))

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, mmap: bool = True, verify: bool = True) -> Self:
        """Open the index in a file. It can be changed; the file stays as it is.

        Args:
            path: where `save` put it.
            mmap: use the file itself as memory, shared between processes, instead of a copy.
            verify: read every byte of the file once, at several GB a second if it is in memory, and refuse a damaged
                file. With `verify=False` a mapped file opens in about the same time whatever its size, because only
                the pages that searches need are read. The lengths of all arrays are still checked, and so are the
                few numbers that describe the index and its deleted rows. But a damaged file may give wrong answers.
                It never crashes the process. Use this for files that were verified before. A copy (`mmap=False`)
                is read as a whole in any case.

        Raises:
            CorruptFileError: the file is truncated, altered (with `verify`), or not of this kind.
            UnsupportedFileError: it was written by a later version, or by another kind of index.
            OSError: it cannot be read.
        """
        core = _native.MultiIndex.open(os.fspath(Path(path)), mmap, verify)
        embeddings = None
        if core.n_dims:
            embeddings = Embeddings(core.n_dims, core.element.name, core.metric.name)  # type: ignore[arg-type]
        if bool(core.n_tables) != cls._has_tables:
            other = "MultiIndex" if core.n_tables else "FlatIndex"
            raise UnsupportedFileError(f"{path} holds a {other}; open it with {other}.open")
        index = cls.__new__(cls)
        index._hold(core, embeddings)
        return index

    def _rows(
        self, ids: ArrayLike, codes: ArrayLike, embeddings: ArrayLike | None
    ) -> tuple[NDArray[np.int64], Codes, NDArray[np.uint8] | None]:
        checked = check_codes(codes, self.n_bits)
        numbers = _check_ids(ids)
        if len(numbers) != len(checked):
            raise ShapeError(
                f"there are {len(numbers):,} ids for {len(checked):,} codes; expected one id for each code"
            )
        if self.embeddings is None:
            if embeddings is not None:
                raise InputError("embeddings are given; this index keeps none: make it with embeddings=Embeddings(...)")
            return numbers, checked, None
        if embeddings is None:
            raise InputError(f"embeddings are missing; this index keeps {self.embeddings.n_dims} numbers a row")
        return numbers, checked, self.embeddings.check(embeddings, n_rows=len(checked)).view(np.uint8)

    def _radius(self, radius: int | None) -> int:
        if radius is not None:
            return check_radius(radius, self.n_bits)
        if self.radius is None:
            raise InputError("radius is missing; a FlatIndex has none of its own: pass one")
        return self.radius

    def _request(
        self,
        codes: Codes,
        radius: int,
        limit: int | None,
        filter: ArrayLike | Set[int] | None,
        rerank: int | None,
        queries: ArrayLike | None,
        logits: NDArray[np.float32] | None = None,
        budget: int = 0,
        comparisons: int | None = None,
    ) -> _native.Search:
        if limit is not None:
            limit = min(_check_count(limit, name="limit"), _HUGE)
        # A search for one code takes a few microseconds: nothing is to be done for what was not asked.
        if filter is None and rerank is None and queries is None and logits is None:
            return _native.Search(codes, radius, limit)
        ids, mask = _check_filter(filter)
        embeddings = None
        if rerank is not None:
            rerank = min(_check_count(rerank, name="rerank"), _HUGE)
            if self.embeddings is None and logits is None:
                raise InputError("rerank is given; this index keeps no embeddings: make it with embeddings=...")
            if self.embeddings is None and queries is not None:
                raise InputError(
                    "queries are given; this index keeps no embeddings: without them, logits rank the hits"
                )
            if self.embeddings is not None and queries is None:
                raise InputError("rerank is given without queries; pass the embeddings of the queries")
        elif queries is not None:
            raise InputError("queries are given without rerank; pass rerank=l for the closest l hits")
        if self.embeddings is not None and queries is not None:
            embeddings = self.embeddings.check_queries(queries, n_rows=len(codes)).view(np.uint8)
        return _native.Search(codes, radius, limit, ids, mask, rerank or 0, embeddings, logits, budget, comparisons)

    def _run(self, request: _native.Search, one: bool, threads: int, cost: bool) -> QueryHits | Hits:
        n_threads = 1 if threads == 1 else min(_check_count(threads, name="threads"), _MAX_THREADS)
        if one:
            hits: Any
            hits, *counts = self._core.search_one(request, self._hits_type, self._hit_type, self._row_names)
            if cost:
                hits.cost = Cost(*counts)
            found: QueryHits = hits
            return found
        offsets, ids, distances, closeness, all_counts = self._core.search(request, n_threads)
        costs = Costs(*np.ascontiguousarray(all_counts.reshape(-1, 3).T)) if cost else None
        return Hits(offsets, ids, distances, closeness if request.reranks else None, costs)


def _check_ids(ids: ArrayLike, *, name: str = "ids") -> NDArray[np.int64]:
    """`ids` as a contiguous array of int64."""
    array = np.asarray(ids)
    # An empty list has no integers to tell its type by; numpy calls it float64.
    if array.size and (array.dtype.kind not in "iu" or not np.can_cast(array.dtype, np.int64)):
        raise DtypeError(f"{name} have dtype {array.dtype}; expected int64")
    if array.ndim != 1:
        raise ShapeError(f"{name} have {array.ndim} dimensions; expected 1: (rows,)")
    return np.ascontiguousarray(array, dtype=np.int64)


def _check_filter(
    filter: ArrayLike | Set[int] | None,
) -> tuple[NDArray[np.int64] | None, NDArray[np.bool_] | None]:
    """The ids, ascending, or the mask that a filter is."""
    if filter is None:
        return None, None
    array = np.asarray(list(filter) if isinstance(filter, Set) else filter)
    if array.dtype == np.bool_:
        if array.ndim != 1:
            raise ShapeError(f"filter has {array.ndim} dimensions; expected 1: an element for each id from 0 on")
        return None, np.ascontiguousarray(array)
    return np.unique(_check_ids(array, name="filter")), None


def _check_count(count: int, *, name: str) -> int:
    """`count` itself, if it is a whole number of at least 1."""
    if not isinstance(count, int | np.integer) or isinstance(count, bool):
        raise DtypeError(f"{name} is {count!r}; expected an integer")
    if count < 1:
        raise InputError(f"{name} is {count}; expected at least 1")
    return int(count)
