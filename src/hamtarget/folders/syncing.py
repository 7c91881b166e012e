"""Let a store follow a folder of pictures: what is new, changed, moved or gone."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget._picture_form import form_of
from hamtarget.codes import Codes
from hamtarget.datasets.content_cache import content_digest
from hamtarget.datasets.pictures.picture_folders import list_pictures
from hamtarget.datasets.pictures.picture_payloads import FileState, name_of_folder, picture_payload
from hamtarget.encoders.texts.text_inputs import takes_texts
from hamtarget.errors import FileError, InputError
from hamtarget.folders.file_changes import FileChanges, KnownPictures, PictureFile, changes_of, ids_of, known_pictures
from hamtarget.items import Id, Item
from hamtarget.progress import Progress, Stages
from hamtarget.store import Store
from hamtarget.store.defaults import is_made_for_copies
from hamtarget.store.items.encoded_inputs import encode

# Ids that a transaction deletes.
_DELETED_AT_ONCE = 4096
# Codes of copies are kept by content as they are made, so a large batch loses nothing when it is interrupted.
_FILES_OF_COPIES = 16_384
# Others are pixels in memory first.
_FILES_OF_MODELS = 512


@dataclass(frozen=True, eq=False)
class SyncReport:
    """Changes that `sync_folder` made; or, of a dry run, would make.

    Names are paths within the folder, with "/" between the parts.

    Attributes:
        folder: name of the folder in payloads.
        added: new pictures.
        replaced: pictures whose content has changed.
        moved: former and present name of pictures that were moved or renamed; they were not encoded again.
        removed: pictures that are no longer in the folder.
        kept: pictures that are no longer found, but whose items stay: as asked, or since their folder cannot be read.
        skipped: by name, why a file or a folder was left out; an item that it had before stays as it was.
        unchanged: number of pictures that are as they were.
        items: number of items in the store afterwards.
        seconds: time that it took.
        dry_run: True if nothing was changed.
    """

    folder: str
    added: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    moved: list[tuple[str, str]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    unchanged: int = 0
    items: int = 0
    seconds: float = 0.0
    dry_run: bool = False

    def __str__(self) -> str:
        """Return the numbers in one line."""
        counts = [f"{len(getattr(self, name)):,} {name}" for name in ("added", "replaced", "moved", "removed")]
        counts += [f"{len(self.kept):,} kept"] if self.kept else []
        counts += [f"{len(self.skipped):,} skipped", f"{self.unchanged:,} unchanged"]
        told = "dry run, nothing changed: " if self.dry_run else ""
        return f"{told}{', '.join(counts)}; {self.items:,} in all, {self.seconds:.1f} s"

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON says it."""
        return {
            "folder": self.folder,
            "added": list(self.added),
            "replaced": list(self.replaced),
            "moved": [list(pair) for pair in self.moved],
            "removed": list(self.removed),
            "kept": list(self.kept),
            "skipped": dict(self.skipped),
            "unchanged": self.unchanged,
            "items": self.items,
            "seconds": round(self.seconds, 3),
            "dry_run": self.dry_run,
        }


def sync_folder(
    store: Store,
    folder: str | os.PathLike[str],
    *,
    prefix: str = "",
    name: str | None = None,
    removes_missing: bool = True,
    allow_empty: bool = False,
    dry_run: bool = False,
    workers: int | None = 0,
    progress: Stages | None = None,
) -> SyncReport:
    """Make a store hold the pictures of a folder as they are now.

    New pictures are added, changed ones replaced, those that are gone removed. A picture whose size and time are as
    they were is not opened. One that was moved or renamed is known by its content, and keeps its code. Items of other
    folders, and items that came another way, stay as they are. Each batch is one transaction: whenever this is
    interrupted, the next call goes on and ends with the same items.

    Args:
        store: open for writing; its encoder takes pictures.
        folder: pictures in it and below; linked folders are followed.
        prefix: stands before each id, which is the path within the folder.
        name: what payloads call the folder; by default the last part of its path. All items of that name belong to it.
        removes_missing: False to keep the items of pictures that are gone.
        allow_empty: True to remove all items if the folder holds no picture; otherwise it is taken for a disk that is
            not there.
        dry_run: True to change nothing, and to report what would be done; pictures are not decoded.
        workers: processes that read pictures; 0: this one; None: one for each core, where there are enough pictures.
            With workers, a script needs `if __name__ == "__main__"`.
        progress: called with what is being done, how much of it is done, and of how much; None where that is not known.

    Raises:
        FileError: there is no such folder; or it holds no picture, and the store has some of it.
        InputError: the store's encoder takes no pictures, or ids belong to another folder.
        WriteError, ReadOnlyError: the store cannot be written.

    Example:
        >>> from pathlib import Path
        >>> from PIL import Image
        >>> from hamtarget import Store, open_encoder
        >>> Path("holiday").mkdir()
        >>> Image.radial_gradient("L").save("holiday/sun.png")
        >>> with Store.create("holiday-store", encoder=open_encoder("dhash")) as store:
        ...     first = sync_folder(store, "holiday").added
        ...     _ = Path("holiday/sun.png").rename("holiday/moon.png")
        ...     second = sync_folder(store, "holiday").moved
        >>> first, second
        (['sun.png'], [('sun.png', 'moon.png')])
    """
    began = time.monotonic()
    tell: Stages = progress or (lambda what, done, total: None)
    reader = PictureReader(store, workers)
    listing = list_pictures(folder, on_found=lambda found: tell("Listing", found, None))
    called = name_of_folder(folder) if name is None else name
    ids, skipped = ids_of(listing, prefix)
    skipped |= {each: f"the folder cannot be listed: {reason}" for each, reason in listing.unread.items()}
    known = known_pictures(store, called, set(ids.values()), progress=partial(tell, "Looking through the store"))
    if known.states and not listing.names and removes_missing and not allow_empty:
        raise FileError(
            f"{listing.folder} holds no picture, but {store.path} has {len(known.states):,} of it; is a disk missing? "
            "To remove them all, pass allow_empty=True (--allow-empty)"
        )
    changes = changes_of(listing, ids, known, skipped)
    report = SyncReport(called, skipped=skipped, dry_run=dry_run)
    sync = _Sync(store, known, changes, report, called)
    done = 0
    for batch in _batches(changes.to_read, reader.batch):
        sync.apply(batch, reader, partial(_tell_of_batch, tell, done, len(changes.to_read)))
        done += len(batch)
        tell("Reading pictures", done, len(changes.to_read))
    sync.remove_missing(tell, removes=removes_missing)
    return replace(
        report, unchanged=changes.unchanged + sync.untouched, items=len(store), seconds=time.monotonic() - began
    )


