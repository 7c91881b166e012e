"""`hamtarget dups` of pictures, and stores of copies: `add --encoder`, `search`."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from hamtarget import Store
from hamtarget.cli.main import app


def run(*arguments, input=None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=input)


def photo(seed, size=(96, 64)):
    """A picture of smooth random colours, unlike every other."""
    colours = np.random.default_rng(seed).integers(0, 256, (5, 5, 3), dtype=np.uint8)
    return Image.fromarray(colours).resize(size, Image.Resampling.BICUBIC)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HAMTARGET_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def album(tmp_path):
    """Five photos; the first has a copy in half the size and one in bytes."""
    folder = tmp_path / "album"
    folder.mkdir()
    for seed in range(5):
        photo(seed).save(folder / f"{seed}.png")
    photo(0).resize((48, 32)).save(folder / "half.png")
    (folder / "same.png").write_bytes((folder / "0.png").read_bytes())
    return folder


def test_groups_as_text(album):
    result = run("dups", album, "--encoder", "phash", "--radius", "4")
    assert result.exit_code == 0, result.output
    size = os.path.getsize(album / "0.png")
    half = os.path.getsize(album / "half.png")
    lines = result.stdout.splitlines()
    assert lines[0] == "Group 1: 3 pictures"
    assert lines[1].split() == ["96", "x", "64", f"{size:,}", "bytes", "best", str(album / "0.png")]
    assert lines[2].split() == ["96", "x", "64", f"{size:,}", "bytes", "same", "bytes", str(album / "same.png")]
    assert lines[3].split()[:6] == ["48", "x", "32", f"{half:,}", "bytes", "distance"]
    assert len(lines) == 4
    told = result.stderr.splitlines()
    assert told[0] == "hamtarget: copies are within 4 bits of the best picture (phash)"
    assert told[1] == "hamtarget: The radius of 4 was asked for."
    assert told[2].startswith("hamtarget: 7 pictures, 1 group with 3 of them; all but the best of each take ")


def test_lines_of_texts_are_not_taken_for_lost_pictures(album, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("a first text\na second text\n")
    result = run("dups", texts, "--encoder", "phash")
    assert result.exit_code == 2
    assert "none of its 2 paths leads to a file; for texts pass --encoder simhash64" in result.stderr
    # A list with one picture that is there, and one that is not, is a list of pictures.
    texts.write_text(f"{album / '0.png'}\n{album / 'gone.png'}\n")
    result = run("dups", texts, "--encoder", "phash")
    assert result.exit_code == 1
    assert "hamtarget: 1 could not be read" in result.stderr


def test_a_search_leaves_out_pictures_that_cannot_be_read(album, tmp_path):
    store = tmp_path / "store"
    assert run("add", store, album, "--encoder", "phash").exit_code == 0
    (album / "broken.png").write_bytes(b"no picture")
    result = run("search", store, album, "--json")
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 7
    assert "left out" in result.stderr
    assert "broken.png" in result.stderr
    # Alone, it is no query.
    result = run("search", store, album / "broken.png")
    assert (result.exit_code, result.stdout) == (2, "")


def test_a_search_that_finds_nothing_says_so(album, tmp_path):
    store = tmp_path / "store"
    assert run("add", store, album / "1.png", "--encoder", "phash").exit_code == 0
    result = run("search", store, album / "2.png")
    assert result.exit_code == 0
    assert "hamtarget: no item is within" in result.stderr
    assert "no item is within" not in run("search", store, album / "1.png").stderr


def test_the_advised_radius_is_told_in_two_lines(album):
    told = run("dups", album, "--encoder", "dhash").stderr.splitlines()
    assert told[0].startswith("hamtarget: copies are within ")
    assert told[0].endswith("(dhash); --radius R finds more or fewer")
    assert told[1] == "hamtarget: 6 different files are too few to tell how many pairs are false; 6 bits are usual."
    assert len(told) == 3


def test_the_learned_hash_is_the_default(album, tmp_path):
    pytest.importorskip("onnxruntime")
    result = run("dups", album, "--json")
    assert result.exit_code == 0, result.output
    (group,) = [json.loads(line) for line in result.stdout.splitlines()]
    assert [os.path.basename(entry["path"]) for entry in group["pictures"]] == ["0.png", "same.png", "half.png"]
    assert "(copies64)" in result.stderr
    assert run("add", tmp_path / "store", album, "--encoder", "copies64").exit_code == 0
    hits = json.loads(run("search", tmp_path / "store", album / "half.png", "--json").stdout)["hits"]
    assert {hit["id"] for hit in hits} == {"0.png", "same.png", "half.png"}


def test_groups_as_json_lines(album):
    result = run("dups", album, "--encoder", "phash", "--radius", "4", "--json")
    (group,) = [json.loads(line) for line in result.stdout.splitlines()]
    assert [os.path.basename(entry["path"]) for entry in group["pictures"]] == ["0.png", "same.png", "half.png"]
    assert [entry["identical"] for entry in group["pictures"]] == [True, True, False]
    assert set(group["pictures"][0]) == {"path", "width", "height", "bytes", "distance", "identical"}


@pytest.mark.parametrize("suffix", ["json", "csv", "html"])
def test_groups_in_a_file(album, tmp_path, suffix):
    out = tmp_path / f"groups.{suffix}"
    result = run("dups", album, "--encoder", "phash", "--radius", "4", "--out", out)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.splitlines()[-1].endswith(f": {out}")
    text = out.read_text()
    if suffix == "json":
        assert len(json.loads(text)["groups"][0]) == 3
    elif suffix == "csv":
        assert [row["group"] for row in csv.DictReader(text.splitlines())] == ["1", "1", "1"]
    else:
        assert text.count("<img") == 3


def test_lists_of_pictures(album, tmp_path):
    names = "".join(f"{album / name}\n" for name in ("0.png", "half.png", "3.png"))
    (tmp_path / "list.txt").write_text(names)
    (album / "list.csv").write_text("path,label\n0.png,x\nhalf.png,x\n3.png,y\n")
    for place, lines in ((tmp_path / "list.txt", None), (album / "list.csv", None), ("-", names)):
        result = run("dups", place, "--encoder", "phash", "--radius", "4", "--json", input=lines)
        assert result.exit_code == 0, result.output
        assert [len(json.loads(line)["pictures"]) for line in result.stdout.splitlines()] == [2]


def test_unreadable_pictures_are_named_and_counted(album):
    for number in range(12):
        (album / f"bad{number:02}.jpg").write_text("no picture")
    result = run("dups", album, "--encoder", "phash", "--radius", "4")
    assert result.exit_code == 1
    assert result.stderr.count("hamtarget: left out ") == 10
    assert f"left out {album / 'bad00.jpg'}: " in result.stderr
    assert "hamtarget: 12 could not be read" in result.stderr
    assert result.stdout.startswith("Group 1: 3 pictures")


def test_odd_names(tmp_path):
    folder = os.fsencode(tmp_path / "odd")
    os.mkdir(folder)
    for name in (b"a \xff.png", b"b \x1b[31m.png"):
        photo(1).save(os.fsdecode(os.path.join(folder, name)))
    result = run("dups", os.fsdecode(folder), "--encoder", "phash", "--radius", "0")
    assert result.exit_code == 0, result.output
    assert "\\udcff" in result.stdout
    assert "\x1b" not in result.stdout
    result = run("dups", os.fsdecode(folder), "--encoder", "phash", "--radius", "0", "--json")
    paths = [entry["path"] for entry in json.loads(result.stdout)["pictures"]]
    assert sorted(map(os.fsencode, paths)) == [folder + b"/a \xff.png", folder + b"/b \x1b[31m.png"]


def test_folders_with_little_in_them(tmp_path):
    folder = tmp_path / "few"
    folder.mkdir()
    result = run("dups", folder, "--encoder", "phash")
    assert result.exit_code == 2
    assert "holds no image" in result.stderr
    photo(0).save(folder / "only.png")
    result = run("dups", folder, "--encoder", "phash")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "1 picture, no copies among them" in result.stderr


def test_wrong_options(album, tmp_path, filled):
    for arguments, told in (
        ((album, "--out", tmp_path / "groups.txt"), "ends in .json, .csv or .html"),
        ((album, "--encoder", "no such"), "no such"),
        ((tmp_path / "absent",), "is not there"),
        ((filled, "--encoder", "phash"), "--encoder is given, but"),
        ((filled, "--out", tmp_path / "g.json"), "--out is given, but"),
        ((album, "--encoder", "phash", "--radius", "64"), "radius is 64"),
    ):
        result = run("dups", *arguments)
        assert result.exit_code == 2, arguments
        assert told in result.stderr.replace("\n", " ")
        assert len(result.stderr.splitlines()) == 1


# A run of 600 pictures would be over before the test sees that it has begun. A shell without a terminal starts programs
# that ignore Ctrl-C.
_SLOW_COMMAND = """
import signal, time
from hamtarget.cli.main import app
from hamtarget.copies import picture_codes

