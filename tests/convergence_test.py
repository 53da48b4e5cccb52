"""`rubato bench convergence` as a whole: killed and taken up again, refused, repeated by hand.

    convergence_test.py RUBATO
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import unittest

from study_job import JOB

RUBATO = os.path.abspath(sys.argv.pop(1))
os.environ["PATH"] = ""  # no browser: pictures of charts take longer than all the rest
STUDIES = os.path.abspath("configs/bench")


class ConvergenceTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        with open(self.path("job.yaml"), "w", encoding="utf-8") as file:
            file.write(JOB)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def command(self, out, *more, compute=("--compute", "10ms", "--apply", "1GB")):
        return [RUBATO, "bench", "convergence", "job.yaml", "--mode", "sync", "--mode", "async",
                "--target", "eval/accuracy=0.3", "--seeds", "3", "--speeds",
                "straggler:factor=4", "--out", out, "--compute-scales", "1", *compute, *more]

    def run_study(self, out, *more, **how):
        return subprocess.run(self.command(out, *more, **how), cwd=self.folder.name, text=True,
                              capture_output=True, check=False)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def test_goes_on_after_kill_to_the_same_results(self):
        whole = self.run_study("whole")
        self.assertEqual(whole.returncode, 0, whole.stderr)
        self.assertTrue(whole.stderr.startswith(
            "warning: --seeds 3 is too few for a verdict: 6 are needed\n"), whole.stderr)
        self.assertIn("cannot be judged by 3 seeds: 6 are needed", whole.stdout)
        lines = [json.loads(line) for line in self.read("whole/results.jsonl").splitlines()]
        self.assertEqual([(line["mode"], line["seed"]) for line in lines],
                         [(mode, seed) for mode in ("sync", "async") for seed in range(3)])
        # A straggler holds up steps, and not contributions on arrival.
        for sync, on_arrival in zip(lines[:3], lines[3:]):
            self.assertGreater(sync["end_seconds"], 1.3 * on_arrival["end_seconds"])
            self.assertNotIn("staleness_counts", sync)
            self.assertEqual(sum(on_arrival["staleness_counts"]), on_arrival["updates"])
            # Worker 0 is the straggler, for which the other waits.
            self.assertGreater(sync["workers"][1][2], 2 * sync["workers"][0][2])
        self.assertIn("Updates on arrival by their staleness", self.read("whole/report.md"))

        with subprocess.Popen(self.command("broken", "--jobs", "1"), cwd=self.folder.name,
                              text=True, stderr=subprocess.PIPE) as driver:
            driver.stderr.readline()  # too few seeds
            first = driver.stderr.readline()
            driver.send_signal(signal.SIGKILL)
        self.assertRegex(first, r"^1 of 6 cells are done, [01] running")
        again = self.run_study("broken", "--jobs", "2")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("of 6 cells are done already", again.stderr)
        self.assertEqual(self.read("broken/results.jsonl"), self.read("whole/results.jsonl"))

        other = self.run_study("whole", "--set", "optimizer.learning_rate=0.2")
        self.assertEqual(other.returncode, 2)
        self.assertIn("error: whole holds another study", other.stderr)

        same = self.run_study("whole", "--verify", "3", "--verify-seed", "5")
        self.assertEqual(same.returncode, 0, same.stderr)
        self.assertIn("3 of 3 cells, drawn with --verify-seed 5, came out the same", same.stdout)
        self.assertFalse(os.path.exists(self.path("whole/verify")))
        results = self.read("whole/results.jsonl")
        with open(self.path("whole/results.jsonl"), "w", encoding="utf-8") as file:
            file.write(results.replace(lines[4]["digest"], "0" + lines[4]["digest"][1:]))
        different = self.run_study("whole", "--verify", "9")
        self.assertEqual(different.returncode, 1, different.stderr)
        self.assertRegex(different.stdout, r"^5 of 6 cells, drawn with --verify-seed \d+, came")
        self.assertIn("\ndifferent: async-w2-s1\n", different.stdout)
        with open(self.path("job.yaml"), "a", encoding="utf-8") as file:
            file.write("seed: 5\n")
        changed = self.run_study("whole")
        self.assertEqual(changed.returncode, 2)
        self.assertIn("or of a job that has changed since", changed.stderr)
        with open(self.path("job.yaml"), "w", encoding="utf-8") as file:
            file.write(JOB)
        none = self.run_study("none", "--verify", "1")
        self.assertEqual(none.returncode, 2)
        self.assertIn("none has no results.jsonl", none.stderr)
        self.assertFalse(os.path.exists(self.path("none")))

        # One that was begun where bits are others does not go on here.
        study = json.loads(self.read("whole/study.json"))
        self.assertRegex(study["numerics"], "^cpu, OpenBLAS ")
        self.assertIn(f"the same wherever workers compute on {study['numerics']}.", self.read("whole/report.md"))
        study["numerics"] = "an abacus"
        with open(self.path("whole/study.json"), "w", encoding="utf-8") as file:
            json.dump(study, file)
        elsewhere = self.run_study("whole")
        self.assertEqual(elsewhere.returncode, 2)
        self.assertIn("whole was begun where workers compute on an abacus, here on cpu, ", elsewhere.stderr)

        # Nor where times are simulated otherwise.
        study = json.loads(self.read("broken/study.json"))
        here = study["timing_model"]
        for before, said in [({"timing_model": here + 1}, str(here + 1)), ({}, "none")]:
            del study["timing_model"]
            study.update(before)
            with open(self.path("broken/study.json"), "w", encoding="utf-8") as file:
                json.dump(study, file)
            for more in ([], ["--verify", "1"]):
                otherwise = self.run_study("broken", *more)
                self.assertEqual(otherwise.returncode, 2)
                self.assertIn(f"broken was begun by a rubato that simulates times by timing model {said}, this one "
                              f"by {here}: give another --out, or go on with that rubato\n", otherwise.stderr)

        # A cell by hand has the same bits.
        cells = [line for line in self.run_study("whole", "--dry-run").stdout.splitlines()
                 if not line.startswith("#")]
        by_hand = [RUBATO] + shlex.split(cells[4])[1:] + ["--run-dir", "by_hand"]
        subprocess.run(by_hand, cwd=self.folder.name, check=True, capture_output=True)
        self.assertEqual(json.loads(self.read("by_hand/summary.json"))["digest"],
                         lines[4]["digest"])

    def test_results_are_the_same_bytes_elsewhere(self):
        modes = ["--mode", "bounded,staleness=1", "--mode", "sync@50%+async"]
        here = self.run_study("here", *modes)
        self.assertEqual(here.returncode, 0, here.stderr)
        # Another folder, from which the job lies elsewhere; another user's surroundings; one processor.
        os.makedirs(self.path("deep/down"))
        os.rename(self.path("job.yaml"), self.path("deep/job.yaml"))
        command = [word.replace("job.yaml", "../job.yaml") for word in self.command("there", *modes)]
        there = subprocess.run(
            command, cwd=self.path("deep/down"), text=True, capture_output=True, check=False,
            preexec_fn=lambda: os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]),
            env={"PATH": "", "TZ": "Asia/Kathmandu", "LC_ALL": "C.UTF-8", "HOME": "/nowhere", "USER": "nobody",
                 "OMP_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "3"})
        self.assertEqual(there.returncode, 0, there.stderr)
        results = self.read("here/results.jsonl")
        self.assertEqual(len(results.splitlines()), 12)
        self.assertEqual(self.read("deep/down/there/results.jsonl"), results)
        # And the folder itself goes on there.
        os.rename(self.path("here"), self.path("deep/down/here"))
        again = subprocess.run([word if word != "there" else "here" for word in command], cwd=self.path("deep/down"),
                               text=True, capture_output=True, check=False)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("12 of 12 cells are done already", again.stderr)

    def test_real_processes_are_delayed_as_simulated_ones_compute(self):
        delay = {"compute": ("--compute", "20ms")}
        real = self.run_study("real", "--seeds", "1", "--processes", **delay)
        self.assertEqual(real.returncode, 0, real.stderr)
        self.assertIn("In real processes of one machine: 20ms of delay for a micro-batch, speeds "
                      "straggler:factor=4.", self.read("real/report.md"))
        sync, on_arrival = [json.loads(line)
                            for line in self.read("real/results.jsonl").splitlines()]
        # 40 steps, in each of which all wait for the straggler; a quarter of it computes the other.
        self.assertGreater(sync["end_seconds"], 40 * 0.08)
        self.assertGreater(sync["workers"][0][0], 40 * 0.08)
        self.assertGreater(sync["workers"][1][0], 40 * 0.02)
        self.assertLess(sync["workers"][1][0], sync["workers"][0][0])
        self.assertLess(on_arrival["end_seconds"], sync["end_seconds"])
        simulated = self.run_study("simulated", "--seeds", "1", "--simulated", **delay)
        self.assertEqual(simulated.returncode, 0, simulated.stderr)
        in_virtual_time = json.loads(self.read("simulated/results.jsonl").splitlines()[0])
        self.assertEqual(sync["digest"], in_virtual_time["digest"])

        for flags, sentence in [
                (["--workers", "64", "--compute", "1us"],
                 "64 workers and 1 servers on "),
                (["--latency", "1ms", "--compute", "1ms"], "--latency: found 1ms with --processes"),
                (["--simulated"], "found --simulated and --processes, expected one of them"),
                ([], "--speeds: expected --compute as well with --processes"),
                (["--verify", "1", "--compute", "1ms"], "--verify: found --processes")]:
            for dry in ([], ["--dry-run"]):
                refused = self.run_study("refused", "--processes", *dry, *flags, compute=())
                self.assertEqual(refused.returncode, 2, flags)
                self.assertIn(sentence, refused.stderr)
                self.assertFalse(os.path.exists(self.path("refused")))  # it waits for what is right

    def test_the_time_of_computing_is_measured_once_for_a_study(self):
        study = self.run_study("study", "--seeds", "1", compute=())
        self.assertEqual(study.returncode, 0, study.stderr)
        self.assertIn("measuring how long a worker computes", study.stderr)
        measured = json.loads(self.read("study/calibration.json"))
        self.assertEqual(measured["micro_batch_samples"], 10)
        self.assertGreater(measured["micro_batch_seconds"], 0)
        flag = f"{max(1, round(measured['micro_batch_seconds'] * 1e6))}us"
        self.assertIn(f", {flag} for a micro-batch", self.read("study/report.md"))
        self.assertGreater(measured["change_bytes_per_second"], 0)
        apply = f"{max(1, round(measured['change_bytes_per_second'] / 1e6))}MB"
        self.assertIn(f", {apply} a second that a shard sums and applies", self.read("study/report.md"))
        # Of which the results are a function: told to take it, another study has the same.
        again = self.run_study("again", "--seeds", "1",
                               compute=("--compute", flag, "--apply", apply))
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(self.read("again/results.jsonl"), self.read("study/results.jsonl"))
        dry = self.run_study("study", "--seeds", "1", "--dry-run", compute=())
        self.assertNotIn("measuring", dry.stderr)
        self.assertRegex(dry.stdout, r"^# .*s of computing on \d+ cores \(.* ms for a micro-batch of 10 ")
        self.assertEqual(dry.stdout.count(f"--compute {flag}"), 2)
        self.assertEqual(dry.stdout.count(f"--apply {apply}"), 2)
        # One that is spoilt is not measured again behind anybody's back.
        with open(self.path("study/calibration.json"), "w", encoding="utf-8") as file:
            file.write("{}")
        spoilt = self.run_study("study", "--seeds", "1", compute=())
        self.assertEqual(spoilt.returncode, 2)
        self.assertIn("calibration.json: micro_batch_seconds is no number", spoilt.stderr)

    def test_the_verdict_is_repeated_at_other_computing_times(self):
        study = self.run_study("study", "--compute-scales", "0.5,2", "--seeds", "1")
        self.assertEqual(study.returncode, 0, study.stderr)
        lines = [json.loads(line) for line in self.read("study/results.jsonl").splitlines()]
        self.assertEqual([(line["mode"], line.get("compute_scale", 1)) for line in lines],
                         [(mode, scale) for scale in (1, 0.5, 2) for mode in ("sync", "async")])
        # In sync computing takes nearly all the time, and no time decides over bits.
        self.assertAlmostEqual(lines[2]["end_seconds"] / lines[0]["end_seconds"], 0.5, delta=0.05)
        self.assertAlmostEqual(lines[4]["end_seconds"] / lines[0]["end_seconds"], 2, delta=0.1)
        self.assertEqual(lines[2]["digest"], lines[0]["digest"])
        # One seed gives no verdict, so none can flip or stay.
        self.assertIn("cannot be judged by 1 seeds", study.stdout)
        self.assertNotIn("flips", study.stdout)

    def test_each_mode_is_judged_at_the_rate_that_its_trials_found(self):
        rates = ["--learning-rates", "0.0001,0.1", "--seeds", "2"]
        whole = self.run_study("whole", *rates)
        self.assertEqual(whole.returncode, 0, whole.stderr)
        self.assertIn("12 cells search for learning rates; then 4 are judged\n", whole.stderr)
        lines = [json.loads(line) for line in self.read("whole/results.jsonl").splitlines()]
        trials = [line for line in lines if line.get("trial")]
        self.assertEqual(len(trials), 2 * 2 * 3)
        judged = [line for line in lines if not line.get("trial")]
        self.assertEqual([(line["mode"], line["seed"], line["learning_rate"]) for line in judged],
                         [(mode, seed, "0.1") for mode in ("sync", "async") for seed in range(2)])
        report = self.read("whole/report.md")
        self.assertIn("| misses 3 of 3 | **", report)
        self.assertIn("With 2 workers sync took the highest rate of the list", report)
        # Killed in the search and taken up again.
        with subprocess.Popen(self.command("broken", "--jobs", "1", *rates), cwd=self.folder.name,
                              text=True, stderr=subprocess.PIPE) as driver:
            for _ in range(3):  # too few seeds, what is searched for, and the first cell is done
                driver.stderr.readline()
            driver.send_signal(signal.SIGKILL)
        again = self.run_study("broken", *rates)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(self.read("broken/results.jsonl"), self.read("whole/results.jsonl"))

    def test_a_study_in_a_file_is_the_study_of_its_flags(self):
        os.mkdir(self.path("studies"))
        with open(self.path("studies/study.yaml"), "w", encoding="utf-8") as file:
            file.write("config: ../job.yaml\nmode: [sync, async]\ntarget: eval/accuracy=0.3\n"
                       "speeds: [straggler:factor=4]\ncompute: 10ms\napply: 1GB\nseeds: 1\n"
                       "compute_scales: [1]\nset: [seed=7]\n")

        def of_file(*more):
            return subprocess.run([RUBATO, "bench", "convergence", "studies/study.yaml", *more],
                                  cwd=self.folder.name, text=True, capture_output=True, check=False)

        def cells(study):
            self.assertEqual(study.returncode, 0, study.stderr)
            return [line for line in study.stdout.splitlines() if not line.startswith("# ")]

        by_flags = cells(self.run_study("none", "--dry-run", "--seeds", "1", "--set", "seed=7"))
        self.assertEqual(len(by_flags), 2)
        self.assertEqual(cells(of_file("--dry-run")), by_flags)
        more = cells(of_file("--dry-run", "--seeds", "2", "--mode", "async", "--mode", "sync"))
        self.assertEqual(len(more), 4)
        self.assertIn("{mode: async}", more[0])

        # So the one goes on with what the other has begun.
        study = of_file("--out", "study")
        self.assertEqual(study.returncode, 0, study.stderr)
        self.assertIn("bench convergence studies/study.yaml --out study",
                      self.read("study/report.md"))
        again = self.run_study("study", "--seeds", "1", "--set", "seed=7")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("2 of 2 cells are done already", again.stderr)

        with open(self.path("studies/study.yaml"), "a", encoding="utf-8") as file:
            file.write("seed: 3\n")
        mistaken = of_file("--out", "mistaken")
        self.assertEqual(mistaken.returncode, 2)
        self.assertIn("studies/study.yaml:10:1: seed: found an unknown key; did you mean seeds?",
                      mistaken.stderr)

    def test_the_examples_are_studies(self):
        cells = {}
        data = os.environ.get("RUBATO_TEST_DATA")
        for name in os.listdir(STUDIES):
            more = []
            if name == "processes.yaml":
                more = ["--compute", "1s"]  # however busy this machine is
            if name.startswith("fashion_mnist") and data is not None:
                more = ["--set", f"data.path={data}/fashion-mnist"]
            study = subprocess.run([RUBATO, "bench", "convergence", os.path.join(STUDIES, name),
                                    "--dry-run", *more],
                                   text=True, capture_output=True, check=False)
            if name.startswith("fashion_mnist") and data is None:
                self.assertIn("no such folder, expected one with IDX files", study.stderr)
                continue
            self.assertEqual(study.returncode, 0, study.stderr)
            if name == "straggler.yaml":  # longer than the network's latencies
                self.assertIn(" --compute 5ms ", study.stdout)
            cells[name] = len(re.findall("^rubato (simulate|train) ", study.stdout, re.MULTILINE))
        self.assertEqual(cells["processes.yaml"], 3 * 3)
        # Modes x seeds x computing times; modes x seeds, and modes x rates x seeds of trials.
        self.assertEqual(cells["straggler.yaml"], 3 * 7 * 3)
        self.assertEqual(cells["switch.yaml"], 4 * 7 + 4 * 3 * 3)

    def test_ctrl_c_goes_on_too(self):
        with subprocess.Popen(self.command("study", "--jobs", "1"), cwd=self.folder.name,
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as driver:
            for _ in range(2):  # too few seeds, and the first cell is done
                driver.stderr.readline()
            driver.send_signal(signal.SIGINT)
            self.assertIn("the same command goes on from here", driver.stdout.read())
        self.assertEqual(driver.returncode, 130)
        self.assertEqual(self.run_study("study").returncode, 0)

    def test_a_cell_that_diverges_is_a_miss_and_one_that_fails_is_named(self):
        study = self.run_study("study", "--set", "optimizer.learning_rate=1e30", "--set",
                               "model.layers=[flatten, {linear: {out_features: 8}}, "
                               "{linear: {out_features: 10}}]")
        self.assertEqual(study.returncode, 0, study.stderr)
        for line in self.read("study/results.jsonl").splitlines():
            self.assertIs(json.loads(line)["reached"], False)
            self.assertIsNone(json.loads(line)["last"])
            self.assertIn("is not finite", json.loads(line)["diverged"])
        # Data that are not there: every cell is refused, and none stops the rest.
        failed = self.run_study("failed", "--set", "data={format: idx, path: nowhere}")
        self.assertEqual(failed.returncode, 1)
        self.assertIn("6 of 6 cells failed, which the report names", failed.stdout)
        self.assertIn("Left out: sync-w2-s0: ", self.read("failed/report.md"))

    def test_mistakes_are_told_before_anything_runs(self):
        for more, said in [(["--mode", "asink"], "error: --mode asink: consistency.mode: found asink"),
                           (["--workers", "2,2"], "--workers 2 is given twice"),
                           (["--verify-seed", "5"], "--verify-seed: expected --verify N as well"),
                           (["--processes", "--jobs", "2"], "--jobs: found 2 with --processes"),
                           (["--baseline", "bounded"], "--baseline: found bounded"),
                           (["--target", "0.8"], "--target: found 0.8"),
                           (["--target", ""], "--target is missing"),
                           (["--target", "eval/accuracy=88"], "above 0 and at most 1"),
                           (["--speeds", "stragler"], "speeds: found stragler"),
                           (["--workers", "4,x"], "--workers: found x"),
                           (["--learning-rates", "0.1,x"], "--learning-rates: found x"),
                           (["--compute-scales", "x"], "--compute-scales: found x"),
                           (["--seeds", "0"], "--seeds: found 0")]:
            study = self.run_study("study", *more)
            self.assertEqual(study.returncode, 2, more)
            self.assertIn(said, study.stderr)
            self.assertFalse(os.path.exists(self.path("study")), more)
        # Nor that a flag is missing, which a study's file would have.
        study = subprocess.run([RUBATO, "bench", "convergence", "nowhere.yaml"], text=True,
                               cwd=self.folder.name, capture_output=True, check=False)
        self.assertEqual(study.returncode, 2)
        self.assertIn("nowhere.yaml: cannot read the job: No such file", study.stderr)
        with open(self.path("script.yaml"), "w", encoding="utf-8") as file:
            file.write("version: 1\nname: net\nscript: [python3, net.py]\n"
                       "train: {batch_size: 64, until: {epochs: 1}}\n")
        study = subprocess.run([RUBATO, "bench", "convergence", "script.yaml", "--mode", "sync", "--mode", "async",
                                "--target", "eval/loss=0.3"], text=True, cwd=self.folder.name,
                               capture_output=True, check=False)
        self.assertEqual(study.returncode, 2)
        self.assertIn("a script's, whose gradients cannot be simulated: add --processes", study.stderr)
        os.mkdir(self.path("study"))
        with open(self.path("study/notes"), "w", encoding="utf-8"):
            pass
        study = self.run_study("study")
        self.assertEqual(study.returncode, 2)
        self.assertIn("study is not empty and holds no study: give another --out", study.stderr)
        self.assertEqual(os.listdir(self.path("study")), ["notes"])


unittest.main()
