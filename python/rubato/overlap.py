"""Sends gradients while backward still runs: job.prepare(..., overlap=True).

The vector is sent from its end, the order in which backward computes it. A parameter is filled when its gradient is
accumulated; the part behind the last missing entry is passed to rubato-worker, block by block. Parameters that the loss
does not reach are recognised only at optimizer.step(), and delay all entries before them.
"""

import functools
import threading
from typing import Any, Dict, Optional

import torch

from .engine import Engine
from .errors import Refused
from .layout import Layout, sums_of


class Overlap:
    """Of one model. Autograd calls it, in whichever thread, during backward."""

    def __init__(self, layout: Layout, engine: Engine):
        self._layout, self._engine = layout, engine
        self._block = max(1, int(engine.worker.job.get("wire", {}).get("chunk", 1 << 18)) // 4)  # values
        self._lock = threading.Lock()  # autograd has a thread for each device
        self._begun = 0  # engine.begun of what follows
        self._id: Any = None  # of the micro-batch
        self._left = layout.values  # values of the vector from there on are rubato-worker's
        self._next = 0  # the last entry that is not filled, or -1
        self._under_way: Dict[int, Any] = {}  # entries that a GPU is still writing: the event of that
        self._seen: Dict[int, Accumulated] = {}  # by entry
        self._refused: Optional[Refused] = None  # for step(): a process that raises in a hook may not end (torch 1.13)
        self._may_leave = False  # a whole micro-batch has shown that the script does nothing that is refused
        self._hooks = [on_accumulated(entry.tensor, self._hook(index)) for index, entry in enumerate(layout.entries)
                       if entry.average == 0]

    def _hook(self, index: int) -> Any:
        return lambda *_: self._on_gradient(index)

    def _start(self) -> None:
        """Starts a micro-batch, or a repeated one, of which the part that was already sent stays as it is."""
        self._begun = self._engine.begun
        if self._id != self._engine.work.id:
            self._id, self._left = self._engine.work.id, self._layout.values
        self._next = len(self._layout.entries) - 1
        self._layout.begin_sum(self._engine.work)
        self._seen, self._under_way, self._refused = {}, {}, None

    def _on_gradient(self, index: int) -> None:
        with self._lock, torch.no_grad():
            self._take(index)

    def _take(self, index: int) -> None:
        engine, entries = self._engine, self._layout.entries
        if not engine.is_begun:  # of something else than a micro-batch
            return
        if self._begun != engine.begun:
            self._start()
        gradient: Any = entries[index].tensor.grad
        if index in self._seen:
            self._refused = Refused(
                f"the gradient of {entries[index].name} was added to again, expected one backward for each micro-batch "
                "with overlap=True, and checkpoints with use_reentrant=False: it may have left")
        if self._refused is not None or gradient.is_sparse:  # which finish() refuses
            return
        self._seen[index] = Accumulated(gradient, not self._may_leave)
        if engine.work.keeps:  # nothing of it leaves
            return
        self._fill(index)
        while self._next >= 0 and (self._next in self._seen or not self._is_awaited(self._next)):
            if self._next not in self._seen and self._next not in self._under_way:
                self._fill(self._next)
            if not self._is_written(self._next):
                break
            self._next -= 1
        if self._next >= 0 and self._may_leave:
            self._tell(entries[self._next].begin + entries[self._next].size)

    def _is_awaited(self, index: int) -> bool:
        """Whether backward may still bring it; averages have been there since forward."""
        entry = self._layout.entries[index]
        return entry.average == 0 and entry.tensor.requires_grad

    def _is_written(self, index: int) -> bool:
        event = self._under_way.get(index)
        return event is None or event.query()

    def _fill(self, index: int) -> None:
        engine = self._engine
        if self._layout.entries[index].begin >= self._left:
            return
        self._under_way[index] = self._layout.fill_entry(
            index, self._layout.gradient(engine.worker, engine.work), engine.work, self._factor(),
            below=self._left)

    def _factor(self) -> int:
        return self._engine.factor_of(self._engine.weight_of(None))

    def _tell(self, begin: int) -> None:
        """Whole blocks leave."""
        begin = -(-begin // self._block) * self._block
        if begin < self._left:
            self._left = begin
            self._engine.worker.ready(self._engine.work, begin, self._engine.weight_of(None))

    def finish(self, work: Any) -> None:
        """optimizer.step(): what is still missing is filled. Refused if `.grad` is another than what may have left."""
        if self._begun != self._engine.begun:
            self._start()
        if self._refused is not None:
            raise self._refused
        for index, seen in self._seen.items():
            entry = self._layout.entries[index]
            if entry.tensor.grad is not seen.gradient or seen.has_changed():
                raise Refused(f"the gradient of {entry.name} was changed between backward and optimizer.step(), "
                              "expected nothing to change it with overlap=True: it may have left (prepare's "
                              "clip_grad_norm clips at the servers)")
        if work.keeps:
            self._layout.fill(self._engine.worker, work, self._factor())
        else:
            for index in range(self._next, -1, -1):
                if index not in self._under_way:
                    self._fill(index)
            self._layout.end_sum(work)
        self._seen = {}  # they are not kept longer than `.grad` is
        self._may_leave = True


class Accumulated:
    """A gradient as backward has left it."""

    def __init__(self, gradient: torch.Tensor, sums_up: bool = True):
        """`sums_up`: to notice writes to its `.data`, too."""
        self.gradient = gradient
        self._version = gradient._version
        self._sums = sums_of(gradient) if sums_up else None

    def has_changed(self) -> bool:
        return (self.gradient._version != self._version
                or self._sums is not None and sums_of(self.gradient) != self._sums)

    def has_changed_beside_scaler(self) -> bool:
        """Otherwise than by a GradScaler, which has looked at it and may have divided it by its scale."""
        return bool(self.gradient._version > self._version + _versions_of_scaler(self.gradient.device))


@functools.lru_cache(maxsize=None)
def _versions_of_scaler(device: torch.device) -> int:
    """As how many changes of a gradient torch counts what a GradScaler does; 0 in torch 2.15."""
    gradient: Any = torch.zeros(1, device=device)
    try:
        torch._amp_foreach_non_finite_check_and_unscale_([gradient], gradient.clone(), torch.ones_like(gradient))
    except NotImplementedError:  # on CPUs in older releases: no GradScaler works there
        pass
    return int(gradient._version)


def on_accumulated(parameter: torch.Tensor, hook: Any) -> Any:
    """Has `hook` called when the gradient of a backward is whole in `.grad`; returns what is to be kept."""
    if hasattr(parameter, "register_post_accumulate_grad_hook"):
        return parameter.register_post_accumulate_grad_hook(hook)
    node: Any = parameter.expand_as(parameter).grad_fn
    accumulate = node.next_functions[0][0]  # AccumulateGrad, which autograd keeps only while somebody does
    return accumulate, accumulate.register_hook(hook)
