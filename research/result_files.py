"""Tell which result files say by their content what made them, and hold the list of older ones that do not.

    python -m research.result_files             # lists what is wrong
    python -m research.result_files --update    # drops lines of the list that are no longer needed; adds none

A result says so if each `provenance` in it has a command, a date, a machine and the digest of the source files that
were loaded (`source`). `research/results/without_source.txt` lists older files that have no such digest, each with the
beginning of its SHA-256, so that a new result cannot take the place of an old one without having it:

    commit     the code is known by its commit, whose tree was not changed
    uncertain  it is not: the tree was changed, is not said to be unchanged, or nothing is told
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
LIST = "without_source.txt"
_NEEDED = ("command", "date", "machine", "source")
_HASH_LENGTH = 12


@dataclass(frozen=True, order=True)
class OldResult:
    """A line of the list: a file that does not say by its content what made it."""

    path: str
    certainty: str
    hash: str

    def __str__(self) -> str:
        return f"{self.hash} {self.certainty:<9} {self.path}"


def without_source(folder: Path) -> list[OldResult]:
    """Return the result files below a folder that do not say by their content what made them."""
    found = []
    for path in sorted(folder.rglob("*.json")):
        content = path.read_bytes()
        told = list(_provenances(json.loads(content)))
        if told and all(all(each.get(key) for key in _NEEDED) for each in told):
            continue
        known = bool(told) and all(each.get("commit") and each.get("dirty") is False for each in told)
        digest = hashlib.sha256(content).hexdigest()[:_HASH_LENGTH]
        found.append(OldResult(path.relative_to(folder).as_posix(), "commit" if known else "uncertain", digest))
    return sorted(found)


def listed(folder: Path) -> list[OldResult]:
    """Return the lines of the list in a folder."""
    lines = (folder / LIST).read_text(encoding="utf-8").splitlines()
    return sorted(OldResult(path, certainty, digest) for digest, certainty, path in map(str.split, lines))


def problems(folder: Path) -> list[str]:
    """Return what is wrong: results without a source that are not listed, and lines that nothing needs."""
    found, kept = set(without_source(folder)), set(listed(folder))
    return [
        *(f"{old.path} does not say which source made it; measure with `provenance`" for old in sorted(found - kept)),
        *(f"{LIST} lists {old.path}, which is no such file (any more); --update" for old in sorted(kept - found)),
    ]


def _provenances(content: Any) -> Iterator[dict[str, Any]]:
    """Yield every provenance in a result: what is under that name, or the file itself where it has the keys."""
    if isinstance(content, dict):
        if isinstance(content.get("provenance"), dict):
            yield content["provenance"]
        elif "commit" in content and "command" in content:
            yield content
        for key, value in content.items():
            if key != "provenance":
                yield from _provenances(value)
    elif isinstance(content, list):
        for value in content:
            yield from _provenances(value)


def main() -> None:
    """List what is wrong, or drop lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="drop lines of the list that are no longer needed")
    if parser.parse_args().update:
        needed = sorted(set(listed(RESULTS)) & set(without_source(RESULTS)))
        (RESULTS / LIST).write_text("".join(f"{old}\n" for old in needed), encoding="utf-8")
    wrong = problems(RESULTS)
    for line in wrong:
        print(line)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