signal.signal(signal.SIGINT, signal.default_int_handler)
read = picture_codes.read_image

def read_slowly(*arguments, **options):
    time.sleep(0.03)
    return read(*arguments, **options)

picture_codes.read_image = read_slowly
app()
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_an_interrupted_run_goes_on(tmp_path):
    folder = tmp_path / "many"
    folder.mkdir()
    for seed in range(600):
        photo(seed % 300, (400, 300)).save(folder / f"{seed:03}.jpg")
    command = [sys.executable, "-c", _SLOW_COMMAND, "dups", str(folder)]
    options = ["--encoder", "phash", "--radius", "2", "--workers", "0"]
    running = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while kept_codes(tmp_path / "cache") < 64 and time.monotonic() < deadline:
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    _, told = running.communicate(timeout=60)
    assert running.returncode == 130, told
    assert "interrupted; the same command goes on" in told
    kept = kept_codes(tmp_path / "cache")
    assert 64 <= kept < 300
    result = run("dups", folder, "--encoder", "phash", "--radius", "2", "--json")
    assert result.exit_code == 0
    assert [len(json.loads(line)["pictures"]) for line in result.stdout.splitlines()] == [2] * 300
    # Pictures are in pairs of the same bytes.
    assert kept_codes(tmp_path / "cache") == 300


