"""`rubato bench convergence` of a script, in real processes.

Usage: convergence_test.py RUBATO   (the binary). Needs Debian's python3-torch; skipped without it.
"""

import json
import os
import signal
import subprocess
import unittest

from programs import HERE, PROGRAMS, PYTHON, WithPrograms, need_torch
from skipped import run_cases

need_torch("ConvergenceTest", "Run")

SCRIPT = """
import os
import torch, torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
import rubato

job = rubato.join()
torch.manual_seed(1)
x = torch.randn(200, 8)
y = (x[:, 0] + x[:, 1] > 0).long()
torch.manual_seed(job.seed)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(x, y), batch_size=20, shuffle=True)
model, optimizer, loader = job.prepare(model, optimizer, loader)
def test():
    accuracy = (model(x).argmax(1) == y).double().mean().item()
    print("found", accuracy, flush=True)
    return {os.environ.get("FIGURE", "accuracy"): accuracy}
for epoch in job.epochs():
    model.train()
    for a, b in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(a), b)
        loss.backward()
        optimizer.step()
        job.log(loss=loss)
    job.evaluate(test)
"""
JOB = f"""version: 1
name: net
script: [{PYTHON}, train.py]
cluster: {{workers: 2}}
train: {{batch_size: 20, micro_batches: 2, until: {{epochs: 5}}}}
"""
TARGET = 0.8


