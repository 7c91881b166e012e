"""Addresses of stores: a database as libpq writes it, and the schema in it that is the store."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import quote, unquote

from hamtarget.errors import InputError

_SCHEMES = ("postgresql", "postgres")
_PARAMETER = "store"
_DEFAULT = "hamtarget"
# PostgreSQL cuts longer names without a word.
_MAX_NAME_BYTES = 63

# What an address must not show has one of these in its parameter's name, as password and sslpassword.
_SECRETS = ("password", "secret", "_key", "token")
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\[\]:]*)(?::(?P<port>[0-9]*))?")
_NO_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ESCAPES = {character: f"%{ord(character):02X}" for character in "@:/#?%&= "}


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a store.

    Attributes:
        conninfo: what libpq takes, as words `name='value'`, its password included.
        schema: the schema that holds the store's tables.
        shown: the whole address without its password, for people.
    """

    conninfo: str = field(repr=False)
    schema: str
    shown: str

    def __str__(self) -> str:
        return self.shown

    @property
    def quoted_schema(self) -> str:
        """The schema as SQL writes it."""
        return '"' + self.schema.replace('"', '""') + '"'


def is_address(path: str | os.PathLike[str]) -> bool:
    """Return True if `path` names a database and not a folder."""
    return isinstance(path, str) and path.partition("://")[0] in _SCHEMES and "://" in path


def parse_address(text: str) -> Address:
    """Return the parts of `postgresql://user:password@host:port/database?store=name`.

    Everything but `store` is libpq's own, as `host` for a socket's folder or `sslmode`; `store` is "hamtarget" by
    default. The address is taken apart here, not by libpq: libpq's messages about an address repeat parts of it, and
    so perhaps of a password in which a character is not escaped.

    Raises:
        InputError: the address cannot be taken apart, or the store's name cannot be that of a schema.
    """
    scheme, _, rest = text.partition("://")
    if "#" in rest or any(ord(character) < ord(" ") for character in rest):
        _refuse("it holds a # or a control character")
    if _NO_ESCAPE.search(rest):
        _refuse("a % is not followed by two hexadecimal digits")
    place, _, query = rest.partition("?")
    authority, slash, database = place.partition("/")
    login, at, hosts = authority.rpartition("@")
    if "@" in login or "@" in database or " " in place:
        _refuse("an @ or a space is not where one can be")
    if "/" in database or ":" in database:
        _refuse("a / or a : is not where one can be")
    if "@" in query and authority and not at:
        _refuse("an @ comes after a ?")
    user, _, password = login.partition(":")
    found = {"user": user, "password": password, **_hosts(hosts), "dbname": database}
    given = [_parameter(part) for part in query.split("&") if part]
    found = {name: unquote(value) for name, value in found.items()} | dict(given)
    schema = found.pop(_PARAMETER, _DEFAULT)
    if not schema or "\0" in schema or len(schema.encode()) > _MAX_NAME_BYTES or schema.lower().startswith("pg_"):
        raise InputError(
            f"store={schema!r} cannot be the name of a schema; expected 1 to {_MAX_NAME_BYTES} bytes, not pg_..."
        )
    if any("\0" in value for value in found.values()):
        _refuse("it holds a NUL character, %00")
    public = [(name, value) for name, value in given if name != _PARAMETER and not _is_secret(name)]
    shown = "&".join(f"{name}={quote(value, safe='/')}" for name, value in [*public, (_PARAMETER, schema)])
    return Address(
        " ".join(f"{name}={_word(value)}" for name, value in found.items() if value),
        schema,
        f"{scheme}://{user}{at}{hosts}{slash}{database}?{shown}",
    )


def _hosts(text: str) -> dict[str, str]:
    """Return hosts and ports, of which there may be several, as libpq takes them."""
    parts = [_HOST.fullmatch(part) for part in text.split(",")]
    matches = [part for part in parts if part is not None]
    if len(matches) < len(parts):
        _refuse("what should be a host and a port is none")
    ports = [match["port"] or "" for match in matches]
    hosts = ",".join(match["host"].strip("[]") for match in matches)
    return {"host": hosts, "port": ",".join(ports) if any(ports) else ""}


def _parameter(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch("[a-z_]+", name):
        _refuse("what comes after the ? is not name=value")
    # Only in the name of a store has + always been a space; libpq takes it as it is.
    return name, unquote(value.replace("+", " ") if name == _PARAMETER else value)


def _is_secret(name: str) -> bool:
    return any(part in name for part in _SECRETS)


def _word(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _refuse(what: str) -> NoReturn:
    """Raise an error that tells how to escape, and shows nothing of the address: any part may be a password's."""
    escapes = ", ".join(f"{character.replace(' ', 'a space')} as {code}" for character, code in _ESCAPES.items())
    raise InputError(
        f"the address of the database cannot be taken apart: {what}; expected "
        f"postgresql://user:password@host:port/database?store=name, and within a user, a password or a name: {escapes}"
    )
