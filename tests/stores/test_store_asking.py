"""One way to ask: what an index answers, a store answers, by the same names, with the same results and costs."""

import itertools

import numpy as np
import pytest

from hamtarget.answer import Cost, Hits
from hamtarget.codes import substring_bounds, unpack
from hamtarget.errors import ClosedError, InputError, ShapeError
from hamtarget.query import Asked, Query, Work
from hamtarget.search import Answer, Embeddings, MultiIndex
from hamtarget.store import Item, Range
from hamtarget.store.defaults import probing_defaults

RNG = np.random.default_rng(29)
N_ITEMS = 900
CODES = RNG.integers(0, 256, (N_ITEMS, 4), dtype=np.uint8)
CODES[300:] = CODES[:600]
CODES[300:, 2] ^= np.uint8(1) << RNG.integers(0, 8, 600, dtype=np.uint8)
LOGITS = RNG.standard_normal((12, 32)).astype(np.float32)
VECTORS = RNG.standard_normal((N_ITEMS, 6)).astype(np.float32)
PAYLOADS = [{"n": number % 10} for number in range(N_ITEMS)]
QUERIES = CODES[:40] ^ np.uint8(1)


@pytest.fixture
def index():
    index = MultiIndex(32, 3, embeddings=Embeddings(6))
    index.add(np.arange(N_ITEMS), CODES, VECTORS)
    return index


@pytest.fixture
def filled(stores):
    with stores.create(n_bits=32, radius=3, embeddings=Embeddings(6), durability="os") as store:
        store.put_rows(range(N_ITEMS), codes=CODES, embeddings=VECTORS, payloads=PAYLOADS)
        yield store


def by_row(hits):
    return [(hit.id, hit.distance, hit.embedding_distance) for hit in hits]


@pytest.mark.parametrize("ranking", [{}, {"rerank": 4}])
def test_a_store_answers_what_an_index_answers(filled, index, ranking):
    for place, query in enumerate(QUERIES):
        asked = Asked(query, embeddings=VECTORS[place]) if ranking else Asked(query)
        for found, expected in (
            (filled.search(asked, **ranking), index.search(asked, **ranking)),
            (filled.search(asked, radius=9, limit=6, **ranking), index.search(asked, 9, limit=6, **ranking)),
            (filled.nearest(asked, k=7, **ranking), index.nearest(asked, 7, **ranking)),
        ):
            assert type(found) is type(expected) is Hits
            assert found == expected
            assert found.cost is None
    asked = Asked(QUERIES, embeddings=VECTORS[:40]) if ranking else Asked(QUERIES)
    how = {**ranking, "work": Work(threads=2)}
    for found, expected in (
        (filled.search_batch(asked, **ranking), index.search_batch(asked, **ranking)),
        (filled.nearest_batch(asked, k=7, **ranking), index.nearest_batch(asked, 7, **ranking)),
        (filled.search_batch(asked, **how), index.search_batch(asked, **how)),
    ):
        assert type(found) is type(expected) is Answer
        assert [*found] == [*expected]
        assert found.costs is None
        assert repr(found) == repr(expected)


def read_by_substrings(code, radius, substrings):
    """Values of substrings looked up for a code, and rows that they lead to: by a loop over all rows."""
    bits, wanted = unpack(CODES, 32), unpack(code[None], 32)[0]
    share, extra = divmod(radius, substrings)
    buckets = candidates = 0
    for number, (start, stop) in enumerate(substring_bounds(32, substrings)):
        most = share if number <= extra else share - 1
        if most < 0:
            continue
        apart = (bits[:, start:stop] != wanted[start:stop]).sum(axis=1)
        candidates += int((apart <= most).sum())
        values = 1 if most == 0 else 1 + (stop - start)
        buckets += values
    return buckets, candidates


