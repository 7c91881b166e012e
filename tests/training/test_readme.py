"""Every example in README runs, with the names that it takes for granted and with little training.

Those marked `<!-- run -->` run as they are, in tests/unit/test_docs.py.
"""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch  # noqa: E402

from hamtarget import datasets  # noqa: E402
from hamtarget.learn import options  # noqa: E402

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = [
    block["code"]
    for block in re.finditer(r"(?P<mark><!-- run -->\n)?```python\n(?P<code>.*?)^```", README, re.MULTILINE | re.DOTALL)
    if not block["mark"]
]


@pytest.fixture
def known(tmp_path, monkeypatch):
    """What a reader of README has: vectors, a network, labels; and a small sample of the bundled images."""
    monkeypatch.chdir(tmp_path)
    whole = datasets.fashion_sample()
    small = replace(whole, images=whole.images[:300], labels=whole.labels[:300])
    monkeypatch.setattr(datasets, "fashion_sample", lambda: small)
    monkeypatch.setattr(options, "_MIN_STEPS", 10)
    monkeypatch.setattr(options, "_EPOCHS", 1)
    random = np.random.default_rng(0)
    return {
        "vectors": random.standard_normal((2000, 32)).astype(np.float32),
        "queries": random.standard_normal((3, 32)).astype(np.float32),
        "new_ids": [2000, 2001],
        "more": random.standard_normal((2, 32)).astype(np.float32),
        "old_ids": [5],
        "my_backbone": torch.nn.Linear(32, 16),
        "my_labels": np.arange(1024) % 10,
        "my_inputs": torch.from_numpy(random.standard_normal((1024, 32)).astype(np.float32)),
    }


@pytest.mark.filterwarnings("ignore::hamtarget.errors.CrowdedCodesWarning")
@pytest.mark.parametrize("code", BLOCKS, ids=lambda code: code.splitlines()[0])
def test_an_example_of_readme_runs(known, code):
    exec(compile(re.sub(r"\b1000\b", "3", code), "README.md", "exec"), known)


def test_there_are_examples():
    assert len(BLOCKS) >= 2
