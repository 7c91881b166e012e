"""One training loop: group batches in, a trained model out."""

from __future__ import annotations

import contextlib
import importlib.util
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from hamtarget.errors import InputError
from hamtarget.learn.batches import GroupBatchSampler
from hamtarget.learn.checkpoint import Progress, TrainingState
from hamtarget.learn.distributed import world
from hamtarget.learn.loss import HammingTargetLoss, LossTerms
from hamtarget.learn.similarity import Similarity
from hamtarget.learn.training_log import TrainingLog

Inputs = Tensor | Dataset[Tensor]

# Steps run one by one before a CUDA graph is captured: they let every library choose and allocate.
_STEPS_BEFORE_CAPTURE = 3


@dataclass(frozen=True)
class TrainingOptions:
    """How long, how large and how fast to train.

    Attributes:
        steps: batches to train on.
        batch_size: inputs of a batch (b), over all processes.
        group_size: inputs of a group (g): a marker and its similars.
        learning_rate: the highest of the schedule.
        warmup: share of the steps in which the rate rises; then it falls as a cosine to 0.
        weight_decay: of matrices and kernels, not of biases and norms (lambda_w in the paper).
        clip_norm: longest gradient of a step; None: any.
        precision: "bfloat16" runs the network, never the loss, under autocast.
        seed: of batches, and of dropout.
        log_every: steps between two records, and two calls of `progress`.
        evaluate_every: steps between two looks at held-out data.
        patience: stop after so many looks without a better one; 0: never.
        checkpoint_every: steps between two checkpoints.
        workers: processes that load a Dataset.
        cuda_graph: replay a step as one CUDA graph where inputs live on the GPU.
    """

    steps: int = 2000
    batch_size: int = 256
    group_size: int = 4
    learning_rate: float = 2e-3
    warmup: float = 0.1
    weight_decay: float = 1e-4
    clip_norm: float | None = 5.0
    precision: Literal["float32", "bfloat16"] = "float32"
    seed: int = 0
    log_every: int = 20
    evaluate_every: int = 100
    patience: int = 0
    checkpoint_every: int = 500
    workers: int = 0
    cuda_graph: bool = True

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "log_every", "evaluate_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; expected 1 or more")
        if self.learning_rate <= 0 or not 0 <= self.warmup < 1:
            raise InputError(
                f"learning_rate is {self.learning_rate} and warmup {self.warmup}; expected above 0, and 0 to below 1"
            )
        if self.precision not in ("float32", "bfloat16"):
            raise InputError(f"precision is {self.precision!r}; expected 'float32' or 'bfloat16'")

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        rise = self.warmup * self.steps
        if step < rise:
            return self.learning_rate * (step + 1) / (rise + 1)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1.0, self.steps - rise)))


def train(
    model: nn.Module,
    loss: HammingTargetLoss,
    inputs: Inputs,
    similarity: Similarity,
    options: TrainingOptions,
    *,
    evaluate: Callable[[nn.Module], float] | None = None,
    augment: Callable[[Tensor], Tensor] | None = None,
    markers: Tensor | None = None,
    progress: Callable[[Progress], None] | None = None,
    checkpoint: str | Path | None = None,
    log: str | Path | None = None,
) -> Progress:
    """Train `model` in place, and say how far it came.

    Args:
        model: gives logits, on the device to train on. Under torch.distributed it is wrapped for the time of training.
        loss: with `gather=True` under torch.distributed.
        inputs: a tensor, fastest on the model's device; or a Dataset of tensors, loaded by `options.workers`.
        similarity: which inputs are similar.
        options: how long and how fast.
        evaluate: the cost of held-out data, lower is better; the model ends with the weights of the lowest.
        augment: changes a batch of inputs at random, on the model's device.
        markers: inputs that may be markers; all, if not given.
        progress: called every `log_every` steps.
        checkpoint: a file to go on from if it is there, and to save to; a resumed run on a CPU equals one that was
            never interrupted, bit for bit.
        log: a file that gets one JSON line a record.

    Raises:
        TrainingError: the loss is not finite.
        InputError: `checkpoint` is of a run with other options.
    """
    rank, size = world()
    device = next(model.parameters()).device
    if size > 1 and not loss.gather:
        raise InputError(f"{size} processes train together, but loss.gather is False; expected gather=True")
    similarity = similarity.to(device)
    sampler = GroupBatchSampler(
        similarity,
        options.batch_size,
        options.group_size,
        steps=options.steps,
        seed=options.seed,
        markers=markers,
        rank=rank,
        world_size=size,
        device=device,
    )
    optimizer = _optimizer(model, options)
    state = TrainingState(model, optimizer, {**asdict(options), "loss": loss.extra_repr(), "n_items": len(inputs)})  # type: ignore[arg-type]
    with contextlib.ExitStack() as stack:
        # Dropout draws from torch's own generator: seeded here, and given back afterwards as it was.
        stack.enter_context(torch.random.fork_rng([device] if device.type == "cuda" else []))
        torch.manual_seed(options.seed + rank)
        if checkpoint is not None and Path(checkpoint).exists():
            state.load(checkpoint)
        first = rank == 0
        report = TrainingLog(state.progress.step, progress if first else None, log if first else None)
        stack.enter_context(report)
        on_gpu = isinstance(inputs, Tensor) and inputs.is_cuda
        run_step = _Step(model, loss, optimizer, options, size=size, graph=on_gpu and options.cuda_graph)
        model.train()
        batches = _batches(inputs, sampler, state.progress.step, options, augment, device)
        for step, (batch, similar) in enumerate(batches, start=state.progress.step + 1):
            terms = run_step(batch, similar, options.rate(step - 1))
            state.progress.step = step
            last = step == options.steps
            if step % options.log_every == 0 or last:
                report.training(state.progress, options.rate(step - 1), terms)
            if evaluate is not None and (step % options.evaluate_every == 0 or last):
                cost = _from_first_process(evaluate(model.eval()), device)
                model.train()
                state.note_cost(cost)
                report.held_out(state.progress)
            stop = state.progress.looks_without_gain >= options.patience > 0
            if checkpoint is not None and first and (step % options.checkpoint_every == 0 or last or stop):
                state.save(checkpoint)
            if stop:
                break
    state.restore_best()
    model.eval()
    return state.progress


