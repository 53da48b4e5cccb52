#!/usr/bin/python3 -B
"""docs/reference is what is made from the declarations now, and misses none of them."""

import pathlib
import re
import sys
import unittest

sys.path.insert(0, "tools/reference")
import make_reference

sys.path.insert(0, "python")
from rubato import figures

SCHEMA = sys.argv.pop()
PROTO = pathlib.Path("proto/job.proto")


class ReferenceTest(unittest.TestCase):

    maxDiff = 2000

    @classmethod
    def setUpClass(cls):
        cls.pages = make_reference.pages(pathlib.Path("."), SCHEMA)

    def test_the_pages_are_those_that_are_made_now(self):
        folder = pathlib.Path("docs/reference")
        self.assertEqual(sorted(path.name for path in folder.iterdir()), sorted(self.pages))
        for name, text in self.pages.items():
            self.assertEqual((folder / name).read_text(), text,
                             f"{name}: `bazel run //tools/reference:write` makes it anew")

    # Read by another rule than the page's: every line of the schema that declares a field.
    def test_every_key_of_the_schema_has_a_row(self):
        declared = re.findall(r"^  +(?:optional |repeated )?[\w.]+ (\w+) = \d+\b(?! \[\(refused)",
                              re.sub(r"enum \w+ \{.*?\}", "", PROTO.read_text(), flags=re.DOTALL),
                              re.MULTILINE)
        rows = re.findall(r"^\| `(\w+)` \|", self.pages["keys.md"], re.MULTILINE)
        self.assertGreater(len(declared), 150)
        for key in set(declared) - {"mode"}:
            self.assertLessEqual(declared.count(key), rows.count(key), key)

    def test_every_verb_and_flag_has_its_line(self):
        for flag in ("--resume", "--shard", "--rank", "--speeds", "--image", "--codec", "--mode"):
            self.assertIn(f"\n  {flag} ", self.pages["commands.md"])
        self.assertIn("## rubato bench convergence\n", self.pages["commands.md"])

    def test_every_exit_code_of_the_code_is_told(self):
        for code in ("0", "1", "2", "129", "130", "143"):
            self.assertIn(f"\n| `{code}` | ", self.pages["run_folder.md"])

    # A script's package says of a figure that the job does not take that it is the script's alone.
    def test_scripts_know_which_names_lines_of_metrics_have(self):
        names = re.findall(r"^\| `(\w+)` \|", self.pages["metrics.md"], re.MULTILINE)
        self.assertEqual(figures._FIELDS, {"kind", "split", "mode", *names})
        self.assertEqual(figures._MOST, int(re.search(
            r"kMostOthers = (\d+);", pathlib.Path("server/run/figures.h").read_text())[1]))


if __name__ == "__main__":
    unittest.main()
