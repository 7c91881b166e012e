"""Every comparator's loss against its formula, pair by pair and bit by bit, in plain Python."""

import math

import numpy as np
import pytest
import torch

from hamtarget.errors import DtypeError, InputError, ShapeError
from hamtarget.learn import HammingTargetLoss, HashModel, Labels, MultiLabels, Neighbors, TrainingOptions, train
from hamtarget.learn.fitting.held_out import HeldOutLoss
from hamtarget.learn.losses.class_codes import class_means, codes_by_likeness, hadamard, hadamard_centers, max_min_codes
from hamtarget.learn.losses.guided import GuidedLoss
from hamtarget.learn.losses.proxies import ProxyLoss
from hamtarget.learn.networks.builder import DenseNet
from hamtarget.learn.networks.class_pull import ClassPull
from research.comparators import CSQLoss, DBRLoss, DHNLoss, HashNetLoss, OrthoHashLoss

B, N, CLASSES = 7, 16, 5


def batch(seed=0, scale=1.0):
    random = np.random.default_rng(seed)
    return random.normal(size=(B, N)) * scale, random.integers(0, CLASSES, B)


def one_hot(labels):
    return torch.from_numpy(np.eye(CLASSES)[labels])


def value(loss, logits, target):
    return loss(torch.from_numpy(logits), target).total.item()


def similar_matrix(labels):
    return torch.from_numpy(labels[:, None] == labels[None, :])


def naive_dhn(logits, labels, weight, per_kind):
    costs = {True: [], False: []}
    for i in range(B):
        for j in range(B):
            if i != j:
                s, a = bool(labels[i] == labels[j]), float(logits[i] @ logits[j]) / 2
                costs[s].append(math.log(1 + math.exp(a)) - s * a)
    pairs = np.mean(costs[True]) + np.mean(costs[False]) if per_kind else np.mean(costs[True] + costs[False])
    quantization = [sum(math.log(math.cosh(abs(z) - 1)) for z in row) for row in logits]
    return pairs + weight * np.mean(quantization)


@pytest.mark.parametrize("weight", [0.0, 0.1, 3.0])
@pytest.mark.parametrize("average", ["all_pairs", "per_kind"])
def test_dhn_equals_its_formula(weight, average):
    logits, labels = batch()
    found = value(DHNLoss(N, quantization_weight=weight, pair_average=average), logits, similar_matrix(labels))
    assert found == pytest.approx(naive_dhn(logits, labels, weight, average == "per_kind"))


def test_dhn_is_finite_where_its_formula_overflows():
    logits, labels = batch(scale=1e3)
    assert math.isfinite(value(DHNLoss(N), logits, similar_matrix(labels)))


def naive_hashnet(logits, labels, beta):
    codes = np.tanh(beta * logits)
    pairs = [(i, j) for i in range(B) for j in range(B) if i != j]
    n_similar = sum(labels[i] == labels[j] for i, j in pairs)
    total = 0.0
    for i, j in pairs:
        s = labels[i] == labels[j]
        a = 10 / N * float(codes[i] @ codes[j])
        weight = len(pairs) / (n_similar if s else len(pairs) - n_similar)
        total += weight * (math.log(1 + math.exp(a)) - s * a)
    return total / len(pairs)


@pytest.mark.parametrize(
    ("step", "steps", "iteration"), [(0, 10_000, 0), (199, 10_000, 0), (200, 10_000, 200), (50, 100, 5000)]
)
def test_hashnet_equals_its_formula_at_every_step_of_its_schedule(step, steps, iteration):
    logits, labels = batch(1)
    loss = HashNetLoss(N, steps=steps)
    loss.at_step(step)
    beta = math.sqrt(1 + 0.005 * iteration)
    assert value(loss, logits, similar_matrix(labels)) == pytest.approx(naive_hashnet(logits, labels, beta))


