"""Jobs and checkpoints of earlier versions (tests/data) are read by this one.

Usage: versions_test.py RUBATO   (the binary)
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

RUBATO = os.path.abspath(sys.argv.pop(1))
VERSIONS = sorted(pathlib.Path("tests/data").resolve().glob("v*"))


class VersionsTest(unittest.TestCase):

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        self.addCleanup(shutil.rmtree, self.folder)

    def rubato(self, *words):
        done = subprocess.run([RUBATO, *words], cwd=self.folder, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def old(self):
        """Each version's folder, copied to where it may be written, and its checkpoints."""
        self.assertGreater(len(VERSIONS), 0)
        for version in VERSIONS:
            shutil.copytree(version, self.folder / version.name)
            digests = dict(line.split() for line in (version / "digests.txt").read_text().splitlines())
            self.assertEqual(sorted(digests), sorted(path.name for path in
                                                     (version / "checkpoints").iterdir()))
            yield version.name, digests

    # Each of the job's keys has the value that the version gave it, its default included; keys that
    # have come since are none of its.
    def test_a_job_file_means_what_it_meant(self):
        for name, digests in self.old():
            resolved = self.folder / name / "checkpoints" / min(digests) / "job.yaml"
            meant = self.values(resolved.read_text())
            self.assertGreater(len(meant), 40)
            shown = self.values(self.rubato("train", f"{name}/job.yaml", "--dry-run"))
            self.assertEqual([pair for pair in meant if pair not in shown], [])

    @staticmethod
    def values(job):
        pairs = re.findall(r"(\w+): ([^\s{}\[\],][^{}\[\],\n]*)", re.sub("#.*", "", job))
        return [(key, value.strip()) for key, value in pairs if key not in ("path", "address")]

    def test_a_checkpoint_has_the_parameters_that_it_had(self):
        for name, digests in self.old():
            for checkpoint, digest in digests.items():
                shown = self.rubato("inspect", f"{name}/checkpoints/{checkpoint}")
                self.assertIn(f"digest: {digest}\n", shown)

    def test_a_job_goes_on_from_it(self):
        for name, digests in self.old():
            for checkpoint in digests:
                manifest = json.loads(
                    (self.folder / name / "checkpoints" / checkpoint / "manifest.json").read_text())
                run = f"{name}-{checkpoint}"
                self.rubato("train", f"{name}/job.yaml", "--run-dir", run, "--resume",
                            f"{name}/checkpoints/{checkpoint}")
                summary = json.loads((self.folder / run / "summary.json").read_text())
                self.assertEqual(summary["samples"], 160 * 16)  # of the whole training
                lines = [json.loads(line) for line in
                         (self.folder / run / "metrics.jsonl").read_text().splitlines()]
                begin = int(manifest["samples"])
                self.assertGreaterEqual(min(line["samples"] for line in lines), begin)
                # The model goes on where it was: with parameters of a new seed, or without the
                # optimizer's state, it would need as many steps again.
                first = next(line for line in lines if line["kind"] == "train")
                self.assertLess(first["loss"], 0.3)
                self.assertLess(summary["test_loss"], 0.08)


if __name__ == "__main__":
    unittest.main()