def _tell_of_batch(tell: Stages, before: int, total: int, done: int, _: int) -> None:
    tell("Reading pictures", before + done, total)


def _batches(files: Sequence[PictureFile], size: int) -> Iterator[list[PictureFile]]:
    source = iter(files)
    while batch := list(islice(source, size)):
        yield batch


@dataclass(frozen=True, eq=False)
class _Kept:
    """A picture whose code is known: its file, the id that has the code, and the state of the file now."""

    file: PictureFile
    before: Id
    state: FileState


class _Sync:
    """Brings a store from what it knows of a folder to what is there, batch by batch."""

    def __init__(
        self, store: Store, known: KnownPictures, changes: FileChanges, report: SyncReport, folder: str
    ) -> None:
        self.untouched = 0
        self._store = store
        self._known = known
        self._report = report
        self._folder = folder
        self._kept = changes.kept
        # As a dict, in order: moved pictures are taken out.
        self._missing = dict.fromkeys(changes.missing)
        self._missing_by_digest: dict[bytes, list[Id]] = defaultdict(list)
        for id in reversed(changes.missing):
            state = known.states[id]
            if state is not None:
                self._missing_by_digest[state.digest].append(id)
        self._missing_sizes = {state.n_bytes for id in changes.missing if (state := known.states[id]) is not None}

    def apply(self, batch: list[PictureFile], reader: PictureReader, progress: Progress) -> None:
        """Write what is known of the pictures of a batch, in one transaction."""
        kept: list[_Kept] = []
        new: list[PictureFile] = []
        for file in batch:
            found = self._known_code(file)
            if found is None:
                new.append(file)
            else:
                kept.append(found)
        if self._report.dry_run:
            for file in new:
                self._note_read(file)
        else:
            read = reader.read([file.path for file in new], progress)
            for row, reason in read.broken.items():
                self._report.skipped[new[row].name] = reason.removeprefix(f"{new[row].path}: ")
            files = [new[row] for row in read.rows]
            payloads = self._payloads([file.id for file in files])
            with self._store.transaction():
                self._put_kept(kept)
                if files:
                    self._store.put_rows(
                        [file.id for file in files],
                        codes=read.codes,
                        embeddings=read.embeddings,
                        payloads=[
                            picture_payload(file.name, self._folder, file.state(digest), others=before)
                            for file, digest, before in zip(files, read.digests, payloads, strict=True)
                        ],
                    )
            for file in files:
                self._note_read(file)
        for each in kept:
            if each.before == each.file.id:
                self.untouched += 1
            else:
                self._report.moved.append((self._known.names[each.before], each.file.name))

    def remove_missing(self, tell: Stages, *, removes: bool) -> None:
        """Delete the items of pictures that are gone, or keep them."""
        names = self._known.names
        self._report.kept.extend(names[id] for id in self._kept)
        missing = list(self._missing)
        if not removes:
            self._report.kept.extend(names[id] for id in missing)
            return
        for start in range(0, len(missing), _DELETED_AT_ONCE):
            some = missing[start : start + _DELETED_AT_ONCE]
            if not self._report.dry_run:
                self._store.delete(some)
            self._report.removed.extend(names[id] for id in some)
            tell("Removing", start + len(some), len(missing))

    def _known_code(self, file: PictureFile) -> _Kept | None:
        """Return how the code of a file is known: its content is as it was, or that of a picture that is gone.

        A file is only opened here if another of its size is known.
        """
        own = self._known.states.get(file.id)
        may_be_same = own is not None and own.n_bytes == file.status.st_size
        if not may_be_same and file.status.st_size not in self._missing_sizes:
            return None
        try:
            digest = content_digest(file.path)
        except FileError:
            # The reader says why.
            return None
        state = file.state(digest)
        if own is not None and own.digest == digest:
            return _Kept(file, file.id, state)
        same = self._missing_by_digest.get(digest)
        if not same:
            return None
        before = same.pop()
        del self._missing[before]
        return _Kept(file, before, state)

    def _put_kept(self, kept: list[_Kept]) -> None:
        """Put items whose codes are known under their present names, and delete the former ones."""
        items = self._store.get([each.before for each in kept])
        present: list[Item] = []
        for each, item in zip(kept, items, strict=True):
            # Another process may have deleted it; the next call reads the file.
            if item is not None:
                payload = picture_payload(each.file.name, self._folder, each.state, others=item.payload)
                present.append(replace(item, id=each.file.id, payload=payload))
        self._store.put(present)
        self._store.delete([each.before for each in kept if each.before != each.file.id])

    def _payloads(self, ids: list[Id]) -> list[dict[str, object] | None]:
        """Return the payloads that known items have now; None for new ones."""
        old = [id for id in ids if id in self._known.states]
        payloads = dict(zip(old, self._store.payloads(old), strict=True)) if old else {}
        return [payloads.get(id) for id in ids]

    def _note_read(self, file: PictureFile) -> None:
        is_new = file.id not in self._known.states
        (self._report.added if is_new else self._report.replaced).append(file.name)


