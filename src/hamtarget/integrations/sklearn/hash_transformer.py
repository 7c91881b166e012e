"""HashTransformer: binary codes as a step of a scikit-learn pipeline. Needs scikit-learn and torch."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from hamtarget.codes import unpack
from hamtarget.errors import InputError
from hamtarget.learn import HashEncoder, TrainingOptions
from hamtarget.learn.fitting.objectives import Loss
from hamtarget.learn.networks.builder import Network


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
        """
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


def _labels(y: ArrayLike, n_rows: int) -> NDArray[Any]:
    labels = np.asarray(y)
    if labels.shape != (n_rows,):
        raise InputError(f"y has shape {labels.shape}; expected ({n_rows},): one label for each row")
    if labels.dtype.kind == "f":
        if not np.array_equal(labels, np.rint(labels)):
            raise InputError("y holds fractions; expected labels: integers or text")
        labels = labels.astype(np.int64)
    return labels.astype(str) if labels.dtype.kind == "O" else labels
