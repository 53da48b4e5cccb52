"""A job in a cluster, from its manifests to its end: what is done to it, what is awaited of it, and
what is seen meanwhile. Each public method with words is a verb of scenarios.yaml."""

import json
import os
import re
import signal
import subprocess
import time

from cluster import Cluster

JOBS = ("shard-0", "servers", "workers")
PORT = 29500
PATIENCE = 150  # seconds


def objects(text):
    """Of the lines of a file of JSON; one that is not whole yet is left out."""
    return [json.loads(line) for line in text.split("\n")[:-1]]


class Trial:
    """A pod is called JOB/INDEX, as `workers/1` and `shard-0/0`."""

    def __init__(self, folder, programs, job, network, image, haste, scenario):
        self._render = [programs[0], "render", "kubernetes", job, "--image", "a/b:1",
                        "--server-memory", "1GiB", "--worker-memory", "1GiB",
                        *scenario.get("flags", ["--runs-size", "1GiB"])]
        self._cluster = Cluster(folder, programs, network, image, haste, "hasty" in scenario)
        self._old, self._failed, self._harmed, self._views = {}, set(), None, 0
        self._folders = []  # of each time that the manifests were applied
        self._steps = []  # pairs of a moment and a step
        self.figures = {}
        self._apply([], *scenario.get("change", ("", "")))
        self._cluster.watchers.append(self._watch)

    def _apply(self, flags, old="", new=""):
        self._text = subprocess.run(self._render + flags, stdout=subprocess.PIPE, text=True,
                                    check=True).stdout
        assert old in self._text
        if not self._folders:
            self._cluster.make_keys(self._text)
        self._cluster.apply(new.join(self._text.rsplit(old, 1)) if old else self._text)
        self._base = re.search(r"^kind: Service\nmetadata:\n  name: (.*)$", self._text,
                               re.MULTILINE)[1]
        claim = re.search(r"claimName: (.*)$", self._text, re.MULTILINE)[1]
        self._folders.append(f"runs/{self._base}-{self._job('shard-0').uid}")
        self._runs = self._cluster.stores.claim(claim) + self._folders[-1][len("runs"):]

    def _job(self, word):
        return self._cluster.jobs[f"{self._base}-{word}"]

    def _words(self, jobs=JOBS):
        """What the running pods are called."""
        return [f"{job}/{index}" for job in jobs for index in self._job(job).running()]

    def _pod(self, word):
        job, index = word.split("/")
        return self._job(job).running()[int(index)]

    def _pods(self, jobs=JOBS):
        return [self._pod(word) for word in self._words(jobs)]

    def _read(self, name):
        path = os.path.join(self._runs, name)
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8") as file:
            return file.read()

    def _watch(self):
        steps = [x["step"] for x in objects(self._read("metrics.jsonl")) if x["kind"] == "train"]
        if steps and steps[-1:] != [step for _, step in self._steps[-1:]]:
            self._steps.append((time.monotonic(), steps[-1]))

    def _until(self, condition, what):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{PATIENCE} s passed without: {what}\n{self._cluster.said()}")
            self._cluster.tick()

    def _note(self, name, seconds):
        self.figures[name] = f"{seconds:.2f} s"

    def _head(self, pattern):
        """What the head of the manifests says to type."""
        return re.search("^#   (" + pattern + ")$", self._text, re.MULTILINE)[1]

    def _harm(self, word):
        """The pod. From the first time on is afterwards, and all pods are old ones."""
        if self._harmed is None:
            self._harmed = time.monotonic()
            self._views = len(objects(self._read("views.jsonl")))
            self._said = {pod: len(pod.said()) for pod in self._pods()}
            self._old = dict(zip(self._words(), self._pods()))
        self._until(lambda: word in self._words() and self._pod(word).is_started(),
                    f"the start of {word}")
        self._old[word] = self._pod(word)
        return self._old[word]

    def kill(self, word):
        self._harm(word).signal(signal.SIGKILL)

    def freeze(self, word):
        """It neither runs nor ends."""
        self._harm(word).signal(signal.SIGSTOP)

    def delete(self, word):
        self._cluster.kubectl(f"kubectl delete pod {self._harm(word).name}")

    def cut(self, word):
        self._cluster.network.set_link(self._harm(word).link, False)

    def heal(self, word):
        self._cluster.network.set_link(self._old[word].link, True)

    def give_up(self, word):
        """As the pod of a node that is lost."""
        self._old[word].is_disrupted = True
        self._old[word].signal(signal.SIGKILL)

    def scale(self, count):
        """Other workers than the four that there may be at most."""
        self._harm("workers/0")
        self._cluster.kubectl(self._head(r"kubectl patch .*").replace(":4", ":" + count))

    def step(self, number):
        """+N: so many later."""
        last = int(number) + (self._steps[-1][1] if number[0] == "+" else 0)
        self._until(lambda: self._steps and self._steps[-1][1] >= last, f"step {last}")

    def ended(self, word, code):
        pod = self._old[word]
        self._until(lambda: pod.ended is not None, f"the end of {word}")
        assert pod.exit_code() == int(code), (word, pod.exit_code(), pod.said())

    def again(self, *flags):
        """The objects deleted, and applied anew as these flags besides render them."""
        self._cluster.delete_jobs()
        self._apply(list(flags))
        self._harmed, self._old = None, {}

    def goes_on(self, number):
        """From a checkpoint of the run that was begun so many-th, and in the newest run."""
        said = f"goes on from /?{self._folders[int(number) - 1]}/checkpoints/"
        self._until(lambda: "shard-0/0" in self._words() and
                    re.search(said, self._pod("shard-0/0").said()), said)
        self._until(lambda: os.path.exists(self._runs), "the folder of the run")

    def replaced(self, word):
        self._until(lambda: word in self._words(), f"another {word}")
        assert self._pod(word).address != self._old[word].address

    def stays(self, word):
        assert self._pod(word) is self._old[word]

    def view(self, count, *pattern):
        """As many views since the harm whose reason has the pattern."""
        def found():
            views = objects(self._read("views.jsonl"))[self._views:]
            return sum(bool(re.search(" ".join(pattern), v["reason"])) for v in views)
        self._until(lambda: found() >= int(count), f"{count} views: {' '.join(pattern)}")

    def ready(self):
        self._until(lambda: all(pod.is_ready for pod in self._pods()), "ready pods")

    def unready(self, word):
        self._until(lambda: not self._old[word].is_ready, f"{word} is not ready")

    def probe(self, word, name):
        """That of the old pod for which it is killed."""
        probes = self._cluster.probes[self._old[word].name]
        self._until(lambda: probes.failed, f"a probe of {word} fails")
        assert probes.failed == name, probes.failed

    def noticed(self, word):
        """How long after the harm another pod says that one is lost."""
        def said():
            pods = [pod for pod in self._pods() if pod in self._said and pod is not self._old[word]]
            return any(re.search("warning|is gone|lost", pod.said()[self._said[pod]:])
                       for pod in pods)
        self._until(said, f"word of {word}")
        self._note("noticed", time.monotonic() - self._harmed)

    def reached(self, word):
        """How long after the new pod listens all others have connected to it."""
        peers = {pod.address for pod in self._pods(("workers",))}
        peers |= {pod.address for pod in self._pods(("servers",)) if word == "shard-0/0"}
        listens = []

        def connected():
            states = self._connections(self._pod(word))
            if "LISTEN" in states.values():
                listens.append(time.monotonic())
            return peers <= {peer for peer, state in states.items() if state == "ESTAB"}
        self._until(connected, f"all have reached {word}")
        self._note("reached", time.monotonic() - listens[0])

    @staticmethod
    def _connections(pod):
        """Of the pod's port: states by addresses."""
        said = subprocess.run(f"ip netns exec {pod.name} ss -Htna sport = :{PORT}".split(),
                              stdout=subprocess.PIPE, text=True, check=False).stdout
        rows = [line.split() for line in said.splitlines()]
        address = re.compile(r"(?:\[::ffff:)?([^\]]*)\]?:[^:]*")
        return {address.fullmatch(row[4])[1]: row[0] for row in rows}

    def status(self, *words):
        """By the command at the head."""
        code, said = self._cluster.kubectl(self._head(r"kubectl exec .* status .*"))
        assert code == 0 and re.search(r"\s+".join(words), said), said

    def failed(self, word, reason, pods):
        """A Job has, after so many pods."""
        job = self._job(word)
        self._until(lambda: job.condition, f"the end of Job {word}")
        assert (job.condition, job.reason, len(job.pods)) == ("Failed", reason, int(pods)), (
            job.condition, job.reason, [(pod.exit_code(), pod.said()[-300:]) for pod in job.pods])
        self._failed.add(job)

    def trained(self):
        """All Jobs have ended, and none has failed but those of which it was said."""
        jobs = self._cluster.jobs.values()
        self._until(lambda: all(job.condition for job in jobs), "the Jobs' ends")
        wrong = [(j.name, j.reason) for j in jobs
                 if (j.condition == "Failed") != (j in self._failed)]
        assert not wrong, f"{wrong}\n{self._cluster.said()}"
        summary = json.loads(self._read("summary.json"))
        self.figures["digest"] = summary["digest"]
        if self._harmed is not None:
            self.figures["again"] = summary["samples_rolled_back"] // 64
            self._measure()

    def _measure(self):
        """The longest time from the harm to the last step without a new line of metrics, and that
        until a new step."""
        before = [step for at, step in self._steps if at <= self._harmed] or [0]
        end = next(at for at, step in self._steps if step == self._steps[-1][1])
        after = [(at, step) for at, step in self._steps if self._harmed < at <= end]
        times = [self._harmed] + [at for at, _ in after]
        self._note("longest", max(b - a for a, b in zip(times, times[1:])))
        new = (at for at, step in after if step > before[-1] + 5)
        self._note("first", next(new) - self._harmed)

    def copy(self):
        """The pod in the comments reads the result, and can do no more."""
        self._cluster.apply("".join(re.findall(r"^#\| (.*\n)", self._text, re.MULTILINE)))
        name = f"{self._base}-files"
        self._until(self._cluster.pods[name].is_started, "the pod for copying")
        for line, wanted in (("cat /runs/*/summary.json", [self.figures["digest"]]),
                             ("touch /runs/x", ["Read-only file system"]),
                             ("touch /x", ["Read-only file system"]),
                             ("id -u", ["10001"]),
                             ("grep CapBnd /proc/self/status", ["0000000000000000"])):
            _, said = self._cluster.kubectl(f"kubectl exec {name} -- sh -c '{line}'")
            assert all(word in said for word in wanted), said

    def close(self):
        self._cluster.close()
