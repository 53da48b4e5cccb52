"""What a script may have meant otherwise than it is done: warnings, once each."""

from typing import Any, Dict, Iterable, List, Tuple

import torch

from .errors import warn
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
