"""Settings of a service: address, names, folders and limits."""

from __future__ import annotations

import ipaddress
import os
import stat
from dataclasses import dataclass, field, fields
from pathlib import Path

from hamtarget.errors import FileError, InputError

MIN_TOKEN_CHARACTERS = 16
MAX_TOKEN_CHARACTERS = 1024


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Settings of a service; every default is the careful one.

    >>> ServiceSettings(port=9000).is_loopback
    True

    Attributes:
        host: address to listen on. An address that others can reach needs a token.
        port: port to listen on; 0: any free one.
        token: token that requests must send as `Authorization: Bearer ...`; at least 16 characters. It allows
            everything that the service does.
        tokens_file: file of further tokens, each with a name and a role, as `hamtarget token` makes it.
        no_token: True if a writable service on a loopback address may do without a token: every program and every
            user of this machine can then change the store.
        host_names: host names that requests may use, beside the address. On a loopback address only the names of
            loopback are accepted otherwise, so that a page of another site cannot reach it by a name of its own.
        writable: True if requests may put and delete items.
        image_folders: the only folders whose images are shown.
        tls_cert: file with the certificates of TLS, in PEM, the service's own first; the service then speaks https.
        tls_key: file with the private key of this certificate, in PEM, without a password.
        trusted_proxies: addresses, or networks such as 10.0.0.0/8, of proxies whose `X-Forwarded-For` is believed.
        access_log: file that gets a line for each request; "-": the standard output.
        disk_reserve_bytes: free bytes of the disk below which a writable service says that it is not ready.
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
        threads: threads of one batch of searches; one that takes long leaves a core free, however many they are.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    token: str | None = field(default=None, repr=False)
    tokens_file: Path | None = None
    no_token: bool = False
    host_names: tuple[str, ...] = ()
    writable: bool = False
    image_folders: tuple[Path, ...] = ()
    tls_cert: Path | None = None
    tls_key: Path | None = None
    trusted_proxies: tuple[str, ...] = ()
    access_log: str | None = None
    disk_reserve_bytes: int = 64 * 2**20
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
        self._check_tokens()
        self._check_tls()
        for proxy in self.trusted_proxies:
            try:
                ipaddress.ip_network(proxy)
            except ValueError:
                raise InputError(
                    f"trusted proxy is {proxy[:100]!r}; expected an address or a network, such as 10.0.0.0/8"
                ) from None
        for folder in self.image_folders:
            if not folder.is_dir():
                raise FileError(f"{folder} is no folder; expected a folder of images")
        for limit in fields(self):
            value = getattr(self, limit.name)
            if limit.type in ("int", "float") and limit.name != "port" and not value > 0:
                raise InputError(f"{limit.name} is {value}; expected more than 0")

    def _check_tokens(self) -> None:
        if self.token is not None and not (
            MIN_TOKEN_CHARACTERS <= len(self.token) <= MAX_TOKEN_CHARACTERS and self.token.isascii()
        ):
            raise InputError(
                f"the token has {len(self.token)} characters; expected at least {MIN_TOKEN_CHARACTERS} and at most "
                f"{MAX_TOKEN_CHARACTERS:,}, all ASCII: python -c 'import secrets; print(secrets.token_urlsafe())' "
                "makes a good one"
            )
        if self.has_tokens:
            if self.no_token:
                raise InputError("there is a token, and --no-token says that none is needed; leave out one of them")
            return
        if not self.is_loopback:
            raise InputError(
                f"host is {self.host}, which others can reach, and there is no token; set HAMTARGET_TOKEN, "
                "--token-file or --tokens, or serve on 127.0.0.1"
            )
        if self.writable and not self.no_token:
            raise InputError(
                "the service is writable, and there is no token: every program and every user of this machine could "
                "change the store; set HAMTARGET_TOKEN, --token-file or --tokens, or say --no-token if that is meant"
            )

    def _check_tls(self) -> None:
        if self.tls_cert is None and self.tls_key is None:
            return
        # Takes a while to load, and few need it.
        import ssl

        if self.tls_cert is None or self.tls_key is None:
            raise InputError("TLS needs a certificate and its key; give both --tls-cert and --tls-key, or neither")
        for path in (self.tls_cert, self.tls_key):
            try:
                with path.open("rb") as file:
                    file.read(1)
            except OSError as error:
                raise FileError(f"{path} cannot be read: {error.strerror}; expected a file in PEM") from error
        try:
            # An empty password instead of a question on the terminal.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.tls_cert, self.tls_key, password="")
        except (ssl.SSLError, ValueError) as error:
            reason = getattr(error, "reason", None) or "no PEM"
            raise FileError(
                f"{self.tls_cert} and {self.tls_key} are no certificate and its key ({reason}); expected PEM, the key "
                "without a password"
            ) from None

    @property
    def has_tokens(self) -> bool:
        """True if requests need a token."""
        return self.token is not None or self.tokens_file is not None

    @property
    def cautions(self) -> list[str]:
        """Sentences that whoever starts the service should read."""
        told = []
        if self.no_token and self.writable:
            told.append("every program and every user of this machine can change the store (--no-token)")
        if not self.is_loopback and self.tls_cert is None:
            told.append(
                f"{self.host} is served without TLS: tokens and answers cross the network as they are; give --tls-cert "
                "and --tls-key, or put a proxy such as nginx or Caddy in front, and serve on 127.0.0.1"
            )
        if self.tls_key is not None and os.name == "posix" and self.tls_key.stat().st_mode & stat.S_IROTH:
            told.append(f"every user of this machine can read the key {self.tls_key}; chmod 600 {self.tls_key}")
        return told

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
