"""The content cache: values come back as they were put or not at all, and nothing about the cache is an error."""

import multiprocessing
import os
import sqlite3

import pytest

from hamtarget.datasets.content_cache import ContentCache, cache_folder, content_digest, digest_of
from hamtarget.errors import FileError, InputError

KEYS = [digest_of(bytes([n])) for n in range(200)]


def value_of(key):
    """A value that depends on its key."""
    return key[:8][::-1]


@pytest.fixture
def cache(tmp_path):
    with ContentCache("m", value_bytes=8, folder=tmp_path / "cache") as made:
        yield made


def fill(folder, start):
    """Put a third of the keys several times, and read all between; return False if a value was wrong."""
    right = True
    with ContentCache("m", value_bytes=8, folder=folder) as cache:
        for _ in range(20):
            cache.put({key: value_of(key) for key in KEYS[start::3]})
            right = right and all(value == value_of(key) for key, value in cache.get(KEYS).items())
    return right


def test_values_come_back(cache):
    cache.put({key: value_of(key) for key in KEYS[:100]})
    assert cache.get(KEYS) == {key: value_of(key) for key in KEYS[:100]}
    assert cache.get([]) == {}
    cache.put({KEYS[0]: b"12345678"})
    assert cache.get([KEYS[0], KEYS[0]]) == {KEYS[0]: b"12345678"}


def test_more_digests_than_a_statement_takes(cache):
    keys = [digest_of(str(n).encode()) for n in range(5000)]
    cache.put({key: value_of(key) for key in keys})
    assert len(cache.get(iter(keys))) == 5000


def test_a_cache_is_found_again_by_another_object(cache, tmp_path):
    cache.put({KEYS[0]: b"12345678"})
    assert ContentCache("m", value_bytes=8, folder=tmp_path / "cache").get(KEYS) == {KEYS[0]: b"12345678"}
    cache.close()
    assert cache.get(KEYS) == {KEYS[0]: b"12345678"}


def test_two_makers_do_not_share(cache, tmp_path):
    cache.put({KEYS[0]: b"12345678"})
    for maker, value_bytes in (("n", 8), ("m", 4)):
        other = ContentCache(maker, value_bytes=value_bytes, folder=tmp_path / "cache")
        assert other.path != cache.path
        assert other.get(KEYS) == {}
        other.close()


def test_the_file_of_another_maker_holds_nothing(cache, tmp_path):
    other = ContentCache("n", value_bytes=8, folder=tmp_path / "cache")
    other.put({KEYS[0]: b"12345678"})
    other.close()
    os.replace(other.path, cache.path)
    assert cache.get(KEYS) == {}


def test_wrong_lengths_are_refused(cache):
    with pytest.raises(InputError, match="7 bytes; this cache keeps values of 8"):
        cache.put({KEYS[0]: b"1234567", KEYS[1]: b"12345678"})
    assert cache.get(KEYS) == {}
    with pytest.raises(InputError, match="value_bytes is 0"):
        ContentCache("m", value_bytes=0)


def test_the_variable_names_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HAMTARGET_CACHE", str(tmp_path / "chosen"))
    assert ContentCache("m", value_bytes=8).path.parent == tmp_path / "chosen"


@pytest.mark.parametrize("altered", ["value = x'0000000000000000'", "checksum = x'00'", "value = 'text'", "value = 7"])
def test_an_altered_value_does_not_come_back(cache, altered):
    cache.put({key: value_of(key) for key in KEYS[:3]})
    with sqlite3.connect(cache.path) as connection:
        connection.execute(f"UPDATE kept SET {altered} WHERE digest = ?", (KEYS[1],))
    connection.close()
    assert set(cache.get(KEYS)) == {KEYS[0], KEYS[2]}


