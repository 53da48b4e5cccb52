"""What a script may have meant otherwise than it is done: warnings, once each."""

from typing import Any, Collection, Dict, Iterable, List, Optional, Sequence, Tuple

import torch

from .errors import warn
from .layout import Entry
from .overlap import on_accumulated

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


class GradientWatch:
    """Of the script's first micro-batch: whether it changes gradients between backward and optimizer.step()."""

    def __init__(self, parameters: Iterable[torch.Tensor]):
        self._versions: Dict[int, Tuple[torch.Tensor, int]] = {}  # by index: the gradient of backward, and its version
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._hooks: List[Any] = [on_accumulated(parameter, self._hook(index))
                                  for index, parameter in enumerate(self._parameters)]

    def _hook(self, index: int) -> Any:
        return lambda *_: self._on_gradient(index)

    def _on_gradient(self, index: int) -> None:
        gradient = self._parameters[index].grad
        if gradient is not None:
            self._versions[index] = gradient, gradient._version

    def end(self, by_scaler: bool) -> None:
        """optimizer.step(): nothing is watched any more. `by_scaler`: a GradScaler calls it, which changes gradients
        itself."""
        changed = any(self._parameters[index].grad is gradient and gradient._version != version
                      for index, (gradient, version) in self._versions.items())
        for hook in self._hooks:
            (hook[1] if isinstance(hook, tuple) else hook).remove()
        self._hooks, self._versions = [], {}
        if changed and not by_scaler:
            warn("the script changes gradients between backward and optimizer.step(), which is done "
                 "to those of each micro-batch. To clip the gradient of the whole step: "
                 "job.prepare(..., clip_grad_norm=1.0) in place of clip_grad_norm_")


class MissingGradients:
    """Of a worker's steps, until it has warned: which parameters had no gradient in any of its micro-batches. The
    servers take that for zero, where torch's optimizers skip them."""

    def __init__(self, entries: Sequence[Entry], skipped: Collection[int]):
        """`entries`: that are trained. `skipped`: ids of tensors for which zero is as good as no gradient."""
        self._entries, self._skipped = entries, skipped
        self._unit: Optional[int] = None
        self._missing: Sequence[Entry] = ()  # in that step, so far

    def note(self, unit: int) -> None:
        """The gradients of a micro-batch of step `unit` are in `.grad`."""
        if unit != self._unit:
            self._warn()
            self._unit, self._missing = unit, self._entries
        self._missing = [entry for entry in self._missing if entry.tensor.grad is None]

    def _warn(self) -> None:
        """A step is whole: in one of its micro-batches alone a parameter may have none by design."""
        if self._missing and len(self._missing) == len(self._entries):
            warn("optimizer.step() was called, and no parameter had a gradient, expected loss.backward() before it: "
                 "that counts as a gradient of zero")
            self._entries = ()
            return
        missing = [entry.name for entry in self._missing if id(entry.tensor) not in self._skipped]
        if not missing:
            return
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        warn(f"{missing[0]}{more} had no gradient in this worker's part of a step, which counts as one of zero: "
             "weight decay, momentum and Adam's count of steps go on, where PyTorch skips such a parameter. What is "
             "not to be trained: requires_grad_(False) before job.prepare")
        self._entries = ()
