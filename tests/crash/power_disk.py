"""A disk that loses its power: the states that a recorded sequence of file operations may leave behind.

The rules are those of POSIX at their worst, as a file system such as ext4 or XFS may make use of them:

- What was written to a file is sure to stay only after an fsync of that file. Until then each sector of 512 bytes may
  be there or not, in any order; the size may be the new one without the data (zeros), or the old one.
- A name (created, linked, renamed, removed) is sure to stay only after an fsync of the folder that holds it. An fsync
  of the file itself is not enough. Until then each change of names may be there or not, in any order.
- A rename is atomic: both names change, or neither.
- SQLite's `-shm` files are left out: it makes them anew after a crash.

`read_trace` reads what power_trace.c has recorded; `Disk.replay` follows it; `Disk.image` is what a loss of power would
leave at that moment.
"""

import random
import struct
from typing import NamedTuple

SECTOR = 512
_NUMBERS = struct.Struct("=c4Q")


class Record(NamedTuple):
    """An operation; `path` and, of a rename, `data` are relative to the traced folder."""

    kind: str
    inode: int = 0
    position: int = 0
    path: str = ""
    data: bytes = b""


CREATE, NAMELESS, FOLDER, LINK = "c", "t", "d", "l"
WRITE, SIZE, SYNC = "w", "s", "f"
RENAME, REMOVE = "r", "u"
MARK, UNSEEN = "M", "X"


def read_trace(file, root):
    """Return the records of a trace.

    Raises:
        AssertionError: the process has done something that cannot be replayed.
    """
    content, records, place = file.read_bytes(), [], 0
    while place < len(content):
        kind, inode, position, n_path, n_data = _NUMBERS.unpack_from(content, place)
        place += _NUMBERS.size
        path = content[place : place + n_path].decode()
        data = content[place + n_path : place + n_path + n_data]
        place += n_path + n_data
        record = Record(kind.decode(), inode, position, path, data)
        assert record.kind != UNSEEN, f"cannot be replayed: {path} {data.decode(errors='replace')}"
        if record.kind == RENAME:
            record = record._replace(data=_inside(data.decode(), root).encode())
        if record.kind != MARK:
            record = record._replace(path=_inside(path, root))
        records.append(record)
    return records


def _inside(path, root):
    assert not path or path == str(root) or path.startswith(f"{root}/"), path
    return path[len(str(root)) + 1 :]


class _Folder:
    """A folder; its entries are in the disk's tables."""


class _File:
    """A file: what is sure to be there, and what was written since."""

    def __init__(self):
        self.synced = b""
        self.pending = []

    def sync(self):
        self.synced = self.whole(self.pending)
        self.pending = []

    def whole(self, pending):
        """Return the content if these operations survive."""
        content = bytearray(self.synced)
        for record in pending:
            _apply(content, record)
        return bytes(content)

    def torn(self, rng, share):
        """Return the content if a part of the operations survives, of writes perhaps some sectors only."""
        if not self.pending:
            return self.synced
        content, sizes = bytearray(self.synced), [len(self.synced)]
        for record in self.pending:
            sizes.append(
                max(sizes[-1], record.position + len(record.data)) if record.kind == WRITE else record.position
            )
            fate = rng.random()
            if fate < share * 0.8:
                _apply(content, record)
            elif fate < share and record.kind == WRITE:
                for piece in _sectors(record):
                    if rng.random() < 0.5:
                        _apply(content, piece)
        # The size is metadata: that of any moment, whatever happened to the data.
        if rng.random() < 0.3:
            size = rng.choice(sizes)
            content = content[:size] + bytes(max(0, size - len(content)))
        return bytes(content)


def _apply(content, record):
    end = record.position if record.kind == SIZE else record.position + len(record.data)
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    if record.kind == SIZE:
        del content[end:]
    else:
        content[record.position : end] = record.data


