"""What a package installs: files by their paths below a prefix (`bin/rubato`), with their modes."""

import collections
import pathlib

File = collections.namedtuple("File", "data mode")


class Unknown(Exception):
    """Something in the programs, or that they need, which a package could not answer for."""


def program(path):
    return File(pathlib.Path(path).read_bytes(), 0o755)


def document(data):
    """Of a path, of bytes or of text."""
    if isinstance(data, pathlib.Path):
        data = data.read_bytes()
    return File(data.encode() if isinstance(data, str) else data, 0o644)


def folders(tree):
    """All folders that the tree's files lie in, parents first."""
    found = {parent.as_posix() for path in tree for parent in pathlib.PurePosixPath(path).parents}
    return sorted(found - {"."})
