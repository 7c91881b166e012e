"""Picture hashes by name, and the files that keep such a name."""

from __future__ import annotations

from pathlib import Path

from hamtarget._reading import parse_json, reason_of
from hamtarget.encoders.dhash import DHash
from hamtarget.encoders.pdq import PDQ
from hamtarget.encoders.phash import PHash
from hamtarget.encoders.picture_hash import HASH_FORMAT, PictureHash
from hamtarget.errors import CorruptFileError, FileError, UnsupportedFileError

PICTURE_HASHES: dict[str, type[PictureHash]] = {kind.name: kind for kind in (PHash, DHash, PDQ)}

# A larger file is none that `save` wrote.
_MAX_FILE_BYTES = 10_000


def open_hash_file(path: Path) -> PictureHash:
    """Return the hash that a file names.

    Raises:
        FileError: the file cannot be read.
        CorruptFileError: it is damaged.
        UnsupportedFileError: a later version wrote it.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES)
        text = content.decode()
    except OSError as error:
        raise FileError(f"{path}: {reason_of(error)}; expected a saved picture hash") from error
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"{path} is no text; restore it or save the encoder again") from error
    found = parse_json(text, where=str(path))
    if not isinstance(found, dict):
        raise CorruptFileError(f"{path} holds no object; restore it or save the encoder again")
    name = found.get("picture_hash")
    if found.get("format") != HASH_FORMAT or not isinstance(name, str) or name not in PICTURE_HASHES:
        raise UnsupportedFileError(
            f"{path}: format {str(found.get('format'))[:40]}, hash {str(name)[:40]!r}; this version knows format "
            f"{HASH_FORMAT} and {', '.join(PICTURE_HASHES)}: upgrade hamtarget"
        )
    return PICTURE_HASHES[name]()
