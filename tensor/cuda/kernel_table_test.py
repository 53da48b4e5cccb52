#!/usr/bin/env python3
"""That no kernel spills registers, and that what nvcc makes of kernels is what is written down."""

import difflib
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../tests'))
import skipped

FOLDER = 'tensor/cuda/'


def lines_of(name):
    with open(FOLDER + name) as file:
        return file.read().splitlines()


class KernelTable(unittest.TestCase):
    MADE, WRITTEN = lines_of('kernel_table.made.txt'), lines_of('kernel_table.txt')

    def test_that_nothing_is_spilled(self):
        rows = self.MADE[2:]
        self.assertGreater(len(rows), 100)
        for row in rows:
            cells = re.findall(r' (\d+) +(\d+) +(\d+)', row[57:])
            self.assertEqual(len(cells), len(re.findall('sm_', self.MADE[1])), row)
            self.assertTrue(all(int(spilled) == 0 for _, spilled, _ in cells), row)

    # Another nvcc makes other code, of which nothing is written down.
    def test_that_it_is_what_is_written_down(self):
        version = self.MADE[0].split(':')[0]
        if version != self.WRITTEN[0].split(':')[0]:
            self.skipTest(f'found {version}, and the table is of {self.WRITTEN[0].split(":")[0]}')
        changes = list(difflib.unified_diff(self.WRITTEN, self.MADE, 'kernel_table.txt', 'made now',
                                            lineterm='', n=0))
        self.assertFalse(changes, '\n'.join(changes) + '\nIf that is meant: cp -f '
                         'bazel-bin/tensor/cuda/kernel_table.made.txt tensor/cuda/kernel_table.txt')


if __name__ == '__main__':
    skipped.run_cases()
