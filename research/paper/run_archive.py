"""The runs of a table of images in one file, from which anybody can compute its figures again: no images, no training.

    results=research/results/table1
    python -m research.paper.run_archive pack out/long_runs $results/long_runs.tar.xz
    python -m research.paper.run_archive rescore $results/long_runs.tar.xz --table $results/long.json
    python -m research.paper.run_archive unpack $results/long_runs.tar.xz FOLDER    # as `long_table` keeps them

`rescore` computes every figure of every run and compares it with the table. The exit status is 1 if one differs or a
run is missing. The file is an artefact (`research.artefact`): its manifest has the SHA-256 of each part.

Of a run there are `facts/NAME.json`, as `image_runs` wrote it, and `codes/NAME.npy`: the codes of database and queries,
ordered by class, in which order they compress best. Labels are the same for all runs of a task. So they are kept once,
in `labels/DIGEST-*.npy`, and the manifest names those of each run.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget._files import write_atomically
from hamtarget.errors import CorruptFileError, FileError, HamtargetError, InputError
from research import artefact
from research.paper.image_runs import RunCodes
from research.paper.image_scores import scores

KIND = "image runs"
_LABELS = ("database_labels", "query_labels", "trained")
_DIGEST_LENGTH = 16
# Sums of floats may be taken in another order elsewhere.
_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class ArchivedRun:
    """A run as it is kept.

    Attributes:
        name: name of its files.
        facts: its JSON file, as bytes.
        codes: its codes and labels.
    """

    name: str
    facts: bytes
    codes: RunCodes

    @property
    def description(self) -> dict[str, Any]:
        """Settings and date, by which the record of the run in the table is found."""
        told = json.loads(self.facts)
        return {"run": told["run"], "date": told["provenance"]["date"]}


def runs_in(folder: Path) -> list[ArchivedRun]:
    """Return the runs that a folder holds, in the order of their names.

    Raises:
        InputError: there is none.
        CorruptFileError: one cannot be read.
    """
    runs = [
        ArchivedRun(path.stem, path.read_bytes(), RunCodes.load(path.with_suffix(".npz")))
        for path in sorted(folder.glob("*.json"))
        if path.with_suffix(".npz").exists()
    ]
    if not runs:
        raise InputError(f"there is no run in {folder}; expected NAME.json beside NAME.npz")
    return runs


def pack_runs(runs: Iterable[ArchivedRun]) -> bytes:
    """Return the runs as an artefact."""
    files: dict[str, bytes] = {}
    listed = {}
    for run in runs:
        labels = {name: _as_npy(getattr(run.codes, name)) for name in _LABELS}
        digest = hashlib.sha256(b"".join(labels.values())).hexdigest()[:_DIGEST_LENGTH]
        files |= {f"labels/{digest}-{name}.npy": content for name, content in labels.items()}
        codes = np.concatenate([run.codes.database, run.codes.queries])
        files[f"codes/{run.name}.npy"] = _as_npy(codes[_order(run.codes.database_labels, run.codes.query_labels)])
        files[f"facts/{run.name}.json"] = run.facts
        listed[run.name] = {"n_bits": run.codes.n_bits, "labels": digest}
    return artefact.pack(files, {"kind": KIND, "runs": listed})


def unpack_runs(content: tuple[dict[str, Any], dict[str, bytes]]) -> Iterator[ArchivedRun]:
    """Yield the runs of an artefact, read by `artefact.read`.

    Raises:
        CorruptFileError: it does not hold runs, or parts of one do not fit together.
    """
    about, files = content
    if about.get("kind") != KIND or not isinstance(about.get("runs"), dict):
        raise CorruptFileError(f"the artefact is of kind {about.get('kind')!r}; expected {KIND!r}")
    for name, entry in sorted(about["runs"].items()):
        try:
            yield _run(name, int(entry["n_bits"]), str(entry["labels"]), files)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, HamtargetError):
                raise
            raise CorruptFileError(f"run {name} of the artefact is not complete: {error}; fetch it again") from error


def unpack_into(content: tuple[dict[str, Any], dict[str, bytes]], folder: Path) -> int:
    """Write the runs of an artefact into a folder as `table1` keeps them, and return their number.

    Raises:
        InputError: there is something in the folder.
        CorruptFileError: see `unpack_runs`.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is not empty; expected a new folder, so that no run is replaced")
    runs = list(unpack_runs(content))
    for run in runs:
        run.codes.save(folder / f"{run.name}.npz")
        write_atomically(folder / f"{run.name}.json", run.facts)
    return len(runs)


