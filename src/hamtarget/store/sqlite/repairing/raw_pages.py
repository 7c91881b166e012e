"""Pages of a database and of its log, read from the files themselves: SQLite neither opens nor changes them.

The formats are those of https://sqlite.org/fileformat2.html. SQLite reads a log up to the first frame that does not
have its checksum. Frames behind it are found here as well: the checksum of a frame continues that of the frame before,
which is written in that frame, so that each frame can be checked by itself.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

TABLE_LEAF, TABLE_INNER, INDEX_LEAF, INDEX_INNER = 0x0D, 0x05, 0x0A, 0x02
_MAGIC = b"SQLite format 3\0"
_LOG_MAGICS = (0x377F0682, 0x377F0683)
_LOG_HEADER = struct.Struct(">8I")
_FRAME_HEADER = struct.Struct(">6I")
_USUAL_PAGE_SIZE = 4096
_MOST_PAGES = 2**31
_MASK = 0xFFFFFFFF


@dataclass
class Log:
    """A log, as far as it can be read.

    Attributes:
        page_size: bytes of a page.
        places: where in the file the last image of each page is, up to the last commit that SQLite reads.
        n_pages: pages of the database after that commit; 0 where there is none.
        later_places: the same with what lies behind damage, up to the last commit that can be recognized there.
        later_n_pages: pages of the database after that commit; 0 where there is none.
        damaged: pages whose last image in `later_places` does not have its checksum.
        is_damaged: True if there are commits that SQLite does not read.
    """

    page_size: int = 0
    places: dict[int, int] = field(default_factory=dict)
    n_pages: int = 0
    later_places: dict[int, int] = field(default_factory=dict)
    later_n_pages: int = 0
    damaged: set[int] = field(default_factory=set)
    is_damaged: bool = False


class Pages:
    """The pages of a store's database at one moment.

    Attributes:
        log: what its log holds.
        page_size: bytes of a page.
        n_pages: number of pages.
        damaged: pages whose image does not have the checksum of its frame.
    """

    def __init__(self, database: Path, *, behind_damage: bool) -> None:
        """Map the files.

        Args:
            database: the file; its log lies beside it.
            behind_damage: if True, what the log holds behind damage counts, too.
        """
        self._database = _content(database)
        self._log = _content(database.with_name(f"{database.name}-wal"))
        self.log = read_log(self._log, self._database)
        self.page_size = _page_size(self._database) or self.log.page_size or _USUAL_PAGE_SIZE
        in_file = -(-len(self._database) // self.page_size)
        is_usable = self.log.page_size == self.page_size
        self._places = dict(self.log.places) if is_usable else {}
        self.damaged: set[int] = set()
        n_pages = self.log.n_pages if is_usable else 0
        if behind_damage and is_usable and self.log.later_n_pages:
            self._places.update(self.log.later_places)
            self.damaged = self.log.damaged
            n_pages = self.log.later_n_pages
        self.n_pages = n_pages or self._noted_pages() or in_file

    def read(self, number: int) -> bytes | None:
        """Return a page; None where it is missing or cut off."""
        if not 1 <= number <= self.n_pages:
            return None
        place = self._places.get(number)
        if place is not None:
            return bytes(self._log[place : place + self.page_size])
        start = (number - 1) * self.page_size
        page = bytes(self._database[start : start + self.page_size])
        return page if len(page) == self.page_size else None

    def _noted_pages(self) -> int:
        """Return the number of pages that the first page tells; 0 where that cannot be believed."""
        first = bytes(self._database[:100])
        if len(first) < 100 or first[:16] != _MAGIC or first[24:28] != first[92:96]:
            return 0
        noted = int.from_bytes(first[28:32])
        return noted if noted <= _MOST_PAGES else 0


def _content(path: Path) -> bytes | mmap.mmap:
    try:
        with open(path, "rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (FileNotFoundError, ValueError):
        # Nothing can be mapped of an empty file.
        return b""


def _page_size(database: bytes | mmap.mmap) -> int:
    size = int.from_bytes(database[16:18])
    size = 65536 if size == 1 else size
    return size if database[:16] == _MAGIC and _is_page_size(size) else 0


def _is_page_size(size: int) -> bool:
    return 512 <= size <= 65536 and size & (size - 1) == 0


@dataclass
class _Frame:
    page: int
    n_pages_after: int
    place: int
    is_whole: bool

    @property
    def is_commit(self) -> bool:
        return 0 < self.page <= self.n_pages_after < _MOST_PAGES


def read_log(content: bytes | mmap.mmap, database: bytes | mmap.mmap) -> Log:
    """Return what a log holds.

    Behind damage, a frame is used if it has its checksum, or if its page is certainly the one that it names: else that
    page might be taken for another, and another be out of date without anybody knowing. The log then ends before it.
    """
    if len(content) < _LOG_HEADER.size + _FRAME_HEADER.size:
        return Log()
    magic, _, page_size, _, *rest = _LOG_HEADER.unpack(content[: _LOG_HEADER.size])
    salts, sums = tuple(rest[:2]), tuple(rest[2:])
    computed = _sums(content[:24], (0, 0), _order(magic))
    is_header_whole = magic in _LOG_MAGICS and _is_page_size(page_size) and computed == sums
    if not is_header_whole:
        # SQLite takes such a log for empty. Its first frame says which ones belong together.
        page_size = _USUAL_PAGE_SIZE
        salts = _FRAME_HEADER.unpack(content[32:56])[2:4]
        magic = _LOG_MAGICS[0]
    frames, n_chained = _read_frames(content, page_size, salts, [sums, computed], _order(magic))
    n_committed = _past_commit(frames[: n_chained if is_header_whole else 0])
    log = Log(page_size)
    log.places = {frame.page: frame.place for frame in frames[:n_committed]}
    log.n_pages = frames[n_committed - 1].n_pages_after if n_committed else 0
    n_later = _past_commit(frames[: _n_certain(content, database, frames, n_committed, page_size)])
    if n_later > n_committed:
        last = {frame.page: frame for frame in frames[n_committed:n_later]}
        log.later_places = {page: frame.place for page, frame in last.items()}
        log.later_n_pages = frames[n_later - 1].n_pages_after
        log.damaged = {page for page, frame in last.items() if not frame.is_whole}
    log.is_damaged = _past_commit(frames) > n_committed
    return log


def _read_frames(
    content: bytes | mmap.mmap, page_size: int, salts: tuple[int, ...], before: list[tuple[int, ...]], order: str
) -> tuple[list[_Frame], int]:
    """Return all frames of a log, and how many of them SQLite reads.

    Args:
        content: the log.
        page_size: bytes of a page.
        salts: numbers that each of the frames holds.
        before: checksums of what is before the first frame: as they are written, and as they should be.
        order: of the bytes of a number.
    """
    frames: list[_Frame] = []
    past_own = n_chained = 0
    is_chain = True
    size = _FRAME_HEADER.size + page_size
    for start in range(_LOG_HEADER.size, len(content) - size + 1, size):
        header = bytes(content[start : start + _FRAME_HEADER.size])
        page, n_pages_after, *rest = _FRAME_HEADER.unpack(header)
        has_salts, stored = tuple(rest[:2]) == salts, tuple(rest[2:])
        page_start = start + _FRAME_HEADER.size
        if not has_salts and len(frames) > past_own + 2:
            # Frames that a restart of the log has left: they are in the database.
            break
        image = bytes(content[page_start : page_start + page_size])
        found = [_sums(header[:8] + image, sums, order) for sums in before]
        is_chain = is_chain and has_salts and found[0] == stored
        frame = _Frame(page, n_pages_after, page_start, is_whole=stored in found)
        if frames and not frames[-1].is_whole and found[-1] == stored != found[0]:
            # It continues what the frame before should be: only the checksum that is written there was damaged.
            frames[-1].is_whole = True
        if has_salts and not frame.is_whole:
            _correct(frame, header, image, before[0], stored, order)
        frames.append(frame)
        if is_chain:
            n_chained = len(frames)
        if has_salts or frame.is_whole:
            past_own = len(frames)
        before = [stored, found[0]]
    return frames[:past_own], n_chained


def _correct(
    frame: _Frame, header: bytes, image: bytes, sums: tuple[int, ...], stored: tuple[int, ...], order: str
) -> None:
    """Restore the numbers in a frame's header if one bit of them is wrong: the checksum says which."""
    for bit in range(64):
        numbers = (int.from_bytes(header[:8]) ^ 1 << bit).to_bytes(8)
        if _sums(numbers + image, sums, order) == stored:
            frame.page, frame.n_pages_after = struct.unpack(">2I", numbers)
            frame.is_whole = True
            return


