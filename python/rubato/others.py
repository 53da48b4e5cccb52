"""Optimizers of the script that make steps while the job trains, and that job.prepare has not returned."""

import functools
import sys
from typing import Any, Callable, Dict, List

import torch

from .errors import Refused, warn
from .optimizers import Optimizer

_open: List["Others"] = []


class Others:
    """Of one job. Their parameters are trained in each worker by itself: refused if they are of the job's model."""

    def __init__(self, names: Dict[int, str], is_training: Callable[[], bool]):
        """`names`: of the model's parameters, by id. `is_training`: whether the job is, and no test runs."""
        self._names, self._is_training = names, is_training
        self._has_warned = False
        _listen()
        _open.append(self)

    def close(self) -> None:
        if self in _open:
            _open.remove(self)

    def see(self, optimizer: torch.optim.Optimizer) -> None:
        """It is about to make a step."""
        if not self._is_training():
            return
        kind = type(optimizer).__name__
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) in self._names:
                    raise Refused(f"the step of another {kind} was called, which has {self._names[id(parameter)]} of "
                                  "the model, expected none but of the optimizer that job.prepare returned: its steps "
                                  "are the servers' (docs/pytorch.md, Two optimizers)")
        if not self._has_warned:
            self._has_warned = True
            warn(f"the step of another {kind} than job.prepare was given is called: each worker trains its parameters "
                 "by itself, from its own micro-batches, and neither the servers nor a checkpoint have them. To train "
                 "them, too: one module and one optimizer (docs/pytorch.md, Two optimizers)")


def _see(optimizer: Any, *_: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        for others in list(_open):
            others.see(optimizer)


@functools.lru_cache(None)  # once
def _listen() -> None:
    register = getattr(sys.modules[torch.optim.Optimizer.__module__], "register_optimizer_step_pre_hook", None)
    if register is not None:
        register(_see)
        return
    for kind in vars(torch.optim).values():  # before torch 2
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and "step" in vars(kind):
            kind.step = _seen(kind.step)  # type: ignore[method-assign]


def _seen(step: Any) -> Any:
    @functools.wraps(step)
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        _see(self)
        return step(self, *arguments, **named)

    return call
