"""The index of an open store: it follows the database, change by change."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes
from hamtarget.errors import InputError
from hamtarget.search.multi import MultiIndex
from hamtarget.search.row_names import RowNames
from hamtarget.store.items.code_rows import are_further
from hamtarget.store.items.ids import FIRST_NAMED_ROW
from hamtarget.store.vectors.cells import Cells

# So many names of deleted rows are worth keeping: looking the others up again takes longer than they take memory.
_LEAST_FORGOTTEN = 4096


@dataclass(frozen=True, slots=True, eq=False)
class PutRows:
    """Rows that are there now, new or in place of others."""

    rows: NDArray[np.int64]
    codes: Codes
    embeddings: NDArray[Any] | None


@dataclass(frozen=True, slots=True, eq=False)
class DeleteRows:
    """Rows that are there no longer."""

    rows: NDArray[np.int64]


Change = PutRows | DeleteRows


class LiveIndex:
    """An index and the number of the last change that is in it.

    Attributes:
        index: the rows.
        cells: of the vectors, where the store keeps some.
        names: ids of rows, as far as they are known. Begun anew when most of those it knows are of deleted rows; who
            holds the old ones keeps them.
        sequence: number of the last change in it.
        has_names: True if a row may have an id other than its number.
        n_further: rows that are not the first of their item; 0 where every item has one code.
        is_saved: True if the database names a file that holds all of it.
        is_rebuilt: True if it was made from the rows, and not from such a file.
        version: odd while a change is being made, or was interrupted; other than before when it is done.
        is_torn: True if an interrupt left it in the middle of a change.
        lock: held while changes are made.
    """

    def __init__(
        self,
        index: MultiIndex,
        sequence: int,
        *,
        has_names: bool,
        has_several: bool = False,
        is_saved: bool = False,
    ) -> None:
        """Follow a store from a change on.

        Args:
            index: of all rows at that change.
            sequence: number of the change.
            has_names: True if a row may have an id other than its number.
            has_several: True if an item may have several codes.
            is_saved: True if the database names a file that holds all of it.
        """
        self.index = index
        self.n_further = int(are_further(index.ids()).sum()) if has_several else 0
        self.cells = Cells()
        self.names = RowNames(FIRST_NAMED_ROW)
        self._n_deleted_names = 0
        self.sequence = sequence
        self.has_names = has_names
        self.is_saved = is_saved
        self.is_rebuilt = not is_saved
        self.version = 0
        self.is_torn = False
        self.lock = threading.RLock()

    @property
    def n_items(self) -> int:
        """Number of items, where no change is being made."""
        return len(self.index) - self.n_further

    def begin(self) -> None:
        """Mark the beginning of a change: until `settle`, searchers see that the index may not be up to date."""
        self.version += 1 - self.version % 2

    def settle(self) -> None:
        """Mark the end of a change: who searched meanwhile sees that the index has changed."""
        self.version += self.version % 2

    def apply(self, changes: Sequence[Change], sequence: int) -> None:
        """Bring the changes of one or more whole transactions into the index."""
        with self.lock:
            self.begin()
            self.is_torn, self.is_saved = True, False
            for change in changes:
                if isinstance(change, DeleteRows):
                    self.index.delete(change.rows)
                    self.n_further -= int(are_further(change.rows).sum())
                    self._forget(change.rows)
                    self.cells.follow(change.rows, None)
                else:
                    self._put(change)
                    self.cells.follow(change.rows, change.embeddings)
            self.sequence = sequence
            self.is_torn = False
            self.settle()

    def replace(self, other: LiveIndex) -> None:
        """Take over the rows of `other`."""
        with self.lock:
            self.begin()
            self.index, self.sequence, self.has_names = other.index, other.sequence, other.has_names
            self.n_further = other.n_further
            self.cells.drop()
            self.is_torn, self.is_saved = False, other.is_saved
            self.settle()

    def _forget(self, deleted: NDArray[np.int64]) -> None:
        """Begin names anew when most of them may be of deleted rows; the database knows the others."""
        self._n_deleted_names += int((deleted >= FIRST_NAMED_ROW).sum())
        if self._n_deleted_names > max(len(self.names) // 2, _LEAST_FORGOTTEN):
            self.names = RowNames(FIRST_NAMED_ROW)
            self._n_deleted_names = 0

    def _put(self, change: PutRows) -> None:
        if len(change.rows) and change.rows.max() >= FIRST_NAMED_ROW:
            self.has_names = True
        further = are_further(change.rows)
        try:
            self.index.add(change.rows, change.codes, change.embeddings)
            self.n_further += int(further.sum())
            return
        except InputError:
            # Some of the rows are there already, and nothing was added.
            known = np.fromiter((row in self.index for row in change.rows.tolist()), bool, len(change.rows))
            self.n_further += int((further & ~known).sum())
        for chosen, write in ((known, self.index.replace), (~known, self.index.add)):
            if chosen.all():
                write(change.rows, change.codes, change.embeddings)
            elif chosen.any():
                write(
                    change.rows[chosen],
                    change.codes[chosen],
                    None if change.embeddings is None else change.embeddings[chosen],
                )