def _n_certain(
    content: bytes | mmap.mmap, database: bytes | mmap.mmap, frames: list[_Frame], n_committed: int, page_size: int
) -> int:
    """Return how many frames there are before the first one that may be of another page than it names."""
    places = {frame.page: frame.place for frame in frames[:n_committed]}
    for number, frame in enumerate(frames[n_committed:], n_committed):
        if not frame.is_whole:
            start = places.get(frame.page)
            source = content if start is not None else database
            start = (frame.page - 1) * page_size if start is None else start
            earlier = bytes(source[start : start + page_size]) if frame.page else b""
            image = bytes(content[frame.place : frame.place + page_size])
            if not _are_of_one_page(earlier, image):
                return number
        places[frame.page] = frame.place
    return len(frames)


def _are_of_one_page(earlier: bytes, image: bytes) -> bool:
    """Return True if two images, the second of them damaged, share rows as only images of one page do."""
    if not earlier or image[0] in (INDEX_LEAF, INDEX_INNER):
        # Nothing is read from indexes.
        return bool(earlier) and earlier[0] in (INDEX_LEAF, INDEX_INNER)
    one, two = _keys(earlier), _keys(image)
    return 2 * len(one & two) > min(len(one), len(two))


def _keys(page: bytes) -> set[int]:
    """Return the row numbers in a page of a table."""
    is_inner = page[0] == TABLE_INNER
    keys = set()
    for offset in cells(page, 0, 12 if is_inner else 8):
        with suppress(IndexError):
            at = offset + 4 if is_inner else varint(page, offset)[1]
            keys.add(varint(page, at)[0])
    return keys


