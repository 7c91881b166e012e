"""Comparators on a GPU: every loss, and augmentation, as part of a CUDA graph; skipped where there is no GPU."""

import numpy as np
import pytest
import torch

from hamtarget.learn import HammingTargetLoss, HashModel, Labels, TrainingOptions, train
from hamtarget.learn.losses.proxies import ProxyLoss
from hamtarget.learn.networks.augmentation import CropFlipColor, Resize
from hamtarget.learn.networks.builder import DenseNet, SmallResNet
from research.comparators import CSQLoss, DBRLoss, DHNLoss, FineTuner, HashNetLoss, OrthoHashLoss

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine")

STEPS = 40
LOSSES = {
    "DHN": lambda: DHNLoss(16),
    "HashNet": lambda: HashNetLoss(16, steps=STEPS),
    "DBR": lambda: DBRLoss(16, 10),
    "CSQ": lambda: CSQLoss(16, 10),
    "OrthoHash": lambda: OrthoHashLoss(16, 10),
    "proxies": lambda: ProxyLoss(HammingTargetLoss(16, (1, 3)), 10),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_captured_step_trains_as_single_calls_do(name):
    torch.manual_seed(0)
    inputs = torch.randn(500, 12, device="cuda")
    found = []
    for graph in (True, False):
        torch.manual_seed(0)
        model = HashModel(DenseNet(12, width=16), 16).cuda()
        options = TrainingOptions(
            steps=STEPS, batch_size=64, log_every=1, cuda_graph=graph, learning_rate=1e-3, backbone_rate=0.5
        )
        losses = []
        train(
            model,
            LOSSES[name](),
            inputs,
            Labels(np.arange(500) % 10),
            options,
            progress=lambda state, losses=losses: losses.append(state.loss),
        )
        found.append(losses)
    np.testing.assert_allclose(found[0], found[1], rtol=2e-2)
    assert len(set(found[0])) == STEPS


def test_augmentation_in_a_graph_is_drawn_anew_every_step():
    images = np.random.default_rng(0).integers(0, 256, (200, 3, 16, 16), dtype=np.uint8)
    seen = []

    class Watched(CropFlipColor):
        def forward(self, images):
            changed = super().forward(images)
            seen.append(changed)
            return changed

    tuner = FineTuner(images, SmallResNet((3, 20, 20), width=8), augment=Watched(20), resize=Resize(20))
    sums = []
    options = TrainingOptions(steps=12, batch_size=40, log_every=1)
    tuner.fit(
        np.arange(200),
        np.arange(200) % 10,
        CSQLoss(16, 10),
        options,
        normalize=False,
        progress=lambda state: sums.append(float(seen[-1].sum())),
    )
    # Three steps before the graph is captured, and the capture itself; then the function is not called any more.
    assert len(seen) == 4
    assert len(set(sums)) == 12
