"""The native core, or an error that says how to get it."""

from hamtarget.errors import MissingExtraError

try:
    from hamtarget import _native as _native
except ImportError as error:
    raise MissingExtraError(
        f"the native core hamtarget._native cannot be imported ({error}); indexes and stores are built on it: "
        "run `pip install .` in the source folder (it needs a C++20 compiler)"
    ) from error
