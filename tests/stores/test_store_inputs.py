"""Inputs of a store: what its encoder takes, one at a time or many."""

import shutil

import numpy as np
import pytest

from hamtarget.errors import DtypeError, FileError, InputError, NotFittedError, ShapeError
from hamtarget.query import Asked
from hamtarget.search import Embeddings, unit_int8
from hamtarget.store import Item

pytest.importorskip("torch")
# A few steps do not tell much apart.
pytestmark = pytest.mark.filterwarnings("ignore::hamtarget.errors.CrowdedCodesWarning")

RNG = np.random.default_rng(4)
VECTORS = RNG.normal(size=(120, 6)).astype(np.float32)
IMAGES = RNG.integers(0, 256, (60, 3, 8, 8), dtype=np.uint8)


@pytest.fixture(scope="module")
def encoder():
    from hamtarget.learn import HammingTargetLoss, HashEncoder, NetworkOptions, TrainingOptions

    training = TrainingOptions(steps=3, batch_size=16)
    encoder = HashEncoder(loss=HammingTargetLoss(16, (4, 3)), network=NetworkOptions(width=8), training=training)
    return encoder.fit(VECTORS, np.arange(120) // 10)


@pytest.fixture(scope="module")
def image_encoder():
    from hamtarget.learn import HashEncoder, NetworkOptions, TrainingOptions

    training = TrainingOptions(steps=2, batch_size=16)
    return HashEncoder(16, network=NetworkOptions(width=4), training=training).fit(IMAGES, np.arange(60) // 10)


def test_vectors_are_encoded(stores, encoder):
    with stores.create(encoder=encoder) as store:
        assert (store.n_bits, store.radius) == (16, 3)
        store.put_rows(range(100), inputs=VECTORS[:100])
        store.put(Item(f"{number}", input=VECTORS[number]) for number in range(100, 119))
        store.put([Item("list", input=VECTORS[119].tolist()), Item("code", code=encoder.encode(VECTORS[:1])[0])])
        found = [item.code for item in store.scan()]
        np.testing.assert_array_equal(found[:120], encoder.encode(VECTORS))
    with stores.open(read_only=True) as store:
        assert store.has_encoder
        np.testing.assert_array_equal(store.encoder.encode(VECTORS), encoder.encode(VECTORS))
        codes = encoder.encode(VECTORS[:5])
        assert store.search(VECTORS[2]) == store.search(code=codes[2])
        assert [*store.search_batch(VECTORS[:5])] == [*store.search_batch(codes=codes)]
        assert store.nearest(VECTORS[2].tolist(), 4) == store.nearest(code=codes[2], k=4)
        assert store.search(VECTORS[2], limit=1, filter={"a": 1}) == ()
        for wrong in (VECTORS[:, :5], VECTORS[0, :5], VECTORS[None]):
            with pytest.raises(ShapeError):
                store.search(wrong)
        with pytest.raises(ShapeError, match="one shape"):
            store.search_batch([VECTORS[0], VECTORS[1, :3]])
        with pytest.raises(InputError, match="images"):
            store.search("picture.png")


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_embeddings_come_from_the_encoder(stores, encoder, dtype):
    with stores.create(encoder=encoder, embeddings=Embeddings(16, dtype, "cosine")) as store:
        store.put_rows(range(100), inputs=VECTORS[:100])
        store.put([Item("one", input=VECTORS[100])])
        logits = encoder.logits(VECTORS[:101])
        expected = unit_int8(logits) if dtype == "int8" else encoder.embedding(VECTORS[:101])
        found = np.array([item.embedding for item in store.scan()])
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, atol={"int8": 0, "float16": 1e-3, "float32": 1e-6}[dtype])
        hits = store.search(VECTORS[7], radius=15, rerank=3)
        assert hits[0].id == 7
        assert hits[0].embedding_distance == pytest.approx(0, abs=1e-3)
        own = found[7] if dtype == "int8" else found[7].astype(np.float32)
        asked = Asked(encoder.encode(VECTORS[7:8])[0], embeddings=own)
        assert [hit.id for hit in hits] == [hit.id for hit in store.search(asked, radius=15, rerank=3)]


def test_embeddings_of_the_caller_go_before_those_of_the_encoder(stores, encoder):
    with stores.create(encoder=encoder, embeddings=Embeddings(6)) as store:
        store.put_rows(range(10), inputs=VECTORS[:10], embeddings=VECTORS[:10])
        store.put([Item("own", input=VECTORS[10], embedding=VECTORS[10])])
        np.testing.assert_array_equal(store.get(["own"])[0].embedding, VECTORS[10])
        with pytest.raises(InputError, match="embeddings of 6 numbers, the encoder makes some of 16"):
            store.put([Item("none", input=VECTORS[11])])


def test_images_come_as_files_as_images_and_as_arrays(stores, image_encoder, tmp_path):
    image = pytest.importorskip("PIL.Image")
    paths = []
    for number in range(6):
        paths.append(tmp_path / f"{number}.png")
        image.fromarray(IMAGES[number].transpose(1, 2, 0)).save(paths[-1])
    with stores.create(encoder=image_encoder) as store:
        store.put_rows(["path", "text"], inputs=[paths[0], str(paths[1])])
        store.put(
            [
                Item("image", input=image.open(paths[2]), payload={"image": str(paths[2])}),
                Item("array", input=IMAGES[3]),
                Item("bytes", input=paths[4].read_bytes()),
            ]
        )
        store.put_rows(["batch"], inputs=IMAGES[5:6])
        found = np.array([item.code for item in store.get(["path", "text", "image", "array", "bytes", "batch"])])
        np.testing.assert_array_equal(found, image_encoder.encode(IMAGES[:6]))
        assert "path" in [hit.id for hit in store.search(paths[0], radius=0)]
        assert [hit.id for hit in store.search_batch([paths[0]], radius=0)[0]] == [
            hit.id for hit in store.search(IMAGES[0], radius=0)
        ]
        (tmp_path / "broken.png").write_bytes(paths[0].read_bytes()[:40])
        with pytest.raises(InputError, match=r"broken\.png"):
            store.put([Item("good", input=paths[0]), Item("bad", input=tmp_path / "broken.png")])
        assert "good" not in store


def test_an_encoder_with_other_bits_is_refused(stores, encoder):
    with pytest.raises(InputError, match="n_bits is 32"):
        stores.create(encoder=encoder, n_bits=32)


def test_an_encoder_that_cannot_be_kept_is_refused(stores):
    from hamtarget import HashEncoder
    from hamtarget.encoders import LSH

    class Unkept:
        """An encoder without `save`."""

        n_bits, radius, input_shape = 16, None, VECTORS.shape[1:]
        logits = encode = embedding = staticmethod(lambda inputs: inputs)

    with pytest.raises(DtypeError, match="saved and opened again"):
        stores.create(encoder=Unkept())
    with pytest.raises(NotFittedError):
        stores.create(encoder=LSH(16))
    with pytest.raises(NotFittedError):
        stores.create(encoder=HashEncoder(n_bits=16))


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_a_store_keeps_codes_that_were_not_trained(stores, metric):
    from hamtarget.encoders import LSH

    encoder = LSH(16, metric=metric).fit(VECTORS)
    with stores.create(encoder=encoder) as store:
        store.put_rows(range(len(VECTORS)), inputs=VECTORS)
    rows = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True) if metric == "cosine" else VECTORS
    with stores.open() as store:
        assert (store.vectors, repr(store.encoder)) == (metric, repr(encoder))
        np.testing.assert_array_equal(store.encoder.encode(VECTORS), encoder.encode(VECTORS))
        for query in range(3):
            nearest = np.argsort(((rows - rows[query]) ** 2).sum(axis=1))[:2]
            assert [hit.id for hit in store.nearest(VECTORS[query], k=2, recall=1)] == nearest.tolist()


def test_a_missing_encoder_is_an_error_when_it_is_needed(folder_stores, encoder):
    stores = folder_stores
    with stores.create(encoder=encoder) as store:
        store.put_rows([1], inputs=VECTORS[:1])
    shutil.rmtree(store.path / "encoder")
    with stores.open() as store:
        assert len(store.search(code=encoder.encode(VECTORS[:1])[0])) == 1
        with pytest.raises(FileError):
            store.search(VECTORS[0])
