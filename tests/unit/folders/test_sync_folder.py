"""A store follows a folder: after each sync it holds what the folder holds, whatever happened in between."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from hamtarget import Store, open_encoder
from hamtarget.datasets.content_cache import content_digest
from hamtarget.datasets.pictures.images import read_image
from hamtarget.datasets.pictures.picture_payloads import FileState, parse_state, picture_payload, state_of
from hamtarget.errors import FileError, InputError, ReadOnlyError
from hamtarget.folders import sync_folder, syncing
from hamtarget.items import Item
from hamtarget.search import Embeddings

OLD = 1_600_000_000
clock = iter(range(OLD, OLD + 10**6))


def save(path, seed):
    """Write a picture that the seed decides, with a time of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (24, 24), dtype=np.uint8)
    Image.fromarray(pixels).resize((48, 40)).save(path)
    settle(path)


def settle(path):
    """Give a file a time that lies long ago, and that no other file has."""
    now = next(clock)
    os.utime(path, (now, now))


@pytest.fixture
def album(tmp_path):
    for number in range(6):
        save(tmp_path / "album" / ("cats" if number % 2 else "dogs") / f"{number}.png", number)
    save(tmp_path / "album" / "top.png", 6)
    return tmp_path / "album"


@pytest.fixture
def store(tmp_path):
    with Store.create(tmp_path / "store", encoder=open_encoder("dhash"), durability="os") as store:
        yield store


@pytest.fixture
def opened(monkeypatch):
    """Paths of the files that a sync opened, in order."""
    paths = []

    def digest(path):
        paths.append(str(path))
        return content_digest(path)

    monkeypatch.setattr(syncing, "content_digest", digest)
    read = syncing.PictureReader.read

    def read_noting(self, files, tell):
        paths.extend(files)
        return read(self, files, tell)

    monkeypatch.setattr(syncing.PictureReader, "read", read_noting)
    return paths


def naive(folder, encoder):
    """Return the code and payload that each picture of a folder should have, by id."""
    wanted = {}
    for path in sorted(folder.rglob("*.png")):
        name = path.relative_to(folder).as_posix()
        code = encoder.encode(read_image(path, encoder.picture_form)[None])[0]
        payload = {"image": name, "folder": folder.name}
        wanted[name] = code.tolist(), payload | ({"label": name.split("/")[0]} if "/" in name else {})
    return wanted


def kept(store):
    """Return code and payload of each item, without the state of its file."""
    return {
        item.id: (item.code.tolist(), {key: value for key, value in item.payload.items() if key != "file"})
        for item in store.scan()
    }


def counts(report):
    return [len(report.added), len(report.replaced), len(report.moved), len(report.removed), report.unchanged]


def test_each_kind_of_change(album, store, opened):
    assert counts(sync_folder(store, album)) == [7, 0, 0, 0, 0]
    assert kept(store) == naive(album, store.encoder)
    opened.clear()
    sequence = store.sequence
    assert counts(sync_folder(store, album)) == [0, 0, 0, 0, 7]
    assert (opened, store.sequence) == ([], sequence)

    save(album / "cats" / "1.png", 100)
    save(album / "new" / "8.png", 8)
    (album / "dogs" / "0.png").rename(album / "moved.png")
    (album / "top.png").unlink()
    settle(album / "cats" / "3.png")
    planned = sync_folder(store, album, dry_run=True)
    assert store.sequence == sequence
    report = sync_folder(store, album)
    assert counts(planned) == counts(report) == [1, 1, 1, 1, 4]
    assert (report.added, report.replaced, report.removed) == (["new/8.png"], ["cats/1.png"], ["top.png"])
    assert report.moved == [("dogs/0.png", "moved.png")]
    assert str(report).startswith("1 added, 1 replaced, 1 moved, 1 removed, 0 skipped, 4 unchanged; 7 in all, ")
    assert kept(store) == naive(album, store.encoder)
    opened.clear()
    assert counts(sync_folder(store, album)) == [0, 0, 0, 0, 7]
    assert opened == []


def test_what_is_moved_or_touched_is_not_encoded(album, store, monkeypatch):
    sync_folder(store, album)
    for path in album.rglob("*.png"):
        settle(path)
    (album / "dogs").rename(album / "hounds")
    # A name that was another picture's.
    (album / "cats" / "1.png").replace(album / "cats" / "3.png")

    def refuse(*_):
        raise AssertionError("a picture was decoded")

    monkeypatch.setattr("hamtarget.copies.picture_codes.read_image", refuse)
    report = sync_folder(store, album)
    assert sorted(report.moved) == [("cats/1.png", "cats/3.png")] + [
        (f"dogs/{number}.png", f"hounds/{number}.png") for number in (0, 2, 4)
    ]
    monkeypatch.undo()
    assert kept(store) == naive(album, store.encoder)


