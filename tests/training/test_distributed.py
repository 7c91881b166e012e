import copy

import pytest
import torch
import torch.multiprocessing
from torch import nn

from hamtarget.errors import InputError, ShapeError
from hamtarget.learn import HammingTargetLoss, HashModel, Labels, TrainingOptions, train
from hamtarget.learn.losses.distributed import gather_rows, world

N_BITS, BATCH, COLUMNS = 16, 24, 10


def data():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(BATCH, COLUMNS, generator=generator)
    labels = torch.arange(BATCH) % 5
    return inputs, labels


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(COLUMNS, 32), nn.Tanh(), nn.Linear(32, N_BITS))


def loss(**options):
    return HammingTargetLoss(N_BITS, 2, substring_weight=5.0, sharpness=1.0, **options)


def one_process():
    inputs, labels = data()
    model = network()
    total = loss()(model(inputs), labels[:, None] == labels).total
    total.backward()
    return float(total.detach()), [p.grad for p in model.parameters()]


def join(rank, size, folder):
    # A file instead of a port: nothing on the network is used, and test processes cannot collide.
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=size)
    torch.set_num_threads(1)


def leave():
    # Together: a process that leaves while another still talks to it was seen to abort the other, one time in eight.
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def gathered_gradients(rank, size, folder):
    join(rank, size, folder)
    inputs, labels = data()
    share = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
    model = nn.parallel.DistributedDataParallel(network())
    everyone = gather_rows(labels[share])
    total = loss(gather=True)(model(inputs[share]), everyone[:, None] == everyone).total
    total.backward()
    result = {"total": total.detach(), "labels": everyone, **{n: p.grad for n, p in model.module.named_parameters()}}
    save(result, f"{folder}/{rank}.safetensors")
    del model
    leave()


def save(tensors, path):
    import safetensors.torch

    safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)


def load(path):
    import safetensors.torch

    return safetensors.torch.load_file(path)


@pytest.mark.parametrize("size", [2, 3])
def test_processes_together_equal_one_process_on_the_whole_batch(size, tmp_path):
    torch.multiprocessing.spawn(gathered_gradients, (size, str(tmp_path)), nprocs=size)
    total, gradients = one_process()
    for rank in range(size):
        found = load(tmp_path / f"{rank}.safetensors")
        assert torch.equal(found["labels"], data()[1])
        assert float(found["total"]) == pytest.approx(total, rel=1e-5)
        for (name, _), expected in zip(network().named_parameters(), gradients, strict=True):
            torch.testing.assert_close(found[name], expected, rtol=1e-5, atol=1e-5)


def options():
    return TrainingOptions(steps=6, batch_size=12, group_size=2, learning_rate=1e-2, log_every=2)


def no_norm_model():
    torch.manual_seed(1)
    model = HashModel(nn.Sequential(nn.Linear(COLUMNS, 8), nn.Tanh()), N_BITS, in_features=8)
    # Batch norm's statistics are a process's own on a CPU; without it two processes can be compared with one.
    model.head.norm = nn.Identity()
    return model


def trained_together(rank, size, folder):
    join(rank, size, folder)
    inputs, labels = data()
    model = no_norm_model()
    train(model, loss(gather=True), inputs, Labels(labels), options(), log=f"{folder}/log.jsonl")
    save(model.state_dict(), f"{folder}/{rank}.safetensors")
    leave()


def test_training_in_two_processes_equals_training_in_one(tmp_path):
    torch.multiprocessing.spawn(trained_together, (2, str(tmp_path)), nprocs=2)
    inputs, labels = data()
    alone = no_norm_model()
    untrained = copy.deepcopy(alone.state_dict())
    train(alone, loss(), inputs, Labels(labels), options())
    for rank in range(2):
        found = load(tmp_path / f"{rank}.safetensors")
        for name, expected in alone.state_dict().items():
            torch.testing.assert_close(found[name], expected, rtol=1e-4, atol=1e-5)
            assert not torch.equal(expected, untrained[name])
    assert (tmp_path / "log.jsonl").read_text().count("\n") == 3


def needs_gather(rank, size, folder):
    join(rank, size, folder)
    inputs, labels = data()
    with pytest.raises(InputError, match="2 processes train together, but loss.gather is False"):
        train(no_norm_model(), loss(), inputs, Labels(labels), options())
    with pytest.raises(ShapeError, match="matrix of the whole batch of all processes"):
        loss(gather=True)(torch.zeros(3, N_BITS), torch.eye(3, dtype=torch.bool))
    leave()


def test_mistakes_are_named(tmp_path):
    torch.multiprocessing.spawn(needs_gather, (2, str(tmp_path)), nprocs=2)


def test_alone_gathering_changes_nothing():
    rows = torch.randn(3, 4)
    assert world() == (0, 1)
    assert gather_rows(rows) is rows