def test_searches_by_sql_count_what_a_loop_counts(postgres_stores):
    with postgres_stores.create(n_bits=32, radius=3, embeddings=Embeddings(6)) as store:
        store.put_rows(range(N_ITEMS), codes=CODES, embeddings=VECTORS, payloads=PAYLOADS)
        for radius in (0, 2, 3, 4):
            costs = store.search_batch(codes=QUERIES, radius=radius, work=Work(costs=True)).costs
            expected = [read_by_substrings(code, radius, 4) for code in QUERIES]
            assert [*zip(costs.buckets.tolist(), costs.candidates.tolist(), strict=True)] == expected
            assert not costs.comparisons.any()
            assert store.search(code=QUERIES[3], radius=radius, work=Work(costs=True)).cost == (*expected[3], 0)
        # A filter is no work of the look-ups; every hit that passes is compared.
        found = store.search(Asked(QUERIES[3], embeddings=VECTORS[3]), filter={"n": 2}, rerank=1, work=Work(costs=True))
        n_passing = len(store.search(code=QUERIES[3], filter={"n": 2}))
        assert found.cost == Cost(*read_by_substrings(QUERIES[3], 3, 4), n_passing)
        # So far away, every row is read.
        assert store.search(code=QUERIES[3], radius=31, work=Work(costs=True)).cost == Cost(0, N_ITEMS, 0)
        nearest = store.nearest_batch(codes=QUERIES[:3], k=800, work=Work(costs=True))
        assert (nearest.costs.candidates >= N_ITEMS).all()
        assert [*nearest] == [*store.nearest_batch(codes=QUERIES[:3], k=800)]


def test_searches_in_a_folder_count_what_the_index_counts(folder_stores, index):
    with folder_stores.create(n_bits=32, radius=3, embeddings=Embeddings(6), durability="os") as store:
        store.put_rows(range(N_ITEMS), codes=CODES, embeddings=VECTORS, payloads=PAYLOADS)
        for found, expected in (
            (
                store.search_batch(codes=QUERIES, work=Work(costs=True)),
                index.search_batch(QUERIES, work=Work(costs=True)),
            ),
            (
                store.nearest_batch(codes=QUERIES, k=5, work=Work(costs=True)),
                index.nearest_batch(QUERIES, 5, work=Work(costs=True)),
            ),
            (
                store.search_batch(Asked(logits=LOGITS), budget=50, work=Work(costs=True)),
                index.search_batch(Asked(logits=LOGITS), budget=50, work=Work(costs=True)),
            ),
        ):
            assert [hits.cost for hits in found] == [hits.cost for hits in expected]
        one = store.search(Asked(QUERIES[3], embeddings=VECTORS[3]), rerank=2, work=Work(costs=True))
        assert one.cost == index.search(Asked(QUERIES[3], embeddings=VECTORS[3]), rerank=2, work=Work(costs=True)).cost
        # With a filter, finding what passes is work as well.
        plain, filtered = (
            store.search(code=QUERIES[3], filter=each, work=Work(costs=True)).cost for each in (None, {"n": 2})
        )
        assert filtered.candidates >= plain.candidates > 0
        assert store.nearest(code=QUERIES[3], k=2, filter={"n": 2}, work=Work(costs=True)).cost.candidates > 0


@pytest.mark.parametrize("filter", [None, {"n": 2}, {"n": Range(3)}, {"absent": 1}])
def test_a_store_probes_as_its_index_does(folder_stores, index, filter):
    with folder_stores.create(n_bits=32, radius=3, embeddings=Embeddings(6), durability="os") as store:
        store.put_rows(range(N_ITEMS), codes=CODES, embeddings=VECTORS, payloads=PAYLOADS)
        store.compact()
        index.compact()
        passing = None if filter is None else [item.id for item in store.scan(filter)]
        for how in (
            Query(12, budget=60),
            Query(31, budget=60, limit=5),
            Query(9, budget=10**6),
            Query(31, budget=200, rerank=3),
            Query(31, budget=200, rerank=3, comparisons=20),
        ):
            asked = Asked(logits=LOGITS, embeddings=VECTORS[:12] if how.rerank else None)
            expected = index.answer(asked, how._replace(filter=passing))
            found = store.answer(asked, how._replace(filter=filter))
            assert [*found] == [*expected]
            if how.comparisons is None:
                one = store.search(
                    asked.row(2), how.radius, budget=how.budget, limit=how.limit, rerank=how.rerank, filter=filter
                )
            else:
                one = store.answer_one(
                    Asked(logits=LOGITS[2:3], embeddings=VECTORS[2:3]), how._replace(filter=filter), Work()
                )
            assert one == expected[2]
            assert type(one) is Hits


