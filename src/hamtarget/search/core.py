"""The native core; where it is not built, stand-ins whose use raises an error that says how to get it.

So a scan on a device, which needs nothing of the core, runs without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from hamtarget.errors import MissingExtraError

if TYPE_CHECKING:
    from hamtarget import _native as _native
else:
    try:
        from hamtarget import _native as _native
    except ImportError as missing:
        _reason = str(missing)

        def _refuse() -> NoReturn:
            raise MissingExtraError(
                f"the native core hamtarget._native cannot be imported ({_reason}); indexes and stores are built on "
                "it: run `pip install .` in the source folder (it needs a C++20 compiler)"
            )

        class _Refusing(type):
            """The type of classes of the core that is not there: to make or to use one raises the error."""

            def __call__(cls, *arguments: Any, **options: Any) -> NoReturn:
                _refuse()

            def __getitem__(cls, name: str) -> NoReturn:
                _refuse()

            def __getattr__(cls, name: str) -> NoReturn:
                if name.startswith("__"):
                    raise AttributeError(name)
                _refuse()

        class _Absent:
            """The core that is not there: every class of it can be named, and none can be used."""

            def __getattr__(self, name: str) -> type:
                return _Refusing(name, (), {})

        _native = _Absent()
