"""Statements of SQLite hold for later versions of Python: those of 3.14 refuse `?1` with a sequence of values."""

import re
from pathlib import Path

import hamtarget.store

FOLDER = Path(hamtarget.store.__file__).parent


def numbered(text):
    """Return the lines that have a numbered placeholder."""
    return [line.strip() for line in text.splitlines() if re.search(r"\?\d", line)]


def test_placeholders_have_no_numbers():
    found = {path.name: numbered(path.read_text()) for path in FOLDER.rglob("*.py")}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_a_numbered_one_is_seen():
    assert numbered("SELECT 1\nWHERE row >= ?1 AND a = ?") == ["WHERE row >= ?1 AND a = ?"]
