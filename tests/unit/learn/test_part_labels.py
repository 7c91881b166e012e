"""Inputs of which only some have a label: who is left out, what is found alike, and what is learned from it."""

import warnings

import numpy as np
import pytest
import torch
from PIL import Image

from hamtarget.datasets import ImageSet
from hamtarget.errors import InputError, SimilarityError
from hamtarget.learn import ClassCodes, HashEncoder, Labels, MultiLabels, SimilarPairs, TrainingOptions
from hamtarget.learn.fitting import part_labels
from hamtarget.learn.fitting.objectives import PartlyLabelled, chosen_loss, ranking_radii
from hamtarget.learn.fitting.part_labels import (
    LabelsAndPairs,
    LeftOutWarning,
    find_pairs,
    likely_known,
    mutual_neighbors,
    nearness,
)
from hamtarget.learn.fitting.pictures import labels_of
from hamtarget.learn.losses.keep_neighbors import KeepNeighbors
from research.threads import one_thread

OPTIONS = TrainingOptions(steps=60, batch_size=64)


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_thread():
        yield


def clusters(n_classes=8, rows=40, columns=16, seed=0):
    """Return vectors around a centre for each class, and their classes."""
    random = np.random.default_rng(seed)
    classes = np.repeat(np.arange(n_classes), rows)
    centres = random.standard_normal((n_classes, columns))
    return (centres[classes] + 0.3 * random.standard_normal((len(classes), columns))).astype(np.float32), classes


def hidden(classes, has_label):
    return Labels(np.where(has_label, classes, -1), unlabelled=-1)


def as_they_are(vectors):
    """Return a first training that learns nothing: the vectors are the logits."""

    def training(labels, items):
        assert labels.n_items == len(items)
        assert not labels.unlabelled.any()
        return torch.from_numpy(vectors)

    return training


def naive_pairs(vectors, k):
    cosines = vectors @ vectors.T / np.outer(np.linalg.norm(vectors, axis=1), np.linalg.norm(vectors, axis=1))
    np.fill_diagonal(cosines, -np.inf)
    near = np.zeros(cosines.shape, dtype=bool)
    for row in range(len(vectors)):
        near[row, np.argsort(-cosines[row])[:k]] = True
    return {(i, j) for i in range(len(vectors)) for j in range(i) if near[i, j] and near[j, i]}


@pytest.mark.parametrize("k", [1, 4, 9])
def test_mutual_neighbors_are_those_of_the_naive_twin(k):
    vectors = np.random.default_rng(k).standard_normal((60, 5)).astype(np.float32)
    directions = torch.nn.functional.normalize(torch.from_numpy(vectors), dim=1)
    found = mutual_neighbors(directions, k)
    assert {(int(j), int(i)) for i, j in found} == naive_pairs(vectors.astype(np.float64), k)


def test_few_rows_are_not_all_similar_to_all(monkeypatch):
    directions = torch.nn.functional.normalize(torch.randn(20, 4, generator=torch.Generator().manual_seed(0)), dim=1)
    torch.testing.assert_close(mutual_neighbors(directions, 15), mutual_neighbors(directions, 4))
    assert mutual_neighbors(directions[:3], 2).shape == (0, 2)
    assert mutual_neighbors(directions[:0], 2).shape == (0, 2)
    monkeypatch.setattr(part_labels, "_MOST_NEIGHBORS", 2)
    torch.testing.assert_close(mutual_neighbors(directions, 15), mutual_neighbors(directions, 2))


def test_nearness_is_the_mean_of_the_three_nearest():
    references = torch.eye(4)[[0, 0, 1, 1, 2]]
    rows = torch.eye(4)[[0, 2, 3]]
    torch.testing.assert_close(nearness(rows, references), torch.tensor([2 / 3, 1 / 3, 0.0]))
    torch.testing.assert_close(nearness(rows, references[:1]), torch.tensor([1.0, 0.0, 0.0]))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
def test_the_share_of_labelled_classes_is_told_from_inputs_held_out(share):
    random = np.random.default_rng(0)
    known = torch.from_numpy(random.normal(0.8, 0.1, 400)).float()
    is_known = torch.from_numpy(random.random(3000) < share)
    found = torch.where(is_known, *(torch.from_numpy(random.normal(mean, 0.1, 3000)) for mean in (0.8, 0.4)))
    taken = likely_known(found.float(), known)
    assert (taken != is_known).float().mean() < 0.05


def test_nothing_is_taken_where_nothing_is_near():
    known = torch.linspace(0.5, 1, 50)
    assert not likely_known(torch.linspace(-1, 0.4, 50), known).any()


