"""The benchmark of nearest neighbours: sets, rounds, choices, tables and the picture, on tiny data."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hamtarget.errors import CorruptFileError, FileError, InputError
from hamtarget.evaluation import exact_neighbors
from research.benchmarks import neighbors, neighbors_table
from research.benchmarks.neighbors import Bench, measure_set
from research.benchmarks.neighbors_choice import chosen_settings, fastest_of_each
from research.benchmarks.neighbors_plot import draw
from research.benchmarks.neighbors_results import (
    TARGETS,
    default_against_best,
    fastest,
    frontier,
    points_of,
    read_result,
)
from research.benchmarks.neighbors_table import ratios, table
from research.datasets.neighbor_sets import Sources, open_prepared, prepared_set
from research.peers.libraries import OURS, library_of
from research.peers.library import Library

NEAREST, TEN_90, TEN_95, TEN_99 = TARGETS


def row(k, setting, recall, *seconds, nearest=None):
    return {
        "k": k,
        "setting": setting,
        "recall": recall,
        "nearest_found": recall if nearest is None else nearest,
        "seconds": list(seconds),
        "cpu_seconds": [2 * second for second in seconds],
        "bytes_per_row": None,
    }


def index(library, label, *rows, size=100.0):
    return {
        "library": library,
        "version": "1",
        "label": label,
        "arguments": {},
        "build_seconds": 99.0,
        "build_cpu_seconds": 7.4,
        "bytes_per_row": size,
        "rows": list(rows),
    }


@pytest.fixture
def result():
    setting = {"set": "tiny", "metric": "l2", "n_rows": 5000, "n_dims": 8, "dtype": "uint8", "n_queries": 100}
    return {
        "setting": {**setting, "threads": 1},
        "provenance": {},
        "missing": ["SVS"],
        "failed": [],
        "indexes": [
            index(
                OURS,
                "NeighborIndex",
                row(10, {"recall": 0.9}, 0.91, 0.01, 0.02, 0.09),
                row(10, {"budget": 5}, 0.92, 0.016, 0.016, 0.016),
                row(10, {"budget": 9}, 0.96, 0.04, 0.04, 0.04),
                row(100, {"budget": 9}, 0.5, 0.05, 0.05, 0.05, nearest=0.97),
            ),
            index(
                "faiss",
                "IVF",
                row(10, {"nprobe": 1}, 0.89, 0.001, 0.001, 0.001),
                row(10, {"nprobe": 2}, 0.93, 0.032, 0.032, 0.032),
                row(100, {"nprobe": 2}, 0.99, 0.1, 0.1, 0.1, nearest=0.94),
                size=27.0,
            ),
            index("faiss", "graph", row(10, {"ef": 2}, 0.90, 0.064, 0.064, 0.064)),
        ],
    }


def test_the_fastest_setting_that_reaches_a_target(result):
    points = points_of(result)
    ours = [point for point in points if point.library == OURS]
    others = [point for point in points if point.library != OURS]
    # By the median of the rounds; a setting just below the target does not count.
    assert fastest(ours, TEN_90).setting == {"budget": 5}
    assert fastest(others, TEN_90).setting == {"nprobe": 2}
    assert fastest(others, TEN_90).queries_per_second == pytest.approx(100 / 0.032)
    assert fastest(others, TEN_95) is None
    assert fastest(ours, NEAREST).queries_per_second == pytest.approx(2000)
    assert fastest(others, NEAREST) is None
    assert points_of(result, clock="cpu_seconds")[0].queries_per_second == pytest.approx(100 / 0.04)


def test_the_default_against_settings_by_hand(result):
    points = points_of(result)
    assert default_against_best(points, TEN_90) == pytest.approx(0.016 / 0.02)
    assert default_against_best(points, TEN_95) is None


def test_the_frontier_is_what_nothing_beats(result):
    curve = frontier([point for point in points_of(result) if point.library == "faiss"], TEN_95)
    assert [point.setting for point in curve] == [{"nprobe": 2}, {"nprobe": 1}]


def test_the_table(result):
    lines = table(result).splitlines()
    assert lines[0] == "**tiny**: 5,000 x 8 uint8, l2; 100 queries in a batch"
    cells = {line.split(" | ")[0].removeprefix("| "): line.strip("| ").split(" | ") for line in lines[4:8]}
    assert cells[OURS][1:7] == ["2,000", "6,250", "2,500", "not reached", "100", "7"]
    assert cells[OURS][7] == "NeighborIndex: budget 9"
    assert cells["faiss"][1:7] == ["not reached", "3,125", "not reached", "not reached", "27", "7"]
    assert cells[f"{OURS} / best other"][1:5] == ["only ours", "2.00", "only ours", "not reached"]
    assert [cell.strip() for cell in cells[f"{OURS}, default / by hand"]][1:3] == ["", "0.80"]
    assert lines[-1] == "Missing: SVS."
    assert all(line.count("|") == lines[2].count("|") for line in lines[2:8])
    result["setting"]["first_query"] = 3000
    assert table(result).startswith("**tiny**: 5,000 x 8 uint8, l2; 100 queries in a batch, none of the first 3,000\n")


def test_the_table_of_ratios(result):
    lines = ratios([result, result]).splitlines()
    assert len(lines) == 4
    assert lines[2] == "| tiny | only ours | 2.00 (faiss) | only ours | not reached |"


def test_without_our_index_there_are_no_ratios(result):
    result["indexes"] = result["indexes"][1:]
    assert OURS not in table(result)
    assert "not reached" in ratios([result])


def test_the_command_prints_tables(result, tmp_path, monkeypatch, capsys):
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(result))
    for arguments, wanted in (([], "| faiss |"), (["--ratios"], "2.00 (faiss)"), (["--cpu"], "1,562")):
        monkeypatch.setattr(sys, "argv", ["neighbors_table", *arguments, str(path)])
        neighbors_table.main()
        assert wanted in capsys.readouterr().out


def test_tables_in_a_page(result, tmp_path, monkeypatch):
    path, page = tmp_path / "tiny.json", tmp_path / "page.md"
    path.write_text(json.dumps(result))
    page.write_text("# A page\n\n<!-- neighbors: begin -->\nold\n<!-- neighbors: end -->\n\nThe end.\n")
    monkeypatch.setattr(sys, "argv", ["neighbors_table", "--into", str(page), str(path)])
    for _ in range(2):
        neighbors_table.main()
        text = page.read_text()
        assert text.startswith("# A page\n\n<!-- neighbors: begin -->\n| set |")
        assert text.endswith("Missing: SVS.\n<!-- neighbors: end -->\n\nThe end.\n")
        assert text.count("| faiss |") == 1
        assert "old" not in text
    with pytest.raises(InputError, match="has no lines"):
        neighbors_table.put_into("# Without marks\n", [result])


def test_the_page_of_the_documentation_has_the_marks(result):
    page = (Path(neighbors.__file__).parents[2] / "docs" / "peers.md").read_text()
    assert "| faiss |" in neighbors_table.put_into(page, [result])


def test_files_that_are_no_results(tmp_path):
    with pytest.raises(FileError, match="cannot be read"):
        read_result(tmp_path / "absent.json")
    for content, text in (("{", "no JSON"), ("{}", "no `indexes`")):
        (tmp_path / "wrong.json").write_text(content)
        with pytest.raises(CorruptFileError, match=text):
            read_result(tmp_path / "wrong.json")


def test_settings_near_the_targets_are_chosen(result):
    grid = [row(10, {"nprobe": probes}, 1 - 1 / probes, probes / 1000) for probes in range(2, 200)]
    slow = [row(10, {"nprobe": probes}, 1 - 1 / probes, probes / 100) for probes in range(2, 200)]
    result["indexes"] = [index("faiss", "fast", *grid), index("faiss", "slow", *slow), result["indexes"][0]]
    chosen = chosen_settings(result)
    assert ("faiss", "slow") not in chosen
    probes = [setting["nprobe"] for setting in chosen["faiss", "fast"][10]]
    # The fastest that surely reach .90, .95 and .99, and one that perhaps does.
    assert {11, 12, 10, 23, 24, 19, 67} <= set(probes)
    assert len(probes) <= 3 * 3 + 6
    assert {"recall": 0.9} in chosen[OURS, "NeighborIndex"][10]


def test_what_each_index_had_to_offer_is_recorded(result):
    ours, faiss, graph = fastest_of_each(result)
    assert (faiss["library"], faiss["label"]) == ("faiss", "IVF")
    # By CPU time, which is twice the time of the clock here.
    assert faiss["fastest"] == {
        "10 of 10, .90": {"setting": {"nprobe": 2}, "queries_per_cpu_second": pytest.approx(100 / 0.064)}
    }
    assert graph["fastest"]["10 of 10, .90"]["setting"] == {"ef": 2}
    assert set(ours["fastest"]) == {"nearest among 100, .95", "10 of 10, .90", "10 of 10, .95"}


def test_the_picture(result, tmp_path):
    draw([result] * 4, tmp_path / "deep" / "neighbors.png")
    assert (tmp_path / "deep" / "neighbors.png").read_bytes()[:4] == b"\x89PNG"


def put_tiny_set(cache):
    random = np.random.default_rng(0)
    base, queries = random.normal(size=(300, 8)).astype(np.float32), random.normal(size=(40, 8)).astype(np.float32)
    folder = cache / "sets" / "tiny"
    folder.mkdir(parents=True)
    for part, array in (("base", base), ("queries", queries), ("neighbors", exact_neighbors(queries, base, 100))):
        np.save(folder / f"{part}.npy", array)
    (folder / "set.json").write_text(json.dumps({"version": 1, "metric": "l2"}))
    return open_prepared("tiny", cache)


class Absent(Library):
    name = "absent"
    package = "no-such-package-anywhere"

    def plans(self, shape):
        raise AssertionError

    build = open = plans


@pytest.mark.slow
def test_a_run_from_end_to_end(tmp_path):
    """Processes build and search; a second run measures only what is missing."""
    pytest.importorskip("faiss")
    vectors, lines = put_tiny_set(tmp_path), []
    bench = Bench(tmp_path, (library_of("faiss"), Absent()), rounds=2, indexes=("Flat index", "HNSW32_SQ8"))
    path = tmp_path / "tiny.json"
    built = measure_set(
        vectors, Bench(tmp_path, bench.libraries, indexes=("Flat index", "HNSW32_SQ8"), build_only=True), path, print
    )
    assert (built["indexes"], built["missing"], path.exists()) == ([], ["absent"], False)
    result = measure_set(vectors, bench, path, lines.append)
    assert read_result(path) == json.loads(json.dumps(result))
    (entry,) = result["indexes"]
    assert entry["library"] == "faiss"
    assert entry["label"] == "HNSW32_SQ8"
    assert all(len(row["seconds"]) == len(row["cpu_seconds"]) == 2 for row in entry["rows"])
    assert max(row["recall"] for row in entry["rows"]) > 0.9
    assert result["missing"] == ["absent"]
    assert result["failed"] == []
    assert any("absent is MISSING" in line for line in lines)
    lines.clear()
    assert measure_set(vectors, bench, path, lines.append)["indexes"] == result["indexes"]
    assert not any("round" in line or "building" in line for line in lines)
    # Other queries are measured anew, by settings that the first ones have chosen.
    later = measure_set(vectors, replace(bench, first_query=30), tmp_path / "later.json", lines.append)
    assert (later["setting"]["first_query"], later["setting"]["n_queries"]) == (30, 10)
    assert later["explored"] == result["explored"]
    assert {record["label"] for record in later["explored"]} == {"HNSW32_SQ8"}
    with pytest.raises(InputError, match="tiny has 40 queries; expected a first one of at most 39, not 40"):
        measure_set(vectors, replace(bench, first_query=40), path, print)
    # What was measured of other libraries stays.
    other = measure_set(vectors, Bench(tmp_path, (Absent(),)), path, print)
    assert other["indexes"] == result["indexes"]


@pytest.mark.slow
def test_a_process_that_fails_is_named(tmp_path):
    pytest.importorskip("faiss")
    vectors, lines = put_tiny_set(tmp_path), []
    (tmp_path / "sets" / "tiny" / "base.npy").write_bytes(b"no array")
    bench = Bench(tmp_path, (library_of("faiss"),), rounds=1, indexes=("Flat index", "HNSW32_SQ8"))
    result = measure_set(vectors, bench, tmp_path / "tiny.json", lines.append)
    assert result["failed"] == ["faiss HNSW32_SQ8"]
    assert any("FAILED to build" in line for line in lines)


def test_sets(tmp_path):
    made = prepared_set("sample", tmp_path, Sources(tmp_path))
    assert made.base.shape == (5000, 784)
    assert made.neighbors.shape == (1000, 100)
    first = made.base.astype(int) - made.queries[0].astype(int)
    assert made.neighbors[0, 0] == np.argmin((first**2).sum(axis=1))
    words = np.random.default_rng(0).normal(size=(300, 12))
    words[5] = 0
    np.save(tmp_path / "words.npy", words)
    cosine = prepared_set("words", tmp_path, Sources(tmp_path, words=tmp_path / "words.npy"))
    assert (cosine.metric, cosine.base.shape, cosine.queries.shape) == ("cosine", (270, 12), (29, 12))
    np.testing.assert_allclose(np.linalg.norm(cosine.base, axis=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(cosine.neighbors[:, 0], np.argmax(cosine.queries @ cosine.base.T, axis=1))
    assert "cosine, 29 queries" in repr(cosine)


def test_sets_that_are_not_there(tmp_path, capsys):
    with pytest.raises(InputError, match="set is 'music'; expected one of sift"):
        prepared_set("music", tmp_path, Sources(tmp_path))
    with pytest.raises(FileError, match="--words FILE.npy"):
        prepared_set("words", tmp_path, Sources(tmp_path))
    with pytest.raises(FileError, match="does not hold a prepared set"):
        open_prepared("words", tmp_path)
    neighbors.main(["words", "--cache", str(tmp_path), "--out", str(tmp_path), "--data", str(tmp_path)])
    assert "words: the set is ABSENT, and left out" in capsys.readouterr().err
