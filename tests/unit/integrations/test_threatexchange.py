"""The index for threatexchange: beside a naive twin, beside their own indexes, and in their own tests.

Their tests are not part of their package. With HAMTARGET_THREATEXCHANGE_TESTS, the folder
`threatexchange/signal_type/tests` of a checkout of theirs, those of their PDQ indexes run on ours.
"""

from __future__ import annotations

import importlib.util
import inspect
import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from page_examples import name as page_name
from page_examples import pages_that_need, run_page

pytest.importorskip("threatexchange", reason="threatexchange is not installed: pip install 'hamtarget[threatexchange]'")

from threatexchange.signal_type.pdq.pdq_index import PDQIndex  # noqa: E402
from threatexchange.signal_type.pdq.pdq_index2 import PDQIndex2  # noqa: E402

from hamtarget.errors import CorruptFileError, InputError  # noqa: E402
from hamtarget.integrations.threatexchange import PDQMultiIndex  # noqa: E402

TESTS = os.environ.get("HAMTARGET_THREATEXCHANGE_TESTS")
# These look into faiss inside of their index, or pickle it.
NOT_OURS = {"test_serialize_deserialize_index", "test_supports_pickling"}


def hashes(n_rows: int, seed: int = 0) -> list[str]:
    """Return hashes of which many are near each other, and some equal."""
    random = np.random.default_rng(seed)
    centres = random.integers(0, 256, (n_rows // 10, 32), dtype=np.uint8)
    flips = np.packbits(random.random((n_rows, 256)) < random.random((n_rows, 1)) * 0.1, axis=1)
    return [code.tobytes().hex() for code in centres[random.integers(0, len(centres), n_rows)] ^ flips]


def found(index: Any, query: str) -> list[tuple[int, int]]:
    return sorted((match.metadata, int(match.similarity_info.distance)) for match in index.query(query))


def test_matches_are_those_of_a_naive_scan_and_of_flat_faiss() -> None:
    signals = hashes(500)
    entries = [(signal, row) for row, signal in enumerate(signals)] + [(signals[0], 1000), (signals[0], 1001)]
    for threshold in (10, 31, 52):
        ours = PDQMultiIndex(entries, threshold=threshold)
        theirs = PDQIndex2(entries=entries, threshold=threshold)
        for query in signals[:40] + hashes(20, seed=1):
            distances = [(row, (int(signal, 16) ^ int(query, 16)).bit_count()) for signal, row in entries]
            assert found(ours, query) == sorted(pair for pair in distances if pair[1] <= threshold)
            assert found(ours, query) == found(theirs, query)
    assert len(ours) == 502


def test_matches_are_those_of_their_default() -> None:
    signals = hashes(2000)
    ours, theirs = (kind.build([(s, row) for row, s in enumerate(signals)]) for kind in (PDQMultiIndex, PDQIndex))
    for query in signals[::20]:
        assert found(ours, query) == found(theirs, query)


def test_an_index_goes_into_a_stream_and_back() -> None:
    signals = hashes(300)
    index = PDQMultiIndex([(s, {"row": row, "tags": ["a", None, 1.5]}) for row, s in enumerate(signals)], threshold=20)
    stream = io.BytesIO(b"")
    index.serialize(stream)
    content = stream.getvalue()
    again = PDQMultiIndex.deserialize(io.BytesIO(content))
    assert again.threshold == 20
    for query in signals[:20]:
        assert [(m.metadata, m.similarity_info.distance) for m in again.query(query)] == [
            (m.metadata, m.similarity_info.distance) for m in index.query(query)
        ]
    again.add(signals[0], "new")
    assert "new" in [match.metadata for match in again.query(signals[0])]
    for damaged in (b"", content[:20], content[:-1], b"PK" + content[2:], content[:-3] + b"x" + content[-2:]):
        with pytest.raises(CorruptFileError):
            PDQMultiIndex.deserialize(io.BytesIO(damaged))
    for size in range(0, len(content), len(content) // 50):
        with pytest.raises(CorruptFileError):
            PDQMultiIndex.deserialize(io.BytesIO(content[:size]))


@pytest.mark.parametrize("entry", [(1, 2), {1: "a"}, {1, 2}, b"bytes", float("nan"), object()])
def test_entries_that_json_does_not_hold_are_not_written(entry: object) -> None:
    index = PDQMultiIndex([("0" * 64, entry)])
    assert index.query("0" * 64)[0].metadata is entry
    stream = io.BytesIO()
    with pytest.raises(InputError, match="JSON"):
        index.serialize(stream)
    assert stream.getvalue() == b""
    with pytest.raises(InputError, match="serialize"):
        pickle.dumps(index)


@pytest.mark.parametrize("signal", ["", "0" * 63, "0" * 65, "g" * 64, "0" * 62 + "  ", None, 5])
def test_what_is_no_hash_is_refused(signal: Any) -> None:
    index = PDQMultiIndex([("0" * 64, 1)])
    with pytest.raises(InputError, match="64 hexadecimal digits"):
        index.query(signal)
    with pytest.raises(InputError, match="64 hexadecimal digits"):
        index.add_all([("1" * 64, 2), (signal, 3)])
    assert len(index) == 1
    with pytest.raises(InputError, match="radius"):
        PDQMultiIndex(threshold=256)


def test_queries_go_on_while_entries_are_added() -> None:
    signals = hashes(3000)
    index = PDQMultiIndex([(signals[0], 0)])
    wrong: list[object] = []

    def ask() -> None:
        for _ in range(300):
            matches = index.query(signals[0])
            if not matches or any(signals[match.metadata] not in signals for match in matches):
                wrong.append(matches)

    threads = [Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for row, signal in enumerate(signals[1:], start=1):
        index.add(signal, row)
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(index) == 3000
    index.dispose()
    assert index.query(signals[0]) == []


def _module(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr("threatexchange.signal_type.pdq.pdq_index.PDQIndex", PDQMultiIndex)
    monkeypatch.setattr("threatexchange.signal_type.pdq.pdq_index2.PDQIndex2", PDQMultiIndex)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(TESTS is None, reason="HAMTARGET_THREATEXCHANGE_TESTS does not name a folder of their tests")
@pytest.mark.parametrize("name", ["test_pdq_index", "test_pdq_index2"])
def test_their_own_tests_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = _module(Path(str(TESTS)) / f"{name}.py", monkeypatch)
    tests: list[Callable[..., None]] = [
        test for key, test in vars(module).items() if key.startswith("test_") and callable(test)
    ]
    n_run = 0
    for test in tests:
        if test.__name__ in NOT_OURS:
            continue
        cases: list[dict[str, Any]] = [{}]
        for mark in getattr(test, "pytestmark", []):
            names = [each.strip() for each in mark.args[0].split(",")]
            cases = [dict(zip(names, values, strict=True)) for values in mark.args[1]]
        for case in cases:
            if "index" in inspect.signature(test).parameters:
                case["index"] = PDQMultiIndex.build(module.test_entries)
            test(**case)
            n_run += 1
    assert n_run >= 3


@pytest.mark.parametrize("page", pages_that_need("threatexchange"), ids=page_name)
def test_examples_with_threatexchange_run(page: Path) -> None:
    run_page(page, "threatexchange")
