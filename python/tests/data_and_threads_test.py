"""What the package says of a script's data, and how many threads it lets libraries have.

Usage: data_and_threads_test.py. Needs Debian's python3-torch; skipped without it.
"""

import os
import pathlib
import subprocess
import sys
import types
import unittest
from unittest import mock

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[i]) for i in (1,)]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests"))
from skipped import run_cases, skip

try:
    import torch
except ImportError:
    skip("DataAndThreadsTest", "Torch", "python3-torch is not installed")
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from rubato import digest as digests
from rubato import threads
from rubato.digest import digest

# A product with the number of threads that is asked for, on as many processors as there are: what it took of them, and
# how many threads are there.
PRODUCT = """
import os, sys
sys.path.insert(0, sys.argv[1])
import numpy, torch
from rubato import threads
threads.use(int(sys.argv[2]))
a, b = torch.randn(512, 512), numpy.ones((512, 512), numpy.float32)
def ticks():
    return {int(task): int(open(f"/proc/self/task/{task}/stat").read().rsplit(")", 1)[1].split()[11])
            for task in os.listdir("/proc/self/task")}
before = ticks()
for _ in range(100): a @ a; b @ b
used = {task: now - before.get(task, 0) for task, now in ticks().items()}
own = used.pop(os.getpid())
print(sum(used.values()) / own)
"""


class Own(Dataset):
    def __init__(self, held):
        self.held = held

    def __len__(self):
        return 4


class DataAndThreadsTest(unittest.TestCase):
    def test_equal_data_have_equal_digests(self):
        x, y = torch.arange(12.0).view(4, 3), torch.arange(4)
        self.assertEqual(digest(TensorDataset(x, y), None), digest(TensorDataset(x.clone(), y.clone()), None))

    def test_any_value_shows(self):
        x, y = torch.arange(12.0).view(4, 3), torch.arange(4)
        other = x.clone()
        other[3, 2] += 1
        sets = [TensorDataset(x, y), TensorDataset(other, y), TensorDataset(y, x), TensorDataset(x.double(), y),
                TensorDataset(x.view(4, 3, 1), y), Own(x), Own(x.numpy()), Own(other.numpy()), Own(x.bfloat16()),
                Subset(Own(x), [0, 1]), Subset(Own(x), [0, 2]), Subset(Own(other), [0, 1]),
                ConcatDataset([Own(x), Own(other)]), ConcatDataset([Own(other), Own(x)])]
        self.assertEqual(len({digest(one, None) for one in sets}), len(sets))
        self.assertNotEqual(digest(sets[0], None), digest(sets[0], "sequential"))

    def test_lists_of_names_and_labels_show(self):
        names = [f"/data/cats/{i}.png" for i in range(4)]
        lists = [names, names[::-1], list(zip(names, range(4))), list(zip(names[::-1], range(4))), [0, 1, 2, 3],
                 [0, 1, 3, 2], tuple(range(100)), [name.replace("png", "jpg") for name in names]]
        self.assertEqual(len({digest(Own(one), None) for one in lists}), len(lists))
        # Wherever a host has them.
        for others in ([f"/mnt/{i}.png" for i in range(4)], [pathlib.Path(name) for name in names]):
            self.assertEqual(digest(Own(names), None), digest(Own(others), None))
        # What is no name and no label may differ from process to process.
        self.assertEqual(digest(Own([object(), 0.1, []]), None), digest(Own([object(), 0.2, []]), None))
        self.assertEqual(digest(Own([]), None), digest(Own([object()]), None))

    def test_what_is_called_indices_may_be_anything(self):
        several = [Own(torch.arange(4.0)) for _ in range(3)]
        for dataset, indices in zip(several, (None, 7, torch.tensor([0, 1]))):
            dataset.indices = indices
        self.assertEqual(len({digest(one, None) for one in several[1:]}), 2)
        self.assertEqual(digest(several[0], None), digest(Own(torch.arange(4.0)), None))

    def test_of_large_ones_pieces_are_read(self):
        x = torch.zeros(2 * digests._MOST, dtype=torch.uint8)
        kept = digest(Own(x), None)
        x[-1] = 1
        self.assertNotEqual(digest(Own(x), None), kept)
        self.assertEqual(sum(map(len, digests._pieces(x))), digests._MOST)
        self.assertLess(sum(map(len, digests._pieces(x[:1000]))), 1001)

    def test_libraries_have_no_threads_beside_the_one(self):
        done = subprocess.run([sys.executable, "-c", PRODUCT, str(pathlib.Path(__file__).resolve().parents[1]), "1"],
                              text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        # Of the processor time of the one; with a second thread it is near 1.
        self.assertLess(float(done.stdout), 0.2, "processor time of other threads")

    def test_openblas_of_numpy_and_scipy_has_names_of_its_own(self):
        said = []
        libraries = {"one": types.SimpleNamespace(scipy_openblas_set_num_threads64_=said.append),
                     "two": types.SimpleNamespace(openblas_set_num_threads=said.append)}

        def load(path):
            if path not in libraries:
                raise OSError(f"{path}: cannot open shared object file")
            return libraries[path]

        with mock.patch.object(threads, "_loaded", lambda: ["gone (deleted)", "one", "two"]), \
                mock.patch.object(threads.ctypes, "CDLL", load):
            threads.use(torch.get_num_threads())
        self.assertEqual(said, [torch.get_num_threads()] * 2)


run_cases()
