"""Tokens of a service, and the file that keeps their hashes.

The file is JSON:

    {"hamtarget_tokens": 1,
     "tokens": [{"name": "shop", "role": "read", "created": "2026-01-31T12:00:00Z", "expires": "2027-01-31T12:00:00Z",
                 "salt": "<32 hexadecimal digits>", "sha256": "<64 hexadecimal digits>"}]}

`sha256` is that of the salt's bytes followed by the token. A slow hash such as scrypt protects passwords, which people
choose and others can guess. These tokens are 256 random bits: whoever reads the file cannot guess one, however fast the
hash is, and a fast hash leaves more of the machine to those who ask.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast, get_args

from hamtarget._files import write_atomically
from hamtarget.errors import CorruptFileError, FileError, InputError, UnsupportedFileError

Role = Literal["read", "write", "admin"]
"""What a token allows; each role allows what those before it allow, too."""
ROLES: tuple[Role, ...] = get_args(Role)

MAX_TOKENS = 256
_VERSION = 1
_VERSION_KEY = "hamtarget_tokens"
_MAX_FILE_BYTES = 2**20
_TOKEN_BYTES = 32
_SALT_BYTES = 16
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KEYS = {"name", "role", "created", "expires", "salt", "sha256"}


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """A token as the service knows it: its name, its role, and its hash.

    Attributes:
        name: name of whoever holds it; the access log has it. Two tokens may have one name while one replaces the
            other.
        role: what it allows.
        salt: random bytes that are hashed before the token.
        digest: SHA-256 of the salt and the token.
        created: when it was made.
        expires: when it stops being valid; None: never.
    """

    name: str
    role: Role
    salt: bytes = field(repr=False)
    digest: bytes = field(repr=False)
    created: datetime | None = None
    expires: datetime | None = None

    @classmethod
    def of(cls, name: str, role: str, token: str, *, expires: datetime | None = None) -> TokenEntry:
        """Return the entry of a token."""
        salt = secrets.token_bytes(_SALT_BYTES)
        created = datetime.now(UTC).replace(microsecond=0)
        return cls(_checked_name(name), _checked_role(role), salt, _hash(salt, token.encode("ascii")), created, expires)

    def is_of(self, token: bytes) -> bool:
        """Return True if this is the entry of a token; how long that takes tells nothing."""
        return hmac.compare_digest(_hash(self.salt, token), self.digest)

    def is_valid(self, now: float) -> bool:
        """Return True if the token has not expired at this time (seconds since 1970)."""
        return self.expires is None or now < self.expires.timestamp()


def new_token() -> str:
    """Return a new random token of 256 bits."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def read_tokens(path: Path) -> list[TokenEntry]:
    """Return the entries of a tokens file.

    Raises:
        FileError: the file cannot be read, or every user of this machine may write it.
        CorruptFileError: it is no tokens file, or an entry is not what it must be; hashes are not shown.
        UnsupportedFileError: it is of a later version.
    """
    if path.exists() and not path.is_file():
        # Opening a pipe would wait for somebody who writes into it.
        raise FileError(f"{path} is no ordinary file; expected a tokens file, as hamtarget token add makes")
    try:
        with path.open("rb") as file:
            if os.name == "posix" and os.fstat(file.fileno()).st_mode & stat.S_IWOTH:
                raise FileError(f"{path} can be written by every user of this machine; chmod 600 {path}")
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}; hamtarget token add makes a tokens file") from error
    if len(content) > _MAX_FILE_BYTES:
        raise CorruptFileError(f"{path} has more than {_MAX_FILE_BYTES:,} bytes; expected a tokens file")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        # The parser's message may quote what it read.
        raise CorruptFileError(f"{path} is not JSON; expected a tokens file, as hamtarget token add makes") from None
    if not isinstance(document, dict) or _VERSION_KEY not in document:
        raise CorruptFileError(f"{path} is no tokens file; expected an object with {_VERSION_KEY!r} and 'tokens'")
    if document[_VERSION_KEY] != _VERSION:
        raise UnsupportedFileError(f"{path} is a tokens file of another version; this release reads version {_VERSION}")
    entries = document.get("tokens")
    if not isinstance(entries, list) or document.keys() != {_VERSION_KEY, "tokens"}:
        raise CorruptFileError(f"{path} has no list 'tokens', or other fields beside it")
    if len(entries) > MAX_TOKENS:
        raise CorruptFileError(f"{path} has {len(entries):,} tokens; expected at most {MAX_TOKENS}")
    return [_parsed(path, place, entry) for place, entry in enumerate(entries)]


