"""Addresses of stores: a database as libpq writes it, and the schema in it that is the store."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from hamtarget.errors import InputError

_SCHEMES = ("postgresql", "postgres")
_PARAMETER = "store"
_DEFAULT = "hamtarget"
# PostgreSQL cuts longer names without a word.
_MAX_NAME_BYTES = 63


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a store.

    Attributes:
        conninfo: what libpq takes, its password included.
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
    default.

    Raises:
        InputError: the store's name cannot be that of a schema.
    """
    parts = urlsplit(text)
    parameters = parse_qsl(parts.query, keep_blank_values=True)
    names = [value for name, value in parameters if name == _PARAMETER] or [_DEFAULT]
    own = [(name, value) for name, value in parameters if name != _PARAMETER]
    schema = names[-1]
    if not schema or "\0" in schema or len(schema.encode()) > _MAX_NAME_BYTES or schema.lower().startswith("pg_"):
        raise InputError(
            f"store={schema!r} cannot be the name of a schema; expected 1 to {_MAX_NAME_BYTES} bytes, not pg_..."
        )
    user, at, host = parts.netloc.rpartition("@")
    public = f"{user.partition(':')[0]}{at}{host}"
    shown = [(name, value) for name, value in own if name != "password"] + [(_PARAMETER, schema)]
    return Address(
        urlunsplit(parts._replace(query=urlencode(own, quote_via=quote))),
        schema,
        urlunsplit(parts._replace(netloc=public, query=urlencode(shown, quote_via=quote, safe="/"))),
    )
