"""The HTTP service of a store, and its page. Nothing else in the package imports it, except the command line.

>>> from hamtarget.client import Client
>>> from hamtarget.serve import ServiceSettings, serving
>>> store = Store.create("store", n_bits=64)
>>> with serving(store, ServiceSettings(port=0)) as address, Client(address) as client:
...     client.stats()["items"]
0
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hamtarget.errors import MissingExtraError as _MissingExtraError
from hamtarget.serve.service_settings import ServiceSettings

if TYPE_CHECKING:
    from hamtarget.serve.running import run, serving

__all__ = ["ServiceSettings", "run", "serving"]

_HOMES = {"run": "hamtarget.serve.running", "serving": "hamtarget.serve.running"}
_PACKAGES = (
    "fastapi",
    "httptools",
    "multipart",
    "prometheus_client",
    "pydantic",
    "python_multipart",
    "starlette",
    "uvicorn",
)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hamtarget.serve' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        raise _MissingExtraError(f"{error.name} is not installed; to serve: pip install 'hamtarget[serve]'") from error


def __dir__() -> list[str]:
    return __all__