@pytest.mark.parametrize("seed", range(6))
def test_random_changes_and_interruptions(tmp_path, seed, monkeypatch):
    """After any changes and any interruption, a sync that ends leaves what the folder holds."""
    chance = random.Random(seed)
    album, encoder = tmp_path / "album", open_encoder("dhash")
    save(album / "always.png", 0)
    monkeypatch.setattr(syncing, "_FILES_OF_COPIES", 3)
    monkeypatch.setattr(syncing, "_DELETED_AT_ONCE", 2)
    settings = {"encoder": encoder, "durability": "os"}
    if seed % 2:
        # Pixels go through the encoder, and embeddings are kept.
        settings["embeddings"] = Embeddings(64, "float32", "cosine")
        monkeypatch.setattr(syncing, "_FILES_OF_MODELS", 3)
    with Store.create(tmp_path / "store", **settings) as store:
        for _ in range(8):
            for _ in range(chance.randrange(8)):
                change(album, chance)
            calls = iter(range(chance.randrange(12)))

            def interrupt(*_, calls=calls):
                if next(calls, None) is None:
                    raise KeyboardInterrupt

            for tell in (interrupt, None):
                try:
                    sync_folder(store, album, progress=tell)
                except KeyboardInterrupt:
                    continue
            assert kept(store) == naive(album, encoder)


def change(album, chance):
    """Add, replace, move, copy, touch or remove one picture."""
    paths = sorted(path for path in album.rglob("*.png") if path.name != "always.png")
    target = album / chance.choice(["", "a", "b/c"]) / f"{chance.randrange(9)}.png"
    kind = chance.choice(["save", "save", "move", "copy", "touch", "remove"])
    if kind == "save" or not paths:
        # Few different contents, so that copies are common.
        save(target, chance.randrange(12))
        return
    source = chance.choice(paths)
    target.parent.mkdir(parents=True, exist_ok=True)
    if kind == "move":
        source.replace(target)
    elif kind == "copy" and source != target:
        shutil.copy2(source, target)
    elif kind == "touch":
        settle(source)
    elif kind == "remove":
        source.unlink()


def test_an_empty_folder_is_taken_for_a_missing_disk(album, store, tmp_path):
    sync_folder(store, album)
    album.rename(tmp_path / "elsewhere")
    with pytest.raises(FileError, match="does not exist"):
        sync_folder(store, album)
    album.mkdir()
    with pytest.raises(FileError, match="has 7 of it; is a disk missing"):
        sync_folder(store, album)
    assert len(store) == 7
    assert len(sync_folder(store, album, removes_missing=False).kept) == 7
    assert counts(sync_folder(store, album, allow_empty=True)) == [0, 0, 0, 7, 0]
    assert len(store) == 0


def test_missing_pictures_are_kept_if_asked(album, store):
    sync_folder(store, album)
    (album / "top.png").unlink()
    report = sync_folder(store, album, removes_missing=False)
    assert (report.kept, report.removed, len(store)) == (["top.png"], [], 7)
    assert sync_folder(store, album).removed == ["top.png"]


