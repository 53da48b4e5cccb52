#!/usr/bin/python3 -B
"""Every command that a page shows is run, as it stands there.

    commands_test.py PAGE

The commands of the page are run in its order, in a folder with configs/ and a few runs, whose training
is cut short by the environment. Files whose text the page shows (```python NAME) are there. A command
that asks a running job finds one. What not_run.txt lists is not run, but its verbs, flags and keys
must exist.
"""

import contextlib
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path[:0] = ["tests", "tests/docs"]
import pages
import skipped

HERE = pathlib.Path.cwd()
PROGRAMS = {"rubato": "tools/rubato", "rubato-server": "server/rubato-server",
            "rubato-worker": "worker/rubato-worker"}
PAGE = sys.argv.pop(1)
SHOWN = pages.commands(PAGE, (HERE / PAGE).read_text())

# The job that commands ask; it goes on until the page trains something else.
LONG = ("rubato train configs/sync.yaml --set train.until.epochs=100000 --compute 2ms "
        "--run-dir runs/long")
GOES_ON = re.compile(r"rubato train configs/sync.yaml --set train.until.epochs=\d+$")
ENDS_WITH_THE_JOB = re.compile(r"(\w+=\S+ )*rubato-(server|worker) ")
ASKS_A_JOB = re.compile(r"rubato (status|switch|checkpoint|stop)\b|.*runs/latest/worker-key")


def not_run():
    """Patterns of commands that are not run, each with its reason."""
    listed, reason = [], None
    for line in (HERE / "tests/docs/not_run.txt").read_text().splitlines():
        if line.startswith("    "):
            listed.append((re.compile(line[4:]), reason))
        elif line and not line.startswith("#"):
            reason = line
    return listed


NOT_RUN = not_run()


def reason(command):
    return next((why for pattern, why in NOT_RUN if pattern.match(command)), None)


def said(*words):
    return subprocess.run(words, text=True, stdout=subprocess.PIPE, check=True).stdout


