"""Replaces the script's DataLoader: yields the micro-batches of the job that this worker computes."""

import collections
import signal
import sys
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

import torch
from torch.utils import data

from . import interrupts, seeds
from .engine import Engine
from .errors import USAGE, Refused, imported_anew
from .sampler import Order, Places

Place = Tuple[int, int, int]  # epoch, begin, end

# Whether this torch reads a batch by __getitems__ of a data set that has it.
_GETS_ITEMS = "__getitems__" in data._utils.fetch._MapDatasetFetcher.fetch.__code__.co_names


def _place(work: Any) -> Place:
    return work.epoch, work.begin, work.end


class _Request(NamedTuple):
    place: Place
    indices: List[int]


class _Samples(data.Dataset[Any]):
    """The script's data set, read by whole batches. Each sample has its own random seed, unless the data set itself
    reads a batch at once."""

    def __init__(self, dataset: Any, seed: int, draws: bool):
        self.dataset, self.seed, self.draws = dataset, seed, draws
        self.by_batch = _GETS_ITEMS and all(  # newer Subsets always have it
            callable(getattr(one, "__getitems__", None)) for one in (dataset, _inner(dataset)))

    def __getitem__(self, request: Optional[_Request]) -> Tuple[Optional[Place], List[Any]]:
        if request is None:
            return None, []
        if self.by_batch:
            if self.draws:
                seeds.seed_sample(self.seed, request.place[0], request.indices[0])
            return request.place, self.dataset.__getitems__(request.indices)
        if not self.draws:
            return request.place, [self.dataset[index] for index in request.indices]
        samples = []
        for index in request.indices:
            seeds.seed_sample(self.seed, request.place[0], index)
            samples.append(self.dataset[index])
        return request.place, samples


class _Collate:
    """The script's; a batch comes with its place, and may draw."""

    def __init__(self, collate: Callable[[List[Any]], Any], seed: int):
        self.collate, self.seed = collate, seed

    def __call__(self, batches: List[Tuple[Optional[Place], List[Any]]]) -> Tuple[Optional[Place], Any]:
        place, samples = batches[0]
        if place is not None and self.collate is not data.default_collate:
            seeds.seed_batch(self.seed, *place[:2])
        return place, None if place is None else self.collate(samples)


class _Begin:
    """The script's worker_init_fn, for a loader process that survives the closing of a terminal: the script, which
    leaves the job in order, needs it until then, and ends it."""

    def __init__(self, begin: Optional[Callable[[int], None]]):
        self.begin = begin

    def __call__(self, number: int) -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if self.begin is not None:
            self.begin(number)


class _Plan:
    """The order in which loader processes read: requested batches first, then announced ones, else nothing.

    It never waits, because it is asked while the script waits for a batch.
    """

    def __init__(self, places: Places, room: int):
        self._places = places
        self.room = room
        self._announced: Deque[Place] = collections.deque()
        self.limit = sys.maxsize  # the epoch up to whose end announced batches are read
        self.urgent: Optional[Place] = None
        self.asked: Deque[Optional[Place]] = collections.deque()  # and not fetched yet; None: nothing

    def __iter__(self) -> Iterator[List[Optional[_Request]]]:
        while True:
            place = self.next()
            self.asked.append(place)
            yield [None if place is None else _Request(place, self._places(*place))]

    def note_fetched(self, place: Optional[Place]) -> None:
        if place in self.asked:
            self.asked.remove(place)

    def announce(self, places: Iterable[Place]) -> None:
        """Announces batches that will likely be requested, after those announced before."""
        self._announced.extend(places)
        while len(self._announced) > self.room:  # more than are ever read ahead
            self._announced.popleft()

    def note_wanted(self, place: Place) -> None:
        """The script gets it next, so it need not be read ahead, nor what was before it."""
        while self._announced and self._announced[0] <= place:
            self._announced.popleft()

    def next(self) -> Optional[Place]:
        """The next batch to read; None if none is known."""
        if self.urgent is not None:
            place, self.urgent = self.urgent, None
            return place
        while self._announced and self._announced[0][0] <= self.limit:
            place = self._announced.popleft()
            if place not in self.asked:
                return place
        return None


def _check(loader: Any) -> None:
    dataset: Any = getattr(loader, "dataset", None)
    if not isinstance(loader, data.DataLoader):
        raise Refused(f"found a {type(loader).__name__}, expected a torch.utils.data.DataLoader")
    if isinstance(dataset, data.IterableDataset):
        raise Refused("the data set is an IterableDataset, expected one with indices: the job counts each sample once, "
                      "whoever computes it")
    if loader.batch_size is None:
        raise Refused("the DataLoader has a batch_sampler of its own or no batches, expected batch_size: which samples "
                      "a batch has is the job's (job.prepare's `order` may say in what order)")
    if not isinstance(loader.sampler, (data.RandomSampler, data.SequentialSampler)):
        raise Refused(f"the DataLoader has a {type(loader.sampler).__name__}, expected shuffle=True or False: the "
                      "order is the job's (job.prepare's `order` may be a function from the epoch to its indices)")
    if isinstance(loader.sampler, data.RandomSampler) and (
            loader.sampler.replacement or loader.sampler.num_samples != len(dataset)):
        raise Refused("the RandomSampler draws with replacement or another number of samples, expected each sample "
                      "once an epoch (job.prepare's `order` may be a function from the epoch to its indices)")


