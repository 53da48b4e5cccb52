"""Reads safetensors, so that no test needs a package of the format, and our writer no trust."""

import json
import pathlib
import struct


def read(path):
    """{name: (shape, values in a row)} of tensors in float32."""
    blob = pathlib.Path(path).read_bytes()
    data = 8 + struct.unpack("<Q", blob[:8])[0]
    header = json.loads(blob[8:data])
    header.pop("__metadata__", None)
    tensors = {}
    for name, info in header.items():
        assert info["dtype"] == "F32", info
        begin, end = info["data_offsets"]
        tensors[name] = (info["shape"], struct.unpack(f"<{(end - begin) // 4}f", blob[data + begin:data + end]))
    return tensors