def _sectors(record):
    """Return a write as one write for each sector that it touches."""
    end = record.position + len(record.data)
    bounds = [record.position, *range((record.position // SECTOR + 1) * SECTOR, end, SECTOR), end]
    return [
        record._replace(position=start, data=record.data[start - record.position : stop - record.position])
        for start, stop in zip(bounds, bounds[1:], strict=False)
    ]


class Disk:
    """Files and folders as a process sees them, and as a loss of power may leave them.

    Args:
        lies: returns True for an fsync (of a folder, if its argument is True) that this disk answers without doing it.
    """

    def __init__(self, lies=lambda of_folder: False):
        self._root = _Folder()
        self._lies = lies
        self._nodes = {}
        # Entries by (folder, name): as the process sees them, and those that are sure to stay.
        self._seen = {}
        self._synced = {}
        # Changes of names that may be lost: each a dict of entries, None for one that is removed.
        self._pending = []
        self._last_write = None

    def replay(self, record):
        """Do one operation."""
        self._last_write = None
        getattr(self, f"_do_{_VERBS[record.kind]}")(record)

    def image(self, *, share, rng=None):
        """Return what is there after a loss of power: contents by path, None for a folder.

        Args:
            share: of what is not sure to stay, so much survives: 0, 1, or a share drawn by `rng`.
            rng: draws.
        """
        if share in (0, 1):
            changes = self._pending if share else []
            return self._walk(changes, lambda file: file.whole(file.pending) if share else file.synced)
        changes = [change for change in self._pending if rng.random() < share]
        return self._walk(changes, lambda file: file.torn(rng, share))

    def images_with_torn_write(self):
        """Return the states in which all survives, but of the last operation, a write, only the first sectors."""
        if self._last_write is None:
            return []
        cut_file, sectors = self._last_write, _sectors(self._last_write.pending[-1])
        places = sorted({1, len(sectors) // 2, len(sectors) - 1} - {0, len(sectors)})

        def content(n_kept, file):
            kept = file.pending if file is not cut_file else [*file.pending[:-1], *sectors[:n_kept]]
            return file.whole(kept)

        return [self._walk(self._pending, lambda file, n=n_kept: content(n, file)) for n_kept in places]

    def _walk(self, changes, content):
        entries = dict(self._synced)
        for change in changes:
            entries.update(change)
        folders = {}
        for (folder, name), node in entries.items():
            if node is not None:
                folders.setdefault(folder, {})[name] = node
        found, waiting = {}, [("", self._root)]
        while waiting:
            path, folder = waiting.pop()
            for name, node in folders.get(folder, {}).items():
                if isinstance(node, _Folder):
                    found[f"{path}{name}"] = None
                    waiting.append((f"{path}{name}/", node))
                elif not name.endswith("-shm"):
                    found[f"{path}{name}"] = content(node)
        return found

    def _place(self, path):
        *folders, name = path.split("/")
        folder = self._root
        for each in folders:
            folder = self._seen[folder, each]
        return folder, name

    def _change(self, change):
        self._seen.update(change)
        self._pending.append(change)

    def _do_create(self, record):
        place = self._place(record.path)
        if self._seen.get(place) is None:
            self._nodes[record.inode] = _File()
            self._change({place: self._nodes[record.inode]})

    def _do_nameless(self, record):
        self._nodes[record.inode] = _File()

    def _do_folder(self, record):
        if not record.path:
            self._nodes[record.inode] = self._root
            return
        self._nodes[record.inode] = _Folder()
        self._change({self._place(record.path): self._nodes[record.inode]})

    def _do_link(self, record):
        self._change({self._place(record.path): self._nodes[record.inode]})

    def _do_rename(self, record):
        old, new = self._place(record.path), self._place(record.data.decode())
        self._change({old: None, new: self._seen[old]})

    def _do_remove(self, record):
        self._change({self._place(record.path): None})

    def _do_write(self, record):
        file = self._nodes[record.inode]
        file.pending.append(record)
        self._last_write = file

    def _do_size(self, record):
        self._nodes[record.inode].pending.append(record)

    def _do_sync(self, record):
        node = self._nodes[record.inode]
        if self._lies(isinstance(node, _Folder)):
            return
        if isinstance(node, _File):
            node.sync()
            return
        # All changes in this folder, and whatever came before them with the same names elsewhere: a rename between
        # folders is one change.
        names, kept = {place for change in self._pending for place in change if place[0] is node}, []
        for change in reversed(self._pending):
            if names.isdisjoint(change):
                kept.append(change)
            else:
                names.update(change)
        surely = [change for change in self._pending if all(change is not other for other in kept)]
        for change in surely:
            self._synced.update(change)
        self._pending = kept[::-1]

    def _do_mark(self, record):
        pass


_VERBS = {
    CREATE: "create",
    NAMELESS: "nameless",
    FOLDER: "folder",
    LINK: "link",
    WRITE: "write",
    SIZE: "size",
    SYNC: "sync",
    RENAME: "rename",
    REMOVE: "remove",
    MARK: "mark",
}


def images_of(disk, samples, seed):
    """Yield states that a loss of power may leave: nothing unsure, all of it, a torn last write, and random ones."""
    yield disk.image(share=0)
    yield disk.image(share=1)
    yield from disk.images_with_torn_write()
    rng = random.Random(seed)
    for _ in range(samples):
        yield disk.image(share=rng.choice([0.2, 0.5, 0.8]), rng=rng)