def test_dbr_equals_its_formula():
    logits, labels = batch(2)
    codes = max_min_codes(CLASSES + 1, N, seed=3).numpy()
    expected = np.mean([(math.tanh(2 * logits[i, k]) - codes[labels[i], k]) ** 2 for i in range(B) for k in range(N)])
    assert value(DBRLoss(N, CLASSES, slope=2.0, seed=3), logits, one_hot(labels)) == pytest.approx(expected)


def naive_csq(logits, centers, weight):
    center = quantization = 0.0
    for row, wanted in zip(logits, centers, strict=True):
        for u, c in zip(row, wanted, strict=True):
            chance, target = (math.tanh(u) + 1) / 2, (c + 1) / 2
            center -= target * math.log(chance) + (1 - target) * math.log(1 - chance)
            quantization += (abs(math.tanh(u)) - 1) ** 2
    return (center + weight * quantization) / logits.size


def test_csq_equals_its_formula():
    logits, labels = batch(3)
    centers = hadamard_centers(CLASSES, N).numpy()[labels]
    found = value(CSQLoss(N, CLASSES, quantization_weight=0.05), logits, one_hot(labels))
    assert found == pytest.approx(naive_csq(logits, centers, 0.05))


@pytest.mark.parametrize("kind", [CSQLoss, DBRLoss])
def test_several_labels_vote_for_a_centre_bit_by_bit(kind):
    logits, _ = batch(4)
    random = np.random.default_rng(5)
    labels = (random.random((B, CLASSES)) < 0.5).astype(float)
    labels[:, 0] = 1
    loss = kind(N, CLASSES)
    codes = (loss.centers if kind is CSQLoss else loss.codes).numpy()
    wanted = np.empty((B, N))
    for i in range(B):
        for k in range(N):
            votes = sum(codes[c, k] for c in range(CLASSES) if labels[i, c])
            wanted[i, k] = np.sign(votes) if votes else float(loss.undecided[k])
    expected = naive_csq(logits, wanted, 0.05) if kind is CSQLoss else np.mean((np.tanh(logits) - wanted) ** 2)
    assert value(loss, logits, torch.from_numpy(labels)) == pytest.approx(expected)


def naive_ortho(logits, labels, codes, scale, margin):
    total = 0.0
    for row, own in zip(logits, labels, strict=True):
        cosine = [float(row @ code) / np.linalg.norm(row) / np.linalg.norm(code) for code in codes]
        powers = [math.exp(scale * (c - margin * has)) for c, has in zip(cosine, own, strict=True)]
        total -= sum(has * math.log(p / sum(powers)) for p, has in zip(powers, own, strict=True)) / sum(own)
    return total / len(logits)


@pytest.mark.parametrize("several", [False, True])
def test_orthohash_equals_its_formula(several):
    logits, labels = batch(6)
    hot = one_hot(labels)
    if several:
        hot[:, 1] = 1
    codes = hadamard_centers(CLASSES, N).numpy()
    expected = naive_ortho(logits, hot.numpy(), codes, math.sqrt(N), 0.2)
    assert value(OrthoHashLoss(N, CLASSES), logits, hot) == pytest.approx(expected)


def test_proxies_add_their_pull_to_the_pair_loss():
    logits, labels = batch(7)
    pairs = HammingTargetLoss(N, 2, dissimilar_weight=30.0)
    loss = ProxyLoss(pairs, CLASSES, proxy_weight=2.0, margin=0.1)
    codes = hadamard_centers(CLASSES, N).numpy()
    expected = value(pairs, logits, similar_matrix(labels))
    expected += 2 * naive_ortho(logits, one_hot(labels).numpy(), codes, math.sqrt(N), 0.1)
    found = loss(torch.from_numpy(logits), one_hot(labels))
    assert found.total.item() == pytest.approx(expected)
    assert float(found.similar) == pytest.approx(float(pairs(torch.from_numpy(logits), similar_matrix(labels)).similar))
    assert found.diagnostics().keys() >= {"bit_balance", "actual_within"}
    assert [p.requires_grad for p in loss.parameters()] == [True]
    assert not any(p.requires_grad for p in ProxyLoss(pairs, CLASSES, learned=False).parameters())


