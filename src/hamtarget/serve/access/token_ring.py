"""The ring of a service's tokens: it tells whose token was sent, and follows the tokens file."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hamtarget.errors import FileError
from hamtarget.serve.access.tokens import TokenEntry, read_tokens

_LOOK_SECONDS = 1.0
# No token is longer: whoever sends more cannot make the service hash it.
_MAX_TOKEN_BYTES = 1024

_log = logging.getLogger("hamtarget.serve")


class TokenRing:
    """All tokens of a service; those of a file are read again when the file changes.

    Args:
        token: a single token, which allows everything.
        path: the tokens file.
        clock: seconds that only grow; tests give their own.

    Raises:
        FileError: the tokens file cannot be used.
    """

    def __init__(
        self, *, token: str | None = None, path: Path | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._own = [] if token is None else [TokenEntry.of("admin", "admin", token)]
        self._path = path
        self._clock = clock
        self._looked = clock()
        self._seen = None if path is None else _version(path)
        self._entries: list[TokenEntry] = [*self._own, *([] if path is None else read_tokens(path))]
        self.is_needed = token is not None or path is not None

    @property
    def has_file(self) -> bool:
        """True if tokens come from a file."""
        return self._path is not None

    def find(self, authorization: bytes) -> TokenEntry | None:
        """Return the entry of the token in an Authorization header; None if there is none that is valid."""
        self._look()
        scheme, _, given = authorization.partition(b" ")
        given = given.strip()[: _MAX_TOKEN_BYTES + 1]
        now = time.time()
        found = None
        # All of them are hashed and compared, in constant time each: the time tells neither which one it is, nor how
        # much of one was right.
        for entry in self._entries:
            if entry.is_of(given) and entry.is_valid(now):
                found = entry
        return found if scheme.lower() == b"bearer" else None

    def _look(self) -> None:
        """Read the file again if it was changed since; look at most once a second."""
        now = self._clock()
        if self._path is None or now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        if _version(self._path) != self._seen:
            self.reload()

    def reload(self) -> None:
        """Read the tokens file again; one that cannot be used is logged, and the tokens of before stay."""
        if self._path is None:
            return
        # Before reading: a change while it is read is then seen at the next look.
        self._seen = _version(self._path)
        try:
            entries = read_tokens(self._path)
        except FileError as error:
            _log.error("the tokens of before stay valid: %s", error)
            return
        self._entries = [*self._own, *entries]
        _log.info("%s has %d tokens now", self._path, len(entries))


@contextmanager
def reloading_at_hangup(tokens: TokenRing) -> Iterator[None]:
    """Read the tokens file, if there is one, again at each SIGHUP during the block; threads get no signals."""
    is_main = threading.current_thread() is threading.main_thread()
    if not (tokens.has_file and is_main and hasattr(signal, "SIGHUP")):
        yield
        return
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGHUP)
    loop.add_signal_handler(signal.SIGHUP, tokens.reload)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, before or signal.SIG_DFL)


def _version(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return (found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode, found.st_uid, found.st_gid)
