"""Errors as people want to see them: one line on the standard error and an exit code, no traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from hamtarget._reading import reason_of
from hamtarget.errors import HamtargetError

FOUND = 1
"""Exit code of a command that did its work and found a fault: damage, or images that cannot be read."""
FAILED = 2
"""Exit code of a command that was given something it cannot use; wrong options have the same."""
INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 plus the number of the signal, as in shells."""


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """End the command with one line and an exit code where the body fails in a way that the user can mend.

    Other errors are mistakes of the program: they keep their traceback.
    """
    try:
        yield
    except HamtargetError as error:
        _end(str(error), FAILED, error)
    except OSError as error:
        # A pipe whose reader has gone is no failure; typer ends the command quietly.
        if isinstance(error, BrokenPipeError):
            raise
        reason = reason_of(error)
        _end(f"{error.filename}: {reason}" if error.filename else reason, FAILED, error)
    except KeyboardInterrupt as error:
        _end(str(error) or "interrupted", INTERRUPTED, error)


class CommandGroup(TyperGroup):
    """Verbs whose errors are one line, however they are started."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb that was typed."""
        with errors_in_one_line():
            return super().invoke(ctx)


def _end(message: str, code: int, error: BaseException) -> NoReturn:
    typer.echo(f"hamtarget: {' '.join(message.split())}", err=True)
    raise typer.Exit(code) from error
