"""Steps for scikit-learn: binary codes (`HashTransformer`, needs torch) and nearest neighbours (`NeighborTransformer`).

Neither torch nor the native core is imported before a step needs it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget.codes import unpack
from hamtarget.errors import InputError, MissingExtraError
from hamtarget.query import Work

try:
    from scipy.sparse import csr_matrix
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import Tags
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise MissingExtraError(
        "hamtarget.integrations.sklearn needs scikit-learn: pip install 'hamtarget[sklearn]'"
    ) from error

if TYPE_CHECKING:
    from hamtarget.learn import TrainingOptions
    from hamtarget.learn.fitting.objectives import Loss
    from hamtarget.learn.networks.builder import Network

__all__ = ["HashTransformer", "NeighborTransformer"]

Mode = Literal["distance", "connectivity"]

_METRICS = {"euclidean": "l2", "l2": "l2", "minkowski": "l2", "cosine": "cosine"}
# Numbers of the differences of pairs that are computed at a time: 32 MB of float64.
_NUMBERS_AT_A_TIME = 1 << 22


def __dir__() -> list[str]:
    return __all__


class HashTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learns binary codes of vectors and turns vectors into their bits; its arguments are those of `HashEncoder`.

    Args:
        n_bits: length of a code, a multiple of 8. None: 32 with labels, 64 without.
        loss: what the codes are for; see `HashEncoder`.
        network: the network; see `HashEncoder`.
        training: options of the training; see `HashEncoder`.
        packed: True if `transform` should return packed bytes, (rows, n_bits / 8), as `hamtarget.search` takes them,
            instead of 0 and 1, (rows, n_bits).
        random_state: seed of everything random. The same seed and data give the same codes on the same machine.
        device: "cpu", "cuda", or "auto": a GPU if there is one.

    Attributes:
        encoder_: the `HashEncoder`, for logits, embeddings and `save`.
        n_features_in_: number of columns that were learned from.

    Example:
        >>> from hamtarget.learn import NetworkOptions, TrainingOptions
        >>> random = np.random.default_rng(0)
        >>> labels = np.arange(60) % 3
        >>> vectors = 5 * np.eye(3)[labels] + random.normal(size=(60, 3))
        >>> training = TrainingOptions(steps=10, batch_size=32)
        >>> transformer = HashTransformer(16, network=NetworkOptions(width=8), training=training)
        >>> transformer.fit_transform(vectors, labels).shape
        (60, 16)
    """

    def __init__(
        self,
        n_bits: int | None = None,
        loss: Loss = "auto",
        *,
        network: Network = "auto",
        training: TrainingOptions | None = None,
        packed: bool = False,
        random_state: int = 0,
        device: str = "auto",
    ) -> None:
        self.n_bits = n_bits
        self.loss = loss
        self.network = network
        self.training = training
        self.packed = packed
        self.random_state = random_state
        self.device = device

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn from rows and return the transformer itself.

        Args:
            X: (rows, columns), at least two rows.
            y: labels, (rows,): integers or text; rows of equal label are similar. None: near neighbours are similar.

        Raises:
            ValueError: X or y cannot be learned from; the error says why.
            MissingExtraError: torch is not installed.
        """
        from hamtarget.learn import HashEncoder

        rows = validate_data(self, X, dtype=[np.float32, np.float64], ensure_min_samples=2)
        encoder = HashEncoder(
            self.n_bits,
            self.loss,
            network=self.network,
            training=self.training,
            seed=self.random_state,
            device=self.device,
        )
        self.encoder_ = encoder.fit(rows, None if y is None else _labels(y, len(rows)))
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.uint8]:
        """Return the codes of rows: bits, (rows, n_bits), or bytes, (rows, n_bits / 8), if `packed`.

        Raises:
            sklearn.exceptions.NotFittedError: nothing was learned yet.
            ValueError: X has another shape, or holds no numbers; the error says which.
        """
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=[np.float32, np.float64], reset=False)
        codes = self.encoder_.encode(rows)
        return codes if self.packed else unpack(codes, self.encoder_.n_bits)

    @property
    def _n_features_out(self) -> int:
        """Number of columns that `transform` returns, as scikit-learn names it."""
        n_bits = self.encoder_.n_bits
        return n_bits // 8 if self.packed else n_bits

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # Bits are uint8, whatever the input is.
        tags.transformer_tags.preserves_dtype = []
        return tags


class NeighborTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turns rows into the sparse graph of their nearest neighbours, as scikit-learn's `KNeighborsTransformer` does.

    A `NeighborIndex` finds the neighbours: of fewer than 10,000 rows exactly, of more with the recall that you ask for.
    Distances of the neighbours found are exact. The rows are kept, as scikit-learn keeps them.

    Args:
        mode: "distance": the graph holds distances, and each row's own sample counts as a neighbour besides
            `n_neighbors`; "connectivity": it holds ones, and the own sample is one of `n_neighbors`.
        n_neighbors: neighbours of each row.
        metric: "euclidean" (also by its names "l2" and "minkowski") or "cosine".
        recall: share of the true neighbours that should be found.
        random_state: seed of everything random.
        n_jobs: threads; -1 for all cores, None for one.

    Attributes:
        index_: the `NeighborIndex`.
        n_samples_fit_: number of rows that were fitted.
        n_features_in_: number of their columns.

    Example:
        >>> from sklearn.neighbors import KNeighborsClassifier
        >>> from sklearn.pipeline import make_pipeline
        >>> random = np.random.default_rng(0)
        >>> labels = np.arange(60) % 3
        >>> vectors = 5 * np.eye(3)[labels] + random.normal(size=(60, 3))
        >>> near = NeighborTransformer(n_neighbors=5)
        >>> model = make_pipeline(near, KNeighborsClassifier(5, metric="precomputed")).fit(vectors, labels)
        >>> float(model.score(vectors, labels)) > 0.9
        True
    """

    def __init__(
        self,
        *,
        mode: Mode = "distance",
        n_neighbors: int = 5,
        metric: str = "euclidean",
        recall: float = 0.95,
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.mode = mode
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.recall = recall
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Index rows, and return the transformer itself.

        Args:
            X: (rows, columns).
            y: has no effect.

        Raises:
            ValueError: X or an argument is not as expected; the error says why.
        """
        from hamtarget.search import NeighborIndex

        rows = validate_data(self, X, dtype=[np.float64, np.float32])
        if self.metric not in _METRICS:
            raise InputError(f"metric is {self.metric!r}; expected one of {', '.join(_METRICS)}")
        _check_mode(self.mode)
        _check_count(self.n_neighbors)
        index = NeighborIndex(_METRICS[self.metric], self.recall, k=self.n_neighbors + 1, seed=self.random_state)
        self.index_ = index.fit(rows, work=_work(self.n_jobs))
        self._fit_X: NDArray[Any] = np.array(rows)
        self.n_samples_fit_ = len(rows)
        return self

    def transform(self, X: ArrayLike) -> csr_matrix:
        """Return the graph of the nearest fitted rows of each row of X, (rows, fitted rows), nearest first in each.

        For the fitted rows themselves, the first neighbour of each row is the row, at distance 0.

        Raises:
            sklearn.exceptions.NotFittedError: nothing was fitted yet.
            ValueError: X has another number of columns, or there are fewer fitted rows than neighbours.
        """
        check_is_fitted(self)
        return self.kneighbors_graph(X, self.n_neighbors + (self.mode == "distance"), self.mode)

    def kneighbors(
        self, X: ArrayLike | None = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]] | NDArray[np.int64]:
        """Return distances and row numbers of the nearest fitted rows, (rows, n_neighbors) each, nearest first.

        Args:
            X: (rows, columns). None: the fitted rows; none of them is its own neighbour then.
            n_neighbors: neighbours of each row; by default those of the transformer.
            return_distance: False: only row numbers are returned.

        Raises:
            sklearn.exceptions.NotFittedError: nothing was fitted yet.
            ValueError: X has another number of columns, or there are fewer fitted rows than neighbours.
        """
        check_is_fitted(self)
        count = self.n_neighbors if n_neighbors is None else n_neighbors
        _check_count(count)
        most = self.n_samples_fit_ - (X is None)
        if count > most:
            raise InputError(
                f"n_neighbors is {count}, n_samples_fit is {self.n_samples_fit_}; expected at most {most} neighbours"
            )
        if X is None:
            distances, ids = self._nearest(self._fit_X, count + 1, own_first=True)
            distances, ids = distances[:, 1:], ids[:, 1:]
        else:
            rows = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
            distances, ids = self._nearest(rows, count, own_first=np.array_equal(rows, self._fit_X))
        return (distances, ids) if return_distance else ids

    def kneighbors_graph(
        self, X: ArrayLike | None = None, n_neighbors: int | None = None, mode: Mode = "connectivity"
    ) -> csr_matrix:
        """Return the graph of nearest neighbours, (rows, fitted rows).

        Args:
            X: as in `kneighbors`.
            n_neighbors: as in `kneighbors`.
            mode: "connectivity": ones; "distance": distances, those of 0 included.

        Raises:
            sklearn.exceptions.NotFittedError: nothing was fitted yet.
            ValueError: as in `kneighbors`, or `mode` is none of the two.
        """
        _check_mode(mode)
        found = self.kneighbors(X, n_neighbors)
        distances, ids = found[0], found[1]
        values = distances if mode == "distance" else np.ones(distances.shape)
        starts = np.arange(0, ids.size + 1, ids.shape[1])
        return csr_matrix((values.ravel(), ids.ravel(), starts), shape=(len(ids), self.n_samples_fit_))

    def _nearest(
        self, rows: NDArray[Any], count: int, *, own_first: bool
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return exact distances and ids of what the index finds; where the rows are the fitted ones, own ids first."""
        ids = self.index_.nearest_batch(rows, count, work=_work(self.n_jobs)).ids
        few = np.flatnonzero((ids < 0).any(axis=1))
        if len(few):
            # The cells that were visited held fewer rows; a graph has as many neighbours of each row.
            ids[few] = self.index_.nearest_batch(rows[few], count, recall=1.0, work=_work(self.n_jobs)).ids
        if own_first:
            _put_own_first(ids)
        distances = np.empty(ids.shape)
        step = max(1, _NUMBERS_AT_A_TIME // (count * rows.shape[1]))
        for start in range(0, len(rows), step):
            some = slice(start, start + step)
            distances[some] = self._distances(rows[some], ids[some])
        if own_first:
            # An own distance is 0, but a duplicate's is, too; the own row stays first.
            distances[:, 0] = -1
        order = np.argsort(distances, axis=1, kind="stable")
        ids, distances = np.take_along_axis(ids, order, axis=1), np.take_along_axis(distances, order, axis=1)
        return np.maximum(distances, 0), ids

    def _distances(self, rows: NDArray[Any], ids: NDArray[np.int64]) -> NDArray[np.float64]:
        left = rows[:, None].astype(np.float64)
        right = self._fit_X[ids].astype(np.float64)
        if _METRICS[self.metric] == "cosine":
            left = left / np.linalg.norm(left, axis=2, keepdims=True)
            right = right / np.linalg.norm(right, axis=2, keepdims=True)
        difference = left - right
        squares = np.einsum("ijk,ijk->ij", difference, difference)
        # Of vectors of length 1, half the squared distance is 1 - cosine, without cancellation.
        return np.asarray(squares / 2 if _METRICS[self.metric] == "cosine" else np.sqrt(squares))

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: the index as the content of its file, whose checksum is read when it is opened."""
        state: dict[str, Any] = dict(super().__getstate__())
        if "index_" in state:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "index"
                self.index_.save(path)
                state["index_"] = path.read_bytes()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        index = state.get("index_")
        if isinstance(index, bytes):
            from hamtarget.search import NeighborIndex

            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "index"
                path.write_bytes(index)
                state = {**state, "index_": NeighborIndex.open(path)}
        super().__setstate__(state)

    @property
    def _n_features_out(self) -> int:
        """Number of columns that `transform` returns, as scikit-learn names it."""
        return int(self.n_samples_fit_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # Distances are float64, whatever the input is.
        tags.transformer_tags.preserves_dtype = []
        return tags


def _put_own_first(ids: NDArray[np.int64]) -> None:
    """Put each row's own number first: in place of where it stands, or of the last if it was not found."""
    own = np.arange(len(ids))
    found = ids == own[:, None]
    place = np.where(found.any(axis=1), found.argmax(axis=1), ids.shape[1] - 1)
    ids[own, place] = ids[:, 0]
    ids[:, 0] = own


def _check_mode(mode: object) -> None:
    if mode not in ("distance", "connectivity"):
        raise InputError(f"mode is {mode!r}; expected 'distance' or 'connectivity'")


def _check_count(count: object) -> None:
    if isinstance(count, bool) or not isinstance(count, int | np.integer):
        raise InputError(f"n_neighbors is {count!r}; expected an integer")
    if count < 1:
        raise InputError(f"n_neighbors is {count}; expected 1 or more")


def _work(n_jobs: int | None) -> Work:
    """Return work on as many threads as scikit-learn means: one for None, one for each core for -1."""
    if n_jobs is None:
        return Work(threads=1)
    return Work(threads=n_jobs if n_jobs >= 0 else os.cpu_count() or 1)


def _labels(y: ArrayLike, n_rows: int) -> NDArray[Any]:
    labels = np.asarray(y)
    if labels.shape != (n_rows,):
        raise InputError(f"y has shape {labels.shape}; expected ({n_rows},): one label for each row")
    if labels.dtype.kind == "f":
        if not np.array_equal(labels, np.rint(labels)):
            raise InputError("y holds fractions; expected labels: integers or text")
        labels = labels.astype(np.int64)
    return labels.astype(str) if labels.dtype.kind == "O" else labels
