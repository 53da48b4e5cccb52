"""How many threads the libraries of this process compute with."""

import ctypes
import pathlib
import sys
from typing import Set


def use(threads: int) -> None:
    """Limits the threads, so that bits do not depend on the host's number of cores, and processes do not compete for
    cores.

    torch.set_num_threads does not reach OpenBLAS where that has threads of its own, as in Debian: they take every core,
    and spin while they wait.
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
    for path in _loaded():
        try:
            library = ctypes.CDLL(path)
        except OSError:  # its file was replaced while it is in use
            continue
        for prefix in ("", "scipy_"):  # of those that NumPy and SciPy bring
            for suffix in ("", "64_"):
                name = f"{prefix}openblas_set_num_threads{suffix}"
                if hasattr(library, name):
                    getattr(library, name)(threads)


def _loaded() -> Set[str]:
    """Paths of the OpenBLAS libraries that are loaded."""
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    return {path for path in (line.split(maxsplit=5)[-1] for line in lines if line.count(" ") >= 5)
            if "openblas" in pathlib.Path(path).name and ".so" in path}
