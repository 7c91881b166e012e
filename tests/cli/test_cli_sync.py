"""`hamtarget sync`, `get` and `delete`, and what they share with `add`."""

import json
import os
import shutil

import pytest
from typer.testing import CliRunner

from hamtarget import Store
from hamtarget.cli.main import app

OLD = 1_600_000_000


def run(*arguments, input=None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=input)


@pytest.fixture
def album(photos, tmp_path):
    """A copy of the pictures, which may change; their times lie long ago."""
    shutil.copytree(photos, tmp_path / "photos")
    for path in (tmp_path / "photos").rglob("*.png"):
        os.utime(path, (OLD, OLD))
    return tmp_path / "photos"


def last_line(text):
    return text.splitlines()[-1]


def test_sync_makes_a_store_and_follows_the_folder(album, tmp_path):
    place = tmp_path / "store"
    planned = run("sync", place, album, "--encoder", "dhash", "--dry-run")
    assert planned.exit_code == 0, planned.output
    assert planned.stdout.count("add\t") == 36
    assert "dry run, nothing changed: 36 added" in last_line(planned.stdout)
    assert not place.exists()
    result = run("sync", place, album, "--encoder", "dhash", "--workers", "0")
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    assert result.stdout.startswith(
        f"{place}: 36 added, 0 replaced, 0 moved, 0 removed, 0 skipped, 0 unchanged; 36 in all, "
    )
    (album / "disc" / "03.png").unlink()
    (album / "noise" / "04.png").rename(album / "four.png")
    planned = run("sync", place, album, "--dry-run").stdout.splitlines()
    assert planned[:-1] == ["remove\tdisc/03.png", "move\tnoise/04.png\tfour.png"]
    told = json.loads(run("sync", place, album, "--json").stdout)
    assert (told["removed"], told["moved"]) == (["disc/03.png"], [["noise/04.png", "four.png"]])
    assert (told["store"], told["items"], told["unchanged"]) == (str(place), 35, 34)
    (album / "bad.jpg").write_bytes(b"")
    result = run("sync", place, album, "--keep-missing")
    assert (result.exit_code, "left out bad.jpg: " in result.stderr) == (1, True)


def test_a_folder_of_pictures_is_not_taken_for_a_store(album, tmp_path):
    result = run("sync", album / "disc", tmp_path / "store")
    assert result.exit_code == 2
    assert last_line(result.stderr).endswith(
        "holds pictures, and is no store; the store comes first: hamtarget sync STORE FOLDER"
    )
    assert not (tmp_path / "store").exists()


def test_a_pipe_among_pictures_is_not_waited_for(album, tmp_path):
    os.mkfifo(album / "pipe.png")
    for verb in ("add", "sync"):
        result = run(verb, tmp_path / verb, album, "--encoder", "dhash", "--workers", "0")
        assert (result.exit_code, "is no ordinary file" in result.stderr) == (1, True), result.output
    with Store.open(tmp_path / "add", read_only=True) as store:
        assert len(store) == 36


def test_a_store_anywhere_follows(album, stores):
    place = stores.place()
    assert run("sync", place, album, "--encoder", "dhash").exit_code == 0
    shutil.copy(album / "disc" / "03.png", album / "bars" / "01.png")
    (album / "noise").rename(album / "static")
    (album / "disc" / "05.png").unlink()
    told = json.loads(run("sync", place, album, "--json").stdout)
    assert (told["replaced"], told["removed"], len(told["moved"])) == (["bars/01.png"], ["disc/05.png"], 12)
    with stores.open(read_only=True) as store:
        assert len(store) == 35
        assert {item.payload["label"] for item in store.scan()} == {"bars", "disc", "static"}
        one, other = store.get(["bars/01.png", "disc/03.png"])
        assert one.code.tolist() == other.code.tolist()


