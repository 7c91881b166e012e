"""From what a caller passes as `similar`, labels or a function, to a `Similarity`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hamtarget.errors import DtypeError, InputError, ShapeError
from hamtarget.learn.similarity.custom import Custom
from hamtarget.learn.similarity.labels import Labels, MultiLabels
from hamtarget.learn.similarity.relation import Similarity

# What an array with two dimensions has to be, and what other lists of numbers are to be passed as.
_SEVERAL_LABELS = "expected several labels for each input, (rows, labels) of 0 and 1"
_OTHER_LISTS = (
    "For lists of neighbours pass Neighbors(similar), for pairs of item numbers SimilarPairs(similar, n_items)"
)


def as_similarity(similar: Any, n_items: int) -> Similarity:
    """Return `similar` as a Similarity.

    Args:
        similar: a Similarity; one label for each item, (items,); several labels for each, (items, labels) of 0 and 1;
            or a function of item numbers.
        n_items: number of items.

    Raises:
        ShapeError: it does not speak of `n_items` items, or is neither one label nor a row of labels for each.
        DtypeError: a matrix does not hold numbers.
        InputError: a matrix holds other numbers than 0 and 1, or has a column for each item.
    """
    if isinstance(similar, Similarity):
        result = similar
    elif callable(similar):
        result = Custom(similar, n_items)
    else:
        result = _of_array(_array(similar), n_items)
    if result.n_items != n_items:
        raise ShapeError(f"similar speaks of {result.n_items:,} items; there are {n_items:,} inputs")
    return result


def _array(similar: Any) -> NDArray[Any]:
    try:
        return similar.cpu().numpy() if isinstance(similar, Tensor) else np.asarray(similar)
    except ValueError as error:
        raise ShapeError(
            f"similar holds lists of different lengths; {_SEVERAL_LABELS}. {_OTHER_LISTS}, in which items may have "
            "different numbers of partners"
        ) from error


def _of_array(values: NDArray[Any], n_items: int) -> Labels | MultiLabels:
    """Return labels as a Similarity, unless the array may well mean something else."""
    if values.ndim == 1:
        return Labels(values)
    found = f"similar has shape {values.shape}"
    if values.ndim != 2:
        raise ShapeError(f"{found}; expected (rows,), one label for each input, or (rows, labels) of 0 and 1")
    if values.shape[1] == 1:
        raise ShapeError(f"{found}; expected (rows,) for one label each: pass similar.ravel()")
    if values.dtype.kind not in "biuf":
        raise DtypeError(f"{found} and dtype {values.dtype}; {_SEVERAL_LABELS}")
    if not np.isin(values, (0, 1)).all():
        raise InputError(f"{found} and holds other numbers than 0 and 1; {_SEVERAL_LABELS}. {_OTHER_LISTS}")
    if values.shape == (n_items, n_items):
        raise InputError(
            f"{found}, a column for each input: it may tell which inputs are similar, or be as many labels. For the "
            "first pass SimilarPairs(np.argwhere(similar), n_items), for the second MultiLabels(similar)"
        )
    return MultiLabels(values)
