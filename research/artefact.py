"""One file that holds many, for a release: packed the same way each time, and read without trust.

    python -m research.artefact pack FOLDER FILE.tar.xz     # every file below a folder
    python -m research.artefact unpack FILE.tar.xz FOLDER   # into a folder that is new or empty

It is a tar file, compressed by xz, so that `tar xf` opens it, too. Its first member is `manifest.json`, with the size
and the SHA-256 of every other. Equal files make an equal artefact: names are sorted, and no times or owners are kept.

Who reads an artefact of a stranger gets what the manifest lists or a `CorruptFileError`: sizes are bounded while it is
decompressed, names cannot leave the folder, and links, devices and unlisted members are refused.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import lzma
import re
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from hamtarget._files import write_atomically
from hamtarget.errors import CorruptFileError, FileError, HamtargetError, InputError, UnsupportedFileError

VERSION = 1
MANIFEST = "manifest.json"
MAX_BYTES = 1 << 30
"""Most bytes of an artefact once it is decompressed."""
MAX_FILES = 10_000
# The preset that packs needs 9 MiB to unpack; a forged file may ask for gigabytes.
_PRESET = 6 | lzma.PRESET_EXTREME
_MEMORY = 64 << 20
_STEP = 1 << 20
# Parts of a name begin with a letter, a digit or an underscore: no hidden files, no `..`, nothing absolute.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,+=-]*(/[A-Za-z0-9_][A-Za-z0-9_.,+=-]*){0,7}")
_LONGEST_NAME = 255


def pack(files: Mapping[str, bytes], about: Mapping[str, Any]) -> bytes:
    """Return an artefact.

    Args:
        files: content by name; folders in a name end with `/`.
        about: what it is, for the manifest; JSON.

    Raises:
        InputError: a name is not allowed, or there is too much.
    """
    for name in files:
        _check_name(name, InputError)
        if name == MANIFEST:
            raise InputError(
                f"a file is named {MANIFEST}; expected another name, since the artefact writes one of its own"
            )
    total = sum(map(len, files.values()))
    if len(files) > MAX_FILES or total > MAX_BYTES:
        raise InputError(f"{len(files):,} files of {total:,} bytes; expected at most {MAX_FILES:,} and {MAX_BYTES:,}")
    listed = {
        name: {"bytes": len(files[name]), "sha256": hashlib.sha256(files[name]).hexdigest()} for name in sorted(files)
    }
    manifest = {"version": VERSION, "about": dict(about), "files": listed}
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        _add(archive, MANIFEST, (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode())
        for name in sorted(files):
            _add(archive, name, files[name])
    return lzma.compress(content.getvalue(), preset=_PRESET, check=lzma.CHECK_CRC64)


def unpack(content: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return what an artefact is about, and its files.

    Raises:
        CorruptFileError: it is damaged or forged.
        UnsupportedFileError: a later version wrote it.
    """
    members = _members(_decompressed(content))
    try:
        manifest = json.loads(members.pop(MANIFEST))
        version, about, listed = manifest["version"], manifest["about"], manifest["files"]
        wanted = {str(name): (int(entry["bytes"]), str(entry["sha256"])) for name, entry in listed.items()}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise CorruptFileError(f"the artefact has no {MANIFEST} that can be read: {error}; fetch it again") from error
    if version != VERSION:
        raise UnsupportedFileError(f"the artefact is of version {version!r}; expected {VERSION}: update this checkout")
    if wanted.keys() != members.keys():
        others = sorted(wanted.keys() ^ members.keys())
        raise CorruptFileError(f"{others[0]} is in the artefact or in its manifest, not in both; fetch it again")
    for name, (size, digest) in wanted.items():
        if len(members[name]) != size or hashlib.sha256(members[name]).hexdigest() != digest:
            raise CorruptFileError(f"{name} has another content than the manifest says; fetch the artefact again")
    if not isinstance(about, dict):
        raise CorruptFileError(f"the manifest's `about` is of type {type(about).__name__}; expected an object")
    return about, members


