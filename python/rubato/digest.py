"""A digest of the properties that all workers' data must share."""

import ctypes
import dataclasses
import hashlib
import numbers
import os
import sys
from typing import Any, Iterable, Iterator

_MOST = 16 << 20  # bytes that are read of what a data set holds by one name: some 20 ms
_PIECE = 1 << 16  # bytes at once, spread over what has more
_ITEM = 1 << 8  # bytes that are read in the time of an item of a list
_ARRAY = 1 << 12  # bytes that are read in the time to begin with a tensor or array
_WIDE = 64  # items of an item, of which it counts as so many
_DEEPEST = 8
_MOST_TEXT = 256  # characters, or bytes, of each: the last ones


def digest(dataset: Any, order: Any) -> str:
    """64 hexadecimal digits over the data set's type and length, and what it holds of tensors, arrays, tables of pandas
    and Arrow, and of numbers, texts and None in lists; these also in tuples, sets, dictionaries, dataclasses and other
    data sets. It is the same in each process, whatever the seed of its hashes. Samples are not read, because that may
    take hours and use random numbers. `order`: see Job.prepare."""
    whole = _of(dataset, _MOST, False) or _of_dataset(dataset, _MOST, 0)
    name = order.encode() if isinstance(order, str) else b""
    return hashlib.blake2b(whole + name, digest_size=32).hexdigest()


def of_tensor(tensor: Any) -> str:
    """16 hexadecimal digits over its type, shape and values, as far as torch tells them: of some quantized ones, and of
    a class of its own, it may not."""
    try:
        whole = _of_array(tensor, _MOST, 0)
    except (RuntimeError, NotImplementedError):
        whole = b""
    whole = whole or f"{tensor.dtype} {tuple(tensor.shape)}".encode()
    return hashlib.blake2b(whole, digest_size=8).hexdigest()


def _of(value: Any, room: int, is_item: bool, depth: int = 0) -> bytes:
    """What tells it from another value; empty: nothing that each process is sure to have alike. `room`: bytes that may
    be read of it. `is_item`: of a list; a number or a text that has a name of its own may be each process's choice,
    such as a folder or a rank."""
    if isinstance(value, (str, os.PathLike)):
        return _of_text(os.fsdecode(value)) if is_item else b""
    if isinstance(value, (bytes, bytearray)):
        return b"bytes %d " % len(value) + value[-_MOST_TEXT:] if is_item else b""
    if value is None or isinstance(value, numbers.Number) or _is(value, "numpy", "generic"):
        return str(value).encode() if is_item else b""
    if depth == _DEEPEST:
        return b""
    if _is_array(value):
        return _of_array(value, room, depth)
    if isinstance(value, (list, tuple, range)):
        return _of_list(value, room, depth)
    if isinstance(value, (set, frozenset, dict)):
        return _of_unordered(value, room, is_item, depth)
    if _is_dataset(value):  # of a Subset, or a ConcatDataset
        return _of_dataset(value, room, depth)
    if _is(value, "datasets", "Dataset"):  # Hugging Face's: rows as Arrow has them, which decodes and changes nothing
        bytes_of_all = max(len(value) * _ITEM * max(1, len(value.column_names)), value.data.nbytes)
        places = range(0, len(value), _stride(bytes_of_all, room))
        rows = value.with_format("arrow")[list(places)].to_pylist() if len(places) > 0 else []
        return _of_list([len(value), value.column_names, rows], room, depth)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
        return _of_unordered(fields, room, is_item, depth)
    if _is(value, "pandas", "DataFrame") or _is(value, "pandas", "Series"):
        columns = list(getattr(value, "columns", ()))
        step = _stride(len(value) * _ITEM * max(1, len(columns)), room)
        return _of_list([len(value), columns, value.iloc[::step].to_numpy()], room, depth)
    return b""


def _of_dataset(dataset: Any, room: int, depth: int) -> bytes:
    kind = type(dataset)
    parts = [f"{kind.__module__}.{kind.__qualname__} {len(dataset)}".encode()]
    for name, value in sorted(vars(dataset).items() if hasattr(dataset, "__dict__") else ()):
        part = _of(value, room, False, depth + 1)
        parts += [name.encode(), part] if part else []
    return _all(parts)


