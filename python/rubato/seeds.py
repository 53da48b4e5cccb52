"""Seeds the random generators of the process as a function of the job's seed and a place in the job.

So the result does not depend on which process computes a micro-batch or loads a sample.
"""

import contextlib
import hashlib
import random
import struct
import sys
from typing import Any, Iterator

MICRO_BATCH = b"micro-batch"  # purposes of keys
SAMPLE = b"sample"
BATCH = b"batch"
ORDER = b"order"

_PLACE = struct.Struct("<Qqq")


def key(seed: int, purpose: bytes, a: int, b: int) -> int:
    """64 bits that are a function of the four alone."""
    digest = hashlib.blake2b(_PLACE.pack(seed, a, b), digest_size=8, person=purpose).digest()
    return int.from_bytes(digest, "little")


def seed_all(number: int) -> None:
    """Sets the generators of torch, NumPy and Python, as far as they have been imported. Some 12 us."""
    random.seed(number)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(number & 0xFFFFFFFF)
    torch = sys.modules.get("torch")
    if torch is not None:
        # torch.manual_seed looks at every kind of device, which takes longer than all of this.
        if torch.cuda.is_initialized():
            torch.manual_seed(number)
        else:
            torch.default_generator.manual_seed(number)


def seed_sample(seed: int, epoch: int, index: int) -> None:
    """Call it before a sample is read: its random numbers do not depend on the process that loads it."""
    seed_all(key(seed, SAMPLE, epoch, index))


def seed_batch(seed: int, epoch: int, begin: int) -> None:
    """Call it before samples become a batch, likewise."""
    seed_all(key(seed, BATCH, epoch, begin))


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Restores the random generators afterwards."""
    torch: Any = sys.modules.get("torch")
    numpy: Any = sys.modules.get("numpy")
    state = random.getstate()
    torch_state = torch.get_rng_state() if torch is not None else None
    has_cuda = torch is not None and torch.cuda.is_initialized()
    cuda_states = torch.cuda.get_rng_state_all() if has_cuda else []
    numpy_state = numpy.random.get_state() if numpy is not None else None
    try:
        yield
    finally:
        random.setstate(state)
        if torch is not None:
            torch.set_rng_state(torch_state)
        if has_cuda:
            torch.cuda.set_rng_state_all(cuda_states)
        if numpy is not None:
            numpy.random.set_state(numpy_state)
