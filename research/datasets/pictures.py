"""Pictures of public sets as features: one NumPy file with `vectors`, `labels` and `split`.

    python -m research.datasets.pictures SOURCE ... --photos 16 --queries 4 --out FILE.npz

A SOURCE is a folder or a zip archive with a folder for each part of a set, and in it a folder for each class, at any
depth; or an npz of packed images (`ImageSet.from_packed`). The path of a picture's folder, without the part, is its
class. Pictures with the same bytes count once. Sets whose classes the network of the package never saw:

- Omniglot (https://github.com/brendenlake/omniglot, MIT): letters of many alphabets, each drawn by 20 people. The
  archive `python/images_background_small1.zip` has 136 letters of 5 alphabets, 2,720 drawings.
- PlantDoc (https://github.com/pratikkayal/PlantDoc-Dataset, CC BY 4.0): photos of leaves in `train` and `test`; a class
  is a plant with a disease, or without one. 27 classes have enough photos.

Of each class, so many pictures are drawn to search in, and so many others to search for; a class with fewer gives what
there is. The network that comes with the package sees each once, at about 30 ms a picture on two cores, as
`hamtarget train` has it. Features are kept in the folder of HAMTARGET_CACHE.
"""

from __future__ import annotations

import argparse
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hamtarget.datasets import ImageSet
from hamtarget.datasets.content_cache import digest_of
from hamtarget.datasets.pictures.image_sets import listed
from hamtarget.datasets.pictures.picture_folders import list_pictures
from hamtarget.datasets.pictures.picture_formats import IMAGE_SUFFIXES
from hamtarget.learn.fitting.features import picture_features
from hamtarget.learn.networks.backbones import chosen_backbone
from research.benchmarks.photos_map import split


def read_pictures(sources: list[Path], *, fewest: int) -> ImageSet:
    """Return the pictures of a set without repetitions; classes with fewer than `fewest` are named and left out."""
    if len(sources) == 1 and sources[0].suffix == ".npz":
        return ImageSet.from_packed(sources[0])
    found: dict[str, dict[bytes, bytes]] = {}
    for source in sources:
        for name, content in _files(source):
            # The first part of a path is that of the set, the last one the file.
            label = "/".join(name.split("/")[1:-1])
            if label:
                found.setdefault(label, {}).setdefault(digest_of(content), content)
    few = sorted(label for label, pictures in found.items() if len(pictures) < fewest)
    if few:
        print(f"left out {len(few)} classes of fewer than {fewest} pictures: {listed(few)}", file=sys.stderr)
    names = sorted(found.keys() - set(few))
    if not names:
        given = ", ".join(map(str, sources))
        raise SystemExit(f"{given}: no class has {fewest} pictures; expected PART/CLASS/PICTURE in folders or archives")
    labels = np.repeat(np.arange(len(names)), [len(found[name]) for name in names])
    return ImageSet([content for name in names for content in found[name].values()], labels, tuple(names))


def _files(source: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the path within the source and the content of each picture, in the order of the paths."""
    if source.is_dir():
        listing = list_pictures(source)
        for name, path in zip(listing.names, listing.paths(), strict=True):
            yield name, Path(path).read_bytes()
        return
    with zipfile.ZipFile(source) as archive:
        for name in sorted(archive.namelist()):
            if name.lower().endswith(IMAGE_SUFFIXES):
                yield name, archive.read(name)


def write_features(images: ImageSet, out: Path, *, photos: int, queries: int) -> None:
    """Write the features of so many pictures and queries of each class, and their classes."""
    labels = np.asarray(images.labels)
    kept, asked = split(labels, photos=photos, queries=queries)
    rows = np.concatenate([kept, asked])
    seen = picture_features(
        images.take(rows),
        chosen_backbone(None),
        progress=lambda done, total: print(f"\r{done:,} of {total:,}", end="", flush=True),
    )
    print()
    for place, reason in seen.broken.items():
        print(f"left out picture {rows[place]:,}: {reason}", file=sys.stderr)
    names = np.array(images.class_names)[labels] if images.class_names else labels
    parts = np.repeat(["train", "test"], [len(kept), len(asked)])
    np.savez(out, vectors=seen.values, labels=names[rows[seen.rows]], split=parts[seen.rows])


def main() -> None:
    """Read one set, look at its pictures and write what was seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path, nargs="+", metavar="SOURCE", help="folder, zip archive, or packed npz")
    parser.add_argument("--photos", type=int, default=16, help="pictures of a class to search in (default: 16)")
    parser.add_argument("--queries", type=int, default=4, help="other pictures of a class to search for (default: 4)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="NumPy file to write")
    arguments = parser.parse_args()
    images = read_pictures(arguments.sources, fewest=arguments.queries + 2)
    write_features(images, arguments.out, photos=arguments.photos, queries=arguments.queries)


if __name__ == "__main__":
    main()
