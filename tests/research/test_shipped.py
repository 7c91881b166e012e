import json

import pytest

from hamtarget.errors import InputError
from hamtarget.evaluation import exact_neighbors
from hamtarget.learn.models import shipped_encoder
from hamtarget.learn.networks.backbones import shipped_folder
from research.datasets.descriptors import generated_descriptors
from research.datasets.vector_sets import VectorSet
from research.paper.probing import nearest_read

FOLDER = shipped_folder() / "sift-64"


def test_the_model_reaches_what_was_recorded():
    base, queries = generated_descriptors(20_000, seed=2), generated_descriptors(500, seed=3)
    vectors = VectorSet(base[:1000], base, queries, exact_neighbors(queries, base, 1), "generated")
    recorded = json.loads((FOLDER / "recorded.json").read_text())["generated_descriptors"]
    found = nearest_read(shipped_encoder("sift-64"), vectors, substrings=3, reads=[int(read) for read in recorded])
    for read, share in found.items():
        assert share == pytest.approx(recorded[str(read)], abs=0.02)


def test_it_is_small():
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 2_000_000


def test_an_unknown_name_is_refused():
    with pytest.raises(InputError, match="name is 'gist'; expected one of sift-64"):
        shipped_encoder("gist")
