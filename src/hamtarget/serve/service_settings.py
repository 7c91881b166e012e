"""Settings of a service: address, names, folders and limits."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field, fields
from pathlib import Path

from hamtarget.errors import FileError, InputError

MIN_TOKEN_CHARACTERS = 16


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Settings of a service; every default is the careful one.

    >>> ServiceSettings(port=9000, writable=True).is_loopback
    True

    Attributes:
        host: address to listen on. An address that others can reach needs a token.
        port: port to listen on; 0: any free one.
        token: token that requests must send as `Authorization: Bearer ...`; at least 16 characters.
        host_names: host names that requests may use, beside the address. On a loopback address only the names of
            loopback are accepted otherwise, so that a page of another site cannot reach it by a name of its own.
        writable: True if requests may put and delete items.
        image_folders: the only folders whose images are shown.
        max_body_bytes: bytes of one body, counted as they arrive.
        max_request_bytes: memory of one request: its body, what it becomes when it is parsed, and its answer.
        max_held_bytes: memory of all requests that are being read, worked on or answered.
        max_header_bytes: bytes of the head of a request.
        max_pixels: pixels of an image, checked before it is decoded.
        max_queries: queries of one request.
        max_items: items of one request, or of its answer.
        max_hits: hits of one request, all its queries together; also the largest limit of one query.
        max_rows: rows that are read for one request.
        max_found: hits that are found for one request, before those that it asks for are chosen.
        max_answer_bytes: bytes of payloads and embeddings that are read for one answer; counted before they are read.
        max_waiting: requests that wait for their turn; the next one gets 503.
        max_waiting_each: requests of one client that wait for their turn; the next one gets 429.
        max_connections: open connections.
        deadline: seconds that a request may take.
        read_seconds: seconds within which a request must have arrived.
        drain_seconds: seconds that running requests get to finish when the service ends.
        threads: threads of one batch of searches.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    token: str | None = field(default=None, repr=False)
    host_names: tuple[str, ...] = ()
    writable: bool = False
    image_folders: tuple[Path, ...] = ()
    max_body_bytes: int = 8 * 2**20
    max_request_bytes: int = 160 * 2**20
    max_held_bytes: int = 384 * 2**20
    max_header_bytes: int = 32 * 2**10
    max_pixels: int = 25_000_000
    max_queries: int = 8192
    max_items: int = 10_000
    max_hits: int = 100_000
    max_rows: int = 20_000_000_000
    max_found: int = 100_000_000
    max_answer_bytes: int = 32 * 2**20
    max_waiting: int = 256
    max_waiting_each: int = 128
    max_connections: int = 1024
    deadline: float = 30.0
    read_seconds: float = 20.0
    drain_seconds: float = 20.0
    threads: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.port < 2**16:
            raise InputError(f"port is {self.port}; expected 0 to 65535")
        if self.token is not None and (len(self.token) < MIN_TOKEN_CHARACTERS or not self.token.isascii()):
            raise InputError(
                f"the token has {len(self.token)} characters; expected at least {MIN_TOKEN_CHARACTERS}, all ASCII: "
                "python -c 'import secrets; print(secrets.token_urlsafe())' makes a good one"
            )
        if self.token is None and not self.is_loopback:
            raise InputError(
                f"host is {self.host}, which others can reach, and there is no token; set HAMTARGET_TOKEN or "
                "--token-file, or serve on 127.0.0.1"
            )
        for folder in self.image_folders:
            if not folder.is_dir():
                raise FileError(f"{folder} is no folder; expected a folder of images")
        for limit in fields(self):
            value = getattr(self, limit.name)
            if limit.type in ("int", "float") and limit.name != "port" and not value > 0:
                raise InputError(f"{limit.name} is {value}; expected more than 0")

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach the service."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def allowed_hosts(self) -> frozenset[str] | None:
        """Host names that requests may use, in lower case and without the port; None: any."""
        if self.is_loopback:
            return frozenset({"127.0.0.1", "[::1]", "localhost", *(name.lower() for name in self.host_names)})
        if self.host_names:
            return frozenset(name.lower() for name in self.host_names)
        return None