class ConvergenceTest(WithPrograms):
    def setUp(self):
        super().setUp()
        (self.folder / "bin" / "rubato-tools").symlink_to(f"{PROGRAMS[0]}-tools")
        (self.folder / "train.py").write_text(SCRIPT)
        (self.folder / "job.yaml").write_text(JOB)
        # No browser, whose pictures take longer than all the rest.
        self.environment.update(PATH="", PYTHONPATH=str(HERE.parent))

    def start(self, *flags, **variables):
        command = [PROGRAMS[0], "bench", "convergence", "job.yaml", "--mode", "sync", "--mode", "async", "--target",
                   f"eval/accuracy={TARGET}", "--seeds", "2", *flags]
        return subprocess.Popen(command, cwd=self.folder, env={**self.environment, **variables}, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def study(self, *flags, code=0, **variables):
        """What it prints."""
        study = self.start(*flags, **variables)
        output, errors = study.communicate()
        self.assertEqual(study.returncode, code, output + errors)
        return output + errors

    def crossing(self, run, is_sync):
        """Samples at the target, on the line between two of the figures that the script has printed."""
        found = [float(line.split()[1]) for log in run.glob("logs/worker-*.log")
                 for line in log.read_text().splitlines() if line.startswith("found ")]
        metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        # Two workers may test beside each other, so the result of a later test may come first.
        tests = sorted((line["samples"], line["accuracy"]) for line in metrics if line["kind"] in ("eval", "test"))
        self.assertEqual(tests[-1][0], 1000)
        for due, (samples, _) in zip((200, 400, 600, 800, 1000), tests, strict=True):
            # On arrival other contributions may be under way when one is tested, or more have come.
            self.assertLessEqual(abs(samples - due), 0 if is_sync else 100)
        self.assertEqual(set(accuracy for _, accuracy in tests) - set(found), set())
        before = (0, None)
        for samples, accuracy in tests:
            if accuracy >= TARGET:
                share = 1 if before[1] is None else (TARGET - before[1]) / (accuracy - before[1])
                return before[0] + share * (samples - before[0]), tests[-1][1]
            before = samples, accuracy
        return None, tests[-1][1]

    def test_judges_what_the_script_has_found(self):
        with self.start("--processes", "--out", "study") as broken:
            for _ in range(2):  # too few seeds, and the first run is done
                broken.stderr.readline()
            broken.send_signal(signal.SIGKILL)
        self.assertIn("of 4 cells are done already", self.study("--processes", "--out", "study"))
        study = self.folder / "study"
        results = [json.loads(line) for line in (study / "results.jsonl").read_text().splitlines()]
        self.assertEqual([(line["mode"], line["seed"]) for line in results],
                         [("sync", 0), ("sync", 1), ("async", 0), ("async", 1)])
        for line in results:
            samples, last = self.crossing(
                study / "cells" / f"{line['mode']}-w2-s{line['seed']}", line["mode"] == "sync")
            self.assertTrue(line["reached"], line)
            self.assertAlmostEqual(line["samples"], samples)
            self.assertEqual(line["last"], last)
            self.assertIsNone(line["test"])
        # The script takes the job's seed, and has the same bits by hand.
        self.assertNotEqual(results[0]["digest"], results[1]["digest"])
        dry = self.study("--processes", "--dry-run").splitlines()
        command = next(line for line in dry if "{mode: sync}" in line and "seed=1" in line)
        subprocess.run(f"{PROGRAMS[0]}{command[len('rubato'):]} --run-dir again", shell=True, cwd=self.folder,
                       env={**self.environment, "PATH": "/usr/bin:/bin"}, check=True, capture_output=True)
        again = json.loads((self.folder / "again" / "summary.json").read_text())
        self.assertEqual(again["digest"], results[1]["digest"])
        report = (study / "report.md").read_text()
        self.assertIn("In real processes of one machine: not delayed.", report)
        self.assertIn("a test of the script takes the time of the worker that runs it.", report)
        self.assertIn("each run is tested where the script calls job.evaluate.", (study / "report.html").read_text())
        self.assertFalse((study / "calibration.json").exists())
        for line in (study / "measured.jsonl").read_text().splitlines():
            measured = json.loads(line)
            own = measured["cpu_seconds"] / measured["wall_seconds"] / os.cpu_count()
            self.assertGreater(own, 0)
            self.assertGreaterEqual(measured["busy"], 0.99 * own)
            self.assertLessEqual(measured["busy"], 1)
        # Its files are what is compared.
        (self.folder / "train.py").write_text(SCRIPT + "print('done')\n")
        self.assertIn("error: study holds another study", self.study("--processes", "--out", "study", code=2))

    def test_tests_within_epochs(self):
        (self.folder / "train.py").write_text(SCRIPT.replace("    job.evaluate(test)", "").replace(
            "job.log(loss=loss)", "job.log(loss=loss)\n        if (job.step + 1) % 5 == 0: job.evaluate(test)"))
        self.study("--processes", "--seeds", "1", "--out", "study", "--set", "evaluation.every.steps=5")
        for mode in "sync", "async":
            metrics = self.folder / "study" / "cells" / f"{mode}-w2-s0" / "metrics.jsonl"
            lines = [json.loads(line) for line in metrics.read_text().splitlines()]
            steps = sorted(line["step"] for line in lines if line["kind"] == "eval")
            if mode == "sync":
                self.assertEqual(steps, list(range(5, 50, 5)))
            else:  # where it is due, but for what is under way then
                self.assertIn(len(steps), range(1, 10))
                self.assertGreaterEqual(steps[0], 3)

    def test_a_test_without_the_targets_metric_is_named(self):
        printed = self.study("--processes", "--seeds", "1", "--out", "study", code=1, FIGURE="loss")
        self.assertIn("sync-w2-s0 failed: the run has no eval/accuracy before its end: expected that job.evaluate is "
                      "called where evaluation.every says, and that its test returns accuracy", printed)
        self.assertIn("2 of 2 cells failed", printed)

    def test_a_target_is_any_figure_of_the_scripts_test(self):
        self.study("--processes", "--seeds", "1", "--out", "most", "--target", "eval/f1,at_most=0.99", FIGURE="f1")
        self.study("--processes", "--seeds", "1", "--out", "least", "--target", "eval/f1,at_least=2", FIGURE="f1")
        for study, reached in ("most", True), ("least", False):
            for line in (self.folder / study / "results.jsonl").read_text().splitlines():
                line = json.loads(line)
                run = self.folder / study / "cells" / f"{line['mode']}-w2-s0" / "metrics.jsonl"
                tests = [json.loads(text) for text in run.read_text().splitlines()]
                values = [test["f1"] for test in sorted(tests, key=lambda test: test["samples"])
                          if test["kind"] in ("eval", "test")]
                self.assertIs(line["reached"], reached)
                self.assertEqual(line["best"], (min if study == "most" else max)(values))
                self.assertEqual(line["last"], values[-1])
        report = (self.folder / "most" / "report.md").read_text()
        self.assertIn("Which mode reaches eval/f1 of at most 0.99 first", report)

    def test_says_before_it_runs_what_cannot_work(self):
        for flags, sentence in (
                ([], "the job's model is a script's, whose gradients cannot be simulated: add --processes"),
                (["--processes", "--learning-rates", "0.1,0.2"], "--learning-rates: found 0.1,0.2, expected none"),
                (["--processes", "--set", "train.until.epochs=1"], "evaluation.every: a run would be tested at"),
                (["--processes", "--set", f"script=[{PYTHON}, none.py]"], "script: found no file none.py")):
            self.assertIn(f"error: {sentence}", self.study("--out", "refused", *flags, code=2))
            self.assertFalse((self.folder / "refused").exists())


if __name__ == "__main__":
    run_cases()
