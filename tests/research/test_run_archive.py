"""Runs of table 1 are packed into one file, from which anybody computes the same figures; a forged file is refused."""

import io
import json
import lzma
import tarfile

import numpy as np
import pytest

from hamtarget.errors import CorruptFileError, FileError, HamtargetError, InputError, UnsupportedFileError
from research import artefact
from research.figures import RESULTS
from research.paper import run_archive
from research.paper.image_runs import RunCodes
from research.paper.image_scores import scores
from research.paper.run_archive import differences, pack_runs, runs_in, unpack_into, unpack_runs

KEPT = RESULTS / "table1" / "long_runs.tar.xz"


def codes_of(seed, n_bits, several_labels=False):
    random = np.random.default_rng(seed)
    # The labels are those of the task, whatever the run.
    task = np.random.default_rng(99)
    shape = (200, 4) if several_labels else (200,)
    labels = task.integers(0, 2 if several_labels else 5, shape, dtype=np.uint8)
    rows = random.integers(0, 256, (200, n_bits // 8), dtype=np.uint8)
    return RunCodes(n_bits, rows[:150], rows[150:], labels[:150], labels[150:], task.random(150) < 0.5)


@pytest.fixture
def folder(tmp_path):
    """A folder of three runs, as table 1 keeps them, and the table."""
    runs = tmp_path / "runs"
    runs.mkdir()
    records = []
    for seed, n_bits, several in ((0, 16, False), (1, 32, False), (2, 32, True)):
        codes = codes_of(seed, n_bits, several)
        task = "mosaic" if several else "whole"
        run = {"method": "HDT", "n_bits": n_bits, "task": task, "seed": seed, "variant": ""}
        facts = {"run": run, "provenance": {"date": f"2026-01-0{seed + 1}"}, "training_seconds": 0.1}
        codes.save(runs / f"HDT-{n_bits}-{task}-seed{seed}.npz")
        (runs / f"HDT-{n_bits}-{task}-seed{seed}.json").write_text(json.dumps(facts))
        records.append({**facts, "scores": scores(codes)})
    (tmp_path / "table1.json").write_text(json.dumps({"records": records}))
    return tmp_path


def packed(folder):
    path = folder / "runs.tar.xz"
    assert run_archive.main(["pack", str(folder / "runs"), str(path)]) == 0
    return path


def test_runs_come_back_bit_for_bit(folder):
    before = runs_in(folder / "runs")
    after = list(unpack_runs(artefact.unpack(pack_runs(before))))
    assert [run.name for run in after] == [run.name for run in before]
    for old, new in zip(before, after, strict=True):
        assert new.facts == old.facts
        for part in ("database", "queries", "database_labels", "query_labels", "trained"):
            np.testing.assert_array_equal(getattr(new.codes, part), getattr(old.codes, part))
            assert getattr(new.codes, part).dtype == getattr(old.codes, part).dtype


def test_equal_runs_make_an_equal_file(folder):
    first = packed(folder).read_bytes()
    for path in (folder / "runs").iterdir():
        path.touch()
    assert packed(folder).read_bytes() == first


def test_labels_of_a_task_are_kept_once(folder):
    _, files = artefact.read(packed(folder))
    assert len([name for name in files if name.startswith("labels/")]) == 2 * 3


def test_rescoring_gives_the_figures_of_the_table(folder, capsys):
    path = packed(folder)
    assert run_archive.main(["rescore", str(path), "--table", str(folder / "table1.json")]) == 0
    assert capsys.readouterr().out.count("as in the table") == 3


@pytest.mark.parametrize("figure", ["map", "recall"])
def test_another_figure_in_the_table_is_noticed(folder, figure):
    table = json.loads((folder / "table1.json").read_text())
    table["records"][1]["scores"]["database"][figure] += 1e-6
    found = dict(differences(runs_in(folder / "runs"), table["records"]))
    assert [name for name, wrong in found.items() if wrong] == ["HDT-32-whole-seed1"]
    (folder / "table1.json").write_text(json.dumps(table))
    assert run_archive.main(["rescore", str(packed(folder)), "--table", str(folder / "table1.json")]) == 1


def test_a_run_that_is_missing_on_either_side_is_noticed(folder, capsys):
    path = packed(folder)
    table = json.loads((folder / "table1.json").read_text())
    table["records"][0]["run"]["seed"] = 7
    (folder / "table1.json").write_text(json.dumps(table))
    assert run_archive.main(["rescore", str(path), "--table", str(folder / "table1.json")]) == 1
    said = capsys.readouterr().out
    assert "the table has no record of this run" in said
    assert "not in the artefact" in said


def test_unpacked_runs_are_those_that_were_packed(folder):
    path = packed(folder)
    assert unpack_into(artefact.read(path), folder / "again") == 3
    first = {file.name: file.read_bytes() for file in (folder / "runs").glob("*.json")}
    assert {file.name: file.read_bytes() for file in (folder / "again").glob("*.json")} == first
    assert pack_runs(runs_in(folder / "again")) == path.read_bytes()
    with pytest.raises(InputError, match="not empty"):
        unpack_into(artefact.read(path), folder / "again")


def test_the_kept_runs_have_the_figures_of_the_table():
    """One run of the artefact is scored again, the first with the shortest codes."""
    runs = list(unpack_runs(artefact.read(KEPT)))
    first = min(runs, key=lambda run: (run.codes.n_bits, len(run.codes.database), run.name))
    records = json.loads((RESULTS / "table1" / "long.json").read_text())["records"]
    assert list(differences([first], records)) == [(first.name, [])]


def test_a_folder_is_packed_and_unpacked(tmp_path):
    source = tmp_path / "models"
    (source / "a").mkdir(parents=True)
    (source / "a" / "model.json").write_text("{}")
    (source / "b.bin").write_bytes(bytes(range(256)))
    assert artefact.main(["pack", str(source), str(tmp_path / "models.tar.xz")]) == 0
    assert artefact.main(["unpack", str(tmp_path / "models.tar.xz"), str(tmp_path / "again")]) == 0
    assert (tmp_path / "again" / "a" / "model.json").read_text() == "{}"
    assert (tmp_path / "again" / "b.bin").read_bytes() == bytes(range(256))
    assert artefact.main(["unpack", str(tmp_path / "models.tar.xz"), str(tmp_path / "again")]) == 2
    (source / "link").symlink_to(source / "b.bin")
    assert artefact.main(["pack", str(source), str(tmp_path / "models.tar.xz")]) == 2


def tar_of(*entries):
    """Return an artefact of (name, content) or TarInfo, with a manifest only if one of them is that."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                archive.addfile(entry)
            else:
                info = tarfile.TarInfo(entry[0])
                info.size = len(entry[1])
                archive.addfile(info, io.BytesIO(entry[1]))
    return lzma.compress(content.getvalue())


def link(name, target):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    return info


MANIFEST = ("manifest.json", b'{"version": 1, "about": {}, "files": {}}')


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no xz",
        lzma.compress(b"no tar" * 1000),
        lzma.compress(b""),
        tar_of(),
        tar_of(("manifest.json", b"no JSON")),
        tar_of(("manifest.json", b"[]")),
        tar_of(("manifest.json", b'{"version": 1, "about": [], "files": {}}')),
        tar_of(("manifest.json", b'{"version": 1, "about": {}, "files": {"a": {"bytes": 1, "sha256": ""}}}')),
        tar_of(
            ("manifest.json", b'{"version": 1, "about": {}, "files": {"a": {"bytes": 1, "sha256": ""}}}'), ("a", b"1")
        ),
        tar_of(MANIFEST, ("unlisted", b"1")),
        tar_of(MANIFEST, MANIFEST),
        tar_of(MANIFEST, ("../outside", b"1")),
        tar_of(MANIFEST, ("/absolute", b"1")),
        tar_of(MANIFEST, ("a/../../b", b"1")),
        tar_of(MANIFEST, (".hidden", b"1")),
        tar_of(MANIFEST, ("a\\b", b"1")),
        tar_of(MANIFEST, ("a", b"1"), ("a/b", b"1")),
        tar_of(MANIFEST, link("a", "/etc/passwd")),
        tar_of(MANIFEST) + b"more",
        tar_of(MANIFEST, ("a", bytes(5000)))[:-40],
    ],
)
def test_forged_files_are_refused(content):
    with pytest.raises(CorruptFileError):
        artefact.unpack(content)


def test_a_bomb_is_refused_before_it_has_grown(monkeypatch):
    monkeypatch.setattr(artefact, "MAX_BYTES", 1 << 20)
    monkeypatch.setattr(artefact, "MAX_FILES", 10)
    bomb = tar_of(MANIFEST, ("a", bytes(8 << 20)))
    assert len(bomb) < 10_000
    with pytest.raises(CorruptFileError, match="more than"):
        artefact.unpack(bomb)
    with pytest.raises(InputError, match="expected at most"):
        artefact.pack({"a": bytes((1 << 20) + 1)}, {})
    with pytest.raises(CorruptFileError, match="after 10 other files"):
        artefact.unpack(tar_of(MANIFEST, *((f"f{number}", b"") for number in range(20))))


def test_a_file_that_needs_much_memory_to_unpack_is_refused():
    wide = {"id": lzma.FILTER_LZMA2, "dict_size": 96 << 20, "mode": lzma.MODE_FAST, "mf": lzma.MF_HC3}
    greedy = lzma.compress(b"a", filters=[wide])
    with pytest.raises(CorruptFileError, match="no xz file, or damaged"):
        artefact.unpack(greedy)


def test_a_later_version_is_told_apart():
    with pytest.raises(UnsupportedFileError, match="version 2"):
        artefact.unpack(tar_of(("manifest.json", b'{"version": 2, "about": {}, "files": {}}')))


def test_every_flipped_byte_is_noticed(folder):
    whole = packed(folder).read_bytes()
    for place in np.random.default_rng(0).integers(0, len(whole), 60):
        forged = bytearray(whole)
        forged[place] ^= 1 << int(place) % 8
        with pytest.raises(HamtargetError):
            artefact.unpack(bytes(forged))


def changed(folder, change):
    """Return the runs of an artefact with consistent checksums, after `change(about, files)`."""
    about, files = artefact.read(packed(folder))
    change(about, files)
    return artefact.unpack(artefact.pack(files, about))


def array(content):
    out = io.BytesIO()
    np.save(out, content, allow_pickle=True)
    return out.getvalue()


@pytest.mark.parametrize(
    "change",
    [
        lambda about, files: about.update(kind="files"),
        lambda about, files: about.update(runs=[]),
        lambda about, files: about["runs"].update(no={"n_bits": 16, "labels": "no"}),
        lambda about, files: about["runs"]["HDT-16-whole-seed0"].update(n_bits=32),
        lambda about, files: about["runs"]["HDT-16-whole-seed0"].update(n_bits="many"),
        lambda about, files: about["runs"]["HDT-16-whole-seed0"].pop("labels"),
        lambda about, files: files.pop("codes/HDT-16-whole-seed0.npy"),
        lambda about, files: files.update({"codes/HDT-16-whole-seed0.npy": b"no array"}),
        lambda about, files: files.update({"codes/HDT-16-whole-seed0.npy": array(np.zeros((3, 2), np.uint8))}),
        lambda about, files: files.update({"codes/HDT-16-whole-seed0.npy": array(np.zeros((200, 2), np.float32))}),
        lambda about, files: files.update({"codes/HDT-16-whole-seed0.npy": array(np.array([{}], dtype=object))}),
        lambda about, files: files.update({"facts/HDT-16-whole-seed0.json": b"{}"}),
        lambda about, files: files.update({"facts/HDT-16-whole-seed0.json": b"no JSON"}),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(folder, change):
    with pytest.raises(CorruptFileError):
        list(unpack_runs(changed(folder, change)))


@pytest.mark.parametrize("name", ["../a", "/a", "a//b", "", ".a", "a b", "manifest.json", "x" * 300])
def test_names_that_could_leave_the_folder_are_not_packed(name):
    with pytest.raises(InputError):
        artefact.pack({name: b""}, {})


def test_what_is_not_there_is_said(tmp_path, capsys):
    with pytest.raises(FileError):
        artefact.read(tmp_path / "none")
    with pytest.raises(InputError, match="there is no run"):
        runs_in(tmp_path)
    assert run_archive.main(["rescore", str(tmp_path / "none")]) == 2
    assert "cannot be read" in capsys.readouterr().err
