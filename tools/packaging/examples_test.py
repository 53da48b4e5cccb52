#!/usr/bin/python3 -B
"""The examples of an installation are found from anywhere: configs/... beside the programs."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest


class ExamplesTest(unittest.TestCase):

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        self.addCleanup(shutil.rmtree, self.folder)
        for folder in ("usr/bin", "usr/share/rubato/configs", "home/configs"):
            (self.folder / folder).mkdir(parents=True)
        for program in ("rubato", "rubato-tools"):
            shutil.copy(f"tools/{program}", self.folder / "usr/bin")
        shutil.copy("configs/quickstart.yaml", self.folder / "usr/share/rubato/configs")

    def say(self, *arguments):
        return subprocess.run([self.folder / "usr/bin/rubato", *arguments], text=True,
                              cwd=self.folder / "home", stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)

    def test_an_installed_example_is_found(self):
        said = self.say("train", "configs/quickstart.yaml", "--dry-run")
        self.assertEqual(said.returncode, 0, said.stdout)
        self.assertIn("name: quickstart", said.stdout)
        said = self.say("render", "kubernetes", "configs/quickstart.yaml", "--image", "x")
        self.assertEqual(said.returncode, 0, said.stdout)
        self.assertIn("name: quickstart", said.stdout)

    def test_a_file_where_one_stands_goes_first(self):
        job = (self.folder / "usr/share/rubato/configs/quickstart.yaml").read_text()
        mine = job.replace("name: quickstart ", "name: mine ")
        (self.folder / "home/configs/quickstart.yaml").write_text(mine)
        said = self.say("train", "configs/quickstart.yaml", "--dry-run")
        self.assertIn("name: mine", said.stdout)

    def test_other_names_are_not_looked_for(self):
        for name in ("configs/none.yaml", "quickstart.yaml", "./configs/quickstart.yaml"):
            said = self.say("simulate", name)
            self.assertEqual(said.returncode, 2)
            self.assertTrue(said.stdout.startswith(f"error: {name}: "), said.stdout)


if __name__ == "__main__":
    unittest.main()