class Workplace:
    """A folder in which the commands of one page are run."""

    def __init__(self, page):
        self.page = page
        self.text = (HERE / page).read_text()
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        shutil.copytree(HERE / "configs", self.folder / "configs")
        (self.folder / "bin").mkdir()
        for name, path in PROGRAMS.items():
            (self.folder / "bin" / name).symlink_to(HERE / path)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.environment = dict(os.environ, PATH=f"{self.folder}/bin:/usr/bin:/bin",
                                PYTHONPATH=str(HERE / "python"), MASTER_PORT="0",
                                RUBATO__TRAIN__UNTIL__EPOCHS="0.05",
                                RUBATO__CLUSTER__START_TIMEOUT="100s")  # PyTorch loads slowly
        self.running = {}
        self.fill()

    def fill(self):
        """What the commands of pages take for given."""
        for start, language, lines in pages.blocks(self.text):
            if language and " " in language:
                (self.folder / language.split()[1]).write_text("\n".join(lines) + "\n")
        job = (self.folder / "configs/quickstart.yaml").read_text()
        shards = len(set(re.findall(r"--config job.yaml --shard (\d)(?!.*(?:10\.0|mtls))", self.text)))
        (self.folder / "job.yaml").write_text(
            re.sub("cluster: .*", f"cluster: {{servers: {shards or 1}, workers: {shards or 1}}}", job))
        (self.folder / "net.yaml").write_text(
            "version: 1\nname: net\nscript: [python3, train.py]\n"
            "train: {batch_size: 64, micro_batches: 2, until: {epochs: 1}}\n")
        self.call("rubato train configs/quickstart.yaml --record --set train.until.epochs=0.05")
        run = (self.folder / "runs/latest").resolve()
        for name in ("a", "first", "second"):
            shutil.copytree(run, self.folder / "runs" / name)

    def call(self, command, **more):
        """Runs a command to its end, and returns what it has printed."""
        done = subprocess.run(["bash", "-c", command], cwd=self.folder, text=True, timeout=120,
                              env=dict(self.environment, **more), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stdout}"
        return done.stdout

    def start(self, command, **more):
        self.running[command] = subprocess.Popen(
            ["bash", "-c", "exec " + command if "=" not in command.split()[0] else command],
            cwd=self.folder, env=dict(self.environment, **more), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def job_by_hand(self, command):
        """A process of a job that is started by hand; the job before, if any, has ended first."""
        if "--shard 0" in command:
            self.finish()
        self.start(command, MASTER_PORT=str(self.port), RUBATO__TRAIN__UNTIL__EPOCHS="2")

    def long_job(self):
        """Has a job run, unless one does."""
        if not any(process.poll() is None for process in self.running.values()):
            self.finish()
            shutil.rmtree(self.folder / "runs/long", ignore_errors=True)
            self.start(LONG, RUBATO__TRAIN__UNTIL__EPOCHS="100000")
            latest = self.folder / "runs/latest"
            latest.unlink()
            latest.symlink_to("long")
        deadline = time.monotonic() + 60
        while "state       training" not in (answer := self.answer()):
            assert time.monotonic() < deadline, answer
            time.sleep(0.05)

    def answer(self):
        with contextlib.suppress(AssertionError):
            return self.call("rubato status runs/latest")
        return ""

    def run(self, command):
        """Runs a command of the page, and returns what it has printed."""
        text = command.text
        # The step of a checkpoint is that of one which is there.
        for found in re.findall(r"runs/\w+/checkpoints/step-\d+", text):
            newest = sorted((self.folder / found).parent.glob("step-*"))[-1]
            text = text.replace(found, str(newest.relative_to(self.folder)))
        if ENDS_WITH_THE_JOB.match(text) and not ASKS_A_JOB.match(text):
            return self.job_by_hand(text)
        if ":29500" in text:  # the job by hand, which has another port here
            text = text.replace(":29500", f":{self.port}")
            deadline = time.monotonic() + 60
            while True:
                with contextlib.suppress(AssertionError):
                    return self.call(text)
                assert time.monotonic() < deadline, text
        if GOES_ON.match(text):
            return None  # LONG stands for it
        if not ASKS_A_JOB.match(text):
            self.finish()
        else:
            self.long_job()
            # The page names a run; here another one is training.
            text = re.sub(r"runs/(first|second)\b", "runs/long", text)
        if ENDS_WITH_THE_JOB.match(text):
            return self.start(text)
        for path in [*self.folder.glob("*.safetensors"), *self.folder.glob("*.html")]:
            path.unlink()  # of a command before, which is not overwritten
        return self.call(text)

    def finish(self):
        """Waits for jobs by hand, and ends what would go on."""
        for command, process in self.running.items():
            if "runs/long" in command or "runs/latest" in command:
                process.terminate()
            code = process.wait(120)
            if ENDS_WITH_THE_JOB.match(command) and "runs/latest" not in command:
                assert code == 0, f"{command}: exit code {code}"
        self.running.clear()

    def close(self):
        try:
            self.finish()
        finally:
            for process in self.running.values():
                if process.poll() is None:
                    process.kill()
            shutil.rmtree(self.folder)


class CommandsTest(unittest.TestCase):

    def test_every_command(self):
        runnable = [command for command in SHOWN if not reason(command.text)]
        if not runnable:
            self.skipTest("the page has no command that is run")
        place = Workplace(PAGE)
        self.addCleanup(place.close)
        self.check_files((place.folder / "runs/latest"))
        for command in runnable:
            if "torch" in command.text and not has_torch():
                continue
            with self.subTest(line=command.line, command=command.text):
                started = time.monotonic()
                printed = place.run(command)
                print(f"{PAGE}:{command.line}: {time.monotonic() - started:.1f} s: {command.text}")
                for line in command.output if printed is not None else []:
                    self.check_output(line, printed)
        place.finish()

    # What stands on a page says what the program says today: up to its first figure, each line
    # begins as one that was printed now. Not of what is only said when something happens.
    def check_output(self, line, printed):
        label = re.match(r"\s*([A-Za-z][A-Za-z _-]*)", line)
        happens = (r"\d{4}-|warning|worker \d|server \d|mode: |interrupted|changes|contributions|"
                   r"last evaluation|validation|tested|given out|waits|goes on|changed|Try next")
        if "nothing is left to train" in printed:  # tests train less than a page does
            happens += "|speed"
        if label and not re.match(happens, line):
            self.assertIn(re.split(r"  | -", label.group(1))[0].strip(), printed)

    # docs/reference/run_folder.md has every file that a real run leaves.
    def check_files(self, run):
        page = (HERE / "docs/reference/run_folder.md").read_text()
        listed = re.findall(r"^\| `([\w.*-]+)/?` \|", page, re.MULTILINE)
        for path in run.iterdir():
            self.assertTrue(any(path.match(pattern) for pattern in listed), path.name)

    def test_flags_and_keys_of_those_that_are_not_run(self):
        keys = set(re.findall(r"^\| `(\w+)` \|", (HERE / "docs/reference/keys.md").read_text(),
                              re.MULTILINE))
        for command in SHOWN:
            with self.subTest(page=command.page, line=command.line, command=command.text):
                self.check_words(command.text, keys)

    def check_words(self, text, keys):
        words = shlex.split(re.sub(r"\$\([^)]*\)", "X", text).strip("()"))
        while words and (re.match(r"[A-Z_]+=", words[0])):
            words.pop(0)
        if words and words[0] in PROGRAMS:
            asked = [str(HERE / PROGRAMS[words[0]])]
            if words[0] == "rubato":
                asked.append(words[1])
            if words[1:2] == ["bench"]:
                asked.append(words[2])
            help_text = said(*asked, "--help")
            for flag in (word.split("=")[0] for word in words if word.startswith("--")):
                self.assertRegex(help_text, rf"(?m)^  {flag}\b")
        for path in re.findall(r"--set '?([\w.]+)=", text):
            for key in path.split("."):
                self.assertIn(key, keys)


def has_torch():
    return subprocess.run(["/usr/bin/python3", "-c", "import torch"],
                          stderr=subprocess.DEVNULL).returncode == 0


if __name__ == "__main__":
    skipped.run_cases()