def test_rows_of_a_hadamard_matrix_differ_in_half_of_their_places():
    matrix = hadamard(16)
    assert torch.equal(matrix @ matrix.T, 16 * torch.eye(16))
    with pytest.raises(InputError, match="size is 12; expected a power of 2"):
        hadamard(12)


@pytest.mark.parametrize(
    ("n_classes", "n_bits"), [(20, 16), (32, 16), (33, 16), (100, 16), (100, 32), (100, 64), (5, 24)]
)
def test_centres_are_different_and_those_of_hadamard_far_apart(n_classes, n_bits):
    centers = hadamard_centers(n_classes, n_bits)
    assert centers.shape == (n_classes, n_bits)
    assert set(centers.unique().tolist()) == {-1.0, 1.0}
    distance = (n_bits - centers @ centers.T) / 2 + n_bits * torch.eye(n_classes)
    assert float(distance.min()) >= 1
    if n_classes <= 2 * n_bits and n_bits in (16, 32, 64):
        assert float(distance.min()) == n_bits / 2
    else:
        assert (centers.sum(1) == 0).all()


def test_too_many_balanced_codes_are_refused():
    with pytest.raises(InputError, match="71 classes need more different balanced codes than 8 bits have"):
        hadamard_centers(71, 8)


def naive_max_min(candidates, n_classes):
    chosen = [candidates[0]]
    while len(chosen) < n_classes:
        distances = [[int((c != other).sum()) for other in chosen] for c in candidates]
        chosen.append(candidates[max(range(len(candidates)), key=lambda i: (min(distances[i]), sum(distances[i]), -i))])
    return np.stack(chosen)


def test_max_min_codes_are_the_greedy_choice_and_farther_apart_than_random_ones():
    generator = torch.Generator().manual_seed(2)
    candidates = (torch.randint(0, 2, (64 * 9, 16), generator=generator).float() * 2 - 1).numpy()
    assert np.array_equal(max_min_codes(9, 16, seed=2).numpy(), naive_max_min(candidates, 9))
    codes = max_min_codes(100, 32)
    distance = (32 - codes @ codes.T) / 2 + 32 * torch.eye(100)
    drawn = hadamard_centers(100, 32)
    assert float(distance.min()) > float(((32 - drawn @ drawn.T) / 2 + 32 * torch.eye(100)).min())


def misfit(codes, cosines, likeness):
    """What `codes_by_likeness` makes small: squared differences of inner products from what is wanted."""
    n_classes, n_bits = codes.shape
    others = ~np.eye(n_classes, dtype=bool)
    wanted = (cosines - cosines[others].mean()) / cosines[others].std() * likeness * n_bits**0.5
    return ((codes @ codes.T - wanted)[others] ** 2).sum()


def nearest(codes):
    distance = (codes.shape[1] - codes @ codes.T) / 2
    return distance[~np.eye(len(codes), dtype=bool)].min()


@pytest.mark.parametrize("likeness", [0.0, 0.3, 1.0, 3.0])
def test_codes_by_likeness_cannot_be_bettered_by_one_bit_or_a_swap(likeness):
    features = np.random.default_rng(3).normal(size=(12, 5))
    codes = codes_by_likeness(torch.from_numpy(features), 16, likeness=likeness).numpy().astype(np.float64)
    assert set(np.unique(codes)) == {-1.0, 1.0}
    apart = nearest(codes)
    assert apart >= nearest(max_min_codes(12, 16).numpy())
    units = features / np.linalg.norm(features, axis=1, keepdims=True)
    cosines = units @ units.T
    least = misfit(codes, cosines, likeness)
    for place in np.ndindex(codes.shape):
        codes[place] *= -1
        assert misfit(codes, cosines, likeness) >= least - 1e-6 or nearest(codes) < apart
        codes[place] *= -1
    for one, other in np.ndindex(12, 12):
        codes[[one, other]] = codes[[other, one]]
        assert misfit(codes, cosines, likeness) >= least - 1e-6
        codes[[one, other]] = codes[[other, one]]


