"""What a script may have meant otherwise than it is done: warnings, once each."""

from typing import Any, Collection, Dict, Iterator, List, Optional, Sequence, Tuple

import torch

from .errors import warn
from .layout import Entry
from .overlap import Accumulated, on_accumulated

_TOLERANCE = 0.05  # of the job's length, and one step


def of_length(scheduler: Any, steps: int, per: str) -> None:
    """Warns of a cosine that ends much before the job's end, where it rises again, or would end much later.

    `steps`: of the scheduler in the whole job. `per`: "step" or "epoch". Nothing is said of other schedules, which may
    rise or end early by intention.
    """
    if type(scheduler) is not torch.optim.lr_scheduler.CosineAnnealingLR:
        return
    half = int(scheduler.T_max)
    if abs(half - steps) <= 1 + _TOLERANCE * steps:
        return
    what = "rises again from there on" if half < steps else "does not come to its end"
    warn(f"CosineAnnealingLR has T_max={half}, and the job {steps} {per}s: the learning rate {what}. "
         f"job.total_{per}s is the job's length")


def of_zeros(factors: Sequence[float], steps: int, per: str) -> None:
    """Warns of a schedule whose rates are 0 from a place much before the job's end on, as of one that was made for
    another number of steps. `factors`: of the rates, of which the last holds afterwards; `steps`, `per` as above."""
    begin = len(factors)
    while begin > 0 and factors[begin - 1] == 0:
        begin -= 1
    if begin < len(factors) and steps - begin > 1 + _TOLERANCE * steps:
        warn(f"the scheduler's learning rate is 0 from {per} {begin} on, and the job has {steps} {per}s: nothing is "
             f"trained then. job.total_{per}s is the job's length")


class BufferWatch:
    """Of the script's second micro-batch, when what is made once is there: whether training changes buffers that the
    servers do not have."""

    def __init__(self, model: torch.nn.Module, held: Collection[int]):
        """`held`: ids of the tensors that the servers have."""
        self._modules = list(getattr(model, "_orig_mod", model).named_modules())
        self._held = held
        self._begun = 0
        self._before: Dict[str, torch.Tensor] = {}  # copies

    def begin(self) -> None:
        self._begun += 1
        if self._begun == 2:
            self._before = {name: buffer.detach().clone() for name, buffer in self._buffers()}

    def end(self) -> None:
        now = dict(self._buffers()) if self._before else {}
        changed = [name for name, values in self._before.items()
                   if name not in now or not _are_equal(now[name], values)]
        self._before = {}
        if changed:
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            warn(f"the training changes the buffer {changed[0]}{more}, which the servers do not have: each worker has "
                 "one of its own, and a checkpoint has none")

    def _buffers(self) -> Iterator[Tuple[str, torch.Tensor]]:
        """Those that a state_dict has, and no counts; of sparse ones torch compares none."""
        for prefix, module in self._modules:
            for name, buffer in module._buffers.items():
                if (buffer is not None and (buffer.is_floating_point() or buffer.is_complex())
                        and buffer.layout is torch.strided and id(buffer) not in self._held
                        and name not in module._non_persistent_buffers_set):
                    yield f"{prefix}.{name}" if prefix else name, buffer


def _are_equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """In shape and values, of which a NaN equals another: one that was there before is no change."""
    return a.shape == b.shape and bool((a.eq(b) | a.ne(a) & b.ne(b)).all())


class GradientWatch:
    """Of the script's first micro-batch: whether it changes gradients between backward and optimizer.step()."""

    def __init__(self, parameters: Sequence[torch.Tensor]):
        """`parameters`: that are trained."""
        self._seen: Dict[int, Accumulated] = {}  # by index
        self._parameters = parameters
        self._hooks: List[Any] = [on_accumulated(parameter, self._hook(index))
                                  for index, parameter in enumerate(self._parameters)]

    def _hook(self, index: int) -> Any:
        return lambda *_: self._on_gradient(index)

    def _on_gradient(self, index: int) -> None:
        gradient = self._parameters[index].grad
        if gradient is not None and gradient.layout is torch.strided:
            self._seen[index] = Accumulated(gradient)

    def end(self, by_scaler: bool) -> None:
        """optimizer.step(): nothing is watched any more. `by_scaler`: a GradScaler calls it, which changes gradients
        itself: then writes to `.grad.data` are not noticed."""
        changed = any(self._parameters[index].grad is seen.gradient
                      and (seen.has_changed_beside_scaler() if by_scaler else seen.has_changed())
                      for index, seen in self._seen.items())
        for hook in self._hooks:
            (hook[1] if isinstance(hook, tuple) else hook).remove()
        self._hooks, self._seen = [], {}
        if changed:
            warn("the script changes gradients between backward and optimizer.step(), which is done "
                 "to those of each micro-batch. To clip the gradient of the whole step: "
                 "job.prepare(..., clip_grad_norm=1.0) in place of clip_grad_norm_")


class MissingGradients:
    """Of a worker's micro-batches, until it has warned: which parameters had no gradient. The servers take that for
    zero, where torch's optimizers skip them. In one micro-batch a parameter may have none by design, as in a mixture of
    experts, so this looks at whole steps, as far as this worker has all of one's micro-batches, and at the worker's
    micro-batches of an epoch."""

    def __init__(self, entries: Sequence[Entry], skipped: Collection[int]):
        """`entries`: that are trained. `skipped`: ids of tensors for which zero is as good as no gradient."""
        self._entries, self._skipped = entries, skipped
        self._unit = self._epoch = -1
        self._of_unit: Sequence[Entry] = ()  # missing in that step, or contribution, so far
        self._of_epoch: Sequence[Entry] = ()  # likewise
        self._samples = 0  # of the step that were here

    def note(self, work: Any) -> None:
        """The gradients of the micro-batch `work` are in `.grad`."""
        if self._entries and all(entry.tensor.grad is None for entry in self._entries):
            warn("optimizer.step() was called, and no parameter had a gradient, expected loss.backward() before it: "
                 "that counts as a gradient of zero")
            self._entries = ()
        if work.epoch != self._epoch:
            self.end()
            self._epoch, self._of_epoch = work.epoch, self._entries
        if work.unit != self._unit:
            self._unit, self._of_unit, self._samples = work.unit, self._entries, 0
        self._of_epoch = _without_gradient(self._of_epoch)
        self._of_unit = _without_gradient(self._of_unit)
        self._samples += work.end - work.begin
        if self._samples == work.unit_samples:
            self._warn(self._of_unit, "a step")

    def end(self) -> None:
        """The epoch is over, or the job."""
        self._warn(self._of_epoch, "this worker's micro-batches of an epoch")

    def _warn(self, entries: Sequence[Entry], where: str) -> None:
        missing = [entry.name for entry in entries if id(entry.tensor) not in self._skipped]
        if not missing:
            return
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        warn(f"{missing[0]}{more} had no gradient in {where}. In a step that counts as one of zero: weight decay, "
             "momentum and Adam's count of steps go on, where PyTorch skips such a parameter. What is not to be "
             "trained: requires_grad_(False) before job.prepare")
        self._entries = self._of_unit = self._of_epoch = ()


def _without_gradient(entries: Sequence[Entry]) -> Sequence[Entry]:
    return [entry for entry in entries if entry.tensor.grad is None]
