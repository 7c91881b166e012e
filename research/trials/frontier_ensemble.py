"""Train many models of one seed together: the same network and batches, another loss each.

A single model of 64 bits leaves most of a GPU idle. Here the weights of all models are stacked, so that one product
serves them all, and a step of all of them is one CUDA graph. Each model gets the weights, batches and updates that
`HashEncoder` would give it; `tests/research/test_sift_frontier.py` compares the two.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from hamtarget.learn import HashModel, Neighbors, TrainingOptions
from hamtarget.learn.losses import pair_cost
from hamtarget.learn.losses.pair_cost import PairCost, Probability
from hamtarget.learn.networks.builder import DenseNet
from hamtarget.learn.precision import full_float32
from hamtarget.learn.training.sampling import GroupBatchSampler

N_BITS, RADIUS, SHARPNESS = 64, 2, 4.0
# As `HammingTargetLoss` has it: shorter vectors of logits are not stretched to unit length.
_SHORTEST = 1e-4
_STEPS_BEFORE_CAPTURE = 3
# As nn.BatchNorm1d has them.
_MOMENTUM, _EPSILON = 0.1, 1e-5


@dataclass(frozen=True)
class Setting:
    """The loss of one model: `HammingTargetLoss` of 64 bits and radius 2, and a term against correlated logits.

    Attributes:
        probability: "angle" or "soft_bits".
        pair_average: "per_kind" or "all_pairs".
        dissimilar_weight: lambda.
        decorrelation: weight of the mean squared correlation of two different logits.
    """

    probability: Probability
    pair_average: str
    dissimilar_weight: float
    decorrelation: float = 0.0


class StackedModels(nn.Module):
    """Copies of a `HashModel` of a `DenseNet`, which learn apart from each other.

    Features are (models, units, rows): with the rows last, one batch norm does for the units of all models.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, model: HashModel, copies: int) -> None:
        super().__init__()
        network = model.backbone
        if not isinstance(network, DenseNet) or model.head.norm is None:
            raise TypeError(f"the backbone is a {type(network).__name__}; expected a DenseNet and a normalised head")

        def stacked(value: Tensor) -> Tensor:
            return value.detach().clone().expand(copies, *value.shape).contiguous()

        self.copies = copies
        self.register_buffer("mean", network.standardize.mean.clone())
        self.register_buffer("scale", network.standardize.scale.clone())
        norms: list[nn.BatchNorm1d] = [layer[1] for layer in network.layers]  # type: ignore[index]
        linears: list[nn.Linear] = [layer[0] for layer in network.layers]  # type: ignore[index]
        self.weights = nn.ParameterList(stacked(linear.weight) for linear in [*linears, model.head.linear])
        self.gains = nn.ParameterList(stacked(norm.weight) for norm in norms)
        self.shifts = nn.ParameterList(stacked(norm.bias) for norm in norms)
        for place, norm in enumerate([*norms, model.head.norm]):
            for name, value in (("running_mean", norm.running_mean), ("running_var", norm.running_var)):
                if value is None:
                    raise TypeError("a batch norm keeps no running statistics")
                self.register_buffer(f"{name}{place}", stacked(value))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits of every model, (models, rows, bits)."""
        features = ((inputs.float() - self.mean) * self.scale).T.expand(self.copies, -1, -1)
        last = len(self.weights) - 1
        for place in range(last):
            units = self._normalized(self.weights[place] @ features, place, self.gains[place], self.shifts[place])
            features = torch.cat([features, torch.relu(units)], dim=1)
        return self._normalized(self.weights[last] @ features, last).transpose(1, 2).contiguous()

    def _normalized(self, units: Tensor, place: int, gain: Tensor | None = None, shift: Tensor | None = None) -> Tensor:
        # Without cudnn, as the batch norms of a single model run.
        return torch.batch_norm(
            units.reshape(1, -1, units.shape[2]),
            None if gain is None else gain.view(-1),
            None if shift is None else shift.view(-1),
            self.get_buffer(f"running_mean{place}").view(-1),
            self.get_buffer(f"running_var{place}").view(-1),
            self.training,
            _MOMENTUM,
            _EPSILON,
            False,
        ).view_as(units)

    def model(self, number: int) -> HashModel:
        """Return one of the models on the CPU, ready to encode."""
        state = self.arrays(number)
        columns, layers = len(state["mean"]), len(self.gains)
        model = HashModel(DenseNet(columns, width=state["gains.0"].shape[0], layers=layers), N_BITS)
        load_arrays(model, state)
        return model.eval()

    def arrays(self, number: int) -> dict[str, Tensor]:
        """Return the weights of one model by name, on the CPU."""
        shared = {"mean", "scale"}
        return {
            name: (value if name in shared else value[number]).detach().cpu()
            for name, value in self.state_dict().items()
        }


def load_arrays(model: HashModel, arrays: dict[str, Tensor]) -> None:
    """Put the weights that `StackedModels.arrays` returns into a model of the same shape."""
    network: Any = model.backbone
    last = len(network.layers)
    state = {
        "backbone.standardize.mean": arrays["mean"],
        "backbone.standardize.scale": arrays["scale"],
        "head.linear.weight": arrays[f"weights.{last}"],
        "head.norm.running_mean": arrays[f"running_mean{last}"],
        "head.norm.running_var": arrays[f"running_var{last}"],
        "head.norm.num_batches_tracked": torch.tensor(0),
    }
    for place in range(last):
        layer = f"backbone.layers.{place}"
        state |= {
            f"{layer}.0.weight": arrays[f"weights.{place}"],
            f"{layer}.1.weight": arrays[f"gains.{place}"],
            f"{layer}.1.bias": arrays[f"shifts.{place}"],
            f"{layer}.1.running_mean": arrays[f"running_mean{place}"],
            f"{layer}.1.running_var": arrays[f"running_var{place}"],
            f"{layer}.1.num_batches_tracked": torch.tensor(0),
        }
    model.load_state_dict({name: value.float() for name, value in state.items()})


class _PairCosts(torch.autograd.Function):
    """`pair_cost.total_cost` of each model, with one product for all of them; returns (models,) totals."""

    @staticmethod
    def forward(ctx: Any, units: Tensor, similar: Tensor, weights: Tensor, cost: PairCost) -> Tensor:
        add_block: Callable[..., tuple[Tensor, Tensor]] = pair_cost.add_block
        if units.is_cuda:
            from hamtarget.learn.losses import pair_kernel

            add_block = pair_kernel.add_block
        dots = units @ units.transpose(1, 2)
        sums = []
        for number, dot in enumerate(dots):
            both, slope = add_block(dot, similar, 0, weights[number], cost)
            sums.append(both)
            # The kernel has put the slopes there already.
            if slope is not dot:
                dot.copy_(slope)
        ctx.save_for_backward(dots @ units + dots.transpose(1, 2) @ units)
        return (weights * torch.stack(sums)).sum(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return grad[:, None, None] * gradient, None, None, None


class StackedLoss:
    """The losses of all models; models of one `probability` stand side by side."""

    def __init__(self, settings: Sequence[Setting], device: torch.device) -> None:
        per_kind = [float(each.pair_average == "per_kind") for each in settings]
        self.per_kind = torch.tensor(per_kind, device=device)[:, None]
        self.factors = torch.tensor([(1.0, each.dissimilar_weight) for each in settings], device=device)
        self.decorrelation = torch.tensor([each.decorrelation for each in settings], device=device)
        self.decorrelates = any(each.decorrelation for each in settings)
        self.parts: list[tuple[slice, PairCost]] = []
        start = 0
        for stop in range(1, len(settings) + 1):
            if stop == len(settings) or settings[stop].probability != settings[start].probability:
                self.parts.append((slice(start, stop), PairCost(N_BITS, (RADIUS,), settings[start].probability)))
                start = stop

    def __call__(self, logits: Tensor, similar: Tensor) -> Tensor:
        """Return the loss of each model, (models,), of logits (models, rows, bits)."""
        rows = logits.shape[1]
        n_pairs = rows * (rows - 1)
        n_similar = (similar.sum() - similar.diagonal().sum()).to(logits.dtype)
        kinds = torch.stack([n_similar, n_pairs - n_similar]).clamp(min=1)
        weights = self.factors / (self.per_kind * kinds + (1 - self.per_kind) * n_pairs)
        with full_float32(logits.device.type):
            totals = torch.cat(
                [
                    _PairCosts.apply(units_of(logits[part], cost.probability), similar, weights[part], cost)
                    for part, cost in self.parts
                ]
            )
        if not self.decorrelates:
            return totals
        correlation = logits.transpose(1, 2) @ logits / rows
        off_diagonal = correlation.pow(2).sum((1, 2)) - correlation.diagonal(dim1=1, dim2=2).pow(2).sum(1)
        return totals + self.decorrelation * off_diagonal / (N_BITS * (N_BITS - 1))


def units_of(logits: Tensor, probability: Probability) -> Tensor:
    """Return the vectors whose dot products say how likely a bit differs, as in `HammingTargetLoss`."""
    if probability == "soft_bits":
        return torch.tanh(SHARPNESS * logits)
    return F.normalize(logits, dim=-1, eps=_SHORTEST)


@dataclass(frozen=True)
class TrainedModels:
    """Models after training, their losses on the last batch, the seconds for all, and how a step was run."""

    models: StackedModels
    losses: list[float]
    seconds: float
    cuda_graph: bool


def train_together(
    settings: Sequence[Setting],
    inputs: Tensor,
    neighbors: Tensor,
    options: TrainingOptions,
    *,
    cuda_graph: bool = True,
) -> TrainedModels:
    """Train a model of each setting, on the device of `inputs`.

    Args:
        settings: the losses, those of one `probability` side by side.
        inputs: vectors to learn from, (rows, columns).
        neighbors: similar rows of each row, (rows, k).
        options: steps, batch and group size, rate, decay, clipping and seed; the rest is not looked at.
        cuda_graph: replay a step as one CUDA graph, on a GPU.
    """
    device = inputs.device
    steps = options.steps_for(len(inputs))
    torch.manual_seed(options.seed)
    first = HashModel(DenseNet(inputs.shape[1]), N_BITS)
    network: Any = first.backbone
    network.standardize.fit(inputs.cpu())
    models = StackedModels(first, len(settings)).to(device).train()
    loss = StackedLoss(settings, device)
    similarity = Neighbors(neighbors)
    sampler = GroupBatchSampler(
        similarity, options.batch_size, options.group_size, steps=steps, seed=options.seed, device=device
    )
    optimizer = _optimizer(models, options, device)

    def run(items: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        losses = loss(models(inputs[items]), similarity.matrix(items))
        losses.sum().backward()
        _clip(models, options.clip_norm)
        optimizer.step()
        return losses.detach()

    step_of = _Replayed(run) if device.type == "cuda" and cuda_graph else None
    start = time.perf_counter()
    losses = torch.empty(0)
    for step in range(steps):
        rate = options.rate(step, steps)
        for group in optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        losses = (step_of or run)(sampler.batch(step))
    # Also waits for the device.
    last = losses.tolist()
    seconds = time.perf_counter() - start
    return TrainedModels(models.eval(), last, seconds, step_of is not None and step_of.graph is not None)


class _Replayed:
    """A step as a CUDA graph, after some steps that let every library choose and allocate."""

    def __init__(self, run: Callable[[Tensor], Tensor]) -> None:
        self.run = run
        self.taken = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        # What the graph reads and writes.
        self.items = self.losses = torch.empty(0)

    def __call__(self, items: Tensor) -> Tensor:
        if self.graph is not None:
            self.items.copy_(items)
            self.graph.replay()
            return self.losses
        self.taken += 1
        if self.taken <= _STEPS_BEFORE_CAPTURE:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                losses = self.run(items)
            torch.cuda.current_stream().wait_stream(stream)
            return losses
        self.items = items.clone()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.losses = self.run(self.items)
        self.graph.replay()
        return self.losses


def _optimizer(models: StackedModels, options: TrainingOptions, device: torch.device) -> torch.optim.Optimizer:
    groups: list[dict[str, Any]] = []
    plain = [*models.gains, *models.shifts]
    for parameters, decay in (([*models.weights], options.weight_decay), (plain, 0.0)):
        # A graph would keep a number for ever, so the rate is a tensor there.
        rate = torch.tensor(options.learning_rate, device=device) if device.type == "cuda" else options.learning_rate
        groups.append({"params": parameters, "weight_decay": decay, "lr": rate})
    if device.type != "cuda":
        return torch.optim.AdamW(groups)
    return torch.optim.AdamW(groups, fused=True, capturable=True)


def _clip(models: StackedModels, longest: float | None) -> None:
    """Cut the gradient of each model to its own length limit, as `clip_grad_norm_` does for one."""
    if longest is None:
        return
    gradients = [parameter.grad for parameter in models.parameters() if parameter.grad is not None]
    length = torch.stack([gradient.flatten(1).pow(2).sum(1) for gradient in gradients]).sum(0).sqrt()
    factor = (longest / (length + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor.view(-1, *[1] * (gradient.ndim - 1)))
