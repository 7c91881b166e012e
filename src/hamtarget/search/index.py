"""The base of every index: it keeps codes under ids, finds them by distance, and goes to a file and back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy import ndarray
from numpy.typing import ArrayLike, NDArray

from hamtarget._checks import check_ids
from hamtarget._core import _native
from hamtarget.answer import Answer, Cost, Costs, Hit, Hits, bytes_in_words
from hamtarget.codes import Codes, check_codes
from hamtarget.errors import InputError, ShapeError, UnsupportedFileError
from hamtarget.query import Asked, Query, Work, check_question, check_work
from hamtarget.search.embeddings import Embeddings
from hamtarget.search.matching import match_items
from hamtarget.search.requests import CodeKind, Request
from hamtarget.search.row_names import RowNames
from hamtarget.searchable import Searchable

# The core puts so many new rows into a piece without tables (kMinTableRows).
_ROWS_WITHOUT_TABLES = 2048


class CodeIndex(Searchable):
    """Codes of `n_bits` bits and their ids, with embeddings if wanted. Use `MultiIndex` or `FlatIndex`.

    Any number of threads may search while one adds, deletes or replaces: a search sees the index as it was when the
    search began. Searches release the GIL.
    """

    kind: CodeKind
    """What the codes are like."""
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
        self.core = core
        self.n_bits = 8 * core.n_bytes
        self.radius = core.radius if core.n_tables else None
        self.kind = CodeKind(self.n_bits, embeddings)

    @property
    def embeddings(self) -> Embeddings | None:
        """Kind of the embeddings, if rows have some."""
        return self.kind.embeddings

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.core)

    def __contains__(self, id: object) -> bool:
        """Return True if there is a row with this id."""
        if not isinstance(id, int | np.integer) or isinstance(id, bool):
            return False
        number = int(id)
        return -(2**63) <= number < 2**63 and number in self.core

    def __iter__(self) -> Iterator[int]:
        """Yield all ids, ascending, as they are now."""
        return iter(self.ids().tolist())

    def ids(self) -> NDArray[np.int64]:
        """Return all ids, ascending, as they are now."""
        return self.core.ids()

    @property
    def memory(self) -> int:
        """Bytes that rows, ids and tables take."""
        return self.core.memory

    @property
    def scanned_rows(self) -> int:
        """Most rows that are in no table yet: a probe reads them first, and they count in its budget."""
        if self.core.n_parts <= 1 and len(self) > _ROWS_WITHOUT_TABLES:
            return 0
        return min(len(self), _ROWS_WITHOUT_TABLES)

    def __repr__(self) -> str:
        """Return rows, bits, radius, substrings and memory in a line."""
        parts = [f"rows={len(self):,}", f"n_bits={self.n_bits}"]
        if self.core.n_tables:
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
        self.core.add(*self._rows(ids, codes, embeddings))

    def delete(self, ids: ArrayLike) -> None:
        """Remove the rows of these ids: all of them or none.

        Raises:
            InputError: an id is not in the index, or is given twice.
            DtypeError: the ids are not integers that int64 holds.
            ShapeError: the ids are not (rows,).
        """
        self.core.delete(check_ids(ids))

    def replace(self, ids: ArrayLike, codes: ArrayLike, embeddings: ArrayLike | None = None) -> None:
        """Replace the codes and embeddings of ids that are there: all or none. A search sees the old or the new ones.

        Raises:
            As `add`; InputError also where an id is not in the index.
        """
        self.core.replace(*self._rows(ids, codes, embeddings))

    def get(self, ids: ArrayLike) -> Codes | tuple[Codes, NDArray[Any]]:
        """Return the codes of these ids, (rows, n_bits / 8), and their embeddings where the index has some.

        Raises:
            InputError: an id is not in the index.
            DtypeError: the ids are not integers that int64 holds.
            ShapeError: the ids are not (rows,).
        """
        wanted = check_ids(ids)
        flat_codes, flat_embeddings = self.core.get(wanted)
        codes = flat_codes.reshape(len(wanted), self.n_bits // 8)
        if self.embeddings is None:
            return codes
        return codes, flat_embeddings.view(self.embeddings.dtype).reshape(len(wanted), self.embeddings.n_dims)

    def compact(self) -> None:
        """Rebuild everything as one piece without what was deleted: for the fastest searches and the smallest file.

        Adding and deleting keep the index in good order by themselves; this is for the end of many changes.
        """
        self.core.compact()

    def answer(self, asked: Asked, query: Query, work: Work | None = None) -> Answer:
        """Answer a batch of queries; see `Searchable.answer`. A filter is a set of ids, or a mask."""
        return self.find(self.request(asked, query, work))

    def answer_one(self, asked: Asked, query: Query, work: Work) -> Hits:
        """Answer one query, given as a batch of one: without the arrays of a batch."""
        return self.find_one(self.request(asked, query, work))

    def answer_code(
        self,
        query: Any,
        code: ArrayLike | None,
        radius: int | None,
        limit: int | None,
        is_nearest: bool,
        mask: NDArray[Any] | None,
    ) -> Hits | None:
        """Answer a query for one code in one call of the core, if it is an array of the right kind."""
        if code is None:
            code = query
        elif query is not None:
            return None
        if type(code) is not ndarray:
            return None
        if mask is None:
            return self.core.search_code(code, radius, limit, is_nearest, Hits, Hit)
        return self.core.search_code(code, radius, limit, is_nearest, Hits, Hit, None, mask)

    def request(self, asked: Asked, query: Query, work: Work | None = None) -> Request:
        """Return what is asked as a checked request."""
        check_question(asked, query)
        return self.kind.request(asked, query, check_work(work), filter=query.filter)

    def find(self, request: Request) -> Answer:
        """Return the hits of a request for any number of queries."""
        if request.offsets is not None:
            return match_items(self.find(request.of_codes), request)
        search = request.for_core()
        offsets, rows, distances, closeness, counts = self.core.search(search, request.threads)
        costs = Costs(*np.ascontiguousarray(counts.reshape(-1, 3).T)) if request.costs else None
        return Answer(offsets, rows, distances, closeness if request.rerank else None, costs=costs)

    def find_one(self, request: Request) -> Hits:
        """Return the hits of a request for one query."""
        hits = self.find_one_named(request, None)
        if hits is None:
            raise TypeError("the core did not find the ids of rows, which are their numbers")
        return hits

    def find_one_named(self, request: Request, names: RowNames | None) -> Hits | None:
        """Return the same hits with ids in place of rows; None if the id of one of them is not known."""
        search = request.for_core()
        hits, buckets, candidates, comparisons = self.core.search_one(
            search, Hits, Hit, None if names is None else names.core
        )
        if request.costs and hits is not None:
            hits.cost = Cost(buckets, candidates, comparisons)
        return hits

    def _asked(self, query: Any, code: ArrayLike | None, wanted: Query, *, many: bool) -> Asked:
        return Asked(self._given(query, code, "codes" if many else "a code"))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Put the index, as it is now, at `path`: a reader finds the old file or the new one, even after a crash.

        Raises:
            OSError: the file cannot be written; what was at `path` is as it was.
        """
        self.core.save(os.fspath(Path(path)))

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
