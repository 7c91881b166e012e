"""One training loop: group batches in, a trained model out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from hamtarget.errors import InputError
from hamtarget.learn.losses.base import BatchLoss, LossTerms
from hamtarget.learn.losses.distributed import world
from hamtarget.learn.similarity.relation import Similarity
from hamtarget.learn.training.checkpoint import TrainingProgress, TrainingState
from hamtarget.learn.training.collapse import CollapseWatch
from hamtarget.learn.training.options import TrainingOptions
from hamtarget.learn.training.sampling import GroupBatchSampler
from hamtarget.learn.training.training_log import TrainingLog

Inputs = Tensor | Dataset[Tensor]

# Steps run one by one before a CUDA graph is captured: they let every library choose and allocate.
_STEPS_BEFORE_CAPTURE = 3
# Names of a HashModel's backbone parameters begin with this, among all that is trained.
_BACKBONE = "model.backbone."


def train(
    model: nn.Module,
    loss: BatchLoss,
    inputs: Inputs,
    similarity: Similarity,
    options: TrainingOptions,
    *,
    evaluate: Callable[[nn.Module], float] | None = None,
    augment: Callable[[Tensor], Tensor] | None = None,
    markers: Tensor | None = None,
    progress: Callable[[TrainingProgress], None] | None = None,
    checkpoint: str | Path | None = None,
    log: str | Path | None = None,
) -> TrainingProgress:
    """Train `model` in place and return how far training came.

    Args:
        model: network that gives logits, on the device to train on. Under torch.distributed it is wrapped for the time
            of training.
        loss: loss to train by, with `gather=True` under torch.distributed. It is moved to the model's device, and its
            own parameters are trained, too.
        inputs: a tensor, fastest on the model's device; or a Dataset of tensors, loaded by `options.workers` processes.
        similarity: tells which inputs are similar.
        options: how long and how fast to train.
        evaluate: returns the cost of held-out data; lower is better. The model ends with the weights of the lowest.
        augment: changes a batch of inputs at random, on the model's device. It can be part of a CUDA graph if it has
            an attribute `capturable` that is True: it then never waits for the device and draws from torch's generator.
        markers: inputs that may be markers of groups. None: all.
        progress: called every `log_every` steps.
        checkpoint: file to resume from if it exists, and to save to. On a CPU a resumed run equals an uninterrupted
            one, bit for bit.
        log: file that gets one JSON line for each record.

    Raises:
        TrainingError: the loss is not finite, or nearly all inputs have got one code.
        InputError: `checkpoint` belongs to a run with other options.
    """
    rank, size = world()
    device = next(model.parameters()).device
    if size > 1 and not loss.gather:
        raise InputError(f"{size} processes train together, but loss.gather is False; expected gather=True")
    similarity = similarity.to(device)
    loss.to(device)
    steps = options.steps_for(similarity.n_items)
    sampler = GroupBatchSampler(
        similarity,
        options.batch_size,
        options.group_size,
        steps=steps,
        seed=options.seed,
        markers=markers,
        rank=rank,
        world_size=size,
        device=device,
    )
    trained = nn.ModuleDict({"model": model, "loss": loss})
    optimizer = _optimizer(trained, options)
    state = TrainingState(trained, optimizer, checkpoint_settings(options, loss, similarity.n_items))
    with contextlib.ExitStack() as stack:
        # Dropout draws from torch's own generator: seeded here, and given back afterwards as it was.
        stack.enter_context(torch.random.fork_rng([device] if device.type == "cuda" else []))
        torch.manual_seed(options.seed + rank)
        if checkpoint is not None and Path(checkpoint).exists():
            state.load(checkpoint)
        first = rank == 0
        report = TrainingLog(state.progress.step, progress if first else None, log if first else None)
        stack.enter_context(report)
        watch = CollapseWatch(steps) if options.stop_on_collapse else None
        source = _Source(inputs, sampler, loss, state.progress.step, options, augment, device)
        run_step = _Step(model, loss, optimizer, source, options, distributed=size > 1)
        model.train()
        for step in range(state.progress.step + 1, steps + 1):
            if state.out_of_patience(options.patience):
                break
            loss.at_step(step - 1)
            rate = options.rate(step - 1, steps)
            terms = run_step(sampler.batch(step - 1), rate)
            state.progress.step = step
            last = step == steps
            if step % options.log_every == 0 or last:
                report.training(state.progress, rate, terms)
            if watch is not None:
                watch.look(step, terms)
            if evaluate is not None and (step % options.evaluate_every == 0 or last):
                cost = _from_first_process(evaluate(model.eval()), device)
                model.train()
                state.note_cost(cost)
                report.held_out(state.progress)
            ends = last or state.out_of_patience(options.patience)
            if checkpoint is not None and first and (ends or options.saves_at(step, steps)):
                state.save(checkpoint)
    state.restore_best()
    model.eval()
    return state.progress


def checkpoint_settings(options: TrainingOptions, loss: BatchLoss, n_items: int) -> dict[str, Any]:
    """Return what two runs must have in common for one to go on from a checkpoint of the other."""
    settings = {**asdict(options), "steps": options.steps_for(n_items), "loss": loss.extra_repr(), "n_items": n_items}
    # It changes nothing but speed.
    del settings["workers"]
    return settings


class _Source:
    """Inputs and targets of batches."""

    def __init__(
        self,
        inputs: Inputs,
        sampler: GroupBatchSampler,
        loss: BatchLoss,
        first_step: int,
        options: TrainingOptions,
        augment: Callable[[Tensor], Tensor] | None,
        device: torch.device,
    ) -> None:
        self.inputs = inputs
        self.sampler = sampler
        self.loss = loss
        self.augment = augment
        self.device = device
        # A graph can hold only what runs on the device and never waits for it: not a loader, nor any function.
        self.capturable = (
            isinstance(inputs, Tensor)
            and inputs.is_cuda
            and (augment is None or getattr(augment, "capturable", False) is True)
            and sampler.similarity.capturable
            and loss.capturable
        )
        self.loader: Iterator[Tensor] = iter(())
        if not isinstance(inputs, Tensor):
            sampler.first_step = first_step
            self.loader = iter(DataLoader(inputs, batch_sampler=sampler, num_workers=options.workers))

    def __call__(self, items: Tensor) -> tuple[Tensor, Tensor]:
        """Return (inputs of this process, target of the whole batch)."""
        if isinstance(self.inputs, Tensor):
            batch = self.inputs[self.sampler.share(items).to(self.inputs.device)]
        else:
            batch = next(self.loader)
        batch = batch.to(self.device, non_blocking=True)
        if self.augment is not None:
            batch = self.augment(batch)
        return batch, self.loss.target(self.sampler.similarity, items)


@dataclass(frozen=True)
class _CapturedStep:
    """A step as a CUDA graph, with the tensors that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    items: Tensor
    terms: LossTerms

    def replay(self, items: Tensor) -> LossTerms:
        self.items.copy_(items)
        self.graph.replay()
        return self.terms