def test_sync_after_add_reads_nothing_new(album, tmp_path):
    place = tmp_path / "store"
    assert run("add", place, album, "--encoder", "dhash").exit_code == 0
    told = json.loads(run("sync", place, album, "--json").stdout)
    assert (told["added"], told["replaced"], told["unchanged"]) == ([], [], 36)
    shutil.copy2(album / "disc" / "03.png", album / "disc" / "new.png")
    (album / "bars" / "01.png").unlink()
    told = json.loads(run("sync", place, album, "--json", "--encoder", "dhash").stdout)
    assert (told["added"], told["removed"], told["items"]) == (["disc/new.png"], ["bars/01.png"], 36)
    with Store.open(place, read_only=True) as store:
        one, other = store.get(["disc/03.png", "disc/new.png"])
        assert one.code.tolist() == other.code.tolist()


def test_sync_refuses(album, tmp_path):
    place = tmp_path / "store"
    assert run("sync", place, album, "--encoder", "dhash").exit_code == 0
    for path in album.rglob("*.png"):
        path.unlink()
    for arguments, text in (
        ((place, album), "is a disk missing?"),
        ((place, tmp_path / "absent"), "does not exist"),
        ((place, album, "--encoder", "phash"), "another model"),
        ((place, album, "--encoder", "dhash", "--model", "m"), "are both given"),
        ((place, album, "--radius", "5"), "--radius is 5"),
    ):
        result = run("sync", *arguments)
        assert (result.exit_code, text in last_line(result.stderr)) == (2, True), result.output
    assert "36 removed" in run("sync", place, album, "--allow-empty").stdout


@pytest.mark.skipif(os.name == "nt", reason="names are UTF-16 there")
def test_a_name_that_is_not_utf8_is_one_file(album, tmp_path):
    (album / os.fsdecode(b"caf\xe9.png")).write_bytes((album / "disc" / "03.png").read_bytes())
    for verb in ("add", "sync"):
        result = run(verb, tmp_path / verb, album, "--encoder", "dhash")
        assert result.exit_code == 1, result.output
        assert "not UTF-8" in result.stderr
        assert "36 in all" in result.stdout


def test_get_and_delete(stores):
    place = str(stores.place())
    lines = [json.dumps({"id": id, "code": f"000{id}", "payload": {"k": id}}) for id in (1, 2, 3)]
    lines += ['{"id": "2", "code": "ffff"}', '{"id": "a b", "code": "abcd"}']
    assert run("add", place, "-", input="\n".join(lines)).exit_code == 0
    # A string before an integer of the same digits.
    assert run("get", place, "2", "3").stdout == '2\tffff\t\n3\t0003\t{"k": 3}\n'
    told = run("get", place, "--json", "-", input="a b\n1\n").stdout.splitlines()
    assert [json.loads(line) for line in told] == [
        {"id": "a b", "code": "abcd", "payload": None},
        {"id": 1, "code": "0001", "payload": {"k": 1}},
    ]
    result = run("get", place, "1", "nobody", "99999999999999999999")
    assert (result.exit_code, result.stdout.count("\n")) == (1, 1)
    assert result.stderr == "hamtarget: no item nobody\nhamtarget: no item 99999999999999999999\n"
    assert run("delete", place, "2", "nobody").exit_code == 1
    assert json.loads(run("delete", place, "2", "--json").stdout)["items"] == 3
    result = run("delete", place, "-", input="1\n3\na b\n")
    assert (result.exit_code, result.stdout.endswith(": 3 deleted; 0 in all\n")) == (0, True), result.output


def test_what_get_writes_add_takes(album, tmp_path):
    assert run("sync", tmp_path / "one", album, "--encoder", "dhash").exit_code == 0
    told = run("get", tmp_path / "one", "disc/03.png", "four", "noise/01.png", "--json").stdout
    assert "2 stored" in run("add", tmp_path / "two", "-", input=told).stdout
    with Store.open(tmp_path / "one") as one, Store.open(tmp_path / "two") as two:
        assert one.payloads(["disc/03.png"]) == two.payloads(["disc/03.png"])