def read(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return what the artefact in a file is about, and its files.

    Raises:
        FileError: the file cannot be read.
        CorruptFileError, UnsupportedFileError: see `unpack`.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from error
    return unpack(content)


def pack_folder(folder: Path, path: Path) -> int:
    """Pack all files below a folder, and return their number.

    Raises:
        InputError: there is none, or something is no plain file.
    """
    files = {}
    for found in sorted(folder.rglob("*")):
        if found.is_symlink() or not (found.is_file() or found.is_dir()):
            raise InputError(f"{found} is a link or a device; expected plain files")
        if found.is_file():
            files[found.relative_to(folder).as_posix()] = found.read_bytes()
    if not files:
        raise InputError(f"there is no file in {folder}; expected some to pack")
    write_atomically(path, pack(files, {"kind": "files"}))
    return len(files)


def unpack_into(path: Path, folder: Path) -> int:
    """Write the files of an artefact into a folder that is new or empty, and return their number.

    Raises:
        InputError: there is something in the folder.
        FileError, CorruptFileError, UnsupportedFileError: see `read`.
    """
    _, files = read(path)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is not empty; expected a new folder, so that nothing is replaced")
    for name, content in files.items():
        write_atomically(folder / name, content)
    return len(files)


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _decompressed(content: bytes) -> bytes:
    found = bytearray()
    try:
        decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)
        left = content
        while not decompressor.eof:
            found += decompressor.decompress(left, max_length=_STEP)
            # Headers and the ends of members take bytes of their own.
            if len(found) > MAX_BYTES + 1024 * (2 * MAX_FILES + 1) + _STEP:
                raise CorruptFileError(f"the artefact has more than {MAX_BYTES:,} bytes; expected at most so many")
            left = b""
            if decompressor.needs_input and not decompressor.eof:
                raise CorruptFileError("the artefact ends too early; fetch it again")
    except lzma.LZMAError as error:
        raise CorruptFileError(f"the artefact is no xz file, or damaged: {error}; fetch it again") from error
    if decompressor.unused_data:
        raise CorruptFileError("something follows the artefact; fetch it again")
    return bytes(found)


def _members(content: bytes) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for entry in archive:
                _check_name(entry.name, CorruptFileError)
                if not entry.isreg() or entry.issparse():
                    raise CorruptFileError(f"{entry.name} is no plain file; expected nothing else in an artefact")
                if entry.name in found or len(found) > MAX_FILES:
                    raise CorruptFileError(f"{entry.name} comes twice, or after {MAX_FILES:,} other files")
                file = archive.extractfile(entry)
                found[entry.name] = b"" if file is None else file.read()
    except (tarfile.TarError, EOFError, OverflowError, UnicodeError, ValueError) as error:
        if isinstance(error, HamtargetError):
            raise
        raise CorruptFileError(f"the artefact is no tar file, or damaged: {error}; fetch it again") from error
    folders = {str(folder) for name in found for folder in PurePosixPath(name).parents}
    if folders & found.keys():
        raise CorruptFileError(f"{min(folders & found.keys())} is a file and a folder in the artefact; fetch it again")
    return found


def _check_name(name: str, error: type[HamtargetError]) -> None:
    if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        raise error(
            f"a file is named {name[:_LONGEST_NAME]!r}; expected letters, digits and _.,+=- in folders, none hidden"
        )


def main(arguments: list[str] | None = None) -> int:
    """Pack or unpack, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    packing = verbs.add_parser("pack", help="pack every file below a folder")
    packing.add_argument("folder", type=Path)
    packing.add_argument("file", type=Path)
    unpacking = verbs.add_parser("unpack", help="write the files of an artefact into a folder")
    unpacking.add_argument("file", type=Path)
    unpacking.add_argument("folder", type=Path)
    given = parser.parse_args(arguments)
    try:
        if given.verb == "pack":
            count = pack_folder(given.folder, given.file)
            print(f"{given.file}: {count} files, {given.file.stat().st_size:,} bytes")
        else:
            print(f"{given.folder}: {unpack_into(given.file, given.folder)} files")
    except HamtargetError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