class _Step:
    """One step of training: inputs, forward, loss, backward, clip, update; as a CUDA graph where that is possible."""

    def __init__(
        self,
        model: nn.Module,
        loss: BatchLoss,
        optimizer: torch.optim.Optimizer,
        source: _Source,
        options: TrainingOptions,
        *,
        distributed: bool,
    ) -> None:
        if distributed:
            if source.device.type == "cuda":
                model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
            model = nn.parallel.DistributedDataParallel(model)
        self.model = model
        self.loss = loss
        self.optimizer = optimizer
        self.source = source
        self.options = options
        self.graph_wanted = options.cuda_graph and source.capturable and not distributed
        self.captured: _CapturedStep | None = None
        self.taken = 0

    def __call__(self, items: Tensor, rate: float) -> LossTerms:
        self._set_rate(rate)
        if not self.graph_wanted:
            return self._run(items)
        if self.captured is not None:
            return self.captured.replay(items)
        self.taken += 1
        if self.taken <= _STEPS_BEFORE_CAPTURE:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                terms = self._run(items)
            torch.cuda.current_stream().wait_stream(stream)
            return terms
        items = items.clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            terms = self._run(items)
        self.captured = _CapturedStep(graph, items, terms)
        return self.captured.replay(items)

    def _set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            # On a GPU the rate is a tensor, because a graph would keep a number for ever.
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * group["rate_factor"])
            else:
                group["lr"] = rate * group["rate_factor"]

    def _run(self, items: Tensor) -> LossTerms:
        batch, target = self.source(items)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(batch.device.type, torch.bfloat16, enabled=self.options.precision == "bfloat16"):
            logits = self.model(batch)
        terms: LossTerms = self.loss(logits, target)
        terms.total.backward()
        if self.options.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip_norm)
        self.optimizer.step()
        # What is kept for the log must not keep the step's graph alive with it.
        return replace(terms, total=terms.total.detach())


def _optimizer(trained: nn.Module, options: TrainingOptions) -> torch.optim.Optimizer:
    by_kind: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in trained.named_parameters():
        if parameter.requires_grad:
            decay = options.weight_decay if parameter.ndim > 1 else 0.0
            factor = options.backbone_rate if name.startswith(_BACKBONE) else 1.0
            by_kind.setdefault((decay, factor), []).append(parameter)
    if not by_kind:
        raise InputError("the model has no parameter that requires a gradient; nothing can be trained")
    device = next(iter(by_kind.values()))[0].device
    groups: list[dict[str, Any]] = []
    for (decay, factor), parameters in by_kind.items():
        # A tensor each: the groups' rates differ.
        rate = torch.tensor(options.learning_rate, device=device) if device.type == "cuda" else options.learning_rate
        groups.append({"params": parameters, "weight_decay": decay, "rate_factor": factor, "lr": rate})
    if device.type != "cuda":
        return torch.optim.AdamW(groups)
    return torch.optim.AdamW(groups, fused=True, capturable=True)


def _from_first_process(cost: float, device: torch.device) -> float:
    """Return the first process's figure in every process, so that all stop together."""
    if world()[1] == 1:
        return cost
    shared = torch.tensor([cost], dtype=torch.float64, device=device)
    dist.broadcast(shared, 0)
    return float(shared)
