"""What holds on a GPU only; skipped, with the reason, where there is none."""

import numpy as np
import pytest
import torch

from hamtarget.learn import (
    HammingTargetLoss,
    HashEncoder,
    HashModel,
    Labels,
    MultiLabels,
    Neighbors,
    TrainingOptions,
    train,
)
from hamtarget.learn.networks.builder import DenseNet
from hamtarget.learn.similarity.nearest_neighbors import nearest_neighbors

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine")

OPTIONS = [
    {"radius": 2},
    {"radius": 0, "probability": "angle"},
    {"radius": [1, 4, 9], "sharpness": 2.0},
    {"radius": 2, "substring_weight": 30.0, "pair_average": "all_pairs"},
    {"radius": 31, "n_bits": 512, "probability": "angle", "substring_weight": 30.0, "substring_cost": "log_likelihood"},
]


def value_and_gradient(loss, logits, similar):
    leaf = logits.clone().requires_grad_()
    total = loss(leaf, similar).total
    return total.detach().cpu().double(), torch.autograd.grad(total, leaf)[0].cpu().double()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("n_rows", [2, 100, 1500])
def test_the_kernel_equals_float64_on_the_cpu(options, n_rows):
    loss = HammingTargetLoss(**{"n_bits": 64, **options})
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(n_rows, loss.n_bits, generator=generator)
    # Near pairs, equal pairs and unrelated ones; not symmetric.
    logits[1::3] = logits[::3][: len(logits[1::3])] + 0.2 * logits[1::3]
    if loss.probability == "soft_bits":
        # For equal rows the angle itself is rounding noise in float32; that it stays finite is tested on the CPU.
        logits[-1] = logits[0]
    similar = torch.rand(n_rows, n_rows, generator=generator) < 0.2
    expected = value_and_gradient(loss, logits.double(), similar)
    found = value_and_gradient(loss, logits.cuda(), similar.cuda())
    torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=1e-6)
    scale = float(expected[1].abs().max())
    torch.testing.assert_close(found[1] / scale, expected[1] / scale, rtol=0, atol=1e-4)


def test_tf32_is_off_inside():
    loss = HammingTargetLoss(64, 2)
    logits = torch.randn(512, 64)
    similar = torch.eye(512, dtype=torch.bool)
    expected = value_and_gradient(loss, logits.double(), similar)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        found = value_and_gradient(loss, logits.cuda(), similar.cuda())
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
    torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_captured_step_trains_as_single_calls_do(precision):
    inputs = torch.randn(500, 12, device="cuda")
    similarity = Neighbors(nearest_neighbors(inputs, 10))
    weights = []
    for graph in (True, False):
        torch.manual_seed(0)
        model = HashModel(DenseNet(12, width=16), 16).cuda()
        options = TrainingOptions(
            steps=40, batch_size=64, log_every=1, cuda_graph=graph, precision=precision, learning_rate=1e-3
        )
        losses = []
        train(
            model,
            HammingTargetLoss(16, 1),
            inputs,
            similarity,
            options,
            progress=lambda state, losses=losses: losses.append(state.loss),
        )
        weights.append((losses, model.head.linear.weight.detach().clone()))
    (graph_losses, graph_weight), (losses, weight) = weights
    np.testing.assert_allclose(graph_losses, losses, rtol=2e-2)
    torch.testing.assert_close(graph_weight, weight, rtol=0, atol=2e-2)
    assert len(set(graph_losses)) == 40


@pytest.mark.parametrize("kind", [Labels, MultiLabels])
def test_similarities_draw_on_the_gpu(kind):
    labels = np.arange(60) % 6
    relation = kind(labels if kind is Labels else np.eye(6)[labels]).to("cuda")
    generator = torch.Generator("cuda").manual_seed(0)
    drawn = relation.draw(torch.arange(60, device="cuda"), 3, generator)
    assert drawn.is_cuda
    assert (labels[drawn.cpu().numpy()] == labels[:, None]).all()


def test_an_encoder_trained_on_the_gpu_gives_the_same_codes_on_the_cpu(tmp_path):
    inputs = np.random.default_rng(0).normal(size=(300, 10)).astype(np.float32)
    encoder = HashEncoder(
        loss=HammingTargetLoss(16, 1), training=TrainingOptions(steps=30, batch_size=64), device="cuda"
    ).fit(inputs)
    encoder.save(tmp_path)
    there, here = encoder.logits(inputs), HashEncoder.load(tmp_path, device="cpu").logits(inputs)
    np.testing.assert_allclose(there, here, atol=1e-3)
