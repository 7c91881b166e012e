"""A small store to try: the bundled images of Fashion-MNIST, with an encoder that was trained on them."""

from __future__ import annotations

import importlib.resources
from pathlib import Path
from typing import NamedTuple

from hamtarget.datasets.sample import FASHION_CLASSES, fashion_sample
from hamtarget.encoders import open_encoder
from hamtarget.encoders.protocol import Encoder
from hamtarget.errors import MissingExtraError
from hamtarget.progress import Progress
from hamtarget.search import Embeddings
from hamtarget.store import Store
from hamtarget.store.items.encoded_inputs import encode

# Further images, which are not in the store, to search with.
N_QUERIES = 500
RADIUS = 4
_ROWS_AT_ONCE = 500


class Demo(NamedTuple):
    """Folders of the demo: that of its store, and that of the store's images."""

    store: Path
    images: Path


def make_demo(folder: Path, *, n_images: int | None = None, progress: Progress | None = None) -> Demo:
    """Make a store of the bundled images, the images as files, and a folder `queries` of further images.

    Args:
        folder: existing folder in which all of them are made.
        n_images: images of the store; all by default.
        progress: called with images done and all images.

    Raises:
        MissingExtraError: neither onnxruntime nor torch is installed, or Pillow is not.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("Pillow is not installed; for the demo: pip install 'hamtarget[vision]'") from error
    images, queries = folder / "images", folder / "queries"
    images.mkdir()
    queries.mkdir()
    encoder = demo_encoder()
    sample = fashion_sample(N_QUERIES)
    # The set is white on black; goods in shops, and the encoder's inputs, are on white.
    pictures = 255 - sample.images[:n_images]
    for row, picture in enumerate(255 - sample.query_images):
        Image.fromarray(picture).save(queries / f"{row:04}.png")
    kept = Embeddings(encoder.n_bits, "float16", "cosine")
    # A temporary store need not survive a loss of power.
    with Store.create(folder / "store", encoder=encoder, radius=RADIUS, embeddings=kept, durability="os") as store:
        for start in range(0, len(pictures), _ROWS_AT_ONCE):
            rows = range(start, min(start + _ROWS_AT_ONCE, len(pictures)))
            names = [f"{row:04}.png" for row in rows]
            for row, name in zip(rows, names, strict=True):
                Image.fromarray(pictures[row]).save(images / name)
            codes, embeddings = encode(encoder, pictures[rows.start : rows.stop], kept)
            payloads = [
                {"image": name, "class": FASHION_CLASSES[sample.labels[row]]}
                for row, name in zip(rows, names, strict=True)
            ]
            store.put_rows(list(rows), codes=codes, embeddings=embeddings, payloads=payloads)
            if progress is not None:
                progress(rows.stop, len(pictures))
    return Demo(folder / "store", images)


def demo_encoder() -> Encoder:
    """Return the encoder that comes with the package: (28, 28) grey images, dark on white, to 64 bits."""
    with importlib.resources.as_file(importlib.resources.files("hamtarget.serve") / "demo_encoder") as folder:
        return open_encoder(folder)
