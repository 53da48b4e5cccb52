"""However a script ends, nobody waits for it, and nothing of it stays.

Usage: endings_test.py RUBATO   (the binary). Needs Debian's python3-torch; skipped without it.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys

from programs import HERE, PROGRAMS, PYTHON, TRAIN, WithPrograms, need_torch
from skipped import run_cases

sys.path.insert(0, str(HERE.parent))
from rubato import figures

need_torch("EndingsTest", "Ends")

LIBRARY = f"""
import sys
sys.path.insert(0, {str(HERE.parent)!r})
import rubato
"""
NOTEBOOK = LIBRARY + """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def busy():
    return torch.ones(1 << 20).tanh().sum()

def work():
    busy()
    job = rubato.join()
    model = nn.Linear(8, 3)
    loader = DataLoader(TensorDataset(torch.ones(64, 8)), batch_size=16)
    model, optimizer, loader = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01), loader)
    for epoch in job.epochs():
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    job.save("notebook.pt")

torch.set_num_threads(2)
busy()  # threads that no forked process has
train = {"batch_size": 16, "micro_batches": 2, "until": {"epochs": 300}}
run = rubato.launch(work, job={"train": train}, workers=2)
while run.status()["state"] != "training":
    pass
print(run.switch("async"))
print(run.wait())
print(sorted(torch.load("notebook.pt")))
"""
FAILING = LIBRARY + """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
job = rubato.join()
model = nn.Linear(8, 3)
loader = DataLoader(TensorDataset(torch.ones(64, 8)), batch_size=16)
model, optimizer, loader = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01), loader)
for epoch in job.epochs():
    for (x,) in loader:
        model(x).sum().backward()
        FAILS
        optimizer.step()
print("came to its end")
"""
ARRAYS = LIBRARY + """
import numpy as np
w = {"w": np.ones(3, np.float32)}
worker = rubato.Worker(rubato.join(epochs=2), w, samples=8, batch_size=4,
                       optimizer={"name": "sgd", "learning_rate": 0.25})
seen = []
sampler = rubato.Sampler(8, 4, seed=worker._engine.seed)
order = [*sampler, *sampler]  # of two epochs
for work in worker:
    assert work.indices == order.pop(0), "the order is not the servers'"
    seen += work.indices
    worker.push({"w": np.full(3, 1.0)}, loss=w["w"].sum())
print(w["w"].tolist(), sorted(seen), "torch" in sys.modules)
"""


def processes_of(folder):
    """Ids of those that work in a folder, or were started with a path in it."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if (os.readlink(f"/proc/{pid}/cwd") == str(folder)
                    or str(folder).encode() in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()):
                if pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                    found.add(int(pid))
        except OSError:  # it has ended
            pass
    return found


