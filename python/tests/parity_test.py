"""A script with Rubato ends where the same script ends without it, in float64; and bits do not depend on the cluster.

Usage: parity_test.py RUBATO   (the binary). Needs Debian's python3-torch; skipped without it. With TEST_DEVICE=cuda the
scripts' models are on a GPU.
"""

import json
import os
import shutil
import signal
import subprocess
import time
import unittest

from programs import PROGRAMS, PYTHON, TRAIN, WithPrograms, need_torch
from skipped import run_cases

need_torch("ParityTest", "EndsWherePyTorchEnds")
import torch

TOLERANCE = 5e-7  # of float32 against float64, over 20 steps
HALVES = 2e-3  # of two scripts with products in half floats
DRAWS = ("--model=noisy", "--shuffle", "--augment", "--samples=152")  # in every way
ON_GPU = os.environ.get("TEST_DEVICE") == "cuda"


class ParityTest(WithPrograms):
    def alone(self, *arguments):
        """The lines that a script prints, which is started by itself."""
        done = subprocess.run([PYTHON, TRAIN, *arguments], cwd=self.folder, env=self.environment, text=True,
                              capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def compare(self, *arguments, tolerance=TOLERANCE):
        found = self.alone("--out", "found.pt", *arguments)
        expected = self.alone("--plain", "--out", "expected.pt",
                              *(a for a in arguments if a not in ("--mode=async", "--range")))
        self.check("found.pt", tolerance, *arguments)
        for one, other in zip(found[:-1], expected[:-1]):
            self.assertAlmostEqual(one["test"]["loss"], other["test"]["loss"], delta=10 * tolerance)

    def check(self, file, tolerance, *arguments):
        """The file has what expected.pt has."""
        a, b = (torch.load(self.folder / name, map_location="cpu") for name in (file, "expected.pt"))
        # Batches are counted by this worker alone.
        a = {name.replace("_orig_mod.", ""): value for name, value in a.items() if "num_batches" not in name}
        self.assertEqual(set(a), set(b))
        # torch leaves alone what has no gradient; at the servers that counts as zero, and decays.
        names = [name for name in b if "unused" not in name]
        a, b = (torch.cat([values[name].double().flatten() for name in names]) for values in (a, b))
        difference = ((a - b).norm() / b.norm()).item()
        print(arguments, difference)
        self.assertLessEqual(difference, tolerance, arguments)

    def test_each_optimizer(self):
        for optimizer in ("sgd", "adam", "adamw", "adagrad", "rmsprop"):
            with self.subTest(optimizer):
                self.compare(f"--optimizer={optimizer}")
                self.compare(f"--optimizer={optimizer}", "--mode=async", "--schedule")

    def test_an_odd_model(self):
        for optimizer in ("sgd", "adam", "adagrad"):
            with self.subTest(optimizer):
                self.compare("--model=odd", f"--optimizer={optimizer}")
                self.compare("--model=odd", f"--optimizer={optimizer}", "--mode=async")

    def test_clipping_and_a_short_last_batch(self):
        self.compare("--clip=0.3", "--samples=75", "--range")
        self.compare("--clip=0.3", "--mode=async", "--optimizer=adam")  # whose short batch has a lower rate

    def test_a_sum_for_a_loss(self):
        for arguments in ["--clip=3"], ["--parts=4", "--clip=3"], ["--parts=4", "--overlap"], ["--mode=async"]:
            with self.subTest(arguments):
                self.compare("--optimizer=sgd_plain", "--samples=75", "--sum", *arguments)

    def test_micro_batches_that_count_by_their_tokens(self):
        # The plain script's mean is over the whole batch, whatever is ignored in its parts.
        for arguments in ([], ["--clip=0.1"], ["--mode=async", "--clip=0.1", "--optimizer=adam"]):
            with self.subTest(arguments):
                self.compare("--ignore", "--parts=4", *arguments)

    def test_autocast(self):
        # Of float32 parameters in both scripts; a last bit of one may round a product the other way.
        self.compare("--amp=bfloat16", "--optimizer=adam", tolerance=HALVES)
        if ON_GPU:
            self.compare("--amp=float16", "--optimizer=adam", tolerance=HALVES)

    @unittest.skipUnless(ON_GPU, "on a GPU alone")
    def test_what_scripts_of_gpus_do(self):
        self.compare("--resident", "--optimizer=adamw")
        self.compare("--pin", "--workers=2")
        self.compare("--compile", "--optimizer=adamw")
        self.compare("--compile", "--overlap")

    def test_averages_once_a_step(self):
        # As docs/pytorch.md writes them, where the plain script has them behind optimizer.step().
        self.compare("--ema")
        self.compare("--ema", "--parts=4")
        self.train(1, 2, "--ema", "--out=found.pt", draws=())
        for rank in 0, 1:
            self.check(f"found.pt{rank}", TOLERANCE, "two workers")

    def train(self, servers, workers, *arguments, draws=DRAWS, kill=None, processes=2, **settings):
        """The summary of a run of that cluster. All its workers end with the same parameters."""
        run = self.folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        job = {"version": 1, "name": "bits", "seed": 3,
               "script": [PYTHON, TRAIN, *draws, "--parts=4", f"--workers={processes}", *arguments],
               "cluster": {"servers": servers, "workers": workers, "address": "127.0.0.1:0"},
               "train": {"batch_size": 16, "micro_batches": 4, "until": {"epochs": 4}}, **settings}
        (self.folder / "job.yaml").write_text(json.dumps(job))
        train = subprocess.Popen([str(self.folder / "bin" / "rubato"), "train", "job.yaml", "--run-dir", "run"],
                                 cwd=self.folder, env=self.environment, text=True, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT)
        if kill is not None:
            kill(run, train)
        output = train.communicate()[0]
        self.assertEqual(train.returncode, 0, output)
        digests = [json.loads(line)["digest"] for log in (run / "logs").glob("worker-*.log")
                   for line in log.read_text().splitlines() if '"digest"' in line]
        self.assertEqual(len(digests), workers, output)
        self.assertEqual(len(set(digests)), 1, digests)
        return json.loads((run / "summary.json").read_text())

    def test_bits_do_not_depend_on_the_cluster(self):
        digests = {(servers, workers): self.train(servers, workers)["digest"]
                   for servers, workers in ((1, 1), (1, 2), (3, 1), (3, 4))}
        digests["no loader processes"] = self.train(1, 2, processes=0)["digest"]
        # Whose gradients are pushed from memory of rubato-worker above, and here are not.
        digests["blocks that are not lent"] = self.train(1, 2, wire={"chunk": 128})["digest"]
        self.assertEqual(len(set(digests.values())), 1, digests)

    def test_bits_of_weights_do_not_depend_on_the_cluster(self):
        digests = {(servers, workers): self.train(servers, workers, "--ignore", "--clip=0.1")["digest"]
                   for servers, workers in ((1, 1), (3, 4))}
        self.assertEqual(len(set(digests.values())), 1, digests)

    def test_bits_do_not_depend_on_overlap(self):
        chunk = {"wire": {"chunk": 128}}  # 10 blocks
        expected = self.train(1, 1, **chunk)["digest"]
        for servers, workers in (1, 1), (2, 2):
            self.assertEqual(self.train(servers, workers, "--overlap", **chunk)["digest"], expected)
        # What has left of a micro-batch whose backward broke does not count twice.
        self.assertEqual(self.train(2, 1, "--overlap", "--breaks=raise", **chunk)["digest"], expected)
        (self.folder / "broken").unlink()
        killed = self.train(2, 2, "--overlap", "--breaks=kill", "--slow=0.02", "--gathers=2", **chunk)
        self.assertEqual((killed["workers_lost"], killed["digest"]), (1, expected))
        (self.folder / "broken").unlink()

    def test_bits_do_not_depend_on_who_adds(self):
        # A GPU's script adds up the gradients of micro-batches, in the order of the tree; else rubato-worker does.
        for arguments in [], ["--ignore", "--clip=0.1"]:
            expected = self.train(1, 1, *arguments)["digest"]
            for servers, workers in (1, 1), (2, 3):
                self.assertEqual(self.train(servers, workers, "--no-gpu", *arguments)["digest"], expected)
        expected = self.train(1, 1)["digest"]
        chunk = {"wire": {"chunk": 128}}
        for servers, workers in (1, 1), (2, 2):
            self.assertEqual(self.train(servers, workers, "--no-gpu", "--overlap", **chunk)["digest"], expected)
        # A micro-batch that is repeated counts once, and sums of a worker that dies do not.
        self.assertEqual(self.train(1, 1, "--no-gpu", "--breaks=raise")["digest"], expected)
        (self.folder / "broken").unlink()
        killed = self.train(1, 2, "--no-gpu", "--breaks=kill", "--slow=0.02", "--gathers=2")
        self.assertEqual((killed["workers_lost"], killed["digest"]), (1, expected))
        (self.folder / "broken").unlink()

    def test_overlap_with_what_is_of_servers(self):
        for arguments in (["--model=odd", "--optimizer=adamw"], ["--clip=0.1", "--optimizer=adam", "--schedule"],
                          ["--clip=0.1", "--mode=async"]):
            with self.subTest(arguments):
                digests = {self.alone(*arguments, *overlap)[-1]["digest"] for overlap in ([], ["--overlap"])}
                self.assertEqual(len(digests), 1)

    def test_bits_do_not_depend_on_deaths(self):
        def kill(run, train):
            """Worker 0, in the second epoch."""
            log = run / "logs" / "worker-0.log"
            while train.poll() is None and not (log.exists() and '"epoch": 0' in log.read_text()):
                time.sleep(0.01)
            pid = next(int(line.split("=")[1]) for line in log.read_text().splitlines() if line.startswith("pid="))
            os.kill(pid, signal.SIGKILL)

        undisturbed = self.train(1, 2)
        disturbed = self.train(1, 2, "--slow=0.05", "--gathers=2", kill=kill)
        self.assertEqual(disturbed["workers_lost"], 1)
        self.assertEqual(undisturbed["digest"], disturbed["digest"])


run_cases()