def test_a_store_without_embeddings_ranks_a_probe_by_logits(folder_stores):
    index = MultiIndex(32, 3)
    index.add(np.arange(N_ITEMS), CODES)
    with folder_stores.create(n_bits=32, radius=3, durability="os") as store:
        store.put_rows(range(N_ITEMS), codes=CODES)
        found = store.search(Asked(logits=LOGITS[0]), budget=10**6, radius=31, rerank=5)
        assert found == index.search(Asked(logits=LOGITS[0]), budget=10**6, radius=31, rerank=5)


def naive_probe(logits, budget, radius, substrings):
    """Ids and distances of the rows within a radius that a budget reads, and what was read: by a loop over buckets."""
    bits, wanted = unpack(CODES, 32), logits > 0
    buckets = []
    for start, end in substring_bounds(32, substrings):
        # About as many buckets as a quarter of the rows, or half of them.
        stop = start + 8
        for flips in itertools.product([0, 1], repeat=8):
            cost = float(np.abs(logits[start:stop]).astype(float) @ np.array(flips))
            value = wanted[start:stop] ^ np.array(flips, dtype=bool)
            rows = np.flatnonzero((bits[:, start:stop] == value).all(axis=1)).tolist()
            buckets.append(
                (
                    cost,
                    sorted(
                        rows,
                        key=lambda row, ends=(start, end): (bits[row, slice(*ends)].tolist(), bits[row].tolist(), row),
                    ),
                )
            )
    buckets.sort(key=lambda bucket: bucket[0])
    read, n_buckets, left = [], 0, budget
    for _, rows in buckets:
        if left <= 0:
            break
        here = rows[:left]
        read += here
        n_buckets += 1
        left -= max(1, len(here))
    apart = (bits != wanted).sum(axis=1)
    hits = sorted((int(apart[row]), row) for row in set(read) if apart[row] <= radius)
    return [(row, distance) for distance, row in hits], (n_buckets, len(read))


@pytest.mark.parametrize("radius", [1, 2, 3])
def test_a_database_probes_as_a_loop_over_all_buckets_does(postgres_stores, radius):
    with postgres_stores.create(n_bits=32, radius=radius, embeddings=Embeddings(6)) as store:
        store.put_rows(range(N_ITEMS), codes=CODES, embeddings=VECTORS, payloads=PAYLOADS)
        found_before = [set()] * len(LOGITS)
        for budget in (1, 7, 60, 300, 899):
            batch = store.search_batch(Asked(logits=LOGITS), budget=budget, radius=14, work=Work(costs=True))
            for query, hits in enumerate(batch):
                expected, work = naive_probe(LOGITS[query], budget, 14, radius + 1)
                assert [hit[:2] for hit in hits] == expected
                assert hits.cost == (*work, 0)
                # A larger budget finds all that a smaller one finds.
                assert {hit.id for hit in hits} >= found_before[query]
                found_before[query] = {hit.id for hit in hits}
            assert store.search(Asked(logits=LOGITS[5]), budget=budget, radius=14) == batch[5]
            assert store.search(Asked(logits=LOGITS[5]), budget=budget, radius=14, limit=2) == batch[5][:2]
        # So much finds exactly what a search does.
        codes = np.packbits(LOGITS > 0, axis=1, bitorder="little")
        whole = store.search_batch(Asked(logits=LOGITS), budget=N_ITEMS, radius=14)
        assert [*whole] == [*store.search_batch(codes=codes, radius=14)]
        assert len(store.search_batch(Asked(logits=LOGITS[:0]), budget=9, work=Work(costs=True))) == 0


def test_a_database_filters_and_ranks_what_it_probes(postgres_stores, index):
    from hamtarget.store.postgres import bucket_probes

    with postgres_stores.create(n_bits=32, radius=3, embeddings=Embeddings(6)) as store:
        names = [f"item {number}" for number in range(N_ITEMS)]
        store.put_rows(names, codes=CODES, embeddings=VECTORS, payloads=PAYLOADS)
        how = {"budget": 300, "radius": 31}
        asked = Asked(logits=LOGITS[2])
        read = {hit.id for hit in store.search(asked, **how)}
        passing = store.search(asked, filter={"n": Range(3, 5)}, **how)
        assert {hit.id for hit in passing} == {item.id for item in store.scan({"n": Range(3, 5)}) if item.id in read}
        assert store.search(asked, filter={"absent": 1}, **how) == ()
        rows = [names.index(id) for id in read]
        ranked_by = Asked(logits=LOGITS[2:3], embeddings=VECTORS[2:3])
        for comparisons in (None, 40):
            wanted = Query(31, budget=300, rerank=5, comparisons=comparisons)
            (ranked,) = store.answer(ranked_by, wanted, Work(costs=True))
            (expected,) = index.answer(ranked_by, wanted._replace(budget=10**6, filter=rows))
            assert [(names.index(hit.id), *hit[1:]) for hit in ranked] == [tuple(hit) for hit in expected]
            assert ranked.cost.comparisons == (comparisons or len(read))
        # However many statements it takes, the same rows are read.
        with pytest.MonkeyPatch.context() as changed:
            changed.setattr(bucket_probes, "_FIRST_BUCKETS", 1)
            assert {hit.id for hit in store.search(asked, **how)} == read


