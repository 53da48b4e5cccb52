"""Drives a worker, one micro-batch at a time, from the messages of rubato-worker to the gradients that it gets back.

    advance   a micro-batch is at hand, and the parameters are loaded
    begin     the script computes it
    fill      its gradient is written to the memory that is shared
    give      rubato-worker is told; with the loss, if that is known by then

Knows neither torch nor NumPy.
"""

import enum
import math
import os
import signal
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import core, seeds
from .errors import Refused, is_one, shown
from .figures import Figures

_MOST_WEIGHT = 2**32 - 1  # as Frame::weight


class _State(enum.Enum):
    """Of what is at hand."""

    NOTHING = 0
    FRESH = 1  # a micro-batch that the script has not begun
    BEGUN = 2
    FILLED = 3  # its gradient is written
    FINAL = 4  # the parameters at the end of the training
    OVER = 5


class Engine:
    """Of one script. One thread calls it."""

    def __init__(self, worker: core.Worker, samples: int, load: Callable[[bool], None]):
        """`samples`: of an epoch. `load`: makes the parameters in the shared memory the script's. `load(False)`: they
        have not changed, but the script may have overwritten averages."""
        self.worker = worker
        self.seed = int(worker.job.get("seed", 0))
        self.samples = samples
        self.work: Any = core.Work(unit=0, samples_before=0, unit_samples=0, epoch=0, begin=0, end=0, rank=0, workers=1,
                                   mode="", leaves=None)
        self.ahead: List[Tuple[int, int, int]] = []  # epoch, begin, end of micro-batches that will likely come
        # Hears of places (epoch, begin, end) what samples stand there, in the job's order.
        self.on_samples: Callable[[int, int, int, List[int]], None] = lambda *_: None
        self.on_over: Callable[[], None] = lambda: None  # hears once of the job's end
        self.on_asking: Callable[[], None] = lambda: None  # hears before the parameters may change
        # What answers a micro-batch, of whom, and what gives them, for people.
        self.answer, self.answerer = "optimizer.step()", "the optimizer that job.prepare returned"
        self.source = "the loader that job.prepare returned"
        self._batch = int(worker.job["train"]["batch_size"])
        self._load = load
        self._state = _State.NOTHING
        self._loss: Optional[float] = None
        self._weight = 0  # of the gradient that is filled; of a sum all that is not 0 is its samples
        self.is_mean = True  # the script's loss is; else a sum, as what it trains
        self.begun = 0  # times that the script has begun a micro-batch
        self.is_done = False  # the job has come to its end, and well
        self._failure: Optional[BaseException] = None  # else why
        self.tests_final = False  # the parameters are those of the end of the training, and this worker tests them
        self._handlers: Dict[int, Any] = {}  # of signals, that there were before
        self._pid = os.getpid()
        self._own_handler = self._on_signal
        if threading.current_thread() is threading.main_thread():
            for number in signal.SIGTERM, signal.SIGHUP:
                if signal.getsignal(number) == signal.SIG_DFL:
                    self._handlers[number] = signal.signal(number, self._own_handler)

    def _on_signal(self, number: int, _: Any) -> None:
        if os.getpid() == self._pid:
            self.leave()
        elif number != signal.SIGHUP:  # of a process that the script has forked: it ends, as without the handler
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    @property
    def is_final(self) -> bool:
        """The current parameters are the final ones, and their test has not been reported."""
        return self._state is _State.FINAL

    @property
    def is_begun(self) -> bool:
        """The script computes the micro-batch at hand."""
        return self._state is _State.BEGUN

    @property
    def is_over(self) -> bool:
        return self._state is _State.OVER

    def advance(self) -> Any:
        """Sends the computed gradient, waits for the next micro-batch, loads its parameters and returns it.
        None: no more micro-batches follow.

        Raises Refused if the script has not finished the current micro-batch; Ended if the job has failed.
        """
        self.ask()
        if self._state is _State.NOTHING:
            self._next()
        return self.work if self._state is _State.FRESH else None

    def ask(self) -> bool:
        """Sends the computed gradient and requests the next micro-batch. True if that has not arrived yet: the script
        may do other work, but must not use the parameters, which are changing."""
        if self._failure is not None:
            raise self._failure
        if self._state is _State.BEGUN:
            raise Refused(f"{self.answer} was not called for the micro-batch before, expected once for each, of "
                          f"{self.answerer}: to add gradients of several, set train.micro_batches; to leave one out, "
                          "call it with weight=0")
        if self._state is _State.FILLED:
            self._give()
        if self._state is _State.NOTHING:
            self.on_asking()
            self.worker.ask()
        return self._state is _State.NOTHING

    def _next(self) -> None:
        frame = self.worker.next()
        while frame.kind == "final" and not frame.tests:  # again where the job went back to its end
            self._end_at(frame)
            self.worker.take_final()
            self._load(True)
            frame = self.worker.next()
        if frame.kind == "end":
            self._state = _State.OVER
            self.is_done = frame.code == 0
            self._failure = None if self.is_done else core.ended(frame)
            self.on_over()
            if self._failure is not None:
                raise self._failure
            return
        self._load(frame.new)
        for work in (*getattr(frame, "ahead", ()), vars(frame)):
            if "samples" in work:
                self.on_samples(work["epoch"], work["begin"], work["end"], work["samples"])
        self.ahead += [(work["epoch"], work["begin"], work["end"]) for work in getattr(frame, "ahead", ())]
        self.tests_final = frame.kind == "final"
        # The final parameters belong to no micro-batch: what the message does not say stays as it was.
        if self.tests_final:
            self._end_at(frame)
        self.work = core.Work(**{**vars(self.work), **vars(frame)}) if self.tests_final else frame
        self._state = _State.FINAL if self.tests_final else _State.FRESH
        self._loss = None

    def _end_at(self, final: Any) -> None:
        """The job ends behind so many samples, and so in the epoch of the last of them."""
        samples = self.work.samples_before = final.samples_before
        self.work.epoch = max(0, samples - 1) // self.samples
        self.work.rank, self.work.workers, self.work.mode = final.rank, final.workers, final.mode

    def reload(self) -> None:
        """Loads the current parameters again, because the script has changed them."""
        self._load(True)

    def begin(self) -> Any:
        """The script begins a new micro-batch. Its random numbers depend only on the micro-batch's place in the job."""
        self._state = _State.BEGUN
        self.begun += 1
        seeds.seed_all(self.key)
        return self.work

    @property
    def key(self) -> int:
        """The key of the random numbers for the current micro-batch."""
        return seeds.key(self.seed, seeds.MICRO_BATCH, self.work.unit, self.work.leaf)

    def put_back(self) -> None:
        """The script has abandoned the micro-batch that it had begun, which will be repeated."""
        if self._state is _State.BEGUN:
            self._state = _State.FRESH

    def weight_of(self, weight: Any) -> int:
        """The weight of the current micro-batch: the script's, if it gives one, else its number of samples."""
        if weight is None:
            return int(self.work.end - self.work.begin)
        number = float(weight) if is_one(weight) and not isinstance(weight, str) else math.nan
        if not (0 <= number <= _MOST_WEIGHT and number.is_integer()):
            raise Refused(f"found weight={shown(weight)}, expected a whole number from 0 to {_MOST_WEIGHT}, such as "
                          "the tokens of the micro-batch: what its mean loss is a mean over")
        if number > 0 and not self.is_mean:
            raise Refused(f"found weight={shown(weight)} with loss=\"sum\", expected none, as a sum over samples or "
                          "tokens needs none, or 0 to leave the micro-batch out")
        return int(number)

    def factor_of(self, weight: int) -> int:
        """By which the script's gradient is multiplied, as the servers divide by the weights of the whole step; of a
        contribution by its own, and multiply its rate by its share of a batch."""
        if self.is_mean:
            return weight
        return int(self.work.unit_samples) if self.work.mode == "sync" else self._batch

    def fill(self, write: Callable[[Any], None], weight: int) -> None:
        """`write` fills the gradient of the micro-batch that it gets; `weight` is the weight of that gradient."""
        if self._state in (_State.FILLED, _State.NOTHING) and self.begun > 0:
            raise Refused(f"{self.answer} was called twice for one micro-batch, expected once; for two losses, such "
                          "as a GAN's: docs/pytorch.md, Two optimizers")
        if self._state is not _State.BEGUN:
            raise Refused(f"{self.answer} was called with no micro-batch at hand, expected one from {self.source}")
        write(self.work)
        self._weight = weight
        self._state = _State.FILLED
        if self._loss is not None:
            self._give()

    def log(self, loss: Optional[float]) -> None:
        """Logs the loss of the current micro-batch, a mean or a sum according to is_mean. If its gradient is filled,
        sends it, because nothing more will follow."""
        if self._state not in (_State.BEGUN, _State.FILLED):
            return
        self._loss = self._loss if loss is None else loss
        if self._state is _State.FILLED:
            self._give()

    def _give(self) -> None:
        self._state = _State.NOTHING
        loss = self._loss if self._weight > 0 else None  # of nothing, none
        if loss is not None and self.is_mean:
            loss *= self._weight
        self.worker.give(self.work, loss, self._weight if self.is_mean else self.weight_of(None))

    def settle_epoch(self) -> None:
        """The script leaves its loop. Behind the last micro-batch of an epoch, as a loop does that counts them, what
        follows is fetched, as at a loop's end: then the model has the final parameters behind the last of all. Not
        where others are at work, as that may take long."""
        if (self._state in (_State.FILLED, _State.NOTHING) and self.work.end == self.samples
                and self.work.workers == 1 and os.getpid() == self._pid):
            self.advance()

    def tested(self, figures: Figures) -> None:
        """Reports what a test has found of the current parameters. That completes the final ones."""
        if self._state is _State.FINAL:
            self.worker.tested(figures)
            self._next()
        elif self._state is _State.FRESH and self.work.tests:
            self.work.tests = False
            self.worker.tested(figures)

    def settle(self) -> None:
        """The script continues after the final parameters without a test."""
        if self._state is _State.FINAL:
            self.tested(Figures())

    @property
    def known(self) -> Any:
        """The last work; the first is waited for. Until then nothing is known of this worker and of the mode, which in
        a job that goes on may be another than the first that its file names."""
        if self.work.leaves is None:
            self.advance()
        return self.work

    @property
    def step(self) -> int:
        """Steps of the job before the current micro-batch; at the end of the training, all."""
        epochs, place = divmod(self.known.samples_before, self.samples)
        return int(epochs * -(-self.samples // self._batch) + place // self._batch)

    @property
    def next_step(self) -> int:
        """Steps of the job before the next micro-batch, if the current one is done."""
        if self._state not in (_State.FILLED, _State.NOTHING):
            return self.step
        of_epoch = -(-self.samples // self._batch)
        end = self.work.end
        return int(self.work.epoch * of_epoch + (of_epoch if end == self.samples else end // self._batch))

    @property
    def leaves(self) -> int:
        """Micro-batches of an update in the mode that holds."""
        return int(self.known.leaves or self.worker.leaves)

    def leave(self) -> None:
        """Asks rubato-worker to leave when the work that it has begun is done."""
        if self._state is not _State.OVER:
            self.worker.leave()

    def close(self) -> None:
        """Called at the script's end, however it ends."""
        # The script may have set another since, and its loop may run in another thread, which cannot.
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._handlers.items():
                if signal.getsignal(number) is self._own_handler:
                    signal.signal(number, handler)
        self._handlers = {}
        if self._state is _State.FILLED:
            self._give()
        self._state = _State.OVER
        self.worker.close()
