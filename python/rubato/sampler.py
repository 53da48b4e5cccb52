"""Which samples a micro-batch has: the job's order of an epoch, or the script's."""

import functools
import numbers
import sys
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Type, Union

from . import seeds

# None: the job's random order, of its seed. "sequential". Or epoch -> the indices of the epoch, in order.
Order = Union[None, str, Callable[[int], Sequence[int]]]

_MASK = (1 << 64) - 1
_ROUNDS = 8
_MOST_COMPARED = 4096  # indices of an order, spread over it
_MOST_TOLD = 64  # as many micro-batches as a loader may know of beforehand


def _mix(x: int) -> int:
    """SplitMix64's finaliser, as Mix of common/base/random.h."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def _key(seed: int, purpose: bytes, number: int) -> int:
    """As Key of common/base/random.h."""
    part = 0xCBF29CE484222325  # FNV-1a
    for byte in purpose:
        part = ((part ^ byte) * 0x100000001B3) & _MASK
    return _mix(_mix(_mix(seed) ^ part) ^ number)


class Permutation:
    """A permutation of [0, size): a job's order of an epoch, without servers; see common/space/permutation.h."""

    def __init__(self, seed: int, epoch: int, size: int):
        key = _key(seed & _MASK, b"order", epoch)
        self._size = size
        self._half = ((size - 1).bit_length() + 1) // 2
        self._keys = [_key(key, b"feistel", i) for i in range(_ROUNDS)]

    def __call__(self, begin: int, end: int) -> List[int]:
        """The indices at the places [begin, end)."""
        numpy = sys.modules.get("numpy")
        if numpy is None or end - begin < 8:  # below that arrays cost more than they save
            return [self._at(place) for place in range(begin, end)]
        with numpy.errstate(over="ignore"):
            places: List[int] = self._all(numpy, numpy.arange(begin, end, dtype=numpy.uint64)).tolist()
        return places

    def _at(self, value: int) -> int:
        mask = (1 << self._half) - 1
        while True:
            left, right = value >> self._half, value & mask
            for key in self._keys:
                left, right = right, left ^ (_mix(key ^ right) & mask)
            value = left << self._half | right
            if value < self._size:
                return value

    def _all(self, numpy: Any, values: Any) -> Any:
        u = numpy.uint64
        half, mask = u(self._half), u((1 << self._half) - 1)
        left, right = values >> half, values & mask
        for key in self._keys:
            x = (right ^ u(key)) + u(0x9E3779B97F4A7C15)
            x = (x ^ (x >> u(30))) * u(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> u(27))) * u(0x94D049BB133111EB)
            left, right = right, left ^ ((x ^ (x >> u(31))) & mask)
        values = left << half | right
        outside = values >= u(self._size)
        if outside.any():
            values[outside] = self._all(numpy, values[outside])
        return values


def _drawn(order: Callable[[int], Sequence[int]], seed: int, epoch: int) -> Sequence[int]:
    """The script's order of an epoch. What it draws is a function of seed and epoch, so it is the same in each process
    and each time, and the script's other draws are as they were."""
    with seeds.kept():
        seeds.seed_all(seeds.key(seed & _MASK, seeds.ORDER, epoch, 0))
        return order(epoch)


def check_order(order: Any, error: Type[Exception]) -> None:
    """`error` if it is none."""
    if order is not None and not callable(order) and not (isinstance(order, str) and order == "sequential"):
        raise error(f"found order={order!r}, expected None, 'sequential' or a function of the epoch")


