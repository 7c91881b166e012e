"""Every example in README runs, beside the files that it takes for granted and with little training.

Those marked `<!-- run -->` run as they are, in tests/unit/test_docs.py.
"""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from hamtarget import datasets  # noqa: E402
from hamtarget.learn import options  # noqa: E402

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = [
    block["code"]
    for block in re.finditer(r"(?P<mark><!-- run -->\n)?```python\n(?P<code>.*?)^```", README, re.MULTILINE | re.DOTALL)
    if not block["mark"]
]


@pytest.fixture(autouse=True)
def _readers_folder(tmp_path, monkeypatch):
    """Work where a reader of README does: beside files of vectors, and with a small sample of the bundled images."""
    monkeypatch.chdir(tmp_path)
    whole = datasets.fashion_sample()
    small = replace(whole, images=whole.images[:300], labels=whole.labels[:300])
    monkeypatch.setattr(datasets, "fashion_sample", lambda: small)
    monkeypatch.setattr(options, "_MIN_STEPS", 10)
    monkeypatch.setattr(options, "_EPOCHS", 1)
    random = np.random.default_rng(0)
    for name, n_rows in (("vectors", 2000), ("queries", 3)):
        np.save(f"{name}.npy", random.standard_normal((n_rows, 32)).astype(np.float32))


@pytest.mark.filterwarnings("ignore::hamtarget.errors.CrowdedCodesWarning")
@pytest.mark.parametrize("code", BLOCKS, ids=lambda code: code.splitlines()[0])
def test_an_example_of_readme_runs(code):
    exec(compile(code, "README.md", "exec"), {})


def test_there_are_examples():
    assert len(BLOCKS) >= 2