def differences(runs: Iterable[ArchivedRun], records: Sequence[dict[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """Score each run, and yield its name and how its figures differ from those of its record in the table."""
    kept = {_key(record["run"], record["provenance"]["date"]): record["scores"] for record in records}
    for run in runs:
        expected = kept.get(_key(run.description["run"], run.description["date"]))
        if expected is None:
            yield run.name, ["the table has no record of this run"]
            continue
        found = scores(run.codes)
        yield (
            run.name,
            [
                f"{part} {figure}: {found.get(part, {}).get(figure)} here, {value} in the table"
                for part, figures in expected.items()
                for figure, value in figures.items()
                if not math.isclose(
                    found.get(part, {}).get(figure, math.nan), value, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE
                )
            ],
        )


def _key(run: dict[str, Any], date: str) -> str:
    return json.dumps([run, date], sort_keys=True)


def _run(name: str, n_bits: int, digest: str, files: dict[str, bytes]) -> ArchivedRun:
    database_labels, query_labels, trained = (_from_npy(files[f"labels/{digest}-{part}.npy"]) for part in _LABELS)
    codes = _from_npy(files[f"codes/{name}.npy"])
    n_database, n_rows = len(database_labels), len(database_labels) + len(query_labels)
    if codes.shape != (n_rows, n_bits // 8) or codes.dtype != np.uint8 or trained.shape != (n_database,):
        raise CorruptFileError(
            f"run {name} has codes {codes.dtype} {codes.shape}; expected uint8 {(n_rows, n_bits // 8)}, fetch it again"
        )
    if trained.dtype != np.bool_ or database_labels.shape[1:] != query_labels.shape[1:] or database_labels.ndim > 2:
        raise CorruptFileError(f"labels of run {name} do not fit together; fetch the artefact again")
    rows = np.empty_like(codes)
    rows[_order(database_labels, query_labels)] = codes
    facts = files[f"facts/{name}.json"]
    told = json.loads(facts)
    if told["run"]["n_bits"] != n_bits or not isinstance(told["provenance"]["date"], str):
        raise CorruptFileError(f"the facts of run {name} are of another run; fetch the artefact again")
    kept = RunCodes(n_bits, rows[:n_database], rows[n_database:], database_labels, query_labels, trained)
    return ArchivedRun(name, facts, kept)


def _order(database_labels: NDArray[Any], query_labels: NDArray[Any]) -> NDArray[np.int64]:
    """Return the rows of database and queries by class: like codes come together."""
    labels = np.concatenate([database_labels, query_labels])
    columns = labels.reshape(len(labels), -1)
    return np.lexsort(columns.T[::-1])


def _as_npy(array: NDArray[Any]) -> bytes:
    content = io.BytesIO()
    np.lib.format.write_array(content, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
    return content.getvalue()


def _from_npy(content: bytes) -> NDArray[Any]:
    """Return an array.

    Raises:
        ValueError: it is no array of numbers, or damaged.
    """
    array: NDArray[Any] = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    if array.ndim == 0 or array.dtype.kind not in "bu":
        raise ValueError(f"an array is {array.dtype} {array.shape}; expected rows of uint8 or bool")
    return array


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    packing = verbs.add_parser("pack", help="pack the runs of a folder")
    packing.add_argument("folder", type=Path)
    packing.add_argument("file", type=Path)
    unpacking = verbs.add_parser("unpack", help="write the runs of an artefact into a folder")
    unpacking.add_argument("file", type=Path)
    unpacking.add_argument("folder", type=Path)
    rescoring = verbs.add_parser("rescore", help="compute the figures of every run and compare them with the table")
    rescoring.add_argument("file", type=Path)
    rescoring.add_argument("--table", type=Path, default=Path("research/results/table1/long.json"))
    rescoring.add_argument("--only", nargs="*", metavar="NAME", help="only these runs")
    given = parser.parse_args(arguments)
    try:
        if given.verb == "pack":
            runs = runs_in(given.folder)
            write_atomically(given.file, pack_runs(runs))
            print(f"{given.file}: {len(runs)} runs, {given.file.stat().st_size:,} bytes")
            return 0
        content = artefact.read(given.file)
        if given.verb == "unpack":
            print(f"{given.folder}: {unpack_into(content, given.folder)} runs")
            return 0
        return _rescore(content, given.table, given.only)
    except HamtargetError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _rescore(content: tuple[dict[str, Any], dict[str, bytes]], table: Path, only: list[str] | None) -> int:
    records = _records(table)
    runs = [run for run in unpack_runs(content) if not only or run.name in only]
    wrong = 0
    for name, found in differences(runs, records):
        print(f"{name}: {'; '.join(found) if found else 'as in the table'}", flush=True)
        wrong += bool(found)
    if not only:
        there = {_key(run.description["run"], run.description["date"]) for run in runs}
        missing = [record for record in records if _key(record["run"], record["provenance"]["date"]) not in there]
        for record in missing:
            print(f"not in the artefact: {json.dumps(record['run'], sort_keys=True)}")
        wrong += len(missing)
    print(f"{len(runs)} runs, {wrong} of them not as in {table}, or missing")
    return 1 if wrong or not runs else 0


def _records(path: Path) -> list[dict[str, Any]]:
    try:
        records: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["records"]
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(f"{path} is no table 1: {error}; expected what `research table1` writes") from error
    return records


if __name__ == "__main__":
    raise SystemExit(main())