def test_like_classes_get_near_codes():
    random = np.random.default_rng(4)
    families = np.repeat(random.normal(size=(5, 30)), 4, axis=0)
    features = torch.from_numpy(families + 0.3 * random.normal(size=families.shape))
    family = np.arange(20) // 4
    same = (family[:, None] == family) & ~np.eye(20, dtype=bool)

    def apart(likeness):
        codes = codes_by_likeness(features, 32, likeness=likeness)
        assert torch.equal(codes, codes_by_likeness(features, 32, likeness=likeness))
        return ((32 - codes @ codes.T) / 2).numpy()[same].mean()

    assert apart(1.0) <= apart(0.5) < apart(0.0) - 1


def test_a_class_of_which_nothing_is_known_is_like_none():
    features = torch.zeros(4, 3)
    assert codes_by_likeness(features, 16).shape == (4, 16)
    features[:3] = torch.eye(3) + 0.5
    assert torch.isfinite(codes_by_likeness(features, 16)).all()
    with pytest.raises(ShapeError, match=r"class_features have shape \(3,\); expected \(n_classes, columns\)"):
        codes_by_likeness(torch.ones(3), 16)
    with pytest.raises(InputError, match="likeness is -1; expected 0 or more"):
        codes_by_likeness(features, 16, likeness=-1)


def test_class_means_are_those_of_standardized_rows():
    random = np.random.default_rng(5)
    rows = random.normal(3, 2, (30, 4))
    labels = (random.random((30, 3)) < 0.5).astype(np.float64)
    labels[:, 2] = 0
    standardized = (rows - rows.mean(0)) / rows.std(0, ddof=1)
    found = class_means(torch.from_numpy(rows), torch.from_numpy(labels)).numpy()
    for name in (0, 1):
        np.testing.assert_allclose(found[name], standardized[labels[:, name] == 1].mean(0))
    assert not found[2].any()


def test_proxies_and_codes_start_where_they_are_told():
    logits, labels = batch(8)
    codes = max_min_codes(CLASSES, N, seed=1)
    pull = naive_ortho(logits, one_hot(labels).numpy(), codes.numpy(), math.sqrt(N), 0.2)
    assert value(OrthoHashLoss(N, CLASSES, codes=codes), logits, one_hot(labels)) == pytest.approx(pull)
    pairs = HammingTargetLoss(N, 2)
    loss = ProxyLoss(pairs, CLASSES, proxies=codes)
    assert value(loss, logits, one_hot(labels)) == pytest.approx(value(pairs, logits, similar_matrix(labels)) + pull)
    loss.proxies.data.zero_()
    assert codes.abs().min() == 1
    for build in (lambda: OrthoHashLoss(N, CLASSES, codes=codes[1:]), lambda: ProxyLoss(pairs, 3, proxies=codes)):
        with pytest.raises(ShapeError, match="have shape"):
            build()


def naive_pull(logits, proxies, weight, scale):
    pulled = []
    for row in logits:
        direction = row / np.linalg.norm(row)
        chances = np.exp([scale * direction @ proxy / np.linalg.norm(proxy) for proxy in proxies])
        code = sum(chance * np.sign(proxy) for chance, proxy in zip(chances / chances.sum(), proxies, strict=True))
        pulled.append(direction * math.sqrt(N) + weight * code)
    return np.array(pulled)


def test_a_pull_draws_logits_to_the_codes_of_near_classes():
    logits, _ = batch(9)
    proxies = torch.from_numpy(np.random.default_rng(9).normal(size=(CLASSES, N)))
    model = torch.nn.Identity()
    found = ClassPull(model, proxies, weight=0.7, scale=3.0)(torch.from_numpy(logits))
    np.testing.assert_allclose(found.numpy(), naive_pull(logits, proxies.numpy(), 0.7, 3.0), rtol=1e-5, atol=1e-5)
    near = proxies + 0.3 * torch.randn(CLASSES, N, generator=torch.Generator().manual_seed(0))
    assert torch.equal(ClassPull(model, proxies, weight=100.0, scale=100.0)(near).sign(), proxies.sign().float())
    assert torch.equal(ClassPull(model, proxies, weight=0.0)(near).sign(), near.sign().float())
    with pytest.raises(InputError, match="weight is -1 and scale 20.0; expected 0 or more"):
        ClassPull(model, proxies, weight=-1)
    with pytest.raises(ShapeError, match=r"proxies have shape \(16,\)"):
        ClassPull(model, proxies[0])