@pytest.mark.parametrize("lengths", [(1,), (4,), (3, 5), (6, 1, 4)])
def test_flips_come_by_the_sum_of_weights_each_once(lengths):
    from hamtarget.store.postgres.bucket_probes import likely_flips

    weights = [RNG.random(length).tolist() for length in lengths]
    found = list(likely_flips(weights))
    assert len(set(found)) == len(found) == sum(2**length for length in lengths)

    def total(number, flips):
        bits = f"{flips:0{lengths[number]}b}"
        return sum(weight for weight, bit in zip(weights[number], bits, strict=True) if bit == "1")

    totals = [total(*each) for each in found]
    assert totals == pytest.approx(sorted(totals))


def test_a_mirror_probes_as_an_index_does(postgres_stores, index):
    from hamtarget.store import Mirror

    with postgres_stores.create(n_bits=32, radius=3, embeddings=Embeddings(6)) as store:
        store.put_rows(range(N_ITEMS), codes=CODES, embeddings=VECTORS)
        index.compact()
        with Mirror(postgres_stores.place()) as mirror:
            expected = index.search_batch(Asked(logits=LOGITS), budget=100, radius=20, work=Work(costs=True))
            found = mirror.search_batch(Asked(logits=LOGITS), budget=100, radius=20, work=Work(costs=True))
            assert [*found] == [*expected]
            assert [hits.cost for hits in found] == [hits.cost for hits in expected]
            ranked = index.search(Asked(logits=LOGITS[0], embeddings=VECTORS[0]), budget=100, radius=31, rerank=2)
            assert (
                mirror.search(Asked(logits=LOGITS[0], embeddings=VECTORS[0]), budget=100, radius=31, rerank=2) == ranked
            )


def test_who_mixes_up_one_query_and_a_batch_is_told_of_the_other_call(filled):
    for call, message in (
        (lambda: filled.search(code=CODES[:2]), r"expected one code, \(4,\): for several, call search_batch"),
        (lambda: filled.nearest(code=CODES[:2]), "for several, call nearest_batch"),
        (
            lambda: filled.search_batch(codes=CODES[0]),
            r"expected \(queries, 4\): for one code, call search$",
        ),
        (lambda: filled.nearest_batch(codes=CODES[0]), "for one code, call nearest$"),
        (lambda: filled.search(Asked(logits=LOGITS), budget=9), "for several, call search_batch"),
        (lambda: filled.search_batch(Asked(logits=LOGITS[0]), budget=9), "for one query, call search$"),
        (lambda: filled.search(Asked(CODES[0], embeddings=VECTORS[:1]), rerank=1), r"that of one query, \(n_dims,\)"),
    ):
        with pytest.raises(ShapeError, match=message):
            call()


@pytest.mark.parametrize("n", [1, 30, N_ITEMS, 10**6])
def test_a_sample_is_of_different_items_and_the_same_for_a_seed(stores, n):
    with stores.create(n_bits=32, radius=3, durability="os") as store:
        codes = np.arange(4 * N_ITEMS, dtype=np.uint32).view(np.uint8).reshape(-1, 4)
        ids = [number if number % 2 else f"item {number}" for number in range(len(codes))]
        store.put_rows(ids, codes=codes)
        drawn = store.sample_codes(n)
        assert drawn.dtype == np.uint8
        assert drawn.shape == (min(n, len(codes)), 4)
        numbers = np.ascontiguousarray(drawn).view(np.uint32)[:, 0].tolist()
        assert len(set(numbers)) == len(numbers)
        assert set(numbers) <= set(range(len(codes)))
        assert np.array_equal(store.sample_codes(n), drawn)
        named = store.sample_ids(n, seed=3)
        assert len(set(named)) == len(named) == min(n, len(codes))
        assert set(named) <= set(ids)
        if 1 < n < len(codes):
            assert not np.array_equal(store.sample_codes(n, seed=1), drawn)
        for wrong in (0, -1):
            with pytest.raises(InputError, match=f"n is {wrong}"):
                store.sample_codes(wrong)


