"""The comparison of libraries in processes of their own, on a few rows."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("faiss")

from research import figures  # noqa: E402
from research.benchmarks import engine_peers  # noqa: E402
from research.benchmarks.engine_join import HammingbirdPairs, OurPairs, digest_of, join  # noqa: E402
from research.benchmarks.engine_peers import LeftOut, all_pairs, code_sets, measure, scanned  # noqa: E402
from research.benchmarks.engine_table import SETS, in_page, table  # noqa: E402
from research.benchmarks.engine_worker import PEERS  # noqa: E402
from research.benchmarks.search_methods import FaissHNSW, Found, Method, Usearch  # noqa: E402
from research.peers.code_peers import (  # noqa: E402
    HAMMINGBIRD_JOINS,
    Hammingbird,
    NearestWithin,
    PynearMIH,
    PynearTree,
    PythonTree,
    found_of,
    hammingbird_pairs,
    imagededup_methods,
    threatexchange_methods,
)

OURS, FLAT = "hamtarget MultiIndex", "faiss IndexBinaryFlat"


def naive(codes: np.ndarray, queries: np.ndarray, radius: int) -> list[list[tuple[int, int]]]:
    distances = np.bitwise_count(queries[:, None] ^ codes[None]).sum(axis=2)
    return [[(int(row), int(far[row])) for row in np.flatnonzero(far <= radius)] for far in distances]


def naive_pairs(codes: np.ndarray, radius: int) -> list[tuple[int, int, int]]:
    return [(a, b, d) for a, hits in enumerate(naive(codes, codes, radius)) for b, d in hits if a < b]


def hits(found: Found) -> list[list[tuple[int, int]]]:
    offsets, rows, distances = found
    pairs = list(zip(rows.tolist(), np.asarray(distances).astype(int).tolist(), strict=True))
    return [sorted(pairs[a:b]) for a, b in zip(offsets[:-1], offsets[1:], strict=True)]


def needs(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


def test_arrays_of_hits() -> None:
    offsets, rows, distances = found_of([[(3, 1)], [], [(1, 0), (2, 2)]])
    assert offsets.tolist() == [0, 1, 1, 3]
    assert rows.tolist() == [3, 1, 2]
    assert distances.tolist() == [1, 0, 2]


# Each with a package that it needs, and the sets that it can search.
GENERATED = ("L", "uniform 2", "uniform 31")
LIBRARIES = {
    "hammingbird": ("hammingbird", GENERATED, lambda n_bits, radius: Hammingbird(n_bits, radius)),
    "pynear's multi-index": ("pynear", GENERATED, lambda n_bits, radius: PynearMIH(n_bits, substrings=n_bits // 16)),
    "pynear's tree": ("pynear", GENERATED, lambda n_bits, radius: PynearTree(n_bits)),
    "pybktree": ("pybktree", GENERATED, lambda n_bits, radius: PythonTree(n_bits)),
    "imagededup's tree": ("imagededup", GENERATED, lambda n_bits, radius: imagededup_methods(n_bits)[0]),
    "imagededup's scan": ("imagededup", ("L",), lambda n_bits, radius: imagededup_methods(n_bits)[1]),
    "threatexchange's index": (
        "threatexchange",
        ("uniform 31",),
        lambda n_bits, radius: threatexchange_methods(n_bits)[0],
    ),
    "threatexchange's newer index": (
        "threatexchange",
        ("uniform 31",),
        lambda n_bits, radius: threatexchange_methods(n_bits)[1],
    ),
    "ours behind its interface": (
        "threatexchange",
        ("uniform 31",),
        lambda n_bits, radius: threatexchange_methods(n_bits)[2],
    ),
}


@pytest.mark.parametrize(
    ("name", "drawn"),
    [(name, drawn) for name, (_, sets, _) in LIBRARIES.items() for drawn in sets],
)
def test_a_library_finds_what_a_naive_scan_finds(name: str, drawn: str) -> None:
    package, _, make = LIBRARIES[name]
    needs(package)
    (code_set,) = code_sets([drawn], 300, 20, None)
    # Equal codes, which trees treat apart.
    code_set.codes[7:12] = code_set.codes[3]
    queries = np.concatenate([code_set.queries, code_set.codes[:10]])
    expected = naive(code_set.codes, queries, code_set.radius)
    assert sum(map(len, expected)) >= 30
    method: Method = make(code_set.n_bits, code_set.radius)
    method.build(code_set.codes, np.arange(300))
    assert hits(method.search(queries, code_set.radius)) == expected
    assert hits(method.search(queries[:1], code_set.radius)) == expected[:1]


def test_hammingbird_answers_one_query_as_it_answers_a_batch() -> None:
    needs("hammingbird")
    (drawn,) = code_sets(["L"], 300, 20, None)
    method = Hammingbird(64, 2)
    method.build(drawn.codes, np.arange(300))
    assert [method.answer_one(query, 2) for query in drawn.queries[:, None]] == method.answer(drawn.queries, 2)


@pytest.mark.parametrize("name", ["faiss", "usearch"])
def test_of_the_nearest_those_beyond_the_radius_are_dropped(name: str) -> None:
    needs(name)
    (drawn,) = code_sets(["uniform 31"], 300, 20, None)
    kind = FaissHNSW if name == "faiss" else Usearch
    method = NearestWithin(kind(256, links=16, breadth=300))
    method.build(drawn.codes, np.arange(300))
    assert not method.exact
    assert hits(method.search(drawn.queries, 31)) == naive(drawn.codes, drawn.queries, 31)


@pytest.mark.parametrize("function", HAMMINGBIRD_JOINS)
def test_hammingbird_finds_the_pairs_that_a_naive_scan_finds(function: str) -> None:
    needs("hammingbird")
    (drawn,) = code_sets(["L"], 300, 20, None)
    expected = naive_pairs(drawn.codes, 2)
    assert len(expected) >= 30
    assert sorted(hammingbird_pairs(function)(drawn.codes, 2)) == expected


def test_both_searches_for_all_pairs_find_what_a_naive_scan_finds() -> None:
    (drawn,) = code_sets(["L"], 300, 20, None)
    expected = naive_pairs(drawn.codes, 2)
    ours = OurPairs().pairs(drawn.codes, 2)
    assert sorted(map(tuple, ours.tolist())) == expected
    assert digest_of(ours) == digest_of(ours[::-1]) != digest_of(ours[1:])
    found = join("hamtarget pairs_within", drawn.codes, 2)
    assert found["pairs"] == found["checked_pairs"] == len(expected)
    needs("hammingbird")
    assert sorted(map(tuple, HammingbirdPairs().pairs(drawn.codes, 2).tolist())) == expected
    other = join("hammingbird", drawn.codes, 2)
    assert {key: other[key] for key in ("pairs", "digest")} == {key: found[key] for key in ("pairs", "digest")}
    # One of its functions takes a radius below the bytes of a code only, and is not chosen.
    assert join("hammingbird", drawn.codes, 8)["setting"] != "find_pairs_self"


def test_the_scan_is_a_naive_one() -> None:
    for name in ("L", "uniform 31"):
        (drawn,) = code_sets([name], 300, 20, None)
        assert list(map(sorted, scanned(drawn.codes, drawn.queries, drawn.radius))) == naive(
            drawn.codes, drawn.queries, drawn.radius
        )


def test_uniform_codes_have_pairs() -> None:
    for name, radius in (("uniform 2", 2), ("uniform 31", 31)):
        (drawn,) = code_sets([name], 1000, 50, None)
        assert (drawn.n_bits, drawn.radius) == (256, radius)
        assert len(naive_pairs(drawn.codes, radius)) >= 5
        assert sum(map(bool, naive(drawn.codes, drawn.queries, radius))) >= 25


def test_picture_codes_are_parted_into_rows_and_queries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    codes = np.arange(8 * 100, dtype=np.uint16).astype(np.uint8).reshape(100, 8)
    codes[:, 0] = np.arange(100)
    np.save(tmp_path / "phash.npy", codes)
    (drawn,) = code_sets(["pHash 4"], 60, 40, tmp_path)
    assert (drawn.n_bits, drawn.radius, len(drawn.codes), len(drawn.queries)) == (64, 4, 60, 40)
    assert sorted(drawn.codes[:, 0].tolist() + drawn.queries[:, 0].tolist()) == list(range(100))
    assert code_sets(["pHash 4"], 60, 40, None) == []
    assert "SKIPPED pHash 4" in capsys.readouterr().out


def test_libraries_are_measured_in_their_own_processes() -> None:
    (drawn,) = code_sets(["L"], 3000, 900, None)
    names = [OURS, FLAT, "threatexchange PDQIndex", "pybktree"]
    found = measure(drawn, names, turns=2, seconds=0.2)
    assert list(found["peers"]) == names[:2]
    assert found["not_asked"]["threatexchange PDQIndex"] == "it takes PDQ hashes only, 256 bits within 31"
    assert found["not_asked"]["pybktree"] == "it is measured on pHash 4 and PDQ 31 only"
    for row in found["peers"].values():
        assert row["recall"] == 1
        assert row["compared_queries"] == 100
        assert row["compared_hits"] > 100
        assert len(row["turns"]) == 2
        assert all(turn["load"] >= 0 and turn["first_us"] > 0 for turn in row["turns"])
        assert row["queries_per_second"] > 0
    assert "| faiss IndexBinaryFlat" in table({"sets": {"L": found}}, "engine_peers.json")


def test_a_library_that_is_slow_missing_or_wrong_is_left_out_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (drawn,) = code_sets(["L"], 2000, 600, None)
    # A package of that name which the workers find first, and cannot import.
    (tmp_path / "pynear.py").write_text("raise ModuleNotFoundError('No module named pynear', name='pynear')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    found = measure(drawn, [OURS, "pynear MIHBinaryIndex"], turns=1, seconds=0.1)
    assert list(found["peers"]) == [OURS]
    assert found["skipped"] == {"pynear MIHBinaryIndex": "pynear is not installed"}

    monkeypatch.setattr(engine_peers, "_PATIENCE", 0.05)
    found = measure(drawn, [OURS], turns=1, seconds=0.1)
    assert found["peers"] == {}
    assert found["skipped"][OURS].startswith("it took more than")

    monkeypatch.setattr(engine_peers, "_PATIENCE", 100)
    monkeypatch.setattr(engine_peers, "scanned", lambda *_: [{(0, 0)}] * 100)
    found = measure(drawn, [OURS], turns=1, seconds=0.1)
    assert found["skipped"] == {OURS: "it finds other hits than a plain scan"}


def test_hits_of_a_library_with_fewer_rows_are_compared_among_those() -> None:
    wanted = [{(1, 0), (9, 1)}, {(2, 2)}]
    built = {"rows": 5, "exact": True, "hits": [[[1, 0]], [[2, 2]]]}
    assert engine_peers._compared(built, wanted)["recall"] == 1
    assert engine_peers._compared({**built, "exact": False, "hits": [[], [[2, 2]]]}, wanted)["recall"] == 0.5
    with pytest.raises(LeftOut, match="other hits"):
        engine_peers._compared({**built, "rows": 10}, wanted)


def test_why_a_process_ended_is_told() -> None:
    assert engine_peers._ended(-6, "memory allocation of 17179869184 bytes failed\n") == "it ran out of memory"
    assert engine_peers._ended(1, "Traceback ...\nMemoryError\n") == "it ran out of memory"
    missing = "Traceback ...\nModuleNotFoundError: No module named 'hammingbird'\n"
    assert engine_peers._ended(1, missing) == "hammingbird is not installed"
    assert engine_peers._ended(-11, "") == "it was ended by signal SIGSEGV"
    assert engine_peers._ended(1, "Traceback ...\nValueError: no\n") == "ValueError: no"


def test_all_pairs_are_searched_again_with_fewer_rows_where_a_library_has_too_little_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (drawn,) = code_sets(["L"], 3000, 20, None)
    monkeypatch.setattr(engine_peers, "_FEWER_ROWS_OF_JOIN", 500)
    real = engine_peers._join

    def joined(name: str, path: Path, radius: int, n_rows: int, memory: float) -> dict[str, Any]:
        if n_rows == 3000 and name == "another":
            raise LeftOut("it ran out of memory")
        return real("hamtarget pairs_within", path, radius, n_rows, memory)

    monkeypatch.setattr(engine_peers, "_join", joined)
    found = all_pairs(drawn, ["hamtarget pairs_within", "another"], turns=2, memory=14.0)
    assert list(found) == ["3000", "500"]
    assert list(found["3000"]["libraries"]) == ["hamtarget pairs_within"]
    assert found["3000"]["skipped"] == {"another": "it ran out of memory"}
    assert list(found["500"]["libraries"]) == ["hamtarget pairs_within", "another"]
    assert found["3000"]["found"]["pairs"] == len(naive_pairs(drawn.codes, 2))
    for rows in found.values():
        for each in rows["libraries"].values():
            assert len(each["seconds"]) == len(each["load"]) == 2


def test_a_library_that_is_not_installed_is_not_asked_for_the_pairs_of_fewer_rows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (drawn,) = code_sets(["L"], 3000, 20, None)
    monkeypatch.setattr(engine_peers, "_FEWER_ROWS_OF_JOIN", 500)
    (tmp_path / "hammingbird.py").write_text("raise ModuleNotFoundError(\"No module named 'hammingbird'\")")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    found = all_pairs(drawn, ["hamtarget pairs_within", "hammingbird"], turns=1, memory=14.0)
    assert list(found) == ["3000"]
    assert found["3000"]["skipped"] == {"hammingbird": "hammingbird is not installed"}


def test_a_search_for_all_pairs_keeps_within_its_memory(tmp_path: Path) -> None:
    path = tmp_path / "codes.npy"
    np.save(path, np.zeros((1_000, 8), dtype=np.uint8))
    assert engine_peers._join("hamtarget pairs_within", path, 2, 1_000, 14.0)["pairs"] == 1_000 * 999 // 2
    with pytest.raises(LeftOut):
        engine_peers._join("hamtarget pairs_within", path, 2, 1_000, 0.05)


def _row(rows: int, speed: float, **more: Any) -> dict[str, Any]:
    return {
        "rows": rows,
        "setting": "",
        "recall": 1.0,
        "queries_per_second": speed,
        "one_us": 2.75,
        "first_of_turn_us": 35.4,
        "own_codes_per_second": 0.15,
        "build_seconds": 0.15,
        "bytes_a_row": 39.6,
        **more,
    }


def _results() -> dict[str, Any]:
    peers = {
        "a tree": _row(100, 9e9, setting="m 2"),
        OURS: _row(1000, 2_109_446.4),
        FLAT: _row(1000, 1080.5, recall=0.98765),
    }
    set_of = {"rows": 1000, "n_bits": 64, "radius": 2, "peers": peers, "skipped": {}}
    ours, other = "hamtarget pairs_within", "hammingbird"
    joined = {
        "radius": 2,
        "rows": 1000,
        "found": {"pairs": 1234567},
        "libraries": {ours: {"seconds": [0.5, 0.125, 0.25], "peak_gb": 0.25, "setting": ""}},
        "skipped": {other: "it took more than 240 s"},
    }
    fewer = {
        **joined,
        "rows": 100,
        "skipped": {},
        "libraries": {
            **joined["libraries"],
            other: {"seconds": [12.0, 13.0], "peak_gb": 3.45, "setting": "a_function"},
        },
    }
    return {
        "sets": {"PDQ 31": {**set_of, "skipped": {"slow": "it took more than 120 s"}}, "L": set_of},
        "joins": {"L": {"100": fewer, "1000": joined}, "H": {}},
        "load": {"lowest": 0.04, "highest": 1.25},
        "libraries": {"pynear": "2.6"},
        "turns": 3,
        "provenance": {"commit": "abc1234", "machine": {"cores": 2, "cpu": "AMD EPYC"}},
    }


def test_the_tables_name_the_places_of_their_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = _results()
    (tmp_path / "a.json").write_text(json.dumps(results, sort_keys=True))
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    figures._content.cache_clear()
    page = tmp_path / "page.md"
    page.write_text(table(json.loads((tmp_path / "a.json").read_text()), "a.json") + "\n")
    found = figures.figures_of(page)
    # Three rows of eight figures in each of two sets, a row of five and one of seven of all pairs, two loads.
    assert len(found) == 2 * 3 * 8 + 5 + 7 + 2
    assert not [str(figure) for figure in found if not figure.is_right]
    assert figures.unmarked_of(page) == []
    figures._content.cache_clear()


def test_the_tables_have_every_set_and_every_library() -> None:
    text = table(_results(), "engine_peers.json")
    assert re.findall(r"^\*\*(.+?)\*\*", text, re.MULTILINE) == ["L", "PDQ 31", "All pairs of a set"]
    # By speed; those with fewer rows come last, however fast they are.
    first = text[: text.index("**PDQ 31**")]
    assert re.findall(r"^\| (.+?) \|", first, re.MULTILINE) == ["library", OURS, FLAT, "a tree m 2"]
    assert "| hamtarget MultiIndex | 1,000 | 1.000 | 2,109,446 | 2.8 | 35 | 0 | 0.2 | 40 |" in first
    assert "Left out of PDQ 31: slow, it took more than 120 s." in text
    assert "| L | 2 | 1,000 | 1,234,567 | 0.25 | 0.2 | too slow |  |" in text
    assert "| L | 2 | 100 | 1,234,567 | 0.25 | 0.2 | 12.5 (`a_function`) | 3.4 |" in text
    assert "Commit abc1234" in text
    assert "pynear 2.6" in text


def test_the_page_has_a_place_for_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (figures.ROOT / "docs" / "search-benchmark.md").read_text(encoding="utf-8")
    (tmp_path / "page.md").write_text(text, encoding="utf-8")
    (tmp_path / "engine_peers.json").write_text(json.dumps(_results()))
    arguments = ["--table", str(tmp_path / "engine_peers.json"), "--page", str(tmp_path / "page.md")]
    monkeypatch.setattr(sys, "argv", ["engine_peers", *arguments])
    engine_peers.main()
    written = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert table(_results(), "engine_peers.json") in written
    assert written.partition("<!-- tables")[0] == text.partition("<!-- tables")[0]
    assert written.partition("<!-- /tables")[2] == text.partition("<!-- /tables")[2]
    assert in_page(written, "other").count("**L**") == 0
    with pytest.raises(ValueError, match="no place"):
        in_page("a page", "tables")


def test_ours_is_asked_first_and_every_restricted_set_exists() -> None:
    assert next(iter(PEERS)) == OURS
    assert {name for peer in PEERS.values() for name in peer.sets or ()} <= set(SETS)
