"""Augmentation and ResNet-50 on a GPU: the same as on the CPU, and held by a CUDA graph."""

import pytest
import torch

from hamtarget.learn.networks.augmentation import CropFlipColor, Resize, crop, recolor
from hamtarget.learn.networks.resnet50 import ResNet50

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine")


def photos(rows=8):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (rows, 3, 64, 64), generator=generator, dtype=torch.uint8)


def test_augmentation_equals_that_on_the_cpu():
    images, change = photos(), CropFlipColor(96)
    torch.manual_seed(0)
    draw = change.draw(len(images), 1.0, device=torch.device("cpu"))
    expected = crop(recolor(images.float(), draw), draw, change.size)
    on_gpu = type(draw)(**{name: value.cuda() for name, value in vars(draw).items()})
    found = crop(recolor(images.cuda().float(), on_gpu), on_gpu, change.size)
    torch.testing.assert_close(found.cpu(), expected, atol=0.05, rtol=0)
    torch.testing.assert_close(Resize(96)(images.cuda()).cpu(), Resize(96)(images), atol=0.01, rtol=0)


def test_a_graph_holds_a_step_and_draws_anew_each_time():
    images = photos().cuda()
    change, network = CropFlipColor(96), ResNet50(frozen_stages=2).cuda()
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]

    def step():
        seen = change(images)
        with torch.autocast("cuda", torch.bfloat16):
            features = network(seen)
        gradients = torch.autograd.grad(features.square().mean(), trained)
        return seen, features, gradients[0]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        seen, features, gradient = step()
    drawn = []
    for _ in range(2):
        graph.replay()
        torch.cuda.synchronize()
        drawn.append(seen.clone())
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            torch.testing.assert_close(features, network(seen), atol=0.02 * float(features.abs().max()), rtol=0.05)
        assert bool(torch.isfinite(gradient).all())
        assert float(gradient.abs().max()) > 0
    assert not torch.equal(drawn[0], drawn[1])