def kept_codes(folder):
    """Codes in the content cache; 0 while it is not there yet."""
    import sqlite3

    most = 0
    for file in folder.glob("content-*.db") if folder.exists() else ():
        try:
            connection = sqlite3.connect(file)
            with connection:
                # Values of phash: 8 bytes of a code and 8 of the picture's size.
                rows = connection.execute("SELECT COUNT(*) FROM kept WHERE LENGTH(value) = 16").fetchone()
            connection.close()
            most = max(most, rows[0])
        except sqlite3.Error:
            continue
    return most


def test_a_store_of_copies(album, tmp_path):
    store = tmp_path / "store"
    result = run("add", store, album, "--encoder", "phash")
    assert (result.exit_code, result.stdout) == (0, f"{store}: 7 stored, 0 skipped; 7 in all\n")
    with Store.open(store, read_only=True) as opened:
        assert (opened.n_bits, opened.radius) == (64, 8)
        assert opened.encoder.name == "phash"
    photo(0).resize((300, 200)).save(tmp_path / "large.jpg", quality=80)
    result = run("search", store, tmp_path / "large.jpg", "--json")
    assert {hit["id"] for hit in json.loads(result.stdout)["hits"]} == {"0.png", "same.png", "half.png"}
    assert "copies are within 8 bits, the store's radius" in result.stderr
    assert len(json.loads(run("search", store, tmp_path / "large.jpg", "-k", "5", "--json").stdout)["hits"]) == 5
    # The store knows its encoder, and takes no other.
    photo(50).save(album / "new.png")
    assert run("add", store, album).stdout == f"{store}: 1 stored, 7 skipped; 8 in all\n"
    assert run("add", store, album, "--encoder", "phash").exit_code == 0
    assert "another model" in run("add", store, album, "--encoder", "dhash").stderr
    assert run("dups", store, "--groups").stdout.count("\t") == 2


def test_a_store_takes_codes_that_dups_has_kept(album, tmp_path, monkeypatch):
    from hamtarget.copies import picture_codes

    assert run("dups", album, "--encoder", "phash").exit_code == 0
    monkeypatch.setattr(picture_codes, "read_image", None)
    assert run("add", tmp_path / "store", album, "--encoder", "phash").exit_code == 0


def test_the_usual_package_finds_a_picture_by_its_digits(album, tmp_path):
    imagehash = pytest.importorskip("imagehash")
    assert run("add", tmp_path / "store", album, "--encoder", "phash").exit_code == 0
    digits = str(imagehash.phash(Image.open(album / "2.png")))
    hits = json.loads(run("search", tmp_path / "store", digits, "--json").stdout)["hits"]
    assert [(hit["id"], hit["distance"]) for hit in hits] == [("2.png", 0)]


def test_a_store_of_copies_names_what_it_cannot_read(album, tmp_path):
    (album / "bad.jpg").write_text("no picture")
    result = run("add", tmp_path / "store", album, "--encoder", "dhash")
    assert result.exit_code == 1
    assert f"left out {album / 'bad.jpg'}: " in result.stderr


def test_model_and_encoder_exclude_each_other(album, tmp_path):
    result = run("add", tmp_path / "store", album, "--encoder", "phash", "--model", tmp_path)
    assert result.exit_code == 2
    assert "both given" in result.stderr
    assert not (tmp_path / "store").exists()
