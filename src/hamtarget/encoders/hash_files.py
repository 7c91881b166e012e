"""Hashes of pictures and texts by name, and the files that keep such a name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from hamtarget._reading import parse_json, reason_of
from hamtarget.encoders.picture_hashes import HASH_FORMAT, PDQ, DHash, PHash, PictureHash
from hamtarget.encoders.protocol import Encoder
from hamtarget.encoders.texts.simhash import TEXT_HASH_FILE_NAME, TEXT_HASH_FORMAT, SimHash64
from hamtarget.errors import CorruptFileError, FileError, UnsupportedFileError

PICTURE_HASHES: dict[str, type[PictureHash]] = {kind.name: kind for kind in (PHash, DHash, PDQ)}
TEXT_HASHES: dict[str, type[SimHash64]] = {SimHash64.name: SimHash64}

Hash = TypeVar("Hash", bound=Encoder)

# A larger file is none that `save` wrote.
_MAX_FILE_BYTES = 10_000


def open_hash_file(path: Path) -> Encoder:
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
        raise FileError(f"{path}: {reason_of(error)}; expected a saved hash") from error
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"{path} is no text; restore it or save the encoder again") from error
    found = parse_json(text, where=str(path))
    if not isinstance(found, dict):
        raise CorruptFileError(f"{path} holds no object; restore it or save the encoder again")
    if path.name == TEXT_HASH_FILE_NAME:
        return _named(found, path, "text_hash", TEXT_HASH_FORMAT, TEXT_HASHES)()
    return _named(found, path, "picture_hash", HASH_FORMAT, PICTURE_HASHES)()


def _named(found: dict[str, Any], path: Path, field: str, format: int, known: Mapping[str, type[Hash]]) -> type[Hash]:
    name = found.get(field)
    if found.get("format") != format or not isinstance(name, str) or name not in known:
        raise UnsupportedFileError(
            f"{path}: format {str(found.get('format'))[:40]}, hash {str(name)[:40]!r}; this version knows format "
            f"{format} and {', '.join(known)}: upgrade hamtarget"
        )
    return known[name]
