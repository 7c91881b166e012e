"""The base of every index: it keeps codes under ids, finds them by distance, and goes to a file and back."""

from __future__ import annotations

import os
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget.codes import Codes, check_codes
from hamtarget.errors import InputError, ShapeError, UnsupportedFileError
from hamtarget.search.core import _native
from hamtarget.search.embeddings import Embeddings
from hamtarget.search.limits import Limits
from hamtarget.search.requests import (
    Request,
    Requests,
    check_count,
    check_ids,
    many_codes,
    many_rows_of_logits,
    one_code,
    one_embedding,
    one_row_of_logits,
)
from hamtarget.search.results import BatchHits, Cost, Costs, Hit, Hits, bytes_in_words
from hamtarget.search.row_names import RowNames

# The core puts so many new rows into a piece without tables (kMinTableRows).
_ROWS_WITHOUT_TABLES = 2048
_MAX_THREADS = 1024


class CodeIndex:
    """Codes of `n_bits` bits and their ids, with embeddings if wanted. Use `MultiIndex` or `FlatIndex`.

    Any number of threads may search while one adds, deletes or replaces: a search sees the index as it was when the
    search began. Searches release the GIL.
    """

    n_bits: int
    """Bits of a code."""
    radius: int | None
    """Radius of searches that do not name one."""
    embeddings: Embeddings | None
    """Kind of the embeddings, if rows have some."""
    requests: Requests
    """Checks what a search is asked for."""
    _has_tables: ClassVar[bool]

    def __init__(
        self,
        n_bits: int,
        *,
        substrings: int,
        radius: int | None,
        embeddings: Embeddings | None,
        is_planned: bool = False,
    ) -> None:
        """Create an empty index; without substrings it has no tables, and every search reads all rows."""
        if embeddings is None:
            core = _native.MultiIndex(n_bits // 8, substrings, radius or 0, is_planned=is_planned)
        else:
            element, metric = _native.Element[embeddings.dtype], _native.Metric[embeddings.metric]
            core = _native.MultiIndex(
                n_bits // 8, substrings, radius or 0, embeddings.n_dims, element, metric, is_planned=is_planned
            )
        self._hold(core, embeddings)

    def _hold(self, core: _native.MultiIndex, embeddings: Embeddings | None) -> None:
        self._core = core
        self.n_bits = 8 * core.n_bytes
        self.radius = core.radius if core.n_tables else None
        self.embeddings = embeddings
        self.requests = Requests(self.n_bits, self.radius, embeddings)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._core)

    def __contains__(self, id: object) -> bool:
        """Return True if there is a row with this id."""
        if not isinstance(id, int | np.integer) or isinstance(id, bool):
            return False
        number = int(id)
        return -(2**63) <= number < 2**63 and number in self._core

    def __iter__(self) -> Iterator[int]:
        """Yield all ids, ascending, as they are now."""
        return iter(self.ids().tolist())

    def ids(self) -> NDArray[np.int64]:
        """Return all ids, ascending, as they are now."""
        return self._core.ids()

    @property
    def memory(self) -> int:
        """Bytes that rows, ids and tables take."""
        return self._core.memory

    @property
    def scanned_rows(self) -> int:
        """Most rows that are in no table yet: a probe reads them first, and they count in its budget."""
        if self._core.n_parts <= 1 and len(self) > _ROWS_WITHOUT_TABLES:
            return 0
        return min(len(self), _ROWS_WITHOUT_TABLES)

    def __repr__(self) -> str:
        """Return rows, bits, radius, substrings and memory in a line."""
        parts = [f"rows={len(self):,}", f"n_bits={self.n_bits}"]
        if self._core.n_tables:
            parts.append(f"radius={self.radius}")
            parts += self._more_in_words()
        if self.embeddings is not None:
            parts.append(f"embeddings={self.embeddings.n_dims} x {self.embeddings.dtype}")
        return f"{type(self).__name__}({', '.join(parts)}, memory={bytes_in_words(self.memory)})"

    def _more_in_words(self) -> list[str]:
        return []

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
        self._core.delete(check_ids(ids))

    def replace(self, ids: ArrayLike, codes: ArrayLike, embeddings: ArrayLike | None = None) -> None:
        """Replace the codes and embeddings of ids that are there: all or none. A search sees the old or the new ones.

        Raises:
            As `add`; InputError also where an id is not in the index.
        """
        self._core.replace(*self._rows(ids, codes, embeddings))

    def get(self, ids: ArrayLike) -> Codes | tuple[Codes, NDArray[Any]]:
        """Return the codes of these ids, (rows, n_bits / 8), and their embeddings where the index has some.

        Raises:
            InputError: an id is not in the index.
            DtypeError: the ids are not integers that int64 holds.
            ShapeError: the ids are not (rows,).
        """
        wanted = check_ids(ids)
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
        code: ArrayLike,
        radius: int | None = None,
        *,
        limit: int | None = None,
        filter: ArrayLike | Set[int] | None = None,
        rerank: int | None = None,
        embedding: ArrayLike | None = None,
        cost: bool = False,
        limits: Limits | None = None,
    ) -> Hits:
        """Find every row within `radius` bits of a code, or the first `limit` of them.

        Example:
            >>> import numpy as np
            >>> from hamtarget.search import MultiIndex
            >>> index = MultiIndex(64, radius=2)
            >>> index.add([10, 11], np.array([[0] * 8, [7] + [0] * 7], dtype=np.uint8))
            >>> index.search(np.zeros(8, dtype=np.uint8))
            Hits(1 hit: Hit(id=10, distance=0))

        Args:
            code: of the query, (n_bits / 8,) of packed uint8; for several, see `search_batch`.
            radius: from 0 to n_bits - 1; a row at exactly this distance is a hit. The index's own by default.
            limit: most hits; all of them by default.
            filter: the only ids that may be hits: a set, list or array of ids, or a boolean array whose element i
                says if id i may be one.
            rerank: so many of the hits (after `limit`), the closest by embedding, by embedding distance and then id.
            embedding: of the query, (n_dims,), for `rerank`.
            cost: if True, the result's `cost` says how much work the query took.
            limits: bounds on the work.

        Returns:
            The hits, by distance and then id.

        Raises:
            InputError: a number is out of range, or `rerank` and `embedding` do not come together.
            DtypeError: the code is not uint8, or a number is not an integer.
            ShapeError: the code does not have `n_bits` bits, or the embedding has another shape than expected.
            NotFiniteError: the embedding holds NaN or infinity.
            LimitError: the search reached one of its limits.
        """
        is_plain = filter is None and rerank is None and embedding is None and limit is None and limits is None
        if is_plain and not cost and type(code) is np.ndarray:
            # The plain case in one call: checking its arguments here would take as long as the search.
            found = self._core.search_code(code, self.radius if radius is None else radius, Hits, Hit)
            if found is not None:
                return found
        wanted = one_code(code, self.n_bits, instead="search_batch")
        if embedding is not None:
            embedding = one_embedding(embedding)
        request = self.requests.search(
            wanted, radius, limit=limit, filter=filter, rerank=rerank, embedding=embedding, limits=limits
        )
        return self.find_one(request, cost=cost)

    def search_batch(
        self,
        codes: ArrayLike,
        radius: int | None = None,
        *,
        limit: int | None = None,
        filter: ArrayLike | Set[int] | None = None,
        rerank: int | None = None,
        embedding: ArrayLike | None = None,
        threads: int = 1,
        cost: bool = False,
        limits: Limits | None = None,
    ) -> BatchHits:
        """Find every row within `radius` bits of each of a batch of codes; see `search`.

        Args:
            codes: of the queries, (queries, n_bits / 8) of packed uint8.
            radius: as in `search`.
            limit: most hits for each query.
            filter: as in `search`.
            rerank: as in `search`, for each query.
            embedding: of the queries, (queries, n_dims), for `rerank`.
            threads: the queries are shared among so many threads.
            cost: if True, the result's `costs` say how much work each query took.
            limits: bounds on the work of all queries together.

        Raises:
            As `search`.
        """
        wanted = many_codes(codes, self.n_bits, instead="search")
        request = self.requests.search(
            wanted, radius, limit=limit, filter=filter, rerank=rerank, embedding=embedding, limits=limits
        )
        return self.find_batch(request, threads=threads, cost=cost)

    def nearest(
        self,
        code: ArrayLike,
        k: int = 10,
        *,
        filter: ArrayLike | Set[int] | None = None,
        rerank: int | None = None,
        embedding: ArrayLike | None = None,
        cost: bool = False,
        limits: Limits | None = None,
    ) -> Hits:
        """Find the `k` nearest rows exactly, by distance and then id; all rows where there are fewer.

        Example:
            >>> import numpy as np
            >>> from hamtarget.search import FlatIndex
            >>> index = FlatIndex(64)
            >>> index.add([10, 11], np.array([[0] * 8, [7] + [0] * 7], dtype=np.uint8))
            >>> [(hit.id, hit.distance) for hit in index.nearest(np.zeros(8, dtype=np.uint8), 2)]
            [(10, 0), (11, 3)]

        Args:
            code: as in `search`.
            k: number of hits, at least 1.
            filter: as in `search`.
            rerank: so many of the k, the closest by embedding, by embedding distance and then id.
            embedding: as in `search`.
            cost: as in `search`.
            limits: as in `search`.

        Raises:
            As `search`.
        """
        wanted = one_code(code, self.n_bits, instead="nearest_batch")
        request = self.requests.nearest(
            wanted, k, filter=filter, rerank=rerank, embedding=one_embedding(embedding), limits=limits
        )
        return self.find_one(request, cost=cost)

    def nearest_batch(
        self,
        codes: ArrayLike,
        k: int = 10,
        *,
        filter: ArrayLike | Set[int] | None = None,
        rerank: int | None = None,
        embedding: ArrayLike | None = None,
        threads: int = 1,
        cost: bool = False,
        limits: Limits | None = None,
    ) -> BatchHits:
        """Find the `k` nearest rows of each of a batch of codes; see `nearest` and `search_batch`."""
        wanted = many_codes(codes, self.n_bits, instead="nearest")
        request = self.requests.nearest(wanted, k, filter=filter, rerank=rerank, embedding=embedding, limits=limits)
        return self.find_batch(request, threads=threads, cost=cost)

    def probe(
        self,
        logits: ArrayLike,
        budget: int,
        *,
        radius: int | None = None,
        limit: int | None = None,
        filter: ArrayLike | Set[int] | None = None,
        rerank: int | None = None,
        embedding: ArrayLike | None = None,
        comparisons: int | None = None,
        cost: bool = False,
        limits: Limits | None = None,
    ) -> Hits:
        """Search approximately: read at most `budget` rows, the most likely first.

        The query's code has a 1 where its logit is above 0. Buckets of all tables are read in the order of the sum of
        |logit| over the bits in which they differ from that code. A larger budget finds all that a smaller one finds;
        one of `len(index)` or more finds exactly what `search` does. With a large `radius`, up to n_bits - 1,
        everything that is read is a hit: together with `rerank`, this is approximate search for nearest neighbours.
        Embeddings lie far apart in memory: `comparisons` saves most of that time, because only rows that are near by
        their codes are compared. Sums of |logit| are rounded to 63 steps up to the query's largest (15 for
        codes of more than 1,024 bits).

        Example:
            >>> import numpy as np
            >>> from hamtarget.search import MultiIndex
            >>> index = MultiIndex(64, radius=2)
            >>> index.add([10, 11], np.array([[0] * 8, [7] + [0] * 7], dtype=np.uint8))
            >>> [hit.id for hit in index.probe(np.full(64, -1.0), budget=100, radius=63)]
            [10, 11]

        Args:
            logits: of the query, (n_bits,); for several, see `probe_batch`.
            budget: most rows read; an empty bucket counts as one row.
            radius: as in `search`.
            limit: as in `search`.
            filter: as in `search`.
            rerank: as in `search`. An index without embeddings ranks by the query's logits instead: by the sum of
                |logit| over the bits in which a row differs, which `embedding_distance` then is.
            embedding: as in `search`.
            comparisons: most rows whose embeddings are compared: of the hits, those with the smallest sum of |logit|
                over the bits in which they differ from the query, then by id. All hits by default.
            cost: as in `search`.
            limits: as in `search`.

        Raises:
            As `search`; InputError also where `comparisons` is given without `rerank` or with `limit`;
            NotFiniteError also where a logit is NaN or infinite.
        """
        request = self.requests.probe(
            one_row_of_logits(logits, self.n_bits),
            budget,
            radius=radius,
            limit=limit,
            filter=filter,
            rerank=rerank,
            embedding=one_embedding(embedding),
            comparisons=comparisons,
            limits=limits,
        )
        return self.find_one(request, cost=cost)

    def probe_batch(
        self,
        logits: ArrayLike,
        budget: int,
        *,
        radius: int | None = None,
        limit: int | None = None,
        filter: ArrayLike | Set[int] | None = None,
        rerank: int | None = None,
        embedding: ArrayLike | None = None,
        comparisons: int | None = None,
        threads: int = 1,
        cost: bool = False,
        limits: Limits | None = None,
    ) -> BatchHits:
        """Search approximately for a batch of queries, of each of which at most `budget` rows are read; see `probe`.

        Args:
            logits: of the queries, (queries, n_bits).
            budget: as in `probe`, for each query.
            radius: as in `search`.
            limit: as in `search_batch`.
            filter: as in `search`.
            rerank: as in `probe`, for each query.
            embedding: as in `search_batch`.
            comparisons: as in `probe`, for each query.
            threads: as in `search_batch`.
            cost: as in `search_batch`.
            limits: as in `search_batch`.

        Raises:
            As `probe`.
        """
        request = self.requests.probe(
            many_rows_of_logits(logits, self.n_bits),
            budget,
            radius=radius,
            limit=limit,
            filter=filter,
            rerank=rerank,
            embedding=embedding,
            comparisons=comparisons,
            limits=limits,
        )
        return self.find_batch(request, threads=threads, cost=cost)

    def find_one(self, request: Request, *, cost: bool = False) -> Hits:
        """Return the hits of a request for one query."""
        hits, buckets, candidates, comparisons = self._core.search_one(_native.Search(*request), Hits, Hit)
        if cost:
            hits.cost = Cost(buckets, candidates, comparisons)
        return hits

    def find_one_named(self, request: Request, names: RowNames, *, cost: bool = False) -> Hits | None:
        """Return the same hits with ids in place of rows; None if the id of one of them is not known."""
        hits, buckets, candidates, comparisons = self._core.search_one(_native.Search(*request), Hits, Hit, names.core)
        if cost and hits is not None:
            hits.cost = Cost(buckets, candidates, comparisons)
        return hits

    def find_batch(self, request: Request, *, threads: int = 1, cost: bool = False) -> BatchHits:
        """Return the hits of a request for any number of queries."""
        n_threads = min(check_count(threads, name="threads"), _MAX_THREADS)
        offsets, rows, distances, closeness, counts = self._core.search(_native.Search(*request), n_threads)
        costs = Costs(*np.ascontiguousarray(counts.reshape(-1, 3).T)) if cost else None
        return BatchHits(offsets, rows, distances, closeness if request.rerank else None, costs)

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
            mmap: use the file itself as memory, shared between processes, instead of a copy. A program that writes into
                the file makes answers wrong; one that truncates it ends this process (SIGBUS).
            verify: read every byte of the file once, at several GB a second if it is in memory, and refuse a damaged
                file. With `verify=False` a mapped file opens in about the same time whatever its size, because only
                the pages that searches need are read. The lengths of all arrays are still checked, and so are the
                few numbers that describe the index and its deleted rows. A damaged file may then give wrong answers,
                but searches read nothing outside of the arrays. Use this for files that were verified before. A copy
                (`mmap=False`) is read as a whole in any case.

        Raises:
            CorruptFileError: the file is truncated, altered (with `verify`), or not of this kind.
            UnsupportedFileError: it is of another version, or of another kind of index.
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
        numbers = check_ids(ids)
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
