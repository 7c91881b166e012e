"""Every error that hamtarget raises on purpose.

    HamtargetError
    |-- InputError (ValueError)      an argument or an array is not what the call needs
    |   |-- ShapeError               wrong number of dimensions, rows or columns
    |   |-- DtypeError (TypeError)   wrong element type
    |   |-- NotFiniteError           NaN or infinity where finite numbers are needed
    |   |-- SimilarityError          the similarity cannot form groups of the size asked for
    |   `-- ImageError               an image is damaged, too large, or not an image
    |-- FileError                    a file cannot be used
    |   |-- CorruptFileError         truncated, altered, or not of this kind
    |   |   `-- LostChangesError     the last changes of a store are missing
    |   |-- UnsupportedFileError     intact, but of a version or format that this release cannot read
    |   |-- LockedError              another writer has it open
    |   |-- ReadOnlyError            opened for reading only, or the system does not allow writing there
    |   `-- WriteError               the disk is full or fails; nothing was changed
    |-- ServerError                  a database server cannot be reached, or the connection broke
    |   `-- PrivilegeError           the server does not allow this user to do what was asked
    |-- LimitError                   a request reached its deadline or another of its limits, or was cancelled
    |-- ClosedError                  the store was closed, or was opened by another process
    |-- ServiceError                 a service refused a request, failed, or did not answer
    |   `-- BusyError                the service is overloaded; try again later
    |-- NotFittedError               the encoder has not been fitted yet
    |-- TrainingError                training cannot continue
    `-- MissingExtraError (ImportError)  an optional dependency is not installed

The text of an error says what was found, what was expected and, where it is not obvious, what to do.

Three warnings tell of results that are probably not what the caller wants:

    CrowdedCodesWarning (UserWarning)  many dissimilar inputs have codes within the radius
    InputRangeWarning (UserWarning)    inputs are on another scale than those that were learned from
    LostChangesWarning (UserWarning)   the last changes of a store are missing, and it is read without them

Example:
    >>> from hamtarget import codes
    >>> try:
    ...     codes.pack([1, 0, 1])
    ... except InputError as error:
    ...     print(error)
    n_bits is 3; expected a multiple of 8 from 8 to 4,096
"""

from __future__ import annotations

__all__ = [
    "BusyError",
    "ClosedError",
    "CorruptFileError",
    "CrowdedCodesWarning",
    "DtypeError",
    "FileError",
    "HamtargetError",
    "ImageError",
    "InputError",
    "InputRangeWarning",
    "LimitError",
    "LockedError",
    "LostChangesError",
    "LostChangesWarning",
    "MissingExtraError",
    "NotFiniteError",
    "NotFittedError",
    "PrivilegeError",
    "ReadOnlyError",
    "ServerError",
    "ServiceError",
    "ShapeError",
    "SimilarityError",
    "TrainingError",
    "UnsupportedFileError",
    "WriteError",
]


class HamtargetError(Exception):
    """Base class of every error of this package."""


class InputError(HamtargetError, ValueError):
    """An argument or an array is not what the call needs."""


class ShapeError(InputError):
    """An array has the wrong number of dimensions, rows or columns."""


class DtypeError(InputError, TypeError):
    """An argument or the elements of an array have the wrong type."""


class NotFiniteError(InputError):
    """An array holds NaN or infinity where finite numbers are needed."""


class SimilarityError(InputError):
    """The similarity cannot form groups of the size asked for."""


class ImageError(InputError):
    """An image is damaged, too large, or not an image."""


class FileError(HamtargetError):
    """A file cannot be used."""


class CorruptFileError(FileError):
    """A file is truncated, altered, or not of this kind."""


class LostChangesError(CorruptFileError):
    """The last changes of a store were acknowledged and are missing, as after damage of its log.

    Attributes:
        n_changes: how many are missing.
    """

    def __init__(self, message: str, *, n_changes: int = 0) -> None:
        super().__init__(message)
        self.n_changes = n_changes


class UnsupportedFileError(FileError):
    """A file is intact, but of a version or format that this release cannot read."""


class LockedError(FileError):
    """Another writer has the file open. Only one writer is allowed at a time."""


class ReadOnlyError(FileError):
    """The file was opened for reading only, or the system does not allow writing there."""


class WriteError(FileError):
    """The disk is full or fails. The change is not on disk, and what was there before is unchanged."""


class ServerError(HamtargetError):
    """A database server cannot be reached, or the connection broke.

    A change that was under way has been made completely or not at all.
    """


class PrivilegeError(ServerError):
    """A database server does not allow this user to do what was asked."""


class LimitError(HamtargetError):
    """Work reached one of its bounds, or was cancelled. It changed nothing.

    Attributes:
        limit: which one: "seconds", "rows", "hits", "bytes" or "cancelled".
    """

    def __init__(self, message: str, *, limit: str) -> None:
        super().__init__(message)
        self.limit = limit


class ClosedError(HamtargetError):
    """The store was closed, or was opened by another process than this one."""


class ServiceError(HamtargetError):
    """A service refused a request, failed, or did not answer.

    Attributes:
        status: the HTTP status; 0 if there was no answer.
        kind: the service's one-word name of the problem.
    """

    def __init__(self, message: str, *, status: int = 0, kind: str = "unreachable") -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class BusyError(ServiceError):
    """A service is overloaded at the moment.

    Attributes:
        retry_after: seconds to wait before trying again.
    """

    retry_after: float = 1.0


class NotFittedError(HamtargetError):
    """The encoder has not been fitted yet: call `fit` or `load` first."""


class TrainingError(HamtargetError):
    """Training cannot continue: the loss is no longer a finite number, or nearly all inputs have got one code."""


class MissingExtraError(HamtargetError, ImportError):
    """An optional dependency is not installed. The error names the extra to install."""


class CrowdedCodesWarning(UserWarning):
    """Many dissimilar inputs have codes within the radius, so a search finds too much."""


class InputRangeWarning(UserWarning):
    """Inputs are on another scale than those that were learned from, such as 0 to 1 instead of 0 to 255."""


class LostChangesWarning(UserWarning):
    """The last changes of a store are missing, and it is read, or written, without them."""


def __dir__() -> list[str]:
    return __all__
