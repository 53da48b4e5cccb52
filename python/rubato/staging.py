"""The part of the flat vector whose tensors are on one GPU.

Values cross in a few long copies, on a separate stream, between the memory that is shared with rubato-worker, which is
pinned in place, and flat vectors on the GPU, from or to which the GPU then copies the tensors. The gradients of several
micro-batches of one worker are added up there.
"""

import sys
from typing import Any, List, Optional, Sequence, Tuple

import torch

CUDA: Any = torch.cuda  # tests put another in its place


def is_staged(tensor: torch.Tensor) -> bool:
    return bool(tensor.device.type == "cuda")


class Flat:
    """Entries of the layout, the averages behind the parameters, one behind the other."""

    def __init__(self, values: torch.Tensor, entries: Sequence[Any]):
        """`values`: float32, as many as the entries have."""
        self.all = values
        parts = self.all.split([entry.size for entry in entries])
        self.views = [part.view(entry.tensor.shape) for part, entry in zip(parts, entries)]
        averages = sum(entry.size for entry in entries if entry.average > 0)
        self.parameters, self.averages = self.all.split([len(self.all) - averages, averages])


class Pin:
    """Memory that GPUs read and write directly, all of the process alike, until it is closed."""

    def __init__(self, device: Any, memory: Any, otherwise: str):
        """`otherwise`: what comes of it if they cannot, for people."""
        self._device = device
        self._memory = torch.frombuffer(memory, dtype=torch.uint8)
        with CUDA.device(device):  # else a context is made on the first GPU
            self.holds = int(CUDA.cudart().cudaHostRegister(self._memory.data_ptr(), len(self._memory), 0)) == 0
            if self.holds:
                return
            print(f"rubato: the memory that is shared with rubato-worker cannot be pinned: {otherwise}",
                  file=sys.stderr)
            try:
                torch.zeros(1, device=device)  # CUDA tells whoever starts a kernel next of the error
            except RuntimeError:
                pass

    def close(self) -> None:
        if self.holds:
            with CUDA.device(self._device):
                CUDA.cudart().cudaHostUnregister(self._memory.data_ptr())


class Staging:
    """Of one device."""

    def __init__(self, device: Any, entries: Sequence[Any]):
        """`entries`: the layout's, in its order, of this device."""
        self._device = device
        self.entries = list(entries)
        self._runs: List[Tuple[int, int, int]] = []  # values that follow one another: where in the vector, here, size
        own = 0
        for entry in self.entries:
            if self._runs and sum(self._runs[-1][::2]) == entry.begin:
                begin, here, size = self._runs.pop()
                self._runs.append((begin, here, size + entry.size))
            else:
                self._runs.append((entry.begin, own, entry.size))
            own += entry.size
        self._stream = CUDA.Stream(device)
        self._free: List[Flat] = []  # what the current stream does next with one comes after what was done with it
        self._kept: List[Flat] = []  # sums of the step's tree, outermost first
        self._sum: Any = None  # of the micro-batch at hand
        self._averaged = [entry for entry in self.entries if entry.average > 0]
        self._averages = self._make(self._averaged)

    def begin(self, kept: int) -> None:
        """Begins the sum of a micro-batch, before which `kept` ones have been kept: more are out of date."""
        self._forget(len(self._kept) - kept)
        self._sum = self._sum or self._take()

    def sum_up(self, values: Sequence[Optional[torch.Tensor]], factor: float, samples: int, adds: int) -> None:
        """The sum becomes factor x the parameters' `values` (None: 0), samples x the averages', plus the last `adds`
        sums that are kept."""
        pairs = [(view, value) for view, value in zip(self._sum.views, values) if value is not None]
        for view, value in zip(self._sum.views, values):
            if value is None:
                view.zero_()
        _copy(pairs)
        for part, scale in (self._sum.parameters, factor), (self._sum.averages, samples):
            if scale != 1:
                part.mul_(scale)
        for kept in self._last(adds):
            self._sum.all.add_(kept.all)

    def sum_up_entry(self, place: int, value: Optional[torch.Tensor], scale: float, adds: int) -> None:
        """The same of one entry."""
        view = self._sum.views[place]
        if value is None:
            view.zero_()
        else:
            view.copy_(value).mul_(scale)
        for kept in self._last(adds):
            view.add_(kept.views[place])

    def end(self, adds: int, keeps: bool) -> None:
        """The sum takes the place of the last `adds` ones that are kept, or has left."""
        self._forget(adds)
        if keeps:
            self._kept.append(self._sum)
            self._sum = None

    def write(self, vector: torch.Tensor) -> None:
        """Begins to write the sum to the shared memory, when the current stream has come to here."""
        with self._after_what_was_begun():
            for begin, own, size in self._runs:
                vector[begin:begin + size].copy_(self._sum.all[own:own + size], non_blocking=True)

    def write_entry(self, place: int, values: torch.Tensor) -> Any:
        """The same of the first values of one entry. Returns an event that has happened when they are written."""
        with self._after_what_was_begun():
            values.copy_(self._sum.views[place].flatten()[:len(values)], non_blocking=True)
        return self._stream.record_event()

    def wait(self) -> None:
        """Until all that was begun is written."""
        self._stream.synchronize()

    def load(self, vector: torch.Tensor) -> None:
        """Tensors become what the shared memory has; what the current stream computes next sees that. When it returns,
        the shared memory may change."""
        flat = self._take()
        with self._after_what_was_begun():
            for begin, own, size in self._runs:
                flat.all[own:own + size].copy_(vector[begin:begin + size], non_blocking=True)
        CUDA.current_stream(self._device).wait_stream(self._stream)
        _copy([(entry.tensor, view) for entry, view in zip(self.entries, flat.views)])
        self._averages.all.copy_(flat.averages)
        self._stream.synchronize()
        self._free.append(flat)

    def restore_averages(self) -> None:
        """Those that were loaded last, which the layers have overwritten."""
        _copy([(entry.tensor, view) for entry, view in zip(self._averaged, self._averages.views)])

    def _after_what_was_begun(self) -> Any:
        """For copies: the stream for them, when the current one has come to here."""
        self._stream.wait_stream(CUDA.current_stream(self._device))
        return CUDA.stream(self._stream)

    def _make(self, entries: Sequence[Any]) -> Flat:
        size = sum(entry.size for entry in entries)
        return Flat(torch.empty(size, dtype=torch.float32, device=self._device), entries)

    def _take(self) -> Flat:
        return self._free.pop() if self._free else self._make(self.entries)

    def _last(self, adds: int) -> List[Flat]:
        return self._kept[len(self._kept) - adds:][::-1]

    def _forget(self, count: int) -> None:
        """The last ones that are kept."""
        for _ in range(count):
            self._free.append(self._kept.pop())


def _copy(pairs: Sequence[Tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Each first one becomes the second."""
    together = getattr(torch, "_foreach_copy_", None)  # of PyTorch 2; it looks at the sources' types alone
    if together is not None and len({to.dtype for to, _ in pairs}) == 1:
        together(*map(list, zip(*pairs)))
    else:
        for to, of in pairs:
            to.copy_(of)