class Loader:
    """Iterating yields the micro-batches of this worker up to the end of the epoch; see Job.prepare."""

    def __init__(self, loader: Any, order: Order):
        _check(loader)
        self.dataset = loader.dataset
        self.batch_size: int = loader.batch_size
        self.drop_last: bool = loader.drop_last
        self._size = size = len(loader.dataset)
        # Of an epoch; see use_batch.
        self.samples: int = size - size % self.batch_size if loader.drop_last else size
        if order is None and isinstance(loader.sampler, data.SequentialSampler):
            order = "sequential"
        self._order = order
        self._engine: Optional[Engine] = None
        self._limit: Callable[[], int] = lambda: 0
        # Loader processes that outlive a loop see nothing of what the script does to the data set, as in torch.
        self._is_persistent: bool = loader.num_workers > 0 and loader.persistent_workers
        self._batches: Any = None  # of loader processes
        self._loops = 0
        self._fetched: Dict[Place, Any] = {}  # ahead of their turn
        self._micro: int = self.batch_size
        self._from = loader  # the last attribute: see __setattr__

    def __setattr__(self, name: str, value: Any) -> None:
        """Refused if the script sets what the DataLoader has, which is the job's."""
        if not name.startswith("_") and "_from" in vars(self) and name in vars(self._from):
            raise Refused(f"{name} of the loader that job.prepare returned was set, expected it as it was at "
                          "job.prepare: the script may change what the data set holds (docs/pytorch.md, What it keeps)")
        super().__setattr__(name, value)

    def use_batch(self, batch: int, micro_batches: int) -> None:
        """Of the job. Refused if the script's batches are neither the job's nor its micro-batches."""
        self._micro = batch // micro_batches
        if self.batch_size not in (batch, self._micro):
            part = f", or {self._micro}, which is one of its micro-batches" if micro_batches > 1 else ""
            raise Refused(f"the DataLoader has batch_size={self.batch_size}, expected {batch}, which is the job's "
                          f"train.batch_size{part}")
        if self.drop_last:
            self.samples = self._size // batch * batch
        if self.samples == 0:
            raise Refused(f"the data set has {self._size} samples, expected those of one batch at least")

    def use_seed(self, seed: int) -> None:
        """Of the job."""
        loader = self._from
        self._places = Places(self._size, seed, self._order, self.samples, Refused)
        self._samples = _Samples(self.dataset, seed, draws=not _is_plain(self.dataset))
        self._collate = _Collate(loader.collate_fn, seed)
        self.ahead = loader.num_workers * loader.prefetch_factor if loader.num_workers > 0 else 0
        self._room = max(2, 2 * self.ahead)  # of batches that were fetched before their turn
        self._plan = _Plan(self._places, max(self._room, 64))

    def _start(self) -> Iterator[Any]:
        """Starts loader processes, which live as long as the loop, or the job if they are persistent."""
        loader = self._from
        return iter(data.DataLoader(
            self._samples, batch_sampler=_AsSampler(self._plan), num_workers=loader.num_workers,
            collate_fn=self._collate, pin_memory=loader.pin_memory, timeout=loader.timeout,
            worker_init_fn=_Begin(loader.worker_init_fn), multiprocessing_context=loader.multiprocessing_context,
            prefetch_factor=loader.prefetch_factor))

    def connect(self, engine: Engine, limit: Callable[[], int], on_end: Callable[[], None], begin: Callable[[], None],
                put_back: Callable[[], None]) -> None:
        """`limit`: the epoch at whose end the new loop ends. `on_end`: called when a loop has come to its end by
        itself. `begin`: when the script gets a batch. `put_back`: if it abandons it."""
        self._engine, self._limit, self._on_end, self._begin, self._put_back = engine, limit, on_end, begin, put_back
        if self.samples == self._size:  # else the job's order is that of fewer samples
            engine.on_samples = self._places.tell

    def __len__(self) -> int:
        """Micro-batches of an epoch, over all workers, in the mode that the job has. Before the first of them it waits
        until the job has begun."""
        if self._engine is None:
            raise Refused("the loader is of a job that has not begun")
        parts = self._engine.leaves  # of an update
        whole, rest = divmod(self.samples, parts * self._micro)
        return whole * parts + min(parts, rest)  # a short update has as many parts, as far as it goes

    def __bool__(self) -> bool:
        """It is there: `if loader:` need not wait for its length."""
        return True

    def __iter__(self) -> Iterator[Any]:
        engine = self._engine
        if engine is None:
            raise Refused("the loader is of a job that has not begun")
        limit = self._limit()
        if len(self.dataset) != self._size:
            raise Refused(f"the data set has {len(self.dataset)} samples now, and the job's data {self._size}, "
                          "expected as many in each epoch (docs/pytorch.md, What it keeps)")
        self._forget()
        if not self._is_persistent:
            self._plan.limit = limit
        self._loops += 1
        loop = self._loops
        last: Optional[int] = None  # epoch of which it has given batches
        try:
            while True:
                if engine.ask() and self.ahead == 0:
                    self._read_ahead()
                work = engine.advance()
                if work is not None:
                    self._plan.announce(place for place in engine.ahead if place > _place(work))
                engine.ahead.clear()
                if work is None or work.epoch > limit:
                    if last is not None and engine.work.workers > 1:
                        self._places.check_same(last)
                    self._on_end()
                    return
                last = work.epoch
                self._plan.note_wanted(_place(work))
                batch = self._fetch(_place(work))
                self._begin()
                try:
                    yield batch
                except GeneratorExit:
                    self._put_back()
                    engine.settle_epoch()
                    raise
        finally:
            if self._loops == loop:  # else another has begun before this one was given up
                self._forget()

    def _forget(self) -> None:
        """What has been read ahead, and loader processes: before the next loop the script may change the data set."""
        if not self._is_persistent:
            if self._batches is not None:
                with interrupts.deferred():
                    self._batches._shutdown_workers()
                    self._batches = None
            self._plan.asked.clear()
            self._fetched.clear()

    def _fetch(self, place: Place) -> Any:
        if place in self._fetched:
            return self._fetched.pop(place)
        if self.ahead == 0:
            return self._read(place)
        if place not in self._plan.asked:
            self._plan.urgent = place
        if self._batches is None:
            with interrupts.deferred():
                self._batches = self._start()
        while True:
            try:
                of, batch = next(self._batches)
            except Exception:  # of a sample, in its turn; the script may go on
                if any(process.exitcode == USAGE for process in getattr(self._batches, "_workers", ())):
                    raise Refused(imported_anew("rubato.join")) from None
                self._plan.note_fetched(next(iter(self._plan.asked), None))
                raise
            of = None if of is None else tuple(of)  # pinning has made a list of it
            self._plan.note_fetched(of)
            if of == place:
                return batch
            if of is not None:
                self._keep(of, batch)

    def _read(self, place: Place) -> Any:
        """In this process."""
        indices = self._places(*place)
        batch: Any
        tensors = _tensors_of(self.dataset, self._from.collate_fn)  # each time, as the script may replace them
        if tensors is not None:
            index = torch.tensor(indices)
            batch = [tensor[index] for tensor in tensors]
        else:
            batch = self._collate([self._samples[_Request(place, indices)]])[1]
        if self._from.pin_memory and torch.cuda.is_available():
            pin: Any = data._utils.pin_memory.pin_memory
            batch = pin(batch)
        return batch

    def _read_ahead(self) -> None:
        """Reads the batches that will likely be next, while the servers apply the update."""
        place = self._plan.next()
        if place is not None and place not in self._fetched:
            self._keep(place, self._read(place))

    def _keep(self, place: Place, batch: Any) -> None:
        """Before its turn."""
        self._fetched[place] = batch
        while len(self._fetched) > self._room:  # no longer ours, likely; the oldest first
            self._fetched.pop(next(iter(self._fetched)))


class _AsSampler(data.Sampler[Any]):
    def __init__(self, plan: _Plan):
        self._plan = plan

    def __iter__(self) -> Iterator[Any]:
        return iter(self._plan)


def _tensors_of(dataset: Any, collate: Any) -> Optional[List[torch.Tensor]]:
    """Tensors whose rows are the samples, if a batch is a stack of rows. They are read at once, in a tenth of the time
    of reading single samples."""
    if type(dataset) is not data.TensorDataset or collate is not data.default_collate:
        return None
    tensors = list(dataset.tensors)
    return tensors if all(type(tensor) is torch.Tensor and tensor.device.type == "cpu" and
                          tensor.layout is torch.strided and tensor.is_contiguous() for tensor in tensors) else None


def _inner(dataset: Any) -> Any:
    """What it is a part of."""
    while type(dataset) is data.Subset:
        dataset = dataset.dataset
    return dataset


def _is_plain(dataset: Any) -> bool:
    """Whether it certainly uses no random numbers, so that samples need no seeds."""
    return type(_inner(dataset)) is data.TensorDataset