@pytest.mark.parametrize(
    ("few_labels", "few_rows"), [(5, 1.0), (8, 0.4), (5, 0.5)], ids=["other classes", "unknown labels", "both"]
)
def test_inputs_that_seem_to_be_of_labelled_classes_are_left_out(few_labels, few_rows):
    vectors, classes = clusters(rows=200)
    has_label = (classes < few_labels) & (np.random.default_rng(1).random(len(classes)) < few_rows)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = find_pairs(hidden(classes, has_label), as_they_are(vectors))
    learnable = found.learnable.numpy()
    assert learnable[has_label].all()
    of_labelled_classes = ~has_label & (classes < few_labels)
    others = classes >= few_labels
    assert not of_labelled_classes.any() or learnable[of_labelled_classes].mean() < 0.2
    assert not others.any() or learnable[others].mean() > 0.9
    told = [each for each in caught if each.category is LeftOutWarning]
    assert bool(told) == (few_rows < 1)
    if told:
        count = int((~learnable).sum())
        assert f"{count:,} of {(~has_label).sum():,} inputs without a label seem to be" in str(told[0].message)


def test_alike_are_mutual_neighbors_without_a_label():
    vectors, classes = clusters(rows=30)
    has_label = classes < 5
    labels = hidden(classes, has_label)
    found = find_pairs(labels, as_they_are(vectors))
    similar = found.relation.between(torch.arange(len(classes)), torch.arange(len(classes))).numpy()
    np.testing.assert_array_equal(similar[np.ix_(has_label, has_label)], classes[:150, None] == classes[:150])
    assert not similar[np.ix_(has_label, ~has_label)].any()
    among_others = similar[np.ix_(~has_label, ~has_label)]
    # As many neighbours are looked at as a label has inputs, but no more than a fifth of the others.
    assert {(i, j) for i, j in np.argwhere(np.tril(among_others))} == naive_pairs(vectors[150:].astype(float), 18)
    # Callers may ask for fewer.
    fewer = find_pairs(labels, as_they_are(vectors), neighbors=3).relation.counts()[150:]
    assert 0 < fewer.float().mean() < 3


def test_only_some_of_many_inputs_are_learned_from(monkeypatch):
    vectors, classes = clusters(rows=100)
    monkeypatch.setattr(part_labels, "_MOST_INPUTS", 120)
    has_label = classes < 5
    learnable = find_pairs(hidden(classes, has_label), as_they_are(vectors)).learnable.numpy()
    assert learnable[has_label].all()
    assert 110 < learnable[~has_label].sum() <= 120


def test_each_label_keeps_inputs_for_the_first_training():
    vectors, classes = clusters(n_classes=9, rows=10)
    # Labels of 1, 2, ... 8 inputs, and one of none.
    has_label = np.arange(90) % 10 < np.repeat(np.arange(1, 10), 10)
    has_label[80:] = False
    seen = []

    def training(labels, items):
        seen.append(np.bincount(classes[items.numpy()], minlength=9))
        return torch.from_numpy(vectors)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeftOutWarning)
        find_pairs(hidden(classes, has_label), training)
    np.testing.assert_array_equal(seen[0], [1, 2, 2, 3, 4, 5, 6, 7, 0])


def test_a_relation_of_labels_and_pairs():
    both = LabelsAndPairs(Labels(["a", None, "a", None, None, "b"]), SimilarPairs([(1, 3), (3, 4)], n_items=6))
    expected = np.eye(6, dtype=bool)
    for i, j in ((0, 2), (1, 3), (3, 4)):
        expected[i, j] = expected[j, i] = True
    np.testing.assert_array_equal(both.matrix(torch.arange(6)).numpy(), expected)
    np.testing.assert_array_equal(both.counts().numpy(), expected.sum(axis=1) - 1)
    np.testing.assert_array_equal(both.markers(2).numpy(), [0, 1, 2, 3, 4])
    drawn = both.draw(torch.tensor([4, 0, 3, 2]), 1, torch.Generator().manual_seed(0))
    assert drawn[[0, 1, 3], 0].tolist() == [3, 2, 0]
    assert int(drawn[2, 0]) in (1, 4)
    some = torch.tensor([4, 3, 0, 2])
    part = both.subset(some)
    np.testing.assert_array_equal(part.matrix(torch.arange(4)).numpy(), expected[np.ix_(some, some)])
    assert both.labels(torch.tensor([0, 1])).tolist() == [[1.0, 0.0], [0.0, 0.0]]
    assert both.to("cpu").counts().tolist() == both.counts().tolist()


def test_missing_labels_are_what_decides_how_to_learn():
    some = Labels(["a", "a", "b", None])

    def chosen(similar, loss="auto", n_bits=None):
        return chosen_loss(loss, n_bits, similar, of_vectors=True)

    assert chosen(some) == PartlyLabelled(32)
    assert chosen(some, n_bits=64) == PartlyLabelled(64, (4, 8, 12, 16, 20), 200.0)
    assert PartlyLabelled(16).dissimilar_weight == 50.0
    assert ranking_radii(128) == (8, 15, 24, 36)
    # Nothing can be learned from one label, or from labels of one input each.
    for too_little in (["a", "a", None], ["a", "b", None], ["a", "a", "b"]):
        assert isinstance(chosen(Labels(too_little)), KeepNeighbors)
    assert isinstance(chosen(some, "classes"), ClassCodes)
    with pytest.raises(InputError, match="PartlyLabelled need one label for each input, but similar is SimilarPairs"):
        HashEncoder(loss=PartlyLabelled(16)).fit(np.eye(4), SimilarPairs([(0, 1)], 4))
    with pytest.raises(InputError, match="neighbors is 0; expected 1 or more"):
        PartlyLabelled(16, neighbors=0)
    with pytest.raises(InputError, match="radius"):
        PartlyLabelled(16, radius=17)