@pytest.mark.parametrize("content", [b"", b"not a database" * 100, "cut", "zeros", "other tables"])
def test_a_damaged_file_is_set_aside(cache, content):
    cache.put({key: value_of(key) for key in KEYS})
    cache.close()
    whole = cache.path.read_bytes()
    if content == "cut":
        content = whole[: len(whole) // 2]
    elif content == "zeros":
        content = whole[:100] + bytes(len(whole) - 100)
    elif content == "other tables":
        cache.path.unlink()
        with sqlite3.connect(cache.path) as connection:
            connection.execute("CREATE TABLE kept (something)")
        connection.close()
        content = cache.path.read_bytes()
    cache.path.write_bytes(content)
    found = cache.get(KEYS)
    assert all(value == value_of(key) for key, value in found.items())
    # The first call may only notice the damage.
    cache.put({KEYS[0]: value_of(KEYS[0])})
    cache.put({KEYS[0]: value_of(KEYS[0])})
    assert cache.get(KEYS[:1]) == {KEYS[0]: value_of(KEYS[0])}


def test_every_flipped_byte_gives_right_values_or_none(tmp_path):
    with ContentCache("m", value_bytes=8, folder=tmp_path) as cache:
        cache.put({key: value_of(key) for key in KEYS[:20]})
    whole = cache.path.read_bytes()
    for place in range(0, len(whole), 37):
        cache.path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])
        with ContentCache("m", value_bytes=8, folder=tmp_path) as damaged:
            found = damaged.get(KEYS)
            assert all(value == value_of(key) for key, value in found.items())
            damaged.put({KEYS[50]: value_of(KEYS[50])})


def test_several_processes_at_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    with context.Pool(3) as pool:
        assert all(pool.starmap(fill, [(tmp_path, start) for start in range(3)]))
    with ContentCache("m", value_bytes=8, folder=tmp_path) as cache:
        assert cache.get(KEYS) == {key: value_of(key) for key in KEYS}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_opens_the_file_itself(cache):
    cache.put({KEYS[0]: value_of(KEYS[0])})
    child = os.fork()
    if not child:
        cache.put({KEYS[1]: value_of(KEYS[1])})
        os._exit(0 if len(cache.get(KEYS)) == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(cache.get(KEYS)) == 2


def test_a_full_disk_only_means_no_caching(cache):
    cache.put({KEYS[0]: value_of(KEYS[0])})
    # SQLite itself says that the disk is full once a file has as many pages as it may have.
    cache._connection.execute("PRAGMA max_page_count=1")
    keys = [digest_of(str(n).encode()) for n in range(2000)]
    cache.put({key: value_of(key) for key in keys})
    cache.put({key: value_of(key) for key in keys})
    assert cache.get([*keys, KEYS[0]]) == {KEYS[0]: value_of(KEYS[0])}


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    cache = ContentCache("m", value_bytes=8, folder=tmp_path / "file" / "cache")
    cache.put({KEYS[0]: value_of(KEYS[0])})
    assert cache.get(KEYS) == {}


def test_a_home_that_is_not_there(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("HAMTARGET_CACHE", raising=False)
    monkeypatch.setattr("pathlib.Path.home", no_home)
    cache = ContentCache("m", value_bytes=8)
    cache.put({KEYS[0]: value_of(KEYS[0])})
    assert cache.get(KEYS) == {}


def test_a_busy_file_only_means_no_caching(cache, monkeypatch):
    monkeypatch.setattr("hamtarget.datasets.content_cache._WAIT_SECONDS", 0.05)
    cache.put({KEYS[0]: value_of(KEYS[0])})
    cache.close()
    other = sqlite3.connect(cache.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    cache.put({KEYS[1]: value_of(KEYS[1])})
    assert cache.get(KEYS) == {}
    other.execute("COMMIT")
    other.close()
    assert cache.get(KEYS) == {KEYS[0]: value_of(KEYS[0])}


def test_the_digest_is_that_of_the_content(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"x" * 300_000)
    two.write_bytes(b"x" * 300_000)
    assert content_digest(one) == content_digest(two) == digest_of(b"x" * 300_000)
    two.write_bytes(b"y" * 300_000)
    assert content_digest(one) != content_digest(two)
    with pytest.raises(FileError, match="expected a file that can be read"):
        content_digest(tmp_path / "absent")


def test_it_says_what_it_is(cache):
    assert repr(cache).startswith("ContentCache('m', value_bytes=8, path=")


def test_the_cache_has_a_default_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("HAMTARGET_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "hamtarget"
