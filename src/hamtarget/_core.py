"""The native core; where it is not built, every use of it raises an error that says how to get it.

A module may import `_native` from here either way. So a scan on a device, which uses nothing of it, runs without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from hamtarget.errors import MissingExtraError

_why_not = ""

if TYPE_CHECKING:
    from hamtarget import _native as _native
else:
    try:
        from hamtarget import _native as _native
    except ImportError as error:
        _why_not = str(error)

        class _Missing:
            def __getattr__(self, name: str) -> NoReturn:
                refuse(name)

        _native = _Missing()


def refuse(used: object) -> NoReturn:
    """Raise the error of a native core that is not there.

    Raises:
        MissingExtraError: always.
    """
    raise MissingExtraError(
        f"the native core hamtarget._native cannot be imported ({_why_not}); indexes, stores and PDQ are built on it: "
        "run `pip install .` in the source folder (it needs a C++20 compiler)"
    )
