"""Stores to be served, and services of them."""

import numpy as np
import pytest
from clients import Awaited
from pages import N_IMAGES, find_browser, opened
from playwright.sync_api import sync_playwright
from services import N_BITS, N_ITEMS, SignEncoder, service

from hamtarget.client import Client
from hamtarget.search import Embeddings
from hamtarget.serve.demo_store import make_demo
from hamtarget.store import Store


@pytest.fixture(scope="session")
def rows():
    """Codes in clumps, so that searches within a radius find something; and their payloads."""
    generator = np.random.default_rng(3)
    centres = generator.integers(0, 2, (40, N_BITS))
    bits = centres[generator.integers(0, 40, N_ITEMS)] ^ (generator.random((N_ITEMS, N_BITS)) < 0.03)
    codes = np.packbits(bits, axis=1, bitorder="little")
    return codes, [{"number": row, "parity": "odd" if row % 2 else "even"} for row in range(N_ITEMS)]


@pytest.fixture(scope="session")
def vectors():
    return np.random.default_rng(5).normal(size=(N_ITEMS, 8)).astype(np.float32)


@pytest.fixture(scope="session")
def read_only(tmp_path_factory, rows):
    """A service of codes that nobody can change."""
    path = tmp_path_factory.mktemp("codes") / "store"
    codes, payloads = rows
    with Store.create(path, n_bits=N_BITS, radius=4) as store:
        store.put_rows(list(range(N_ITEMS)), codes=codes, payloads=payloads)
    with service(Store.open(path, read_only=True)) as call:
        yield call


@pytest.fixture
def writable(tmp_path, vectors):
    """A service of vectors, with an encoder and embeddings, that can be changed."""
    encoder = SignEncoder()
    kept = Embeddings(N_BITS, "float32", "cosine")
    store = Store.create(tmp_path / "store", encoder=encoder, radius=8, embeddings=kept, durability="os")
    store.put_rows([f"v{row}" for row in range(len(vectors))], inputs=vectors)
    with service(store, writable=True) as call:
        yield call


@pytest.fixture(scope="session")
def demo(tmp_path_factory):
    """A service of bundled images, and the folder of its demo."""
    folder = tmp_path_factory.mktemp("demo")
    store, images = make_demo(folder, n_images=N_IMAGES)
    with service(Store.open(store, read_only=True), image_folders=(images,)) as call:
        yield call, folder


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        # Containers have no user namespaces for the browser's own sandbox; it loads nothing but our page.
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser, demo):
    """The page of the demo, just opened."""
    yield from opened(browser, demo[0].address)


@pytest.fixture(params=[Client, Awaited], ids=["threads", "asyncio"])
def kind(request):
    """Each kind of client."""
    return request.param