class Places:
    """The indices at the places of an epoch, out of a data set of `size` samples."""

    def __init__(self, size: int, seed: int, order: Order = None, least: Optional[int] = None,
                 error: Type[Exception] = ValueError):
        """`least`: samples of an epoch, if fewer than `size`. `error`: what an order raises that is none."""
        check_order(order, error)
        self._size, self._seed, self._order, self._error = size, seed, order, error
        self._least = size if least is None else least
        self._told: Dict[Tuple[int, int, int], List[int]] = {}
        self._of: Callable[[int], Any]
        if order is None:
            self._of = functools.lru_cache(maxsize=2)(lambda epoch: Permutation(seed, epoch, size))
        elif callable(order):
            self._of = functools.lru_cache(maxsize=2)(functools.partial(self._given, order))

    def tell(self, epoch: int, begin: int, end: int, indices: List[int]) -> None:
        """What the job's random order has there, which need not be computed once more. Of the last that were told."""
        if self._order is None:
            self._told[epoch, begin, end] = indices
            if len(self._told) > _MOST_TOLD:
                self._told.pop(next(iter(self._told)))

    def __call__(self, epoch: int, begin: int, end: int) -> List[int]:
        if self._order == "sequential":
            return list(range(begin, end))
        told = self._told.get((epoch, begin, end))
        if told is not None:
            return told
        if self._order is None:
            places: List[int] = self._of(epoch)(begin, end)
            return places
        found = [int(i) for i in self._of(epoch)[0][begin:end]]
        for place, index in enumerate(found, begin):
            if not -self._size <= index < self._size:
                raise self._error(f"order({epoch}) has the index {index} at place {place}, expected one of the "
                                  f"{self._size} samples of the data set")
        return found

    def _given(self, order: Callable[[int], Sequence[int]], epoch: int) -> Tuple[Any, List[int]]:
        """The script's, and some of them, which stay if it changes the list."""
        indices = _drawn(order, self._seed, epoch)
        if not self._least <= len(indices) <= self._size:
            most = "" if self._least == self._size else f" to {self._size}"
            raise self._error(f"order({epoch}) has {len(indices)} indices, expected {self._least}{most}: in each epoch "
                              "as many as there are samples, of which some may come again and others not")
        return indices, [int(indices[i]) for i in range(0, len(indices), max(1, len(indices) // _MOST_COMPARED))]

    def check_same(self, epoch: int) -> None:
        """An error if the script's order of the epoch, which it is asked for once more, has become another: then other
        workers have it otherwise, too, and samples come twice or never."""
        if callable(self._order) and self._given(self._order, epoch)[1] != self._of(epoch)[1]:
            raise self._error(f"order({epoch}) has become another in the epoch, expected the same each time and in all "
                              "workers: a function of the epoch, and not of what one worker has seen or drawn")


class Sampler:
    """A torch.utils.data.Sampler in a job's order, without servers: a rank's part of each global batch.

    The global batches do not depend on the number of ranks. With state_dict, a training can continue in the middle of
    an epoch with another number of ranks, and each sample still counts once.

        sampler = rubato.Sampler(len(train_set), batch_size=256, rank=rank, ranks=ranks, seed=1)
        loader = DataLoader(train_set, batch_sampler=sampler)
        for batches, (x, y) in enumerate(loader, start=1):
            ...
            torch.save({"sampler": sampler.state_dict(batches), ...}, path)

    Yields lists of indices, and goes to the next epoch at the end of each. A rank's part of a short last batch may be
    empty, and is left out: that rank has one batch less.
    """

    def __init__(self, size: int, batch_size: int, *, rank: int = 0, ranks: int = 1, seed: int = 0,
                 order: Order = None):
        """`batch_size`: samples of a global batch, over all ranks."""
        for name, number, least in ("size", size, 0), ("batch_size", batch_size, 1), ("ranks", ranks, 1):
            if not isinstance(number, numbers.Integral) or number < least:
                raise ValueError(f"found {name}={number!r}, expected a whole number of at least {least}")
        for name, number in ("rank", rank), ("seed", seed):
            if not isinstance(number, numbers.Integral):
                raise ValueError(f"found {name}={number!r}, expected a whole number")
        # They may be NumPy's.
        size, batch_size, rank, ranks, seed = (int(number) for number in (size, batch_size, rank, ranks, seed))
        if not 0 <= rank < ranks:
            raise ValueError(f"found rank={rank} of {ranks}, expected 0 to {ranks - 1}")
        self.size, self.batch_size, self.rank, self.ranks = size, batch_size, rank, ranks
        self.epoch = 0
        self.position = 0  # samples of the epoch that have been given out, to all ranks
        self._began = (0, 0)  # epoch and position where the last iteration did
        self._places = Places(size, seed, order)
        # What a place in an epoch is of no use without.
        self._settings = {"size": size, "batch_size": batch_size, **({"seed": seed} if order is None else {})}

    def _part(self, position: int) -> Tuple[int, int]:
        """This rank's places of the global batch that begins there."""
        n = min(self.size - position, self.batch_size)
        return position + self.rank * n // self.ranks, position + (self.rank + 1) * n // self.ranks

    def __iter__(self) -> Iterator[List[int]]:
        self._began = self.epoch, self.position
        while self.position < self.size:
            begin, end = self._part(self.position)
            self.position = min(self.size, self.position + self.batch_size)
            if begin < end:
                yield self._places(self.epoch, begin, end)
        self.set_epoch(self.epoch + 1)

    def __len__(self) -> int:
        """Batches that this rank has left of the epoch."""
        whole, rest = divmod(self.size - self.position, self.batch_size)
        return whole * self._has_part(self.batch_size) + self._has_part(rest)

    def _has_part(self, samples: int) -> bool:
        """Of a global batch of so many samples, which may be fewer than the ranks."""
        return self.rank * samples // self.ranks < (self.rank + 1) * samples // self.ranks

    def set_epoch(self, epoch: int) -> None:
        self.epoch, self.position = epoch, 0

    def state_dict(self, batches: Optional[int] = None) -> Any:
        """Where to continue, and of which global batches.

        batches: how many of this iteration's the script has trained. Default: all that were given out; a DataLoader
            with processes (`num_workers`) reads several ahead of the script, which would then be left out.
        """
        epoch, position = self._place(batches)
        return {"epoch": epoch, "position": position, **self._settings}

    def _place(self, batches: Optional[int]) -> Tuple[int, int]:
        if batches is None:
            return self.epoch, self.position
        epoch, began = self._began
        position = began + batches * self.batch_size
        if batches < 0 or position >= self.size + self.batch_size:
            raise ValueError(f"found batches={batches}, expected what has been trained of an iteration that has "
                             f"{-(-(self.size - began) // self.batch_size)}")
        if position < self.size:
            begin, end = self._part(position)
            if begin < end:  # else nothing of the epoch is left for this rank
                return epoch, position
        return epoch + 1, 0

    def load_state_dict(self, state: Any) -> None:
        """Continues there. ValueError if the state is of another size, batch_size or seed; the number of ranks may
        differ, and an `order` is not compared."""
        others = [name for name, value in self._settings.items() if state.get(name, value) != value]
        if others:
            found, expected = (", ".join(f"{name}={of[name]}" for name in others) for of in (state, self._settings))
            raise ValueError(f"found the state of a Sampler with {found}, expected {expected}: make the Sampler as it "
                             f"was, or call set_epoch({state['epoch']}) to begin the epoch anew with this one")
        self.epoch, self.position = state["epoch"], state["position"]


def wanted_rank(environment: Mapping[str, str]) -> Optional[int]:
    """The rank that the launcher of the script has set; torchrun's, too."""
    for name in ("RUBATO_RANK", "RANK"):
        text = environment.get(name, "")
        if text.isdigit():
            return int(text)
    return None
