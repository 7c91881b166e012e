"""HashTransformer: binary codes as a step of a scikit-learn pipeline. Needs scikit-learn and torch."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget.codes import unpack
from hamtarget.errors import InputError, MissingExtraError

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import Tags
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise MissingExtraError(
        "hamtarget.integrations.sklearn needs scikit-learn and torch: pip install 'hamtarget[sklearn]'"
    ) from error

from hamtarget.learn import HashEncoder, Labels
from hamtarget.learn.encoder import Objective


class HashTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learns binary codes of vectors and turns vectors into their bits.

    Args:
        n_bits: length of a code, a multiple of 8.
        radius: the Hamming distance target; see `HashEncoder`.
        objective: what the codes are for; see `HashEncoder`.
        packed: whether `transform` gives packed bytes, (rows, n_bits / 8), as `hamtarget.search` takes them, instead of
            0 and 1, (rows, n_bits).
        width: units of a layer; None: 256.
        dissimilar_weight: more of it means fewer, but surer, hits within the radius.
        steps: batches to train on.
        batch_size: rows of a batch.
        group_size: rows of a group, a row and others similar to it; fewer where a row has fewer.
        learning_rate: the highest of the schedule.
        random_state: seed: same seed, same data, same machine: same codes.
        device: "auto": a GPU if there is one.

    Attributes:
        encoder_: the `HashEncoder`, for logits, embeddings and `save`.
        n_features_in_: columns that were learned from.
    """

    def __init__(
        self,
        n_bits: int = 64,
        radius: int | None = None,
        *,
        objective: Objective = "auto",
        packed: bool = False,
        width: int | None = None,
        dissimilar_weight: float = 300.0,
        steps: int = 2000,
        batch_size: int = 256,
        group_size: int = 4,
        learning_rate: float = 2e-3,
        random_state: int = 0,
        device: str = "auto",
    ) -> None:
        self.n_bits = n_bits
        self.radius = radius
        self.objective = objective
        self.packed = packed
        self.width = width
        self.dissimilar_weight = dissimilar_weight
        self.steps = steps
        self.batch_size = batch_size
        self.group_size = group_size
        self.learning_rate = learning_rate
        self.random_state = random_state
        self.device = device

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """The transformer itself, having learned: rows of equal label are similar; without labels, near rows are.

        Args:
            X: (rows, columns), at least two rows.
            y: (rows,) labels: integers or text. None: the 10 nearest neighbours of each row are similar.

        Raises:
            ValueError: X or y is not what it must be; says why.
        """
        rows = validate_data(self, X, dtype=[np.float32, np.float64], ensure_min_samples=2)
        labels = None if y is None else Labels(_labels(y, len(rows)))
        # As many as the largest group of similar rows, itself included.
        most = len(rows) if labels is None else 1 + int(labels.counts().max())
        if most < 2:
            raise InputError("no two rows of y have the same label; expected some that have: pass y=None to learn by X")
        group_size = min(self.group_size, most)
        encoder = HashEncoder(
            self.n_bits,
            self.radius,
            objective=self.objective,
            width=self.width,
            dissimilar_weight=self.dissimilar_weight,
            steps=self.steps,
            batch_size=self.batch_size,
            group_size=group_size,
            learning_rate=self.learning_rate,
            seed=self.random_state,
            device=self.device,
        )
        self.encoder_ = encoder.fit(rows, labels, markers=None if labels is None else labels.markers(group_size))
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.uint8]:
        """Codes of the rows: bits, (rows, n_bits), or bytes, (rows, n_bits / 8), where `packed`.

        Raises:
            sklearn.exceptions.NotFittedError: nothing is learned yet.
            ValueError: X is not what it must be; says why.
        """
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=[np.float32, np.float64], reset=False)
        codes = self.encoder_.encode(rows)
        return codes if self.packed else unpack(codes, self.encoder_.n_bits)

    @property
    def _n_features_out(self) -> int:
        """Columns of what `transform` gives, as scikit-learn names them."""
        n_bits = self.encoder_.n_bits
        return n_bits // 8 if self.packed else n_bits

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # Bits are uint8, whatever the input is.
        tags.transformer_tags.preserves_dtype = []
        return tags


def _labels(y: ArrayLike, n_rows: int) -> NDArray[Any]:
    labels = np.asarray(y)
    if labels.shape != (n_rows,):
        raise InputError(f"y has shape {labels.shape}; expected ({n_rows},): one label for each row")
    if labels.dtype.kind == "f":
        if not np.array_equal(labels, np.rint(labels)):
            raise InputError("y holds fractions; expected labels: integers or text")
        labels = labels.astype(np.int64)
    return labels.astype(str) if labels.dtype.kind == "O" else labels