@contextmanager
def editing_tokens(path: Path) -> Iterator[list[TokenEntry]]:
    """Lend the entries of a tokens file, which may be missing yet, and replace the file by them at the end.

    Others who edit the file wait meanwhile. The new file belongs to the owner of the old one, and only the owner, and a
    group that could read the old one, can read it. An error in the block leaves the file as it was.

    Raises:
        FileError: the file cannot be read or written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path.parent):
            before = path.stat() if path.exists() else None
            entries = [] if before is None else read_tokens(path)
            yield entries
            if len(entries) > MAX_TOKENS:
                raise InputError(f"there would be {len(entries):,} tokens; expected at most {MAX_TOKENS}")
            document = {_VERSION_KEY: _VERSION, "tokens": [_document(entry) for entry in entries]}
            mode = 0o600 if before is None else 0o600 | before.st_mode & stat.S_IRGRP
            write_atomically(path, (json.dumps(document, indent=1) + "\n").encode(), mode=mode)
            if before is not None and (before.st_uid, before.st_gid) != (path.stat().st_uid, path.stat().st_gid):
                # Else a file that root has edited could no longer be read by the service.
                os.chown(path, before.st_uid, before.st_gid)
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror}") from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time edit files of a folder in this way."""
    if os.name != "posix":
        yield
        return
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _document(entry: TokenEntry) -> dict[str, str]:
    times = {"created": entry.created, "expires": entry.expires}
    return {
        "name": entry.name,
        "role": entry.role,
        **{key: time_text(each) for key, each in times.items() if each is not None},
        "salt": entry.salt.hex(),
        "sha256": entry.digest.hex(),
    }


def time_text(moment: datetime) -> str:
    """Return a time in UTC as a tokens file has it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _parsed(path: Path, place: int, entry: Any) -> TokenEntry:
    where = f"{path}: token {place}"
    if not isinstance(entry, dict) or not (_KEYS - {"created", "expires"} <= entry.keys() <= _KEYS):
        expected = "name, role, salt, sha256, and perhaps created and expires"
        raise CorruptFileError(f"{where} has not the fields of a token; expected {expected}")
    try:
        name, role = _checked_name(entry["name"]), _checked_role(entry["role"])
    except InputError as error:
        raise CorruptFileError(f"{where}: {error}") from None
    salt = _bytes(entry["salt"], _SALT_BYTES)
    digest = _bytes(entry["sha256"], hashlib.sha256().digest_size)
    if salt is None or digest is None:
        raise CorruptFileError(f"{where} ({name}): expected a salt of 32 and a sha256 of 64 hexadecimal digits")
    created, expires = (_time(entry[key]) if key in entry else None for key in ("created", "expires"))
    if any(key in entry and each is None for key, each in (("created", created), ("expires", expires))):
        raise CorruptFileError(f"{where} ({name}): expected times such as 2027-01-31T12:00:00Z")
    return TokenEntry(name, role, salt, digest, created, expires)


def _time(text: object) -> datetime | None:
    """Return a time with its zone; None if the text is none."""
    try:
        moment = datetime.fromisoformat(cast(str, text))
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo is not None else None


def _bytes(text: object, length: int) -> bytes | None:
    if not isinstance(text, str) or len(text) != 2 * length:
        return None
    try:
        return bytes.fromhex(text) if text.isalnum() else None
    except ValueError:
        return None


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or _is_address(name):
        # A token that was given in the place of the name is not shown.
        raise InputError("the name of a token has 1 to 64 letters, digits and .-_ and is no address, such as shop-1")
    return name


def _is_address(name: str) -> bool:
    """Return True for a name that the access log, and who shares the service, would take for a peer's address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _checked_role(role: object) -> Role:
    if role not in ROLES:
        raise InputError(f"the role of a token is one of {', '.join(ROLES)}")
    return role


def _hash(salt: bytes, token: bytes) -> bytes:
    return hashlib.sha256(salt + token).digest()


def remove_tokens(entries: list[TokenEntry], name: str, *, keep_newest: bool = False) -> int:
    """Remove the entries of a name, all of them or all but the last, and return how many there were.

    Raises:
        InputError: there is no token of this name, or none to remove.
    """
    own = [entry for entry in entries if entry.name == name]
    if not own:
        raise InputError("there is no token of this name; hamtarget token list FILE shows all")
    if keep_newest:
        own.pop()
    if not own:
        raise InputError(f"there is one token {name} only; nothing was removed")
    for entry in own:
        entries.remove(entry)
    return len(own)
