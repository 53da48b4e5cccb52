"""What the package says of a script's data, and how many threads it lets libraries have.

Usage: data_and_threads_test.py. Needs Debian's python3-torch; skipped without it.
"""

import collections
import dataclasses
import os
import pathlib
import subprocess
import sys
import types
import unittest
from typing import Any
from unittest import mock

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[i]) for i in (1,)]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests"))
from skipped import run_cases, skip

try:
    import numpy
    import torch
except ImportError:
    skip("DataAndThreadsTest", "Torch", "python3-torch is not installed")
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from rubato import digest as digests
from rubato import threads
from rubato.digest import _of_list, digest

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


Named = collections.namedtuple("Named", "number name")


@dataclasses.dataclass
class Row:
    number: int
    value: Any


class Column:
    """As pandas.Series."""

    def __init__(self, values):
        self.values = values
        self.iloc = self

    def __len__(self):
        return len(self.values)

    def __getitem__(self, rows):
        return Column(self.values[rows])

    def to_numpy(self):
        return self.values


class Table(Column):
    """As pandas.DataFrame."""

    def __init__(self, columns, values):
        super().__init__(values)
        self.columns = list(columns)


class Arrow:
    """As a Dataset of Hugging Face's datasets, of which an item is what a transform makes of a row."""

    def __init__(self, rows, format=None):
        self._rows, self._format = rows, format
        self.column_names = list(rows[0]) if rows else []
        self.data = types.SimpleNamespace(nbytes=sum(len(str(row)) for row in rows))

    def __len__(self):
        return len(self._rows)

    def with_format(self, format):
        return Arrow(self._rows, format)

    def __getitem__(self, places):
        assert self._format == "arrow"
        return types.SimpleNamespace(to_pylist=lambda: [self._rows[place] for place in places])


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
        # Of others what is at their end, and the length.
        texts = [["a" * 1000], ["a" * 1001], ["a" * 999 + "b"], ["\ud800"], ["\ud801"]]
        self.assertEqual(len({digest(Own(one), None) for one in texts}), len(texts))

    def test_what_rows_hold_shows(self):
        rows = [[["0.5", "cat"], ["1.5", "dog"]], [["0.5", "cat"], ["1.5", "cow"]], [[0.5, "cat"], [1.5, "dog"]],
                [{"id": 0, "words": [3, 4]}, {"id": 1, "words": [5]}], [{"id": 0, "words": [3, 4]}, {"id": 1}],
                [{"id": 0, "words": [3, 5]}, {"id": 1, "words": [5]}], [{"id": 0, "word": [3, 4]}, {"id": 1}],
                [Row(0, None), Row(1, 2.5)], [Row(0, None), Row(1, 3.5)], [Named(0, "a")], [Named(0, "b")],
                [[None, True]], [[None, False]], [[b"ab"]], [[b"ac"]], [["ab"], []], [["ab"]], [1 + 2j], [2 + 2j],
                [torch.arange(2), torch.arange(3)], [torch.arange(2), torch.arange(1, 4)],
                [(numpy.float32(1), [numpy.ones(2)])], [(numpy.float32(1), [numpy.zeros(2)])],
                numpy.array([[1, "a"], [2, "b"]], object), numpy.array([[1, "a"], [2, "c"]], object),
                numpy.array([(1, 2.5)], "i1,f8"), numpy.array([(1, 3.5)], "i1,f8"), {"a": [0, 1], "b": {2, 3}},
                {"a": [0, 1], "b": {2, 4}}, {"a": [0, 2], "b": {2, 3}}, {"a": [0, 1], "c": {2, 3}}, Row(0, [1]),
                Row(0, [2])]
        for sets in map(Own, rows), iter(rows), (Subset(Own([one]), range(1)) for one in rows):
            self.assertEqual(len({digest(one, None) for one in sets}), len(rows))
        many = [[i, [str(i)] * 3] for i in range(200_000)]
        kept = digest(Own(many), None)
        many[0] = [0, ["1"] * 3]
        self.assertNotEqual(digest(Own(many), None), kept)

    def test_what_tables_of_pandas_hold_shows(self):
        def table(columns, rows):
            return Table(columns, numpy.array(rows, object))

        with mock.patch.dict(sys.modules, {"pandas": types.SimpleNamespace(DataFrame=Table, Series=Column)}):
            sets = [table("ab", [[1, "x"], [2, "y"]]), table("ab", [[1, "x"], [2, "z"]]),
                    table("ac", [[1, "x"], [2, "y"]]), Column(numpy.arange(4)), Column(numpy.arange(1, 5))]
            self.assertEqual(len({digest(Own(one), None) for one in sets}), len(sets))
            self.assertEqual(digest(Own(table("ab", [[1, "x"], [2, "y"]])), None), digest(Own(sets[0]), None))

    def test_what_data_sets_of_hugging_face_hold_shows(self):
        def rows(other=None):
            made = [{"text": f"row {i}", "label": i % 3} for i in range(100)]
            return made if other is None else made[:other] + [{"text": "another", "label": 0}] + made[other + 1:]

        with mock.patch.dict(sys.modules, {"datasets": types.SimpleNamespace(Dataset=Arrow)}):
            sets = [rows(), rows(57), rows()[::-1], rows()[1:], [{"words": row["text"]} for row in rows()], []]
            self.assertEqual(len({digest(Arrow(one), None) for one in sets}), len(sets))
            self.assertEqual(digest(Arrow(rows()), None), digest(Arrow(rows(), "torch"), None))
            self.assertNotEqual(digest(Subset(Arrow(rows()), [57]), None), digest(Subset(Arrow(rows(57)), [57]), None))
            # Of many rows some are read.
            many = Arrow([{"number": i} for i in range(200000)])
            with mock.patch("rubato.digest._of_list", wraps=_of_list) as read:
                digest(many, None)
            self.assertLessEqual(len(read.call_args_list[0][0][0][2]), 65536)
            # Of large ones as many as fit into as many bytes.
            large = Arrow([{"image": "x" * (1 << 20)}] * 40)
            with mock.patch("rubato.digest._of_list", wraps=_of_list) as read:
                digest(large, None)
            self.assertLessEqual(len(read.call_args_list[0][0][0][2]), 16)

    def test_what_may_differ_from_process_to_process_does_not_show(self):
        # Objects, and what a data set holds by a name of its own: folders, ranks, times.
        for one, other in ((object(), object()), ([object(), 1], [object(), 1]), ("/data", "/mnt"), (0, 1), (0.5, 1.5),
                           (None, 1), ([], [object()]), (b"a", b"b"), ({}, set()),
                           ({"rank": 0, "to": "/a"}, {"rank": 1, "to": "/b"}),
                           (Row(0, {"rank": 0}), Row(1, {"rank": 1}))):
            self.assertEqual(digest(Own(one), None), digest(Own(other), None), (one, other))
        # The order of sets, and of what is made of them.
        self.assertEqual(digest({"a": 1, "b": [2]}, None), digest({"b": [2], "a": 1}, None))
        text = "import torch; from rubato.digest import digest; print(digest([{'ab', 'cd', 'ef'}, '\xe4'], None))"
        found = {subprocess.run([sys.executable, "-c", text], text=True, check=True, capture_output=True,
                                env={**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": locale, "PYTHONPATH": sys.path[1]}
                                ).stdout for seed, locale in (("1", "C"), ("2", "C.UTF-8"), ("3", "POSIX"))}
        self.assertEqual(len(found), 1, found)
        # The bytes between the fields of an array, which mean nothing.
        memory = numpy.zeros(32, numpy.uint8), numpy.full(32, 255, numpy.uint8)
        arrays = [one.view(numpy.dtype("i1,f8", align=True)) for one in memory]
        for array in arrays:
            array["f0"], array["f1"] = 1, 2.5
        self.assertEqual(*(digest(Own(array), None) for array in arrays))
        held = []
        held.append(held)
        self.assertEqual(digest(Own(held), None), digest(Own(held), None))

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
        self.assertEqual(sum(map(len, digests._pieces(x, digests._MOST))), digests._MOST)
        self.assertEqual(sum(map(len, digests._pieces(x[:1000], digests._MOST))), 1000)
        self.assertEqual(sum(map(len, digests._pieces(x, 1000))), 1000)

    def test_of_large_sets_the_length_shows_alone(self):
        many = range(1 << 17)
        for kind in set, dict.fromkeys:
            kept = digest(Own(kind(many)), None)
            self.assertEqual(digest(Own(kind(-number for number in many)), None), kept)
            self.assertNotEqual(digest(Own(kind(many[1:])), None), kept)

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
