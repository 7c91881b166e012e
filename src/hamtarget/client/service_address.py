"""Where a service is, and what every request to it says."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from hamtarget.client.messages import Call
from hamtarget.errors import InputError


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """An address that was checked.

    Attributes:
        host: name or address of the host.
        port: its port.
        path: what comes before the path of every request.
        context: settings of TLS; None without.
        authorization: value of that header; None without a token.
    """

    host: str
    port: int
    path: str
    context: ssl.SSLContext | None
    authorization: str | None

    def headers_of(self, call: Call[object]) -> dict[str, str]:
        """Return the headers of a request, besides those that HTTP itself needs."""
        headers = {"Accept-Encoding": "identity"}
        if self.authorization is not None:
            headers["Authorization"] = self.authorization
        if call.body is not None:
            headers["Content-Type"] = "application/json"
        return headers


def read_address(address: str, token: str | None, ca_file: str | os.PathLike[str] | None) -> ServiceAddress:
    """Return the address of a service.

    Raises:
        InputError: the address is not one of HTTP, the token cannot be sent, or the certificates cannot be read.
    """
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"address is {address!r}; expected one such as http://127.0.0.1:8080")
    if token is not None and not (token and token.isascii() and token.isprintable()):
        raise InputError("the token has characters that a header cannot have; expected visible ASCII")
    context = None
    if parts.scheme == "https":
        try:
            context = ssl.create_default_context(cafile=ca_file)
        except OSError as error:
            raise InputError(f"ca_file {ca_file} cannot be read ({error}); expected certificates as PEM") from error
    elif ca_file is not None:
        raise InputError(f"ca_file is given, but {address} is not encrypted; use https://")
    return ServiceAddress(
        parts.hostname,
        port or (443 if context else 80),
        parts.path.rstrip("/"),
        context,
        None if token is None else f"Bearer {token}",
    )