def test_a_table_of_one_label_at_most_means_missing_labels():
    def found(table):
        return labels_of(np.array(table), len(table))

    assert found([[0, 1], [0, 0], [1, 0], [0, 1]]).numbers.tolist() == [1, 2, 0, 1]
    # One label for each, and two labels for one, are no such tables.
    for table in ([[0, 1], [1, 0], [0, 1]], [[1, 1], [0, 0], [1, 0]]):
        assert isinstance(found(table), MultiLabels)
    assert isinstance(found([0, 1, 1]), Labels)
    assert labels_of(None, 3) is None


def test_pictures_of_a_list_may_have_no_label(tmp_path, monkeypatch):
    monkeypatch.setenv("HAMTARGET_CACHE", str(tmp_path / "cache"))
    lines = ["path,label"]
    for number in range(16):
        pixels = np.random.default_rng([number % 4, 7]).integers(0, 256, (8, 8), dtype=np.uint8)
        Image.fromarray(pixels + np.uint8(number)).save(tmp_path / f"{number}.png")
        lines.append(f"{number}.png,{'ab'[number % 4] if number % 4 < 2 else ''}")
    (tmp_path / "pictures.csv").write_text("\n".join(lines) + "\n")
    pictures = ImageSet.from_csv(tmp_path / "pictures.csv")
    encoder = HashEncoder(16, training=TrainingOptions(steps=3, batch_size=8), device="cpu").fit(pictures)
    assert encoder.radius == PartlyLabelled(16).radius
    assert encoder.encode_images(pictures).codes.shape == (16, 2)


@pytest.mark.parametrize("held_out", [0.0, 0.25])
def test_what_is_left_out_changes_no_code(held_out):
    vectors, classes = clusters(rows=60)
    has_label = np.random.default_rng(5).random(len(classes)) < 0.4
    nearly_all = np.where(has_label, classes, -1)

    def learned():
        encoder = HashEncoder(16, training=OPTIONS, held_out=held_out, device="cpu")
        with pytest.warns(LeftOutWarning):
            return encoder.fit(vectors, Labels(nearly_all, unlabelled=-1))

    encoder = learned()
    np.testing.assert_array_equal(encoder.logits(vectors), learned().logits(vectors))
    assert encoder.radius == (0, 1, 2, 4)


def test_classes_without_labels_are_found_better():
    # Half of the columns tell nothing, and neighbours by all of them are often of another class.
    vectors, classes = clusters(n_classes=12, rows=50, columns=8, seed=6)
    noise = 1.2 * np.random.default_rng(7).standard_normal((len(vectors), 24))
    vectors = np.concatenate([vectors, noise.astype(np.float32)], axis=1)
    has_label = classes < 8
    options = TrainingOptions(steps=200, batch_size=128)

    def found(loss, rows, similar):
        encoder = HashEncoder(32, loss, training=options, device="cpu")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LeftOutWarning)
            signs = np.sign(encoder.fit(vectors[rows], similar).logits(vectors))
        order = np.argsort(-(signs[~has_label] @ signs.T), axis=1, kind="stable")[:, :50]
        return (classes[order] == classes[~has_label, None]).mean()

    everything = np.ones_like(has_label)
    partly = found("auto", everything, hidden(classes, has_label))
    assert partly > found("auto", has_label, Labels(classes[has_label])) + 0.05
    assert partly > found("radius", everything, hidden(classes, has_label)) + 0.05


def test_a_model_remembers_how_it_was_learned(tmp_path):
    vectors, classes = clusters(rows=20)
    loss = PartlyLabelled(16, radius=(1, 3), dissimilar_weight=70.0, neighbors=5)
    encoder = HashEncoder(loss=loss, training=OPTIONS, device="cpu").fit(vectors, hidden(classes, classes < 5))
    encoder.save(tmp_path)
    again = HashEncoder.load(tmp_path, device="cpu")
    assert again.loss == loss
    assert again.radius == (1, 3)
    np.testing.assert_array_equal(again.encode(vectors), encoder.encode(vectors))


def test_too_little_to_learn_from_is_told():
    vectors, _ = clusters(rows=4)
    with pytest.raises(SimilarityError, match="all inputs have the same label"):
        HashEncoder(loss=PartlyLabelled(16), device="cpu").fit(vectors, ["a"] * 8 + [None] * 24)