def test_a_guide_tells_classes_and_is_no_part_of_the_code():
    logits, _ = batch(11)
    proxies = torch.from_numpy(np.random.default_rng(11).normal(size=(CLASSES, N)))
    short = ClassPull(torch.nn.Identity(), proxies, n_bits=8, weight=0.7, scale=3.0)(torch.from_numpy(logits))
    assert short.shape == (B, 8)
    for row, found in zip(logits, short.numpy(), strict=True):
        cosines = [row @ proxy / np.linalg.norm(row) / np.linalg.norm(proxy) for proxy in proxies.numpy()]
        chances = np.exp(3 * np.array(cosines)) / np.exp(3 * np.array(cosines)).sum()
        own = row[:8] / np.linalg.norm(row[:8]) * math.sqrt(8)
        np.testing.assert_allclose(found, own + 0.7 * chances @ np.sign(proxies.numpy()[:, :8]), atol=1e-5)
    for n_bits in (0, N + 1):
        with pytest.raises(InputError, match=f"n_bits is {n_bits}; expected 1 to 16"):
            ClassPull(torch.nn.Identity(), proxies, n_bits=n_bits)


def test_a_guided_loss_is_that_of_the_code_and_that_of_its_guide():
    logits, labels = batch(12)
    longer = np.concatenate([logits, -logits, logits**2], axis=1)
    code, guide = CSQLoss(N, CLASSES), OrthoHashLoss(2 * N, CLASSES)
    loss = GuidedLoss(code, guide, guide_weight=0.3)
    target = one_hot(labels)
    assert loss.n_bits == 3 * N
    expected = value(code, logits, target) + 0.3 * value(guide, longer[:, N:], target)
    assert value(loss, longer, target) == pytest.approx(expected)
    assert torch.equal(loss.class_codes, torch.cat([code.class_codes, guide.class_codes], dim=1))
    terms = loss(torch.from_numpy(longer), target)
    assert terms.similar == code(torch.from_numpy(logits), target).similar
    assert terms.diagnostics() == code.diagnostics(torch.from_numpy(logits), target)
    assert "guide_weight=0.3" in loss.extra_repr()
    changing = GuidedLoss(code, ProxyLoss(HashNetLoss(N, steps=4), CLASSES))
    before = value(changing, longer[:, : 2 * N], target)
    changing.at_step(3)
    assert value(changing, longer[:, : 2 * N], target) != before
    with pytest.raises(InputError, match="the guide has 3 labels; expected 5"):
        GuidedLoss(code, CSQLoss(N, 3))
    with pytest.raises(InputError, match="guide_weight is -1"):
        GuidedLoss(code, guide, guide_weight=-1)


def test_losses_by_label_tell_the_codes_of_their_classes():
    for loss in (CSQLoss(N, CLASSES), DBRLoss(N, CLASSES), OrthoHashLoss(N, CLASSES), ProxyLoss(DHNLoss(N), CLASSES)):
        assert loss.class_codes.shape == (CLASSES, N)