@dataclass(frozen=True)
class _CapturedStep:
    """A step as a CUDA graph, with the places that it reads from and writes to."""

    graph: torch.cuda.CUDAGraph
    batch: Tensor
    similar: Tensor
    terms: LossTerms

    def replay(self, batch: Tensor, similar: Tensor) -> LossTerms:
        self.batch.copy_(batch)
        self.similar.copy_(similar)
        self.graph.replay()
        return self.terms


class _Step:
    """One step of training: forward, loss, backward, clip, update; as a CUDA graph once that is possible."""

    def __init__(
        self,
        model: nn.Module,
        loss: HammingTargetLoss,
        optimizer: torch.optim.Optimizer,
        options: TrainingOptions,
        *,
        size: int,
        graph: bool,
    ) -> None:
        device = next(model.parameters()).device
        if size > 1:
            if device.type == "cuda":
                model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
            model = nn.parallel.DistributedDataParallel(model)
        self.model = model
        self.loss = loss
        self.optimizer = optimizer
        self.options = options
        self.device = device
        # Without Triton the pairs of a GPU are computed by operations that a graph cannot hold.
        self.graph_wanted = graph and size == 1 and importlib.util.find_spec("triton") is not None
        self.captured: _CapturedStep | None = None
        self.taken = 0

    def __call__(self, batch: Tensor, similar: Tensor, rate: float) -> LossTerms:
        for group in self.optimizer.param_groups:
            # On a GPU the rate is a tensor, because a graph would keep a number for ever.
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        if not self.graph_wanted:
            return self._run(batch, similar)
        if self.captured is not None:
            return self.captured.replay(batch, similar)
        self.taken += 1
        if self.taken <= _STEPS_BEFORE_CAPTURE:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                terms = self._run(batch, similar)
            torch.cuda.current_stream().wait_stream(stream)
            return terms
        batch, similar = batch.clone(), similar.clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            terms = self._run(batch, similar)
        self.captured = _CapturedStep(graph, batch, similar, terms)
        return self.captured.replay(batch, similar)

    def _run(self, batch: Tensor, similar: Tensor) -> LossTerms:
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.options.precision == "bfloat16"):
            logits = self.model(batch)
        terms: LossTerms = self.loss(logits, similar)
        terms.total.backward()
        if self.options.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip_norm)
        self.optimizer.step()
        # What is kept for the log must not keep the step's graph alive with it.
        return replace(terms, total=terms.total.detach())


def _optimizer(model: nn.Module, options: TrainingOptions) -> torch.optim.Optimizer:
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": options.weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if not groups:
        raise InputError("the model has no parameter that requires a gradient; nothing can be trained")
    device = trained[0].device
    if device.type != "cuda":
        return torch.optim.AdamW(groups, lr=options.learning_rate)
    for group in groups:
        group["lr"] = torch.tensor(options.learning_rate, device=device)
    return torch.optim.AdamW(groups, lr=options.learning_rate, fused=True, capturable=True)


def _batches(
    inputs: Inputs,
    sampler: GroupBatchSampler,
    first_step: int,
    options: TrainingOptions,
    augment: Callable[[Tensor], Tensor] | None,
    device: torch.device,
) -> Iterator[tuple[Tensor, Tensor]]:
    """(this process's inputs, the whole batch's similar matrix) of each step."""
    loader: Iterator[Tensor] = iter(())
    if not isinstance(inputs, Tensor):
        sampler.first_step = first_step
        loader = iter(DataLoader(inputs, batch_sampler=sampler, num_workers=options.workers))
    for step in range(first_step, options.steps):
        items = sampler.batch(step)
        batch = inputs[sampler.share(items).to(inputs.device)] if isinstance(inputs, Tensor) else next(loader)
        batch = batch.to(device, non_blocking=True)
        yield augment(batch) if augment is not None else batch, sampler.similarity.matrix(items)


def _from_first_process(cost: float, device: torch.device) -> float:
    """The first process's figure in all, so that all stop together."""
    if world()[1] == 1:
        return cost
    shared = torch.tensor([cost], dtype=torch.float64, device=device)
    dist.broadcast(shared, 0)
    return float(shared)