def cells(page: bytes, start: int, header: int) -> Iterator[int]:
    """Yield where the cells of a page begin, as far as that can be."""
    n_cells = int.from_bytes(page[start + 3 : start + 5])
    first = start + header
    for place in range(min(n_cells, (len(page) - first) // 2)):
        offset = int.from_bytes(page[first + 2 * place : first + 2 * place + 2])
        if first <= offset < len(page):
            yield offset


def varint(content: bytes, at: int) -> tuple[int, int]:
    """Return a number of up to 64 bits, and where it ends."""
    value = 0
    for _ in range(8):
        byte = content[at]
        at += 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at
    value = value << 8 | content[at]
    return value - 2**64 if value >= 2**63 else value, at + 1


def _past_commit(frames: list[_Frame]) -> int:
    return next((place + 1 for place in reversed(range(len(frames))) if frames[place].is_commit), 0)


def _order(magic: int) -> str:
    return ">" if magic & 1 else "<"


def _sums(content: bytes, sums: tuple[int, ...], order: str) -> tuple[int, int]:
    """Return the checksums of a log after more content."""
    first, second = sums
    words = iter(struct.unpack(f"{order}{len(content) // 4}I", content))
    for one, two in zip(words, words, strict=True):
        first = (first + one + second) & _MASK
        second = (second + two + first) & _MASK
    return first, second
