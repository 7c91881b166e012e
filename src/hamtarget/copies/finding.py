"""From pictures to groups of copies: every default of that way."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hamtarget.copies.results import Copy, FoundCopies, counted
from hamtarget.progress import Progress, Stages
from hamtarget.query import PLAIN_WORK, Work

if TYPE_CHECKING:
    from hamtarget.codes import Codes
    from hamtarget.copies.grouping import Rows
    from hamtarget.copies.picture_codes import PictureCodes
    from hamtarget.encoders.protocol import Encoder

DEFAULT_ENCODER = "copies64"
"""Name of the encoder that finds the most copies of those with 64 bits."""

# Distances among fewer pictures say little about how rare coincidences are.
_FEW_PICTURES = 1000
# The groups of so few pictures are looked through at once: a missed copy costs more than a false group there.
_VERY_FEW_PICTURES = 200
# So many false pairs are looked through in a minute, whatever their share; fewer among few pictures.
_FALSE_PAIRS = 10
_PICTURES_PER_FALSE_PAIR = 50
# So rare are coincidences among different photos within the radius that few pictures are compared within.
_FEW_PAIRS = 1e-6
# Within so many bits by simhash64, texts have nearly all words in common, whatever else is in the collection.
_LIKE_TEXTS = 3
_HASH_OF_WORDS = "simhash64"


def find_copies(
    pictures: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    encoder: str | Path | Encoder = DEFAULT_ENCODER,
    radius: int | None = None,
    workers: int | None = 0,
    work: Work = PLAIN_WORK,
    cache_folder: Path | None = None,
    stages: Stages | None = None,
) -> FoundCopies:
    """Find groups of copies among pictures: the same picture in other sizes, formats, crops or colours.

    Each picture of a group is within `radius` bits of the group's best picture, the one with the most pixels. Nothing
    is learned, and no picture is changed. Codes are kept in the content cache, so that a second call reads only what
    is new.

    Args:
        pictures: a folder; a CSV whose first column has paths; a .txt with a path in each line; or the paths.
        encoder: name of an encoder that comes with the package (copies64, copies256, phash, dhash, pdq), the folder of
            a model, or an encoder.
        radius: bits in which a copy may differ from the best picture; by default `advise_radius` chooses for these
            codes, within bounds where pictures are few.
        workers: processes that read pictures; 0: this one; None: one for each core, where there are enough pictures.
            With workers, a script needs `if __name__ == "__main__"`.
        work: threads that compare codes.
        cache_folder: folder of the content cache; by default that of HAMTARGET_CACHE, or ~/.cache/hamtarget.
        stages: called with what is being done, how much of it is done, and of how much; None where that is not known.

    Raises:
        FileError: the source or the encoder is not there, or names no picture.
        InputError: the radius is out of range, or the encoder takes no pictures.
        ImageError: a process that reads pictures ended unexpectedly.
        MissingExtraError: a package that pictures or the encoder need is not installed.

    Example:
        >>> from pathlib import Path
        >>> from PIL import Image
        >>> Path("album").mkdir()
        >>> photo = Image.radial_gradient("L").resize((300, 200)).rotate(30)
        >>> photo.save("album/original.png")
        >>> photo.resize((150, 100)).save("album/small.jpg")
        >>> for group in find_copies("album", encoder="dhash"):
        ...     print([(copy.path, copy.distance) for copy in group])
        [('album/original.png', 0), ('album/small.jpg', 0)]
    """
    from hamtarget.codes import check_radius
    from hamtarget.copies.grouping import group_around_best
    from hamtarget.copies.picture_codes import encode_files
    from hamtarget.copies.sources import picture_paths

    unread: dict[str, str] = {}
    paths = picture_paths(
        pictures,
        on_found=None if stages is None else lambda found: stages("Listing", found, None),
        on_unread=lambda path, reason: unread.update({path: f"{path}: the folder cannot be listed: {reason}"}),
    )
    opened, name = opened_encoder(encoder)
    if radius is not None:
        check_radius(radius, opened.n_bits)
    read = encode_files(
        paths, opened, workers=workers, cache_folder=cache_folder, progress=_stage(stages, "Reading pictures")
    )
    within, reason = picture_radius(read.codes, opened, radius, files=read.digests)
    ranks = _ranks(read)
    groups = group_around_best(read.codes, ranks, within, replace(work, progress=_stage(stages, "Comparing")))
    return FoundCopies(
        groups=tuple(_copies(group.rows, group.distances, paths, read) for group in groups),
        n_pictures=len(read.rows),
        encoder=name,
        radius=within,
        reason=reason,
        broken=unread | read.broken,
    )


def opened_encoder(encoder: str | Path | Encoder) -> tuple[Encoder, str]:
    """Return an encoder and its name."""
    if not isinstance(encoder, str | Path):
        return encoder, type(encoder).__name__
    from hamtarget.encoders import open_encoder

    return open_encoder(encoder), str(encoder)


def picture_radius(codes: Codes, encoder: Encoder, chosen: int | None, *, files: np.ndarray) -> tuple[int, str]:
    """Return the radius within which copies of pictures are sought, and the reason for it.

    A person looks through the groups. So a few false pairs are allowed in any folder, and the radius of few pictures
    has a lower bound: those that look much alike, or have many copies among them, would be compared within 0 bits.

    Args:
        codes: of all pictures.
        encoder: what made them.
        chosen: the radius that was asked for, if any.
        files: a digest of each picture's file; equal files are one picture, and no coincidence.
    """
    if chosen is not None:
        return _asked_for(chosen)
    from hamtarget.copies.results import counted
    from hamtarget.encoders.usual_radius import usual_radius
    from hamtarget.evaluation import advise_radius
    from hamtarget.evaluation.radius_advice import ROWS_PER_FALSE_PAIR, figure

    first = np.sort(np.unique(files, axis=0, return_index=True)[1])
    n = len(first)
    allowed = max(n / ROWS_PER_FALSE_PAIR, min(_FALSE_PAIRS, n / _PICTURES_PER_FALSE_PAIR))
    advice = advise_radius(codes[first], encoder=encoder, false_pairs=allowed or None)
    if n >= _FEW_PICTURES:
        return advice.radius, advice.reason
    careful, usual = _careful_radius(encoder), usual_radius(encoder)
    if careful is not None and careful < advice.radius:
        few = "is too few" if n == 1 else "are too few"
        return (
            careful,
            f"{counted(n, 'different file')} {few} to tell how many pairs are false; {careful} bits are usual.",
        )
    least = 0 if usual is None or careful is None else min(careful, usual if n < _VERY_FEW_PICTURES else usual // 2)
    if advice.radius >= least:
        return advice.radius, advice.reason
    expected = next((figure(row.expected_false_pairs) for row in advice.table if row.radius == least), None)
    alike = "many pairs" if expected is None else f"about {expected} pairs"
    reason = (
        f"Many of these {n:,} pictures look alike or are copies: within radius {least}, {alike} may be false. "
        "A smaller radius would miss more copies; look through the groups."
    )
    recorded = getattr(encoder, "recorded", None) or {}
    better = " copies256 tells more of them apart." if recorded.get("name") == DEFAULT_ENCODER else ""
    return least, reason + better


def chosen_radius(codes: Codes, encoder: Encoder, chosen: int | None, *, noun: str) -> tuple[int, str]:
    """Return the radius within which copies are sought, and the reason for it.

    Args:
        codes: of all things that are compared.
        encoder: what made them.
        chosen: the radius that was asked for, if any.
        noun: what is compared, in the plural.
    """
    if chosen is not None:
        return _asked_for(chosen)
    from hamtarget.evaluation import advise_radius
    from hamtarget.evaluation.radius_advice import ROWS_PER_FALSE_PAIR

    advice = advise_radius(codes, encoder=encoder)
    careful = _careful_radius(encoder)
    if len(codes) < _FEW_PICTURES and careful is not None and careful < advice.radius:
        few = f"{counted(len(codes), noun.removesuffix('s'))} {'says' if len(codes) == 1 else 'say'} little"
        return careful, f"{few} about their distances; {careful} bits are usual."
    if getattr(encoder, "name", "") == _HASH_OF_WORDS and careful is not None and advice.radius < _LIKE_TEXTS:
        # Pairs of different documents, of which each bit less halves the share.
        share = _FEW_PAIRS * 0.5 ** (careful - _LIKE_TEXTS)
        if share * (len(codes) - 1) / 2 <= 1 / ROWS_PER_FALSE_PAIR:
            return _LIKE_TEXTS, (
                f"Many of the {len(codes):,} texts are much alike, as if made from one template, so that counting "
                f"does not tell copies from others. Within {_LIKE_TEXTS} bits, texts have nearly all words in common; "
                f"larger radii, up to the usual {careful}, also find texts with more changes."
            )
    return advice.radius, advice.reason


def _asked_for(radius: int) -> tuple[int, str]:
    return radius, f"The radius of {radius} was asked for."


def _careful_radius(encoder: Encoder) -> int | None:
    """Return the radius within which few pairs of different photos were, or else the one that is usual."""
    from hamtarget.encoders.usual_radius import usual_radius

    recorded = getattr(encoder, "recorded", None)
    shares = None if recorded is None else recorded.get("share_within")
    if not shares:
        return usual_radius(encoder)
    return max(0, int(np.searchsorted(shares, _FEW_PAIRS, side="right")) - 1)


def _ranks(read: PictureCodes) -> Rows:
    """Return the rank of each picture: that with the most pixels first, then the largest file, then the first path."""
    pixels = read.sizes.astype(np.int64).prod(axis=1)
    order = np.lexsort((-read.n_bytes, -pixels))
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def _copies(rows: Rows, distances: np.ndarray, paths: list[str], read: PictureCodes) -> tuple[Copy, ...]:
    best = read.digests[rows[0]]
    return tuple(
        Copy(
            path=paths[int(read.rows[row])],
            width=int(read.sizes[row, 0]),
            height=int(read.sizes[row, 1]),
            n_bytes=int(read.n_bytes[row]),
            distance=int(distance),
            is_identical=bool((read.digests[row] == best).all()),
        )
        for row, distance in zip(rows.tolist(), distances.tolist(), strict=True)
    )


def _stage(stages: Stages | None, what: str) -> Progress | None:
    return None if stages is None else lambda done, total: stages(what, done, total)
