"""A digest of the properties that all workers' data must share."""

import ctypes
import hashlib
import numbers
import os
import sys
from typing import Any, Iterator

_MOST = 16 << 20  # bytes that are read of a tensor or array: some 20 ms
_PIECES = 256  # in which, spread over it, where it has more
_MOST_ITEMS = 1 << 16  # of a list, spread over it likewise
_MOST_TEXT = 256  # characters of each


def digest(dataset: Any, order: Any) -> str:
    """64 hexadecimal digits over the data set's type and length, and the tensors, arrays, and lists of names and labels
    that it holds. Samples are not read, because that may take hours and use random numbers. `order`: see
    Job.prepare."""
    whole = hashlib.blake2b(digest_size=32)
    _add(whole, dataset, 0)
    whole.update(order.encode() if isinstance(order, str) else b"")
    return whole.hexdigest()


def _add(whole: Any, dataset: Any, depth: int) -> None:
    kind = type(dataset)
    whole.update(f"{kind.__module__}.{kind.__qualname__} {len(dataset)}".encode())
    for name, value in sorted(vars(dataset).items() if hasattr(dataset, "__dict__") else ()):
        for held in value if isinstance(value, (tuple, list)) and len(value) <= 16 else (value,):
            if _is_dataset(held) and depth < 8:  # of a Subset, or a ConcatDataset
                _add(whole, held, depth + 1)
            elif _is_array(held):
                whole.update(f"{name} {held.dtype} {tuple(held.shape)}".encode())
                for piece in _pieces(held):
                    whole.update(piece)
        if isinstance(value, (list, tuple)):
            texts = [_text(item) for item in value[::-(-len(value) // _MOST_ITEMS) or 1]]
            if any(texts):
                whole.update(f"{name} {len(value)} {texts}".encode(errors="replace"))
        if name == "indices" and isinstance(value, (list, tuple, range)):  # a Subset's
            whole.update(repr(list(value)[:_MOST >> 4]).encode())


def _text(item: Any) -> str:
    """Of a name, a label, or a pair of these; empty: of something else. Of a path its last part: folders are each
    host's choice."""
    if isinstance(item, (str, os.PathLike)):
        return os.fsdecode(item)[-_MOST_TEXT:].rsplit("/", 1)[-1]
    if isinstance(item, numbers.Integral):
        return str(item)
    return " ".join(map(_text, item)) if isinstance(item, tuple) and len(item) <= 4 else ""


def _is_dataset(value: Any) -> bool:
    return isinstance(value, sys.modules["torch"].utils.data.Dataset) and hasattr(value, "__len__")


def _is_array(value: Any) -> bool:
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    if isinstance(value, torch.Tensor):
        return value.layout is torch.strided and value.device.type in ("cpu", "cuda")
    return numpy is not None and isinstance(value, numpy.ndarray) and not value.dtype.hasobject


def _pieces(array: Any) -> Iterator[bytes]:
    """Evenly spaced pieces of its values, in order."""
    torch = sys.modules["torch"]
    is_tensor = isinstance(array, torch.Tensor)
    flat = array.detach().reshape(-1) if is_tensor else array.reshape(-1)
    size = flat.numel() if is_tensor else flat.size
    each = flat.element_size() if is_tensor else flat.itemsize
    most = max(1, _MOST // max(1, each))
    if size <= most:
        places = [(0, size)]
    else:
        length = max(1, most // _PIECES)
        places = [(i * (size - length) // (_PIECES - 1), length) for i in range(_PIECES)]
    for begin, length in places:
        piece = flat[begin:begin + length]
        if is_tensor:  # not by way of NumPy, which need not be there and has no bfloat16
            piece = piece.cpu().contiguous()
            yield ctypes.string_at(piece.data_ptr(), piece.numel() * piece.element_size())
        else:
            yield piece.tobytes()
