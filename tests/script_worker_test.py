"""Jobs whose workers are a script: numbers, bits, deaths and refusals, by `rubato train`."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import safetensors_file
import script_worker
from skipped import run_cases

RUBATO = os.path.abspath(sys.argv[1])
SCRIPT = os.path.abspath(script_worker.__file__)
JOB = """version: 1
name: script
seed: 3
cluster: {servers: 2, workers: 2}
script: [/usr/bin/python3, %s]
train: {batch_size: 8, micro_batches: 4, until: {epochs: 3}}
wire: {chunk: 64}
metrics: {every: {steps: 1}}
log: {format: text}
""" % SCRIPT
STEPS = 9


def reference(order, weighted=False):
    """The values in the end, in double precision, by the samples of each step."""
    features, targets = script_worker.data()
    values, momentum = script_worker.initial(), None
    for step, samples in enumerate(order):
        total, _ = script_worker.gradient(values, samples, features, targets)
        weight = len(samples)
        if weighted:
            total, _, weight = script_worker.weighted(values, samples, features, targets)
        mean = [g / weight for g in total]
        momentum = mean if momentum is None else [
            script_worker.MOMENTUM * m + g for m, g in zip(momentum, mean)]
        rate = script_worker.RATE * (1 if step < 2 else 0.5)
        values = [w - rate * m for w, m in zip(values, momentum)]
    return values


class ScriptWorkerTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        (self.path / "job.yaml").write_text(JOB)

    def train(self, name, *settings, variables=None, code=0, resume=None, flags=()):
        """The run's folder; what was printed is in self.printed."""
        run = self.path / name
        command = [RUBATO, "train", str(self.path / "job.yaml"), "--run-dir", str(run), *flags]
        for setting in settings:
            command += ["--set", setting]
        if resume is not None:
            command += ["--resume", str(resume)]
        done = subprocess.run(command, cwd=self.path, env={**os.environ, **(variables or {})},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=120)
        self.printed = done.stdout
        self.assertEqual(done.returncode, code, done.stdout)
        return run

    def summary(self, run):
        return json.loads((run / "summary.json").read_text())

    def values(self, run):
        return self.values_of(run / "parameters.safetensors")

    def values_of(self, file):
        tensors = safetensors_file.read(file)
        return [value for name in ("w", "b") for value in tensors[name][1]]

    def test_trains_by_the_formula_in_double_precision(self):
        self.train_by_the_formula("samples", weighted=False)

    def test_micro_batches_count_by_their_weights(self):
        self.train_by_the_formula("weights", weighted=True)
        digests = {self.summary(self.train(f"weights-{workers}-{servers}",
                                           f"cluster.workers={workers}",
                                           f"cluster.servers={servers}",
                                           variables={"SCRIPT_WEIGHTS": "1"}))["digest"]
                   for workers, servers in ((1, 1), (2, 2), (4, 1))}
        self.assertEqual(len(digests), 1)

    def train_by_the_formula(self, name, weighted):
        trace = self.path / f"trace-{name}"
        variables = {"SCRIPT_TRACE": str(trace), **({"SCRIPT_WEIGHTS": "1"} if weighted else {})}
        run = self.train(name, "cluster.workers=1", "cluster.servers=1", variables=variables)
        steps = {}
        for line in trace.read_text().splitlines():
            work = json.loads(line)
            if work["kind"] == "work":
                steps.setdefault(work["unit"], []).extend(work["samples"])
        self.assertEqual(len(steps), STEPS)
        for epoch in range(3):
            seen = sum((steps[3 * epoch + i] for i in range(3)), [])
            self.assertEqual(sorted(seen), list(range(script_worker.SAMPLES)))
        expected = reference([steps[unit] for unit in sorted(steps)], weighted)
        found = self.values(run)
        difference = sum((a - b) ** 2 for a, b in zip(found, expected)) ** 0.5
        self.assertLess(difference / sum(b * b for b in expected) ** 0.5, 5e-7)

    def test_all_workers_have_the_final_parameters(self):
        for mode in ("sync", "async"):
            run = self.train(f"final-{mode}", f"consistency={mode}", "cluster.workers=4")
            found = [json.loads(path.read_text()) for path in run.glob("final-*")]
            self.assertEqual(len(found), 4)
            for values in found:
                self.assertEqual(values, self.values(run))

    def test_where_nothing_is_tested_nothing_is_said(self):
        run = self.train("untested", variables={"SCRIPT_TESTS": "0"})
        self.assertIsNone(self.summary(run)["test_loss"])
        self.assertNotIn("nan", self.printed)
        self.assertNotIn("test_loss", self.printed)
        kinds = {json.loads(line)["kind"] for line in (run / "metrics.jsonl").read_text().splitlines()}
        self.assertEqual(kinds & {"eval", "test"}, set())

    def test_the_log_says_how_long_it_will_take(self):
        self.train("left")
        self.assertIn("seconds_left=", self.printed)

    def test_tests_are_told_where_they_are_due(self):
        run = self.train("tests")
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        evals = [(line["step"], line["loss"]) for line in lines if line["kind"] == "eval"]
        self.assertEqual(evals, [(3, 1.0), (6, 2.0)])
        self.assertEqual(self.summary(run)["test_loss"], 0.5)
        self.assertEqual(self.summary(run)["test_accuracy"], 0.25)

    def test_the_cluster_changes_no_bit(self):
        digests = {self.summary(self.train(f"{workers}-{servers}", f"cluster.workers={workers}",
                                           f"cluster.servers={servers}"))["digest"]
                   for workers, servers in ((1, 1), (2, 2), (3, 1), (4, 2))}
        self.assertEqual(len(digests), 1)

    def test_parameters_change_only_when_the_script_has_asked(self):
        # The next ones come before that.
        digests = {self.summary(self.train(f"pause-{pause}", variables={"SCRIPT_PAUSE": pause}))["digest"]
                   for pause in ("0", "0.02")}
        self.assertEqual(len(digests), 1)
        self.train("pause-async", "consistency=async", variables={"SCRIPT_PAUSE": "0.02"})

    def test_deaths_change_no_bit(self):
        undisturbed = self.summary(self.train("undisturbed"))["digest"]
        for who in ("script", "worker"):
            run = self.train(who, variables={"SCRIPT_KILLS": f"{who}:4:{self.path}/once-{who}"})
            self.assertEqual(self.summary(run)["workers_lost"], 1, self.printed)
            self.assertEqual(self.summary(run)["digest"], undisturbed, who)
        for shard in ("0", "1"):  # back to the beginning, whose values the run has
            run = self.train(f"server-{shard}",
                             variables={"SCRIPT_KILLS": f"{shard}:7:{self.path}/once-{shard}"})
            self.assertEqual(self.summary(run)["servers_lost"], 1, self.printed)
            self.assertEqual(self.summary(run)["digest"], undisturbed, shard)

    def test_counts_each_sample_once_on_arrival(self):
        run = self.train("async", "consistency=async",
                         variables={"SCRIPT_KILLS": f"script:4:{self.path}/once"})
        samples = {block["samples"] for block in self.summary(run)["blocks"]}
        self.assertEqual(samples, {3 * script_worker.SAMPLES})

    def test_a_script_is_delayed_as_any_worker(self):
        run = self.train("delayed", flags=["--compute", "20ms", "--speeds", "straggler:factor=3"],
                         variables={"RUBATO_COMPUTE": "1h"})  # another's
        straggler, other = (worker["computing_seconds"] for worker in self.summary(run)["workers"])
        # Of 2 samples each, and at least so long.
        micro_batches = 3 * script_worker.SAMPLES / 2 / 2
        self.assertGreater(straggler, 3 * 0.02 * micro_batches)
        self.assertGreater(other, 0.02 * micro_batches)

    def test_keeps_the_values_that_it_began_with(self):
        run = self.train("initial")
        values = self.values_of(run / "initial.safetensors")
        self.assertEqual(len(values), 5)
        for found, wanted in zip(values, script_worker.initial()):
            self.assertAlmostEqual(found, wanted, places=6)

    def test_a_tensor_without_values_is_written_and_read(self):
        variables = {"SCRIPT_EMPTY": "1"}
        plain = self.values(self.train("plain"))
        for servers in ("1", "2"):
            settings = (f"cluster.servers={servers}", "checkpoint={every: {steps: 3}, keep_last: 9}")
            whole = self.train(f"whole-{servers}", *settings, variables=variables)
            checkpoint = min((whole / "checkpoints").glob("step-*"))
            rest = self.train(f"rest-{servers}", *settings, variables=variables, resume=checkpoint)
            files = [whole / "parameters.safetensors", rest / "parameters.safetensors"]
            for source in (whole, max((rest / "checkpoints").glob("step-*"))):
                files.append(self.path / f"{servers}-{source.name}.safetensors")
                subprocess.run([RUBATO, "export", str(source), str(files[-1])], check=True,
                               stdout=subprocess.DEVNULL)
            for file in files:
                shapes = {name: shape for name, (shape, _) in safetensors_file.read(file).items()}
                self.assertEqual(shapes, {"w": [4], "b": [1], "empty0": [3, 0], "empty1": [3, 0],
                                          "empty2": [3, 0]}, file)
                self.assertEqual(self.values_of(file), plain, file)

    def test_what_is_not_finite_ends_the_job_and_says_where(self):
        self.train("nan", variables={"SCRIPT_NAN": "4"}, code=1)
        self.assertIn("the gradient of w is not finite", self.printed)

    def test_a_weight_that_is_none_is_the_scripts_mistake(self):
        for policy in ("stop", "skip"):
            self.train(f"weight-{policy}", f"train.on_non_finite={policy}",
                       variables={"SCRIPT_WEIGHT": "4:-1"}, code=2)
            self.assertIn("found a micro-batch of weight -1, expected 0 to", self.printed)
            self.assertNotIn("learning rate is too high", self.printed)

    def test_an_error_that_would_come_again_ends_the_job(self):
        for ends, restarts, code in (("-1:1:mine", 0, 1),  # before the training
                                     ("-1:2:mine", 0, 2),
                                     ("4:2:mine", 0, 2),  # refused
                                     ("4:1:mine", 1, 1)):  # twice
            with self.subTest(ends):
                run = self.train(ends, "cluster.workers=1", variables={"SCRIPT_ENDS": ends}, code=code)
                self.assertEqual(self.printed.count("; started again"), restarts, self.printed)
                self.assertIn(f"exited with code {code}: mine", self.printed)
                if ends.startswith("4"):  # and can go on from there
                    self.assertEqual([path.name for path in (run / "checkpoints").iterdir()], ["step-00000004"])

    def test_a_script_that_takes_no_part_is_not_waited_for(self):
        self.train("nothing", "script=['true']", code=2)
        self.assertIn("the script ended without taking part in the job", self.printed)

    def test_one_of_several_that_takes_no_part_is_told_of(self):
        run = self.train("one", "cluster.start_timeout=5s",
                         f"script=[sh, -c, 'test $RUBATO_RANK = 0 && exec /usr/bin/python3 {SCRIPT}; exit 0']")
        self.assertIn("1 of 2 scripts ended without taking part in the job; the others wait for them until 5s "
                      "(cluster.start_timeout) are over", self.printed)
        self.assertEqual(self.summary(run)["steps"], STEPS)

    def test_a_script_that_is_not_to_blame_is_started_again(self):
        self.train("again", "cluster.workers=1", "cluster.max_restarts=2",
                   variables={"SCRIPT_ENDS": "4:75:mine"}, code=1)
        self.assertEqual(self.printed.count("; started again"), 2, self.printed)
        self.assertIn("too few workers", self.printed)

    def test_a_program_that_is_not_there_leaves_no_run(self):
        self.train("none", "script=[no-such-program]", code=2)
        self.assertIn("script: found no program no-such-program in the folders of PATH",
                      self.printed)
        self.assertFalse((self.path / "none").exists())

    def test_other_commands_say_that_only_the_script_knows_its_model(self):
        done = subprocess.run([RUBATO, "simulate", str(self.path / "job.yaml")],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("the job's model and data are a script's", done.stdout)


if __name__ == "__main__":
    sys.argv[1:] = sys.argv[2:]
    run_cases()
