"""Photos of folders, made small and packed into one file, for training on a machine that has no photos.

python -m research.shipping.copies.photos FOLDER ... --without held_out.txt --out photos.npz
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

STORED_SIDE = 112
_QUALITY = 92
_SUFFIXES = frozenset({".jpg", ".jpeg", ".png"})
_THREADS = 16


def photos_in(folders: list[Path]) -> Iterator[Path]:
    """Yield the photos of folders, sorted by name within each."""
    for folder in folders:
        yield from sorted(path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES)


def pack_photos(paths: list[Path], out: Path) -> int:
    """Write photos, squeezed to small squares, and their aspects into one file; return how many could be read."""
    jpegs, aspects = [], []
    for path in paths:
        try:
            with Image.open(path) as photo:
                aspects.append(photo.width / photo.height)
                square = photo.convert("RGB").resize((STORED_SIDE, STORED_SIDE), Image.Resampling.LANCZOS)
        except OSError as error:
            print(f"{path}: {error}", file=sys.stderr)
            continue
        buffer = io.BytesIO()
        square.save(buffer, "JPEG", quality=_QUALITY)
        jpegs.append(buffer.getvalue())
    offsets = np.concatenate(([0], np.cumsum([len(jpeg) for jpeg in jpegs])))
    packed = np.frombuffer(b"".join(jpegs), np.uint8)
    np.savez(out, jpegs=packed, offsets=offsets, aspect=np.array(aspects, np.float32))
    return len(jpegs)


def read_packs(packs: list[Path], side: int) -> tuple[Tensor, Tensor]:
    """Return the photos of packs, (n, 3, side, side) uint8, and their aspects; 1 where a pack does not know them."""
    photos: list[NDArray[np.uint8]] = []
    aspects: list[NDArray[Any]] = []
    for pack in packs:
        with np.load(pack) as file:
            jpegs, offsets = file["jpegs"], file["offsets"]
            aspects.append(file["aspect"] if "aspect" in file else np.ones(len(offsets) - 1, np.float32))
        files = [jpegs[start:stop].tobytes() for start, stop in zip(offsets[:-1], offsets[1:], strict=True)]
        with ThreadPoolExecutor(_THREADS) as pool:
            photos.append(np.stack(list(pool.map(lambda file: _decoded(file, side), files))))
    stacked = torch.from_numpy(np.concatenate(photos)).permute(0, 3, 1, 2).contiguous()
    return stacked, torch.from_numpy(np.concatenate(aspects))


def _decoded(file: bytes, side: int) -> NDArray[np.uint8]:
    with Image.open(io.BytesIO(file)) as photo:
        return np.asarray(photo.convert("RGB").resize((side, side), Image.Resampling.BICUBIC))


def main() -> None:
    """Pack the photos that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--without", type=Path, required=True, help="file with names of photos to leave out")
    parser.add_argument("--out", type=Path, required=True, help="file to write (.npz)")
    arguments = parser.parse_args()
    held_out = set(arguments.without.read_text(encoding="utf-8").splitlines())
    paths = [path for path in photos_in(arguments.folders) if path.name not in held_out]
    print(f"{pack_photos(paths, arguments.out):,} photos in {arguments.out}")


if __name__ == "__main__":
    main()