def test_a_folder_that_cannot_be_read_keeps_its_items(album, store, monkeypatch):
    sync_folder(store, album)
    (album / "top.png").unlink()
    scan = os.scandir

    def refuse(path):
        if str(path).endswith("cats"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    report = sync_folder(store, album)
    assert sorted(report.kept) == ["cats/1.png", "cats/3.png", "cats/5.png"]
    assert report.removed == ["top.png"]
    assert report.skipped == {"cats": "the folder cannot be listed: Permission denied"}
    assert len(store) == 6


def test_files_that_cannot_be_added_are_named(album, store):
    (album / "broken.jpg").write_bytes(b"no picture")
    (album / os.fsdecode(b"caf\xe9.png")).write_bytes((album / "top.png").read_bytes())
    os.mkfifo(album / "pipe.png")
    (album / "gone.png").symlink_to(album / "nowhere.png")
    report = sync_folder(store, album)
    assert len(report.added) == 7
    reasons = {os.fsencode(name): reason for name, reason in report.skipped.items()}
    assert reasons.keys() == {b"broken.jpg", b"caf\xe9.png", b"pipe.png", b"gone.png"}
    assert "not UTF-8" in reasons[b"caf\xe9.png"]
    assert reasons[b"pipe.png"] == "is no ordinary file"
    assert str(album) not in "".join(reasons.values())
    # One that can no longer be read keeps its item as it was.
    before = kept(store)
    (album / "top.png").write_bytes(b"damaged")
    assert "top.png" in sync_folder(store, album).skipped
    assert kept(store) == before


def test_payloads_keep_what_is_the_callers_own(album, store):
    sync_folder(store, album)
    (item,) = store.get(["cats/1.png"])
    store.put([Item(item.id, code=item.code, payload={**item.payload, "seen": True, "label": "tiger"})])
    save(album / "cats" / "1.png", 50)
    sync_folder(store, album)
    (album / "cats" / "1.png").rename(album / "one.png")
    (album / "cats" / "3.png").rename(album / "three.png")
    sync_folder(store, album)
    one, three = store.payloads(["one.png", "three.png"])
    assert (one["seen"], one["label"], one["image"]) == (True, "tiger", "one.png")
    assert "label" not in three


def test_two_folders_in_one_store(album, store, tmp_path):
    sync_folder(store, album)
    other = tmp_path / "other"
    shutil.copytree(album, other)
    with pytest.raises(InputError, match="those of pictures of the folder 'album'"):
        sync_folder(store, other)
    assert counts(sync_folder(store, other, prefix="other/")) == [7, 0, 0, 0, 0]
    (other / "top.png").unlink()
    assert sync_folder(store, other, prefix="other/").removed == ["top.png"]
    assert counts(sync_folder(store, album)) == [0, 0, 0, 0, 7]
    # A renamed folder is the same one, if its name is given.
    album.rename(tmp_path / "renamed")
    assert counts(sync_folder(store, tmp_path / "renamed", name="album")) == [0, 0, 0, 0, 7]


def test_items_that_came_another_way(album, store):
    """Items of no folder stay, unless they have the id of a picture in it."""
    code = np.zeros(8, np.uint8)
    store.put(
        [
            Item("top.png", code=code, payload={"image": str(album / "top.png"), "tag": 1}),
            Item("elsewhere.png", code=code, payload={"image": "/elsewhere/elsewhere.png"}),
            Item(5, code=code),
        ]
    )
    report = sync_folder(store, album)
    assert (report.replaced, report.removed, len(report.added)) == (["top.png"], [], 6)
    assert store.payloads(["top.png"])[0]["tag"] == 1
    assert "elsewhere.png" in store
    assert 5 in store


def test_a_file_that_changed_just_now_is_looked_at_again(album, store, opened):
    (album / "top.png").touch()
    sync_folder(store, album)
    opened.clear()
    assert counts(sync_folder(store, album)) == [0, 0, 0, 0, 7]
    assert opened == [str(album / "top.png")]


def test_refusals(album, store, tmp_path):
    with Store.create(tmp_path / "codes", n_bits=64) as codes, pytest.raises(InputError, match="has no encoder"):
        sync_folder(codes, album)
    with Store.create(tmp_path / "texts", encoder=open_encoder("simhash64")) as texts:
        with pytest.raises(InputError, match="keeps texts; expected a store whose encoder takes pictures"):
            sync_folder(texts, album)
    store.close()
    with Store.open(tmp_path / "store", read_only=True) as reading, pytest.raises(ReadOnlyError):
        sync_folder(reading, album)


@pytest.mark.parametrize("calls", [1, 2, 3, 5])
def test_a_killed_sync_goes_on(album, tmp_path, calls):
    """Whatever was committed when the process was killed, the next sync ends with what the folder holds."""
    script = (
        "import os, signal\n"
        "from hamtarget import Store\n"
        "from hamtarget.folders import sync_folder, syncing\n"
        "syncing._FILES_OF_COPIES, syncing._DELETED_AT_ONCE = 2, 1\n"
        "told = iter(range({calls}))\n"
        "def kill(what, done, total):\n"
        "    if what != 'Listing' and next(told, None) is None: os.kill(os.getpid(), signal.SIGKILL)\n"
        "with Store.open({store!r}) as store: sync_folder(store, {album!r}, progress=kill)\n"
    )
    with Store.create(tmp_path / "store", encoder=open_encoder("dhash")) as store:
        sync_folder(store, album)
    save(album / "cats" / "1.png", 100)
    save(album / "new.png", 101)
    (album / "dogs").rename(album / "hounds")
    (album / "top.png").unlink()
    (album / "cats" / "3.png").unlink()
    command = script.format(calls=calls, store=str(tmp_path / "store"), album=str(album))
    ended = subprocess.run([sys.executable, "-c", command], check=False, timeout=120)
    assert ended.returncode == -signal.SIGKILL
    with Store.open(tmp_path / "store") as store:
        sync_folder(store, album)
        assert kept(store) == naive(album, store.encoder)
        assert store.verify().ok


def test_states_of_files(album):
    status = os.stat(album / "top.png")
    state = state_of(status, b"d" * 20, time.time_ns())
    assert parse_state(str(state)) == state
    assert state.is_that_of(status)
    # So soon after a change, another one might leave the time as it is.
    assert not state_of(status, b"d" * 20, status.st_mtime_ns + 10**9).is_that_of(status)
    assert not FileState(state.n_bytes, state.time_ns + 1, state.digest).is_that_of(status)
    assert not FileState(state.n_bytes + 1, state.time_ns, state.digest).is_that_of(status)
    for text in (None, 7, "", "1 2", "1 2 zz", "1 2 aa", f"{state} 4", {"a": 1}):
        assert parse_state(text) is None
    assert picture_payload("a/b.png", "album", state) == {
        "image": "a/b.png",
        "label": "a",
        "folder": "album",
        "file": str(state),
    }
