"""The examples of the pages that train run, with little training (tests/page_examples.py)."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from page_examples import name, pages_that_need, reader_folder, run_page

torch = pytest.importorskip("torch")

from hamtarget import datasets  # noqa: E402
from hamtarget.errors import CrowdedCodesWarning  # noqa: E402
from hamtarget.learn.training import options  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden" / "models"


@pytest.fixture(autouse=True)
def _reader(tmp_path, monkeypatch):
    """Work where a reader does: with a model, a small sample of the bundled images, and little patience."""
    monkeypatch.chdir(tmp_path)
    reader_folder(tmp_path)
    shutil.copytree(GOLDEN / "grey-images", tmp_path / "model")
    whole = datasets.fashion_sample()
    small = replace(whole, images=whole.images[:300], labels=whole.labels[:300])
    monkeypatch.setattr(datasets, "fashion_sample", lambda: small)
    monkeypatch.setattr(options, "_MIN_STEPS", 10)
    monkeypatch.setattr(options, "_EPOCHS", 1)


def on_this_machine(text):
    """Return an example with the CPU for a GPU where there is none; the page says that this is possible."""
    return text if torch.cuda.is_available() else text.replace('device="cuda"', 'device="cpu"')


@pytest.mark.parametrize("page", pages_that_need("training"), ids=name)
def test_examples_that_train_run(page):
    run_page(page, "training", change=on_this_machine, ignore=[CrowdedCodesWarning])
