"""Values on their way between a GPU's tensors and the memory that is shared with rubato-worker.

The memory is pinned in place, so that the GPU reads and writes it directly, on a separate stream, in parallel with the
script's computation. This has not run on a GPU, only on a fake that records the calls.
"""

import sys
from typing import Any, Iterable, List, Tuple

import torch

CUDA: Any = torch.cuda  # tests put another in its place


def is_staged(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cuda"


class Staging:
    """Of one device."""

    def __init__(self, device: Any, memory: Any):
        self._device = device
        self._stream = CUDA.Stream(device)
        self._kept: List[torch.Tensor] = []  # what the stream may still read
        self._memory = torch.frombuffer(memory, dtype=torch.uint8)
        self._is_pinned = int(CUDA.cudart().cudaHostRegister(self._memory.data_ptr(), len(self._memory), 0)) == 0
        if not self._is_pinned:  # the driver copies once more
            print("rubato: the memory that is shared with rubato-worker cannot be pinned: copies to and from the GPU "
                  "take longer", file=sys.stderr)

    def close(self) -> None:
        self._stream.synchronize()
        if self._is_pinned:
            CUDA.cudart().cudaHostUnregister(self._memory.data_ptr())

    def to_host(self, value: torch.Tensor, scale: float, view: torch.Tensor) -> Any:
        """Begins to write scale x value to the shared memory, when the current stream has come to here. Returns an
        event that has happened when it is written."""
        self._stream.wait_stream(CUDA.current_stream(self._device))
        with CUDA.stream(self._stream):
            view.copy_(value * scale, non_blocking=True)
        self._kept.append(value)
        return self._stream.record_event()

    def wait(self) -> None:
        """Until all that was begun is done."""
        self._stream.synchronize()
        self._kept.clear()

    def to_device(self, pairs: Iterable[Tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Tensors become what the shared memory has; what the current stream computes next sees that. When it returns,
        the shared memory may change."""
        current = CUDA.current_stream(self._device)
        self._stream.wait_stream(current)
        with CUDA.stream(self._stream):
            for tensor, view in pairs:
                tensor.copy_(view, non_blocking=True)
        current.wait_stream(self._stream)
        self._stream.synchronize()
