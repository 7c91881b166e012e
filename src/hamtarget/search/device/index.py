"""The side of a device that `FlatIndex` sees: it is opened, holds rows, and answers requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hamtarget.answer import Answer, Costs
from hamtarget.codes import check_n_bits
from hamtarget.errors import DtypeError, InputError, MissingExtraError

try:
    import torch
except ImportError as error:
    raise MissingExtraError(
        f"torch cannot be imported ({error}); FlatIndex(device=...) is built on it: pip install 'hamtarget[learn]'"
    ) from error

from hamtarget.search.device.rows import DeviceRows
from hamtarget.search.device.searching import DeviceSearch, allowed_rows, scan_for

if TYPE_CHECKING:
    from hamtarget.search.requests import Request

_KINDS = ("cpu", "cuda")


class DeviceScanner:
    """Rows on a device, and the requests that are answered there.

    Attributes:
        rows: the rows.
    """

    def __init__(self, n_bits: int, device: str) -> None:
        """Hold no rows yet.

        Raises:
            InputError: there is no such device, or `n_bits` is not a multiple of 8 from 8 to 4,096.
            DtypeError: `n_bits` is not an integer, or `device` not a string.
        """
        place = _checked(device)
        self.rows = DeviceRows(check_n_bits(n_bits) // 8, place)
        self._scan = scan_for(place)

    @property
    def device(self) -> str:
        """The device, as torch names it."""
        return str(self.rows.device)

    def find(self, request: Request) -> Answer:
        """Return the hits of a request.

        Raises:
            InputError: it has a budget, which a device does not keep.
            LimitError: the work reached one of its limits.
        """
        if request.logits is not None:
            raise InputError("budget is given to an index on a device, which reads every row anyway: leave it out")
        rows = self.rows.snapshot()
        allowed = allowed_rows(rows, request.ids, request.mask)
        search = DeviceSearch(
            rows,
            self._scan,
            allowed=None if allowed is None else torch.from_numpy(allowed).to(self.rows.device),
            limits=request.limits,
        )
        offsets, found, distances = search.within(self.rows.words_of(request.codes), request.radius, request.limit)
        return Answer(
            offsets,
            rows.ids_of(found),
            distances,
            costs=_costs(len(request.codes), len(rows.ids)) if request.costs else None,
        )


def _costs(n_queries: int, n_rows: int) -> Costs:
    none = np.zeros(n_queries, np.int64)
    return Costs(none, np.full(n_queries, n_rows, np.int64), none)


def _checked(device: str) -> torch.device:
    if not isinstance(device, str):
        raise DtypeError(f"device is {device!r}; expected a string: {_listed(_KINDS)}")
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise InputError(f"device is {device!r}; expected {_listed(_KINDS)}") from error
    if place.type not in _KINDS:
        raise InputError(f"device is {device!r}; expected {_listed(_KINDS)}")
    if place.type == "cuda":
        n_devices = torch.cuda.device_count()
        if not torch.cuda.is_available() or (place.index or 0) >= n_devices:
            raise InputError(
                f"device is {device!r}; torch {torch.__version__} sees {n_devices} CUDA GPUs here: leave device out, "
                "or install a torch that fits the GPU's driver"
            )
        place = torch.device("cuda", torch.cuda.current_device() if place.index is None else place.index)
    return place


def _listed(names: Sequence[str]) -> str:
    return " or ".join(repr(name) for name in names)