@dataclass(frozen=True, eq=False)
class ReadPictures:
    """Pictures that could be read.

    Attributes:
        rows: number of each among the paths that were given, ascending.
        codes: (pictures, bytes) packed.
        embeddings: where the store keeps them.
        digests: of the files' contents.
        broken: by row, why a picture could not be read.
    """

    rows: list[int]
    codes: Codes
    embeddings: NDArray[Any] | None
    digests: list[bytes]
    broken: dict[int, str]


class PictureReader:
    """Reads and encodes pictures for a store.

    Args:
        store: whose encoder takes pictures.
        workers: processes that read; 0: this one; None: one for each core, where there are enough pictures.

    Raises:
        InputError: the store has no encoder, or one of other inputs.
    """

    def __init__(self, store: Store, workers: int | None) -> None:
        if store.vectors is not None or takes_texts(store.encoder):
            kind = "texts" if store.vectors is None else "vectors"
            raise InputError(f"{store.path} keeps {kind}; expected a store whose encoder takes pictures")
        # Says what an encoder takes that takes no pictures.
        self._form = form_of(store.encoder)
        self._store = store
        self._workers = workers
        # Embeddings are not kept by content.
        self._remembers = is_made_for_copies(store) and store.embeddings is None

    @property
    def batch(self) -> int:
        """Number of pictures to give at once."""
        return _FILES_OF_COPIES if self._remembers else _FILES_OF_MODELS

    def read(self, paths: Sequence[str], progress: Progress) -> ReadPictures:
        """Return the codes of picture files, and why others cannot be read."""
        return self._by_content(paths, progress) if self._remembers else self._by_model(paths, progress)

    def _by_content(self, paths: Sequence[str], progress: Progress) -> ReadPictures:
        from hamtarget.copies.picture_codes import encode_files

        read = encode_files(paths, self._store.encoder, workers=self._workers, progress=progress)
        broken = {row: read.broken[path] for row, path in enumerate(paths) if path in read.broken}
        return ReadPictures(read.rows.tolist(), read.codes, None, [each.tobytes() for each in read.digests], broken)

    def _by_model(self, paths: Sequence[str], progress: Progress) -> ReadPictures:
        from hamtarget.datasets.pictures.images import decode_images

        digests: dict[int, bytes] = {}
        broken: dict[int, str] = {}
        for row, path in enumerate(paths):
            try:
                # Before the pixels: a file that changes in between has another digest the next time.
                digests[row] = content_digest(path)
            except FileError as error:
                broken[row] = str(error)
        sources = [paths[row] for row in digests]
        decoded = decode_images(sources, self._form, workers=self._workers or 0, progress=progress)
        of_source = list(digests)
        broken.update((of_source[row], reason) for row, reason in decoded.broken.items())
        rows = [of_source[row] for row in decoded.rows.tolist()]
        store = self._store
        if not rows:
            return ReadPictures([], np.zeros((0, store.n_bits // 8), np.uint8), None, [], broken)
        codes, embeddings = encode(store.encoder, decoded.images, store.embeddings)
        return ReadPictures(rows, codes, embeddings, [digests[row] for row in rows], broken)