def test_a_sample_of_nothing_is_empty(stores):
    with stores.create(n_bits=32, radius=3) as store:
        assert store.sample_codes(5).shape == (0, 4)
        assert store.sample_ids(5) == []
    with pytest.raises(ClosedError):
        store.sample_codes(5)


def test_ids_of_a_batch_are_made_when_asked_for(stores):
    with stores.create(n_bits=32, radius=3) as store:
        store.put([Item("a", code=CODES[0]), Item(7, code=CODES[0])])
        batch = store.search_batch(codes=CODES[:1])
        assert "ids" not in vars(batch)
        assert batch.ids.tolist() == [7, "a"]
        assert batch.ids is batch.ids
        assert repr(batch) == "Answer(1 query, 2 hits)"
        assert repr(batch[0]).startswith("Hits(2 hits: Hit(id=7, distance=0")


@pytest.mark.parametrize(("n_bits", "radius"), [(64, 1), (128, 1), (128, 2), (256, 2)])
def test_a_database_probes_substrings_of_every_width(postgres_stores, n_bits, radius):
    """Of integers with and without a sign, of bigints, and of bit strings that are wider."""
    codes = RNG.integers(0, 256, (200, n_bits // 8), dtype=np.uint8)
    with postgres_stores.create(n_bits=n_bits, radius=radius) as store:
        store.put_rows(range(200), codes=codes)
        for row in range(20):
            logits = np.where(unpack(codes[row : row + 1], n_bits)[0], 9.0, -9.0)
            # The query's code differs in one bit of each substring, and is not sure of these.
            for start, stop in substring_bounds(n_bits, radius + 1):
                bit = int(RNG.integers(start, stop))
                logits[bit] *= -0.01
            (hit,) = store.search(Asked(logits=logits), budget=60, radius=radius + 1)
            assert hit == (row, radius + 1, None)


def test_a_store_shows_itself_in_a_line(stores):
    store = stores.create(n_bits=32, radius=3)
    store.put([Item("a", code=CODES[0])])
    kept = "n_bits=32, radius=3, substrings=4"
    assert repr(store).startswith(f"Store({str(store.path)!r}, items=1, {kept}")
    assert ("memory=" in repr(store)) == stores.has_files
    assert (store.memory > 0) == stores.has_files
    assert store.substrings == 4
    store.close()
    assert repr(store) == f"Store({str(store.path)!r}, closed, {kept})"
    assert "password" not in repr(store)


class SignEncoder:
    """Codes by the signs of the inputs; it is not saved, and the store that was made with it holds it in memory."""

    n_bits = 32
    input_shape = (32,)

    def __init__(self, radius):
        self.radius = radius

    def logits(self, inputs):
        return np.asarray(inputs, dtype=np.float32)

    def encode(self, inputs):
        return np.packbits(self.logits(inputs) > 0, axis=1, bitorder="little")

    def embedding(self, inputs):
        return self.logits(inputs)

    def save(self, folder):
        folder.mkdir()


@pytest.mark.parametrize("radius", [None, 3])
def test_codes_for_probing_are_probed_without_a_radius(folder_stores, radius):
    with folder_stores.create(encoder=SignEncoder(radius), radius=3, durability="os") as store:
        store.put_rows(range(N_ITEMS), codes=CODES)
        wanted = 31 if radius is None else 3
        budget = probing_defaults(store).budget
        for asked in (LOGITS, Asked(logits=LOGITS)):
            batch = store.search_batch(asked, budget=budget)
            assert [*batch] == [store.search(row, wanted, budget=budget) for row in LOGITS]
        assert store.search(LOGITS[0], budget=budget) == store.search(LOGITS[0], wanted, budget=budget)
        # A thousand rows are read by default: all of them.
        n_near = N_ITEMS if radius is None else len(store.search(LOGITS[0], 3))
        assert len(store.search(LOGITS[0], budget=budget)) == n_near