class EndingsTest(WithPrograms):
    def start(self, *arguments):
        """A script whose first epoch is over."""
        script = subprocess.Popen([PYTHON, TRAIN, "--epochs=100000", *arguments], cwd=self.folder,
                                  env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(script.stdout.close)
        self.addCleanup(script.stderr.close)
        self.addCleanup(script.kill)
        self.assertEqual(json.loads(script.stdout.readline())["epoch"], 0)
        return script

    def await_nobody(self):
        """Nothing of it runs any more. The test's own time limit is the bound."""
        while processes_of(self.folder):
            pass

    def loaders_of(self, script):
        return [int(pid) for pid in
                pathlib.Path(f"/proc/{script.pid}/task/{script.pid}/children").read_text().split()
                if b"train.py" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]

    def test_interrupted(self):
        script = self.start("--workers=2")
        script.send_signal(signal.SIGINT)
        errors = script.communicate()[1]
        self.assertIn("KeyboardInterrupt", errors)
        self.assertEqual(script.returncode, -signal.SIGINT)
        self.await_nobody()

    def test_interrupted_while_its_processes_are_started(self):
        hook = "os.register_at_fork(after_in_parent=lambda: {} and os.kill(os.getpid(), signal.SIGINT))\n"
        for name, text in (("servers", FAILING.replace("job = ", hook.format(True) + "job = ")),
                           ("loaders", FAILING.replace("batch_size=16", "batch_size=16, num_workers=2").replace(
                               "for epoch", hook.format("multiprocessing.active_children()") + "for epoch"))):
            with self.subTest(name):
                (self.folder / "script.py").write_text("import multiprocessing, os, signal\n" + text.replace(
                    "FAILS", "pass").replace("join()", "join(epochs=3)"))
                script = subprocess.run([PYTHON, "script.py"], cwd=self.folder, env=self.environment, text=True,
                                        capture_output=True)
                self.assertEqual(script.returncode, -signal.SIGINT, script.stderr)
                self.assertIn("KeyboardInterrupt", script.stderr)
                self.await_nobody()

    def test_interrupted_while_it_waits_for_others(self):
        self.script_of_a_job("cluster: {workers: 2, address: '127.0.0.1:0'}")
        script = subprocess.Popen([PYTHON, TRAIN], cwd=self.folder, text=True, stderr=subprocess.PIPE,
                                  stdout=subprocess.PIPE,
                                  env={**self.environment, "RUBATO_JOB": "job.yaml", **self.key})
        self.addCleanup(script.stdout.close)
        self.addCleanup(script.stderr.close)
        while "ready" not in script.stderr.readline():
            pass
        script.send_signal(signal.SIGINT)
        script.communicate()
        self.assertEqual(script.returncode, -signal.SIGINT)
        self.server.terminate()
        self.server.wait()
        self.await_nobody()

    def script_of_a_job(self, cluster):
        """Starts a server by hand."""
        (self.folder / "job.yaml").write_text(
            f"version: 1\nname: hand\nmodel: script\n{cluster}\ntrain: {{batch_size: 16, until: {{epochs: 2}}}}\n")
        secret = "secret-" + "5" * 64
        self.server = subprocess.Popen([PROGRAMS[1], "--config", "job.yaml", "--shard", "0", "--run-dir", "run"],
                                       cwd=self.folder, env={**self.environment, "RUBATO_KEY": secret},
                                       stderr=subprocess.DEVNULL)
        self.addCleanup(self.server.kill)
        address = self.folder / "run" / "address"
        while not (address.exists() and address.read_text().endswith("\n")):
            self.assertIsNone(self.server.poll())
        self.key = {"RUBATO_KEY": secret, "RUBATO__CLUSTER__ADDRESS": address.read_text().strip()}

    def test_two_scripts_by_hand(self):
        self.script_of_a_job("cluster: {workers: 2, address: '127.0.0.1:0'}")
        scripts = [subprocess.Popen([PYTHON, TRAIN, "--range"], cwd=self.folder, text=True, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE,
                                    env={**self.environment, **self.key, "RUBATO_JOB": "job.yaml", "RANK": str(rank)})
                   for rank in range(2)]
        for script in scripts:
            errors = script.communicate()[1]
            self.assertEqual(script.returncode, 0, errors)
        self.assertEqual(self.server.wait(), 0)

    def test_a_layout_that_is_another_is_refused(self):
        self.script_of_a_job("cluster: {workers: 2, address: '127.0.0.1:0'}")
        scripts = [subprocess.Popen([PYTHON, TRAIN, f"--model={model}"], cwd=self.folder, text=True,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                    env={**self.environment, **self.key, "RUBATO_JOB": "job.yaml"})
                   for model in ("mlp", "odd")]
        for script in scripts:
            self.addCleanup(script.stderr.close)
        while all(script.poll() is None for script in scripts):
            pass
        refused = next(script for script in scripts if script.poll() is not None)
        self.assertIn("rubato.errors.Refused", refused.stderr.read())
        for script in scripts:
            script.kill()
            script.wait()
        self.server.kill()
        self.server.wait()
        self.await_nobody()

    def test_killed(self):
        script = self.start("--workers=2", "--persistent")
        loaders = self.loaders_of(script)
        self.assertEqual(len(loaders), 2)
        for pid in loaders:  # they cannot notice anything, and hold what they have inherited
            os.kill(pid, signal.SIGSTOP)
        script.kill()
        script.wait()
        while processes_of(self.folder) - set(loaders):
            pass
        for pid in loaders:
            os.kill(pid, signal.SIGKILL)
        self.await_nobody()

    def test_a_loader_process_is_killed(self):
        script = self.start("--workers=2", "--persistent")
        os.kill(self.loaders_of(script)[0], signal.SIGKILL)
        errors = script.communicate()[1]
        self.assertEqual(script.returncode, 1, errors)  # torch has several sentences for it
        # Of the traceback there may be the beginning only: torch raises a second exception while it is printed.
        self.assertRegex(errors, "in __iter__|lost sys.stderr|DataLoader worker")
        self.await_nobody()

    def test_told_to_leave(self):
        for number in signal.SIGTERM, signal.SIGHUP:
            with self.subTest(number):
                script = self.start()
                script.send_signal(number)
                errors = script.communicate()[1]
                self.assertEqual(script.returncode, 128 + signal.SIGTERM, errors)
                self.await_nobody()

    def test_a_terminal_is_closed(self):
        script = self.start("--workers=2", "--persistent")
        loaders = self.loaders_of(script)
        self.assertEqual(len(loaders), 2)
        for pid in loaders:
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            ignored = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn")), 16)
            self.assertTrue(ignored & 1 << signal.SIGHUP - 1, "it dies, and the script with it")
            os.kill(pid, signal.SIGHUP)
        script.send_signal(signal.SIGHUP)
        errors = script.communicate()[1]
        self.assertEqual(script.returncode, 128 + signal.SIGTERM, errors)
        self.assertNotIn("Traceback", errors)
        self.await_nobody()

    def test_loader_processes_begin_with_the_scripts_worker_init_fn(self):
        text = FAILING.replace("FAILS", "pass").replace("batch_size=16", """batch_size=16, num_workers=2,
                    worker_init_fn=lambda number: print("begins", number, flush=True)""")
        code, printed = self.train_text(text)
        self.assertEqual(code, 0, printed)
        log = (self.folder / "runs" / "latest" / "logs" / "worker-0.log").read_text()
        self.assertEqual(sorted(line for line in log.splitlines() if line.startswith("begins")),
                         ["begins 0"] * 2 + ["begins 1"] * 2)  # of each epoch

    def test_signals_of_a_process_that_the_script_forks(self):
        text = FAILING.replace("import torch", "import os, signal, torch", 1).replace("FAILS", """
        if job.step == 1:
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                os.kill(os.getpid(), signal.SIGHUP)  # ends the script in order, and what it needs for that goes on
                os.write(write, b"goes on")
                os.kill(os.getpid(), signal.SIGTERM)
                os._exit(0)
            os.close(write)
            print("told", os.read(read, 10), os.waitpid(child, 0)[1])
""")
        code, printed = self.train_text(text)
        self.assertEqual(code, 0, printed)
        self.assertIn(f"told b'goes on' {int(signal.SIGTERM)}\n", printed)

    def start_text(self, text, script="train.py", train="until: {epochs: 2}", flags=()):
        """`rubato train` of a job whose script this is."""
        (self.folder / "train.py").write_text(text)
        (self.folder / "job.yaml").write_text(
            f"version: 1\nname: failing\nscript: [{PYTHON}, {script}]\ncluster: {{address: '127.0.0.1:0'}}\n"
            f"train: {{batch_size: 16, {train}}}\n")
        return subprocess.Popen([PROGRAMS[0], "train", "job.yaml", *flags], cwd=self.folder, env=self.environment,
                                text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def train_text(self, text, script="train.py", train="until: {epochs: 2}", flags=()):
        """(exit code, what is printed) of it."""
        started = self.start_text(text, script, train, flags)
        printed = started.communicate()[0]
        self.await_nobody()
        return started.returncode, printed

    def test_what_is_wrong_with_a_script_ends_its_job(self):
        for text, last, restarts, code in (
                ("this is no Python", "SyntaxError: invalid syntax", 0, 1),
                (FAILING.replace("rubato.join()", "rubato.jion()"),
                 "AttributeError: module 'rubato' has no attribute", 0, 1),
                (FAILING.replace("FAILS", "if job.step == 5: model.weight.data.zero_(); model.weight.zero_()"),
                 "a leaf Variable", 1, 1),
                (FAILING.replace("FAILS", "if job.step == 5: optimizer.step()"),
                 "rubato.errors.Refused: optimizer.step() was called twice", 0, 2)):
            with self.subTest(last):
                found, printed = self.train_text(text)
                self.assertEqual(found, code, printed)
                self.assertEqual(printed.count("started again"), restarts, printed)
                self.assertIn(last, printed)

    def test_a_script_may_change_its_folder_before_it_joins(self):
        text = FAILING.replace("job = ", "import os\nos.mkdir('elsewhere'); os.chdir('elsewhere')\njob = ", 1)
        code, printed = self.train_text(text.replace("FAILS", "pass"))
        self.assertEqual(code, 0, printed)
        self.assertIn("came to its end", printed)

    def test_a_second_training_of_one_script_is_refused(self):
        text = FAILING + FAILING[FAILING.index("job = "):]
        code, printed = self.train_text(text.replace("FAILS", "pass"))
        self.assertEqual(code, 2, printed)
        self.assertIn("rubato.errors.Refused: rubato.join was called for a second training of one script, expected one "
                      "in each job", printed)

    def test_a_script_that_could_not_begin_is_told_what_to_look_for(self):
        for text, script, sentence in (
                ("", "elsewhere/train.py", "`script` is relative to the folder in which `rubato train` runs"),
                ("import rubato", "train.py", "No module named 'rubato'; expected its folder in PYTHONPATH")):
            code, printed = self.train_text(text, script)
            self.assertNotEqual(code, 0, printed)
            self.assertIn(sentence, printed)

    def test_a_script_that_ends_before_its_job_is_named(self):
        code, printed = self.train_text(FAILING.replace("FAILS", "if job.epoch == 1: sys.exit()"))
        self.assertEqual(code, 1, printed)
        self.assertIn("too few workers are left to go on", printed)
        self.assertIn("; worker 0: the script ends in epoch 1 of the job, before the job does (job.stop() and "
                      "train.stop_when end a job early)", printed)

    def test_a_job_is_ended_early_by_what_its_script_measures(self):
        text = FAILING.replace("FAILS", "pass")
        text = text.replace("model = ", "print('before', job.total_epochs, job.total_steps)\nmodel = ", 1)
        text = text.replace("for epoch", "print('after', job.total_epochs, job.total_steps)\nfor epoch", 1)
        test = "job.evaluate(lambda: {'accuracy': epoch / 4})"
        text = text.replace('print("came', f'    {test}\nprint(job.step, "came')
        code, printed = self.train_text(
            text, train="until: {epochs: 100}, stop_when: {metric: eval/accuracy, at_least: 0.5}")
        self.assertEqual(code, 0, printed)
        log = (self.folder / "runs" / "latest" / "logs" / "worker-0.log").read_text()
        self.assertIn("before 100 None\n", log)
        self.assertIn("after 100 400\n", log)
        step = int(next(line for line in log.splitlines() if "came to its end" in line).split()[0])
        self.assertLess(step, 100)
        done = subprocess.run([PROGRAMS[0], "eval", "runs/latest"], cwd=self.folder, env=self.environment, text=True,
                              capture_output=True)
        self.assertIn("error: eval cannot test a script's model: load the parameters in your script", done.stderr)

    def test_a_target_of_which_the_script_tells_nothing_is_warned_of(self):
        text = FAILING.replace("FAILS", "pass")
        said = "nothing was told of the test at step 4, expected eval/loss, by which train.stop_when goes"
        train = "until: {epochs: 3}, stop_when: {metric: eval/loss, at_most: 0.5}"
        for found, times in (None, 1), ("None", 1), ("{'loss': 1}", 0):
            test = f"    job.evaluate(lambda: {found})\n" if found else ""
            code, printed = self.train_text(text.replace('print("came', test + 'print("came'), train=train)
            self.assertEqual((code, printed.count(said)), (0, times), printed)

    def test_a_script_ends_its_job_for_all_workers(self):
        # Rank 0 asks once by its count, and again in the final test, when the training is over.
        text = FAILING.replace("FAILS", "pass").replace('print("came', """\
    if job.evaluate(lambda: {"accuracy": 0.75}) and epoch >= 3:
        job.stop("rank 0 has seen enough\\0" + 300 * "x")
print("saved", job.save("model.pt"), "came""")
        code, printed = self.train_text(text, train="until: {epochs: 300}", flags=(
            "--set", "cluster.workers=2", "--set", "train.micro_batches=2"))
        self.assertEqual(code, 0, printed)
        why = "asked to: rank 0 has seen enough " + 177 * "x"  # 200 bytes of it
        self.assertIn(f"stopped        before train.until: {why}\n", printed)
        self.assertEqual(self.final_accuracy(), 0.75)
        logs = [(self.folder / "runs" / "latest" / "logs" / f"worker-{rank}.log").read_text() for rank in range(2)]
        ends = sorted(log.splitlines()[-1] for log in logs)
        self.assertEqual(ends, [f"saved {saved} came to its end" for saved in (False, True)])

    def test_a_script_knows_its_rank_before_the_first_batch(self):
        text = FAILING.replace("FAILS", "pass").replace(
            "for epoch", "print('is', job.rank, 'of', job.workers, job.mode, job.epoch, job.step)\nfor epoch", 1)
        flags = ("--set", "cluster.workers=2", "--set", "train.micro_batches=2")
        code, printed = self.train_text(text, train="until: {epochs: 1}", flags=flags)
        self.assertEqual(code, 0, printed)
        logs = self.folder / "runs" / "latest" / "logs"
        for rank in range(2):
            self.assertIn(f"is {rank} of 2 sync 0 0\n", (logs / f"worker-{rank}.log").read_text())
        code, printed = self.train_text(text, train="until: {epochs: 2}", flags=(*flags, "--resume", "runs/latest"))
        self.assertEqual(code, 0, printed)
        self.assertIn("is 0 of 2 sync 1 4\n", printed)

    def final_accuracy(self):
        return json.loads((self.folder / "runs" / "latest" / "summary.json").read_text()).get("test_accuracy")

    def test_figures_are_the_jobs_where_a_test_is_due(self):
        # 4 steps an epoch, and a test behind each.
        text = FAILING.replace("FAILS", "calls.append(0)").replace("for epoch", "calls = []\nfor epoch").replace(
            "optimizer.step()", "optimizer.step(); print('has', job.evaluate(lambda: {'accuracy': len(calls) / 8}))")
        code, printed = self.train_text(text)
        self.assertEqual(code, 0, printed)
        run = self.folder / "runs" / "latest"
        self.assertEqual((run / "logs" / "worker-0.log").read_text().count("has {'accuracy': "), 8)
        lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        told = [(line["kind"], line["step"], line["accuracy"]) for line in lines if line["kind"] in ("eval", "test")]
        self.assertEqual(told[0], ("eval", 4, 0.5))
        self.assertEqual({(step, accuracy) for _, step, accuracy in told[1:]}, {(8, 1.0)})

    def test_other_figures_of_tests_are_in_the_metrics_and_the_summary(self):
        text = FAILING.replace("FAILS", "calls.append(0)").replace("for epoch", "calls = []\nfor epoch").replace(
            'print("came', "    job.evaluate(lambda: {'f1': len(calls) / 8, 'worst': float('nan'), 'step': 7, "
            "**({'late': 3} if len(calls) == 8 else {})})\nprint(\"came")
        code, printed = self.train_text(text)
        self.assertEqual(code, 0, printed)
        run = self.folder / "runs" / "latest"
        log = (run / "logs" / "worker-0.log").read_text()
        self.assertEqual(log.count("of a test's figures the script alone keeps step; the job takes"), 1, log)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        told = [(line["kind"], line["step"], line["loss"], line["f1"], line["worst"], line.get("late"))
                for line in lines if line["kind"] in ("eval", "test")]
        self.assertEqual(told, [("eval", 4, None, 0.5, None, None), ("test", 8, None, 1.0, None, 3)])
        summary = json.loads((run / "summary.json").read_text())
        self.assertEqual({name: summary[name] for name in summary if name.startswith("test_")},
                         {"test_loss": None, "test_f1": 1.0, "test_worst": None, "test_late": 3})
        # No figure takes a name that a line has.
        self.assertLessEqual({name for line in lines for name in line} - {"f1", "worst", "late"}, figures._FIELDS)
        events = b"".join(path.read_bytes() for path in run.glob("events.out.tfevents.*"))
        self.assertIn(b"eval/f1", events)
        self.assertIn(b"test/late", events)
        self.assertIn("\ntest figures   f1 1  late 3  worst -\n", printed)
        self.assertNotIn("test loss", printed)

    def test_the_status_has_the_last_test(self):
        text = FAILING.replace("FAILS", """
        if job.step == 6:
            while "last_test" not in job.status():
                pass
            print("told", job.status()["last_test"])
""").replace('print("came', """\
    job.evaluate(lambda: {"f1": 0.5, "auc": float("nan"), "accuracy": 0.25})
print("came""")
        code, printed = self.train_text(text)
        self.assertEqual(code, 0, printed)
        self.assertIn("told {'step': 4, 'accuracy': 0.25, 'auc': None, 'f1': 0.5}\n", printed)

    def test_other_figures_of_tests_end_a_job_and_keep_its_best(self):
        # 4 steps an epoch, and a test behind each: the first has the best f1, the fourth meets the target. A checkpoint
        # is written behind the first for sure, and behind others if the disk keeps up.
        text = FAILING.replace("FAILS", "pass").replace('print("came', """\
    f1 = {0: 0.75, 1: float("nan")}.get(epoch, 0.5 / max(epoch, 1))
    job.evaluate(lambda: {"f1": f1, "auc": epoch / 4, "accuracy": epoch / 100})
print("came""")
        keep = "checkpoint={every: {epochs: 1}, keep_last: 1, keep_best: {metric: eval/%s, mode: max}}"
        train = "until: {epochs: 100}, stop_when: {metric: eval/auc, at_least: 0.75}"
        code, printed = self.train_text(text, train=train, flags=("--set", keep % "f1"))
        self.assertEqual(code, 0, printed)
        run = self.folder / "runs" / "latest"
        told = [line for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
                if line["kind"] == "eval"]
        self.assertEqual([(line["step"], line["f1"], line["auc"]) for line in told[:4]],
                         [(4, 0.75, 0), (8, None, 0.25), (12, 0.25, 0.5), (16, 0.5 / 3, 0.75)])
        kept = sorted(path.name for path in (run / "checkpoints").glob("step-*"))
        self.assertEqual(kept[0], "step-00000004")
        self.assertEqual(len(kept), 2, "it and the last")
        self.assertIn("stopped        before train.until: the target is met: eval/auc is 0.75\n", printed)
        self.assertNotIn("has no number for", printed)

        code, printed = self.train_text(text, flags=("--set", keep % "f2"))
        self.assertEqual(code, 0, printed)
        sentence = ("the test at step 4 has no number for eval/f2, by which checkpoint.keep_best goes; it has "
                    "eval/accuracy, eval/auc, eval/f1\n")
        self.assertEqual(printed.count(sentence), 1, printed)
        self.assertEqual(printed.count("has no number for"), 1, printed)

    def test_where_nothing_is_left_the_last_epoch_comes_for_its_test(self):
        text = FAILING.replace("FAILS", "pass").replace('print("came', """\
    print("epoch", epoch, "of", job.epoch, "to step", job.step)
    if epoch == job.total_epochs - 1:
        job.evaluate(lambda: {"accuracy": 0.75})
print("came""")
        epochs = ["epoch 0 of 1 to step 4", "epoch 1 of 1 to step 8"]
        for flags in (), ("--resume", "runs/latest"):
            code, printed = self.train_text(text, flags=flags)
            self.assertEqual(code, 0, printed)
            self.assertEqual(self.final_accuracy(), 0.75)
            log = (self.folder / "runs" / "latest" / "logs" / "worker-0.log").read_text()
            self.assertEqual([line for line in log.splitlines() if line.startswith("epoch ")], epochs)
            epochs = epochs[1:]

    def test_a_loaders_length_is_what_all_workers_get(self):
        # 52 samples in steps of 48, in sync of 4 parts; on arrival two workers' contributions have 2 parts each.
        text = FAILING.replace("FAILS", "n += 1").replace("for epoch", "n = 0\nfor epoch").replace(
            "batch_size=16", "batch_size=48") + "print('length', len(loader), 'found', n)\n"
        schedule = "{schedule: [{mode: async, until: {epochs: 1}}, {mode: sync}]}"
        for mode in "sync", "async", "{mode: bounded, staleness: 3}", schedule:
            flags = ("cluster.workers=2", "train.micro_batches=4", f"consistency={mode}", "train.batch_size=48")
            code, printed = self.train_text(text.replace("ones(64", "ones(52"), train="until: {epochs: 1}",
                                            flags=[word for one in flags for word in ("--set", one)])
            self.assertEqual(code, 0, printed)
            logs = [(self.folder / "runs" / "latest" / "logs" / f"worker-{rank}.log").read_text() for rank in range(2)]
            told = [line.split() for log in logs for line in log.splitlines() if line.startswith("length")]
            self.assertEqual([int(words[1]) for words in told], [sum(int(words[3]) for words in told)] * 2, mode)

    def test_a_loaders_length_is_that_of_the_mode_in_which_the_script_begins(self):
        # As above. The job's first mode is async: 6 micro-batches an epoch; it goes on in sync: 8. No script is through
        # the first epoch before the other begins.
        text = FAILING.replace("FAILS", "n += 1; time.sleep(0.1)").replace("import torch", "import time, torch", 1)
        text = text.replace("for epoch", "n, length = 0, len(loader)\nfor epoch").replace(
            "batch_size=16", "batch_size=48").replace("ones(64", "ones(52") + "print('length', length, 'found', n)\n"
        flags = ("cluster.workers=2", "train.micro_batches=4", "train.batch_size=48",
                 "consistency={schedule: [{mode: async, until: {epochs: 1}}, {mode: sync}]}")
        flags = [word for one in flags for word in ("--set", one)]
        for more, length, found in ((), 6, 6 + 8), (("--resume", "runs/latest"), 8, 8):
            epochs = f"train.until.epochs={3 if more else 2}"
            code, printed = self.train_text(text, flags=[*flags, *more, "--set", epochs])
            self.assertEqual(code, 0, printed)
            logs = [(self.folder / "runs" / "latest" / "logs" / f"worker-{rank}.log").read_text() for rank in range(2)]
            told = [line.split() for log in logs for line in log.splitlines() if line.startswith("length")]
            self.assertEqual([int(words[1]) for words in told], [length] * 2)
            self.assertEqual(sum(int(words[3]) for words in told), found)

    def test_what_the_first_script_prints_is_seen_though_it_is_killed(self):
        self.environment.pop("PYTHONUNBUFFERED", None)
        code, printed = self.train_text(FAILING.replace("FAILS", """print('has step', job.step)
        if job.step == 2: os.kill(os.getpid(), 9)""").replace("import torch", "import os, torch", 1),
                                        flags=("--set", "cluster.max_restarts=0"))
        self.assertNotEqual(code, 0, printed)
        for step in range(3):
            self.assertEqual(printed.count(f"has step {step}\n"), 1, printed)

    def test_what_a_script_is_warned_of_is_repeated(self):
        code, printed = self.train_text(FAILING.replace(
            "FAILS", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"))
        self.assertEqual(code, 0, printed)
        self.assertEqual(printed.count("the script changes gradients between backward and optimizer.step"), 1, printed)

    def test_a_final_test_that_fails_is_another_workers(self):
        text = FAILING.replace("FAILS", "pass").replace("for epoch", """import os
def test():
    if job._engine.is_final and os.path.exists("fails"):
        FAILS
        raise ValueError("in the test")
    return {"accuracy": 0.75}
for epoch""").replace('print("came', '    job.evaluate(test)\nprint("came')
        flags = ("--set", "cluster.workers=2", "--set", "train.micro_batches=2")
        (self.folder / "fails").mkdir()
        code, printed = self.train_text(text.replace("FAILS", "pass"), flags=flags)
        self.assertIsNone(self.final_accuracy())
        self.assertIn("no worker is left to test the final parameters", printed)
        self.assertRegex(printed, r"error: worker \d: exited with code 1: ValueError: in the test")
        self.assertEqual(code, 1)
        code, printed = self.train_text(text.replace("FAILS", "os.rmdir('fails')"), flags=flags)
        self.assertEqual((code, self.final_accuracy()), (0, 0.75), printed)

    def test_what_follows_the_training_takes_its_time(self):
        text = FAILING.replace("FAILS", "pass") + "import time\ntime.sleep(4)\nprint('has saved')\n"
        code, printed = self.train_text(text)
        self.assertEqual(code, 0, printed)
        self.assertIn("has saved", (self.folder / "runs" / "latest" / "logs" / "worker-0.log").read_text())
        code, printed = self.train_text(text + "raise OSError('no room')", flags=("--set", "log.level=error"))
        self.assertIn("error: worker 0: exited with code 1: OSError: no room", printed)
        self.assertEqual(code, 1)

    def test_who_does_not_hear_of_the_end_is_not_waited_for(self):
        text = FAILING.replace("import sys", "import os, sys, time").replace(
            "FAILS", "while job.step > 1 and os.environ['RUBATO_RANK'] == '1': time.sleep(1)")
        settings = ("cluster.workers=2", "train.micro_batches=2", "cluster.stall_timeout=2s", "log.level=error")
        code, printed = self.train_text(text, flags=[word for one in settings for word in ("--set", one)])
        self.assertIn("worker 1 killed: the job is done, and its script has not asked for more in 2s "
                      "(cluster.stall_timeout)", printed)
        self.assertEqual(code, 0)

    def test_who_fails_as_the_job_ends_is_told(self):
        text = FAILING.replace("import sys", "import glob, os, sys, time").replace(
            "FAILS", "while job.step > 1 and os.environ['RUBATO_RANK'] == '1': time.sleep(0.05); "
                     "glob.glob('runs/*/summary.json') and 1 / 0")
        settings = ("cluster.workers=2", "train.micro_batches=2", "cluster.stall_timeout=2s")
        code, printed = self.train_text(text, flags=[word for one in settings for word in ("--set", one)])
        self.assertIn("warning: worker 1 ended as the job did: exited with code 1: ZeroDivisionError: division by "
                      "zero\n", printed)
        self.assertEqual(code, 0)

    def test_who_comes_too_late_is_not_waited_for(self):
        kill = "if job.step == 3 and not os.path.exists('died'): open('died', 'w').close(); os.kill(os.getpid(), 9)"
        text = FAILING.replace("import sys", "import os, sys, time").replace("FAILS", "pass")
        text = text.replace("job = rubato.join()", "os.path.exists('died') and time.sleep(1000)\njob = rubato.join()")
        text = text.replace("        optimizer.step()", f"""        if os.environ['RUBATO_RANK'] == '1':
            {kill}
        time.sleep(0.2)  # it has been started again before the job is done
        optimizer.step()""")
        settings = ("cluster.workers=2", "train.micro_batches=2")
        code, printed = self.train_text(text, flags=[word for one in settings for word in ("--set", one)])
        self.assertIn("started again (1 of 3)", printed)
        self.assertIn("worker 1 killed: the job is done, and its script takes no part in it", printed)
        self.assertEqual(code, 0)

    def test_interrupted_when_the_job_is_done(self):
        text = FAILING.replace("FAILS", "pass") + "import time\nsys.stdout.flush()\ntime.sleep(1000)\n"
        train = self.start_text(text)
        # The servers need not have ended yet, nor the launcher have seen it.
        while not list(self.folder.glob("runs/*/summary.json")):
            self.assertIsNone(train.poll())
        train.send_signal(signal.SIGINT)
        printed = train.communicate()[0]
        self.assertEqual(train.returncode, 130, printed)
        self.assertIn("the job is done\n", printed)
        self.assertIn("files ", printed)
        self.assertNotIn("go on with", printed)
        self.await_nobody()

    def test_interrupted_in_a_long_test(self):
        text = FAILING.replace("FAILS", "pass").replace("import torch", "import os, torch", 1).replace(
            'print("came', """    print("tests", flush=True)
    job.evaluate(lambda: [None for _ in iter(lambda: os.path.exists("tested"), True)] and None)
print("came""")
        for interrupts in 1, 2:
            train = self.start_text(text)
            self.addCleanup(train.stdout.close)
            lines = iter(train.stdout.readline, "")
            while "tests" not in next(lines):
                pass
            train.send_signal(signal.SIGINT)
            line = ""
            while "is not done yet" not in line:
                line = next(lines)
            self.assertRegex(line, "server 0 is not done yet: clock 4 waits for worker 0, for .* s; it may have 5m for "
                             "the work at hand and a last checkpoint; another Ctrl-C ends all at once")
            if interrupts == 1:
                (self.folder / "tested").touch()
            else:
                train.send_signal(signal.SIGINT)
            train.communicate()
            self.assertEqual(train.returncode, 130)
            (self.folder / "tested").unlink(missing_ok=True)
            self.await_nobody()

    def test_who_has_lost_its_worker_process_is_started_again(self):
        kill = "import os; os.path.exists('once') or (open('once', 'w').close(), os.kill(job._worker._process.pid, 9))"
        code, printed = self.train_text(FAILING.replace("FAILS", kill))
        self.assertEqual(code, 0, printed)
        self.assertIn("exited with code 75: rubato.errors.Ended: rubato-worker, which works for this script, was "
                      "killed by signal 9 (SIGKILL); started again (1 of 3)", printed)

    def test_a_script_alone_goes_on_from_its_checkpoint(self):
        text = FAILING.replace("rubato.join()", "rubato.join(epochs=4, name='alone', checkpoint=SETTINGS)").replace(
            "FAILS", "if interrupted and job.step == 5: raise KeyboardInterrupt").replace(
            "    for (x,)", "    print('epoch', epoch)\n    for (x,)")
        environment = {**self.environment, "RUBATO_BIN_DIR": str(self.folder / "bin")}

        def run(beginning, settings):
            return subprocess.run([PYTHON, "-c", beginning + text.replace("SETTINGS", settings)], cwd=self.folder,
                                  env=environment, text=True, capture_output=True)

        first = run("interrupted = True\n", "{'every': {'epochs': 1}}")
        self.assertEqual(first.stdout, "epoch 0\nepoch 1\n", first.stderr)
        where = (self.folder / "runs" / "latest").resolve()
        self.assertIn(f"checkpoints in {where}; go on with: this script, with checkpoint={{'resume': 'auto'}} in "
                      "rubato.join", first.stderr.splitlines()[-1])
        rest = run("interrupted = False\n", "{'resume': 'auto'}")
        self.assertEqual(rest.returncode, 0, rest.stderr)
        self.assertEqual(rest.stdout, "epoch 1\nepoch 2\nepoch 3\ncame to its end\n")
        self.await_nobody()

    def test_what_the_servers_of_a_script_alone_warn_of_is_told(self):
        text = FAILING.replace("rubato.join()", "rubato.join(epochs=2, name='alone', SETTINGS)").replace(
            "FAILS", "if job.step == 6 and job.seed == 0: raise KeyboardInterrupt")
        for settings, times in (("checkpoint={'every': {'steps': 1}}", 0),
                                ("seed=7, checkpoint={'resume': 'auto'}", 1)):
            done = subprocess.run([PYTHON, "-c", text.replace("SETTINGS", settings)], cwd=self.folder, text=True,
                                  env=self.environment, capture_output=True)
            self.assertEqual(done.stderr.count("rubato: warning: "), times, done.stderr)
        self.assertIn("rubato: warning: server 0: the checkpoint is in the midst of an epoch whose order of samples "
                      "was drawn from seed 0, and the rest of it is drawn from seed 7", done.stderr)

    def test_what_a_notebooks_workers_are_warned_of_is_told(self):
        text = NOTEBOOK[:NOTEBOOK.index("while run.status")].replace("model(x).sum().backward()", "pass")
        text = text.replace('"epochs": 300', '"epochs": 1') + "print(run.wait())\n"
        done = subprocess.run([PYTHON, "-c", text], cwd=self.folder, env=self.environment, text=True,
                              capture_output=True)
        self.assertEqual(done.stdout, "True\n", done.stderr)
        self.assertEqual(done.stderr.count("rubato: warning: worker-0: optimizer.step() was called, and no parameter "
                                           "had a gradient"), 1, done.stderr)

    def run_text(self, text):
        done = subprocess.run([PYTHON, "-c", text], cwd=self.folder, env=self.environment, text=True,
                              capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.await_nobody()
        return done.stdout.splitlines()

    def test_a_notebook(self):
        lines = self.run_text(NOTEBOOK)
        self.assertEqual(lines[1:], ["True", "['bias', 'weight']"])

    def test_a_notebook_gives_commands(self):
        lines = self.run_text(NOTEBOOK[:NOTEBOOK.index("print(run.switch")].replace(
            '"epochs": 300', '"epochs": 1000000') + """
import pathlib
try:
    print(run.switch("bounded", staleness=2))
    print(run.wait(0), pathlib.Path(run.checkpoint(), "COMPLETE").exists())
finally:
    run.stop("enough")
print(run.wait())
""")
        self.assertEqual(lines, ["switching from sync to bounded, staleness 2 after the step at hand", "False True",
                                 "True"])

    def test_a_notebooks_worker_that_cannot_begin_ends_its_job(self):
        lines = self.run_text(NOTEBOOK[:NOTEBOOK.index("train = {")].replace("    busy()\n    job", """
    if os.environ["LOCAL_RANK"] == os.environ["RUBATO_RANK"] == "1": raise OSError("no such disk")
    job""", 1).replace("def busy", "import os\ndef busy") + """
run = rubato.launch(work, job={"train": {"batch_size": 16, "until": {"epochs": 3}}}, workers=2)
try:
    run.wait()
except rubato.Ended as error:
    print(error)
""")
        self.assertEqual(lines, ["worker 1 ended with exit code 1: OSError: no such disk"])

    def test_what_a_notebooks_workers_refuse_is_told(self):
        lines = self.run_text(NOTEBOOK[:NOTEBOOK.index("while run.status")].replace(
            "model(x).sum().backward()", "pass").replace("optimizer.step()", "optimizer.step(); optimizer.step()") + """
try:
    run.wait()
except rubato.Ended as error:
    print(error)
""")
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0], r"^worker [01] ended with exit code 1: rubato\.errors\.Refused: optimizer\.step\(\) "
                                   "was called twice for one micro-batch")

    def test_a_script_that_the_processes_it_launches_import_anew(self):
        (self.folder / "launch.py").write_text(NOTEBOOK[:NOTEBOOK.index("while run.status")].replace(
            "workers=2)", "workers=2, method='spawn')") + "run.wait()\n")
        done = subprocess.run([PYTHON, "launch.py"], cwd=self.folder, env=self.environment, text=True,
                              capture_output=True)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("rubato: a process that spawn or forkserver has started imports the script anew, which calls "
                      "rubato.launch, expected its work behind", done.stderr)
        self.assertEqual(len(list((self.folder / "runs").glob("notebook-*"))), 1)
        self.await_nobody()

    def test_what_a_launcher_sets_is_not_of_a_scripts_own_job(self):
        # Nobody listens at that address, or may.
        self.environment.update(MASTER_ADDR="192.0.2.1", MASTER_PORT="29500", WORLD_SIZE="4")
        text = FAILING.replace("rubato.join()", "rubato.join(epochs=1)").replace("FAILS", "pass")
        self.assertEqual(self.run_text(text), ["came to its end"])
        self.assertEqual(self.run_text(NOTEBOOK)[1], "True")

    def test_a_notebook_that_is_gone_leaves_no_workers(self):
        text = NOTEBOOK[:NOTEBOOK.index("print(run.switch")] + "import os\nos._exit(0)\n"
        self.run_text(text.replace('"epochs": 300', '"epochs": 1000000'))  # which waits for nobody to be there

    def test_arrays_without_torch(self):
        # Four steps of 0.25 x 1.
        self.assertEqual(self.run_text(ARRAYS), [str([0.0] * 3) + " " + str(sorted(list(range(8)) * 2)) + " False"])


run_cases()