def all_losses(steps):
    return [
        DHNLoss(N),
        HashNetLoss(N, steps=steps),
        DBRLoss(N, CLASSES),
        CSQLoss(N, CLASSES),
        OrthoHashLoss(N, CLASSES),
        ProxyLoss(HammingTargetLoss(N, 2, dissimilar_weight=30.0), CLASSES),
    ]


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("several", [False, True])
def test_every_loss_trains_with_its_head_and_held_out_rows(number, several, tmp_path):
    random = np.random.default_rng(0)
    labels = np.arange(150) % CLASSES
    inputs = torch.from_numpy(random.normal(size=(CLASSES, 6))[labels] * 2 + random.normal(size=(150, 6)) * 0.3)
    similarity = MultiLabels(np.eye(CLASSES)[labels]) if several else Labels(labels)
    options = TrainingOptions(
        steps=40, batch_size=30, group_size=3, learning_rate=2e-2, log_every=10, backbone_rate=0.1
    )
    loss = all_losses(options.steps)[number]
    torch.manual_seed(0)
    model = HashModel(DenseNet(6, width=16, layers=2), N, normalize=number >= 4)
    held_out = HeldOutLoss(inputs[:50].float(), similarity.subset(torch.arange(50)), loss, options)
    before = held_out(model.eval())
    log = tmp_path / "log.jsonl"
    train(model, loss, inputs.float(), similarity, options, evaluate=held_out, log=log, checkpoint=tmp_path / "run")
    assert held_out(model) < before
    assert loss.extra_repr().startswith("n_bits=16")


def test_learned_proxies_are_trained_and_resumed(tmp_path):
    labels = np.arange(100) % CLASSES
    inputs = torch.from_numpy(np.random.default_rng(0).normal(size=(100, 6)).astype(np.float32))
    options = TrainingOptions(steps=20, batch_size=20, group_size=4, log_every=5, checkpoint_every=10)

    def proxies(checkpoint, stop=None):
        def progress(state):
            if state.step == stop:
                raise KeyboardInterrupt

        torch.manual_seed(0)
        loss = ProxyLoss(HammingTargetLoss(N, 2), CLASSES)
        model = HashModel(DenseNet(6, width=16, layers=2), N)
        train(model, loss, inputs, Labels(labels), options, progress=progress, checkpoint=tmp_path / checkpoint)
        return loss.proxies.detach()

    whole = proxies("whole")
    assert not torch.equal(whole, hadamard_centers(CLASSES, N))
    with pytest.raises(KeyboardInterrupt):
        proxies("resumed", stop=15)
    assert torch.equal(proxies("resumed"), whole)


def test_wrong_targets_are_refused():
    loss = CSQLoss(N, CLASSES)
    with pytest.raises(ShapeError, match=r"labels have shape \(7, 4\); 7 rows of logits and 5 labels need \(7, 5\)"):
        loss(torch.zeros(B, N), torch.zeros(B, 4))
    with pytest.raises(DtypeError, match=r"labels have dtype torch.bool"):
        loss(torch.zeros(B, N), torch.zeros(B, CLASSES, dtype=torch.bool))
    with pytest.raises(InputError, match="Neighbors has no labels"):
        loss.target(Neighbors([[1], [0]]), torch.tensor([0]))
    for wrong in (
        lambda: DHNLoss(N, quantization_weight=-1),
        lambda: DHNLoss(N, pair_average="none"),
        lambda: HashNetLoss(N, steps=0),
        lambda: CSQLoss(N, 0),
        lambda: OrthoHashLoss(N, CLASSES, scale=0.0),
        lambda: ProxyLoss(DHNLoss(N), CLASSES, proxy_weight=-1.0),
        lambda: TrainingOptions(backbone_rate=-1.0),
    ):
        with pytest.raises(InputError):
            wrong()


def test_labels_of_a_subset_keep_their_numbers():
    labels = Labels(["b", "c", "a", "c"])
    assert labels.labels(torch.tensor([2, 0])).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert labels.subset(torch.tensor([1, 3])).labels(torch.tensor([0])).tolist() == [[0, 0, 1]]


def test_the_backbone_can_learn_more_slowly():
    labels = np.arange(100) % CLASSES
    inputs = torch.from_numpy(np.random.default_rng(0).normal(size=(100, 6)).astype(np.float32))
    options = TrainingOptions(steps=3, batch_size=20, group_size=4, backbone_rate=0.0, weight_decay=0.0)
    torch.manual_seed(0)
    model = HashModel(DenseNet(6, width=16, layers=2), N)
    before = {name: value.clone() for name, value in model.named_parameters()}
    train(model, DHNLoss(N), inputs, Labels(labels), options)
    moved = {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}
    assert moved == {"head.linear.weight"}