def _of_text(text: str) -> bytes:
    """Of a path its last part: folders are each host's choice."""
    length = "" if "/" in text else f"{len(text)} "
    return (length + text[-_MOST_TEXT:].rsplit("/", 1)[-1]).encode(errors="backslashreplace")


def _of_list(values: Any, room: int, depth: int) -> bytes:
    """Of items that are spread over it."""
    if len(values) == 0:
        return b""
    visited = values[::_stride(len(values) * _time_of(values[0]), room)]
    parts = [_of(value, room // len(visited), True, depth + 1) for value in visited]
    return _all([str(len(values)).encode(), *parts]) if any(parts) else b""


def _of_unordered(values: Any, room: int, is_item: bool, depth: int) -> bytes:
    """A set, or a dictionary; of one that is too large its length."""
    if len(values) > max(_WIDE, room // _ITEM):
        return str(len(values)).encode()
    of_each = max(1, room // max(1, len(values)))
    parts = sorted(_of(value, of_each, True, depth + 1) +
                   (b" " + _of(values[value], of_each, is_item, depth + 1) if isinstance(values, dict) else b"")
                   for value in values)
    return _all(parts) if parts else b""


def _of_array(array: Any, room: int, depth: int) -> bytes:
    if _is(array, "torch", "Tensor"):
        if array.layout is not sys.modules["torch"].strided or array.device.type not in ("cpu", "cuda"):
            return b""
    elif array.dtype.names is not None:  # between the fields may be bytes that mean nothing
        return _of_list([array[name] for name in array.dtype.names], room, depth)
    elif array.dtype.hasobject:
        return _of_list(array.reshape(-1), room, depth)
    return _all([f"{array.dtype} {tuple(array.shape)}".encode(), *_pieces(array, room)])


def _time_of(value: Any) -> int:
    """In bytes that are read meanwhile."""
    if isinstance(value, (list, tuple, range, set, frozenset, dict)):
        return _ITEM * min(_WIDE, max(1, len(value)))
    return _ARRAY if _is_array(value) or _is_dataset(value) else _ITEM


def _stride(of_all: int, room: int) -> int:
    """By which as much is visited of what takes `of_all` bytes as fits into `room`."""
    return max(1, -(-of_all // room))


def _all(parts: Iterable[bytes]) -> bytes:
    whole = hashlib.blake2b(digest_size=32)
    for part in parts:
        whole.update(b"%d " % len(part))
        whole.update(part)
    return whole.digest()


def _is(value: Any, module: str, kind: str) -> bool:
    """Whether it is of a class of a module, which need not be there."""
    of = getattr(sys.modules.get(module), kind, None)
    return of is not None and isinstance(value, of)


def _is_array(value: Any) -> bool:
    return _is(value, "torch", "Tensor") or _is(value, "numpy", "ndarray")


def _is_dataset(value: Any) -> bool:
    return _is(value, "torch.utils.data", "Dataset") and hasattr(value, "__len__")


def _pieces(array: Any, room: int) -> Iterator[bytes]:
    """Evenly spaced pieces of its values, in order, of so many bytes together."""
    is_tensor = _is(array, "torch", "Tensor")
    flat = array.detach().reshape(-1) if is_tensor else array.reshape(-1)
    size = flat.numel() if is_tensor else flat.size
    each = max(1, flat.element_size() if is_tensor else flat.itemsize)
    if size * each <= room:
        places = [(0, size)]
    else:
        count = max(1, room // _PIECE)
        length = max(1, min(room, _PIECE) // each)
        places = [(i * (size - length) // max(1, count - 1), length) for i in range(count)]
    for begin, length in places:
        piece = flat[begin:begin + length]
        if is_tensor:  # not by way of NumPy, which need not be there and has no bfloat16
            piece = piece.cpu().contiguous()
            yield ctypes.string_at(piece.data_ptr(), piece.numel() * piece.element_size())
        else:
            yield piece.tobytes()
