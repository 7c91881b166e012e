"""The content of the file of a `NeighborIndex`: what goes into it, and comes back."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hamtarget._core import _native
from hamtarget.errors import CorruptFileError, HamtargetError
from hamtarget.search.neighbors.building import BYTES_PER_NUMBER, Built
from hamtarget.search.neighbors.curve import Costs, Curve
from hamtarget.search.neighbors.exact import ScannedRows
from hamtarget.search.neighbors.space import LARGEST, MAX_DIMS, MIN_DIMS, VectorSpace, check_metric

_TABLES = ("recall", "error", "candidates", "compared", "seconds")
Arrays = dict[str, NDArray[Any]]


class Saved(NamedTuple):
    """The content of a file.

    Attributes:
        about: what the user asked for: metric, recall, k, seed.
        space: of the vectors.
        rows: scanned, or in cells.
        why: the reason for a scan.
        n_rows_at_fit: rows when everything was chosen.
    """

    about: dict[str, Any]
    space: VectorSpace
    rows: ScannedRows | Built
    why: str
    n_rows_at_fit: int


def saved_to(saved: Saved) -> tuple[dict[str, Any], Arrays]:
    """Return what a file says, and its arrays."""
    space = saved.space
    about: dict[str, Any] = {
        **saved.about,
        "n_dims": space.n_dims,
        "scale": space.scale,
        "are_bytes": space.are_bytes,
        "why": saved.why,
        "n_rows_at_fit": saved.n_rows_at_fit,
    }
    arrays: Arrays = {"offset": space.offset}
    if isinstance(saved.rows, ScannedRows):
        kept = saved.rows.is_alive
        arrays["ids"], arrays["rows"] = saved.rows.ids[kept], saved.rows.rows[kept]
    else:
        built = saved.rows
        state = built.core.state()
        about["built"] = {
            "row_type": built.row_type,
            "n_cells": built.n_cells,
            "dims_per_part": built.dims_per_part,
            "ceilings": built.ceilings,
            "scan_seconds": built.scan_seconds,
            "seconds": built.seconds,
            "curves": [
                {"k": curve.k, "ceiling": curve.ceiling, "whole": curve.whole, "costs": list(curve.costs)}
                for curve in built.curves.values()
            ],
        }
        for curve in built.curves.values():
            arrays[f"curve_{curve.k}_budgets"] = curve.budgets
            arrays[f"curve_{curve.k}_comparisons"] = curve.comparisons
            for table in _TABLES:
                arrays[f"curve_{curve.k}_{table}"] = getattr(curve, table)
        about["core"] = {name: value for name, value in state.items() if not isinstance(value, np.ndarray)}
        arrays.update({f"core_{name}": value for name, value in state.items() if isinstance(value, np.ndarray)})
    return about, arrays


def saved_from(about: dict[str, Any], arrays: Arrays, *, where: str) -> Saved:
    """Return the content of a file.

    Raises:
        CorruptFileError: something is missing, or does not fit together.
    """
    try:
        return _saved_from(about, arrays)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, HamtargetError) as error:
        raise CorruptFileError(
            f"{where}: its parts do not fit together ({error}); restore it from a copy, or fit again"
        ) from error


def _saved_from(about: dict[str, Any], arrays: Arrays) -> Saved:
    n_dims = int(about["n_dims"])
    scale = float(about["scale"])
    if not MIN_DIMS <= n_dims <= MAX_DIMS or not 0 < scale < np.inf:
        raise ValueError("n_dims or scale is out of range")
    offset = _array(arrays, "offset", np.float64, (n_dims,))
    if not np.isfinite(offset).all():
        raise ValueError("offset is not finite")
    space = VectorSpace(check_metric(about["metric"]), n_dims, offset, scale, bool(about["are_bytes"]))
    asked = {name: about[name] for name in ("metric", "recall", "k", "seed")}
    n_rows = int(about["n_rows_at_fit"])
    if "built" not in about:
        ids = _array(arrays, "ids", np.int64, (-1,))
        rows = _array(arrays, "rows", np.float32, (len(ids), n_dims))
        if len(np.unique(ids)) != len(ids) or ids.min(initial=0) < 0 or not (np.abs(rows) <= LARGEST).all():
            raise ValueError("ids or rows are out of range")
        return Saved(asked, space, ScannedRows.of(ids, rows, space.core_metric), str(about["why"]), n_rows)
    told = about["built"]
    if told["row_type"] not in BYTES_PER_NUMBER:
        raise ValueError("row_type is unknown")
    curves = {int(each["k"]): _curve(each, arrays) for each in told["curves"]}
    if not curves:
        raise ValueError("there is no curve")
    state = {name.removeprefix("core_"): array for name, array in arrays.items() if name.startswith("core_")}
    plain = about["core"]
    if (plain["n_dims"], plain["metric"], plain["row_type"]) != (n_dims, space.core_metric, told["row_type"]):
        raise ValueError("cells are of another space")
    core = _native.NeighborCore.from_state({**plain, **state})
    built = Built(
        core,
        told["row_type"],
        int(told["n_cells"]),
        int(told["dims_per_part"]),
        curves,
        {str(name): float(value) for name, value in told["ceilings"].items()},
        float(told["scan_seconds"]),
        {str(name): float(value) for name, value in told["seconds"].items()},
    )
    return Saved(asked, space, built, str(about["why"]), n_rows)


def _curve(told: dict[str, Any], arrays: Arrays) -> Curve:
    k = int(told["k"])
    budgets = _array(arrays, f"curve_{k}_budgets", np.int64, (-1,))
    comparisons = _array(arrays, f"curve_{k}_comparisons", np.int64, (-1,))
    if not len(budgets) or not len(comparisons) or min(budgets.min(), comparisons.min(), k) < 1:
        raise ValueError(f"the curve of k = {k} is empty")
    shape = (len(budgets), len(comparisons))
    tables = {name: _array(arrays, f"curve_{k}_{name}", np.float64, shape) for name in _TABLES}
    costs = Costs(*(float(cost) for cost in told["costs"]))
    return Curve(
        k, budgets, comparisons, **tables, ceiling=float(told["ceiling"]), whole=int(told["whole"]), costs=costs
    )


def _array(arrays: Arrays, name: str, dtype: type, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return an array of the file, checked; -1 stands for any length."""
    array = arrays[name]
    fits = len(array.shape) == len(shape) and all(n in (-1, m) for n, m in zip(shape, array.shape, strict=True))
    if array.dtype != dtype or not fits:
        raise ValueError(f"{name} has dtype {array.dtype} and shape {array.shape}")
    return array
