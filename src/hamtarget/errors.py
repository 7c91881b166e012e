"""Every error that hamtarget raises on purpose.

    HamtargetError
    |-- InputError (ValueError)      an argument or an array is not what the call needs
    |   |-- ShapeError               wrong number of dimensions, rows or columns
    |   |-- DtypeError (TypeError)   wrong element type
    |   |-- NotFiniteError           NaN or infinity where numbers are needed
    |   |-- SimilarityError          the similarity cannot form the groups that were asked for
    |   `-- ImageError               an image is damaged, too large, or none
    |-- FileError                    a file cannot be used
    |   |-- CorruptFileError         truncated, altered, or not of this kind
    |   |-- UnsupportedFileError     whole, but of a version or format that this one cannot read
    |   |-- LockedError              another writer has it open
    |   |-- ReadOnlyError            opened for reading only, or the system lets nobody write there
    |   `-- WriteError               the disk is full or fails; nothing was changed
    |-- ServerError                  a database server cannot be reached, or broke off
    |   `-- PrivilegeError           it does not let this user do what was asked
    |-- ClosedError                  the store was closed, or was opened by another process
    |-- ServiceError                 a service refused a request, failed, or did not answer
    |   `-- BusyError                it has too much to do at the moment; try again later
    |-- NotFittedError               the encoder has learned nothing yet
    |-- TrainingError                training cannot go on: the loss is no longer a number
    |   `-- CollapseError            training cannot go on: nearly all inputs have one code
    `-- MissingExtraError (ImportError)  an optional dependency is not installed

An error's text says what was found, what was expected and, where it is not obvious, what to do.

Two warnings tell of results that are probably not what the caller wants:

    HamtargetWarning (UserWarning)
    |-- CrowdedCodesWarning          many dissimilar inputs have codes within the radius
    `-- InputRangeWarning            inputs have another range than those that were learned from
"""

from __future__ import annotations


class HamtargetError(Exception):
    """Base of every error of this package."""


class InputError(HamtargetError, ValueError):
    """An argument or an array is not what the call needs."""


class ShapeError(InputError):
    """Wrong number of dimensions, rows or columns."""


class DtypeError(InputError, TypeError):
    """Wrong element type."""


class NotFiniteError(InputError):
    """NaN or infinity where numbers are needed."""


class SimilarityError(InputError):
    """The similarity cannot form the groups that were asked for."""


class ImageError(InputError):
    """An image is damaged, too large, or none."""


class FileError(HamtargetError):
    """A file cannot be used."""


class CorruptFileError(FileError):
    """A file is truncated, altered, or not of this kind."""


class UnsupportedFileError(FileError):
    """A file is whole, but of a version or format that this one cannot read."""


class LockedError(FileError):
    """Another writer has the file open: there is one at a time."""


class ReadOnlyError(FileError):
    """It was opened for reading only, or the system lets nobody write there."""


class WriteError(FileError):
    """The disk is full or fails: what was asked is not on disk, and nothing was changed."""


class ServerError(HamtargetError):
    """A database server cannot be reached, or broke off; what was being changed is there as a whole or not at all."""


class PrivilegeError(ServerError):
    """A database server does not let this user do what was asked."""


class ClosedError(HamtargetError):
    """The store was closed, or was opened by another process than this one."""


class ServiceError(HamtargetError):
    """A service refused a request, failed, or did not answer.

    Attributes:
        status: of HTTP; 0 where there was no answer.
        kind: one word of the service for what is wrong.
    """

    def __init__(self, message: str, *, status: int = 0, kind: str = "unreachable") -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class BusyError(ServiceError):
    """A service has too much to do at the moment.

    Attributes:
        retry_after: seconds after which to try again.
    """

    retry_after: float = 1.0


class NotFittedError(HamtargetError):
    """The encoder has learned nothing yet: call `fit` or `load` first."""


class TrainingError(HamtargetError):
    """Training cannot go on."""


class CollapseError(TrainingError):
    """Training cannot go on: nearly all inputs have one code."""


class MissingExtraError(HamtargetError, ImportError):
    """An optional dependency is not installed."""


class HamtargetWarning(UserWarning):
    """Base of every warning of this package."""


class CrowdedCodesWarning(HamtargetWarning):
    """Many dissimilar inputs have codes within the radius: a search finds too much."""


class InputRangeWarning(HamtargetWarning):
    """Inputs have another range than those that were learned from, such as 0 to 1 instead of 0 to 255."""
