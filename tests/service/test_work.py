"""Jobs of one batch: what is wrong with one of them is no harm to the others."""

import io

import numpy as np
import pytest
from PIL import Image
from services import N_BITS, SignEncoder

from hamtarget.errors import ImageError, InputError, NotFiniteError, ReadOnlyError, ShapeError
from hamtarget.serve import ServiceSettings
from hamtarget.serve.demo_store import demo_encoder
from hamtarget.serve.instruments.meters import Meters
from hamtarget.serve.lanes import work as work_module
from hamtarget.serve.lanes.coalescing import LATER
from hamtarget.serve.lanes.jobs import DeleteJob, Encoded, EncodeJob, PutJob, SearchJob
from hamtarget.serve.lanes.work import ServiceWork
from hamtarget.serve.messages.search_messages import (
    BatchNearestRequest,
    BatchSearchRequest,
    NearestRequest,
    SearchRequest,
)
from hamtarget.store import Store


class CountingEncoder(SignEncoder):
    """Remembers how many inputs it got at a time."""

    def __init__(self):
        super().__init__()
        self.batches = []

    def logits(self, inputs):
        self.batches.append(len(inputs))
        return super().logits(inputs)


@pytest.fixture
def store(tmp_path):
    with Store.create(tmp_path / "store", encoder=CountingEncoder(), radius=2, durability="os") as made:
        yield made


@pytest.fixture
def work(store):
    made = ServiceWork(store, ServiceSettings(), Meters())
    made.open_encoder()
    return made


def test_inputs_of_all_jobs_go_through_the_encoder_at_once(work, store):
    rows = np.random.default_rng(0).normal(size=(6, 8)).tolist()
    bad = {"short": [1.0], "huge": [1e300] * 8, "image": b"x"}
    inputs = [rows[:1], [bad["short"]], rows[1:4], [rows[4], bad["huge"]], [bad["image"]], rows[5:]]
    answers = work.encode([EncodeJob(each) for each in inputs])
    assert store.encoder.batches == [5]
    assert [type(answer) for answer in answers if isinstance(answer, Exception)] == [
        ShapeError,
        NotFiniteError,
        InputError,
    ]
    codes = SignEncoder().encode(np.array(rows))
    good = [answer.codes for answer in answers if not isinstance(answer, Exception)]
    assert [len(made) for made in good] == [1, 3, 1]
    assert (np.concatenate(good) == codes[[0, 1, 2, 3, 5]]).all()


def test_a_broken_image_is_no_harm_to_others(tmp_path, monkeypatch):
    monkeypatch.setattr(work_module, "_DECODING_SECONDS", 60.0)
    file = io.BytesIO()
    Image.fromarray(np.full((40, 30), 90, np.uint8)).save(file, "PNG")
    with Store.create(tmp_path / "images", encoder=demo_encoder(), radius=2, durability="os") as store:
        work = ServiceWork(store, ServiceSettings(), Meters())
        work.open_encoder()
        good, broken, vector = work.encode(
            [EncodeJob([content]) for content in (file.getvalue(), file.getvalue()[:60], [1.0, 2.0])]
        )
        assert (good.codes == demo_encoder().encode(np.full((1, 28, 28), 90, np.uint8))).all()
        assert isinstance(broken, ImageError)
        assert isinstance(vector, InputError)
        # Images that take long are decoded one batch after another, so that others' can come between.
        monkeypatch.setattr(work_module, "_DECODING_SECONDS", 0.0)
        first, second = work.encode([EncodeJob([file.getvalue()])] * 2)
        assert (first.codes == good.codes).all()
        assert second is LATER


def put(id, n_rows=1, payload=None):
    codes = np.zeros((n_rows, N_BITS // 8), np.uint8)
    return PutJob([f"{id}{row}" for row in range(n_rows)], codes, None, [payload] * n_rows)


def test_writes_share_a_transaction_and_fail_alone(work, store):
    before = store.sequence
    answers = work.write(
        [put("a", 3), put("b", payload={"x": float("nan")}), DeleteJob("a1"), put("c"), DeleteJob("zz")]
    )
    assert store.sequence == before + 1
    assert answers[0] == 3
    assert isinstance(answers[1], NotFiniteError)
    assert answers[2:] == [1, 1, 0]
    assert [item is not None for item in store.get(["a0", "a1", "a2", "b0", "c0"])] == [True, False, True, False, True]


def test_writes_to_a_store_that_is_read_only_are_refused(tmp_path):
    Store.create(tmp_path / "only", n_bits=N_BITS, radius=2).close()
    with Store.open(tmp_path / "only", read_only=True) as store, pytest.raises(ReadOnlyError):
        ServiceWork(store, ServiceSettings(), Meters()).write([put("a")])


def test_searches_of_several_kinds_in_one_batch(work, store):
    generator = np.random.default_rng(2)
    codes = generator.integers(0, 256, (300, 8), dtype=np.uint8)
    store.put_rows(list(range(300)), codes=codes, payloads=[{"n": row} for row in range(300)])
    batches = []
    answer = store.answer
    store.answer = lambda asked, query, given: batches.append(len(asked.codes)) or answer(asked, query, given)
    jobs = [
        SearchJob(BatchSearchRequest(radius=0, limit=10), Encoded(codes[:2])),
        SearchJob(SearchRequest(radius=30, limit=300), Encoded(codes[5:6])),
        SearchJob(BatchNearestRequest(k=2, filter={'bad"name': 1}), Encoded(codes[6:7])),
        SearchJob(BatchSearchRequest(radius=0, limit=10), Encoded(codes[2:5])),
        SearchJob(BatchSearchRequest(radius=0, limit=10, filter={"n": 1}), Encoded(codes[:2])),
        SearchJob(BatchSearchRequest(radius=0, limit=10, filter={"n": True}), Encoded(codes[:2])),
        SearchJob(NearestRequest(k=1), Encoded(codes[7:8])),
    ]
    first, wide, refused, second, one, true, nearest = work.search(jobs)
    # Those that ask for the same are one search; 1 and true are not the same.
    assert batches == [5, 1, 2, 2, 1]
    assert one.hits.ids.tolist() == [1]
    assert true.hits.ids.tolist() == []
    assert first.hits.ids.tolist() == [0, 1]
    assert second.hits.ids.tolist() == [2, 3, 4]
    assert second.hits.offsets.tolist() == [0, 1, 2, 3]
    bits = np.unpackbits(codes ^ codes[5], axis=1).sum(axis=1)
    assert sorted(wide.hits.ids.tolist()) == np.flatnonzero(bits <= 30).tolist()
    assert isinstance(refused, InputError)
    assert [shown.payload for shown in nearest.shown] == ['{"n":7}']
