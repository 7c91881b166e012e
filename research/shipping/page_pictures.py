"""Make the pictures of the service's page in docs/images, of the bundled images, in a real browser.

python -m research.shipping.page_pictures
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hamtarget import Store, open_encoder
from hamtarget.datasets.sample import FASHION_CLASSES, fashion_sample
from hamtarget.evaluation.altered_pictures import ALTERATIONS
from hamtarget.serve import ServiceSettings, serving
from hamtarget.serve.demo_store import make_demo

WIDE, NARROW = (1280, 860), (390, 844)
COPIED = (0, 5, 18, 23, 31, 47)
COPIES_SIDE = 224
COPIES_RADIUS = 11


def main() -> None:
    """Serve the demo and a store of altered copies, and make a picture of each view."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/images"), help="folder of the pictures")
    parser.add_argument("--browser", default=shutil.which("chromium"), help="the browser's program")
    arguments = parser.parse_args()
    if arguments.browser is None:
        sys.exit("no browser; install chromium, or name one with --browser")
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as made, sync_playwright() as playwright:
        folder = Path(made)
        browser = playwright.chromium.launch(executable_path=arguments.browser, args=["--no-sandbox"])
        store, images = make_demo(folder)
        query = folder / "queries" / "0005.png"
        with serving(Store.open(store, read_only=True), ServiceSettings(port=0, image_folders=(images,))) as address:
            for name, size, scheme in (("light", WIDE, "light"), ("dark", WIDE, "dark"), ("narrow", NARROW, "light")):
                with opened(browser, address, size, scheme) as page:
                    page.set_input_files("#pick", [query])
                    page.get_by_text("The 24 nearest").wait_for()
                    save(page, arguments.out / f"page-{name}.png")
                    if name == "dark":
                        page.locator(".hit .open").nth(6).click()
                        save(page, arguments.out / "page-compare.png")
            with opened(browser, address + "#view=map", WIDE, "light") as page:
                page.locator("#map-legend li").first.wait_for()
                for key in ("ArrowRight", "ArrowRight", "ArrowUp"):
                    page.locator("#map").press(key)
                page.locator("#map-item .name").wait_for()
                save(page, arguments.out / "page-map.png")
        copies = make_copies(folder / "copies")
        settings = ServiceSettings(port=0, image_folders=(folder / "copies",), writable=True, no_token=True)
        with serving(copies, settings) as address, opened(browser, address + "#view=duplicates", WIDE, "light") as page:
            page.locator(".group").first.wait_for()
            page.get_by_role("button", name="Keep only the best").first.click()
            save(page, arguments.out / "page-duplicates.png")
        browser.close()


def make_copies(folder: Path) -> Store:
    """Make pictures and altered copies of them, and return a store of them by `copies64`."""
    from PIL import Image

    folder.mkdir()
    sample = fashion_sample(1)
    names, labels = [], []
    for row in COPIED:
        small = Image.fromarray(255 - sample.images[row]).convert("RGB")
        picture = small.resize((COPIES_SIDE, COPIES_SIDE), Image.Resampling.BICUBIC)
        for kind, alter in {"original": lambda given: given, **ALTERATIONS}.items():
            names.append(f"{row:04}-{kind.replace(' ', '-')}.png")
            labels.append(FASHION_CLASSES[sample.labels[row]])
            alter(picture).save(folder / names[-1])
    encoder = open_encoder("copies64")
    store = Store.create(folder / "store", encoder=encoder, radius=COPIES_RADIUS, durability="os")
    payloads = [{"image": name, "label": label} for name, label in zip(names, labels, strict=True)]
    store.put_rows(names, inputs=[folder / name for name in names], payloads=payloads)
    return store


@contextmanager
def opened(browser: Any, address: str, size: tuple[int, int], scheme: str) -> Iterator[Any]:
    """Open the page in a window of this size."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    page = context.new_page()
    page.goto(address)
    page.locator("#views").wait_for()
    yield page
    context.close()


def save(page: Any, path: Path) -> None:
    """Write what the window shows as a small PNG."""
    from PIL import Image

    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(300)
    with Image.open(io.BytesIO(page.screenshot())) as shot:
        # All colours: a palette would lose the few pixels of bits that differ.
        shot.convert("RGB").save(path, optimize=True)
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
