"""The `hamtarget` command: one file for each verb. Nothing else in the package imports it."""

from __future__ import annotations

import sys


def start() -> None:
    """Run the command that was typed, and end the process with its exit code."""
    try:
        from hamtarget.cli.main import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.stderr.write(
            f"hamtarget: {error.name} is not installed; for the command: pip install 'hamtarget[cli]', "
            "with pictures 'hamtarget[cli,vision,onnx]', with all of it 'hamtarget[all]'\n"
        )
        sys.exit(2)
    app(prog_name="hamtarget")
