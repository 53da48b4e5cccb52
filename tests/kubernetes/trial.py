"""A job in a cluster, from its manifests to its end, and what is seen of it meanwhile."""

import datetime
import glob
import json
import os
import re
import subprocess
import time

from cluster import Cluster

PORT = 29500


def pages(text):
    """The lines of a file of JSON objects; one that is not whole yet is left out."""
    return [json.loads(line) for line in text.split("\n")[:-1]]


class Trial:
    """`change` alters the manifests' text before they are applied."""

    def __init__(self, folder, programs, job, environment, delays, change=lambda text: text):
        self.text = subprocess.run([programs[0], "render", "kubernetes", job, "--image", "rubato:test"],
                                   stdout=subprocess.PIPE, text=True, check=True).stdout
        self.base = re.search(r"^kind: Service\nmetadata:\n  name: (.*)$", self.text, re.MULTILINE)[1]
        self.cluster = Cluster(folder, programs, environment, delays)
        self.cluster.make_keys(self.text)
        self.cluster.apply(change(self.text))
        self.coordinator, self.servers, self.workers = (
            self.cluster.jobs[f"{self.base}-{name}"] for name in ("shard-0", "servers", "workers"))
        self._runs = os.path.join(folder, "claims", self.base + "-runs", f"{self.base}-{self.coordinator.uid}")
        self._seen, self._size, self.steps = 0, 0, []  # pairs of a moment and a step
        self.harmed = None
        self.cluster.watchers.append(self._watch)

    def read(self, name):
        try:
            with open(os.path.join(self._runs, name), encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def views(self):
        return pages(self.read("views.jsonl"))

    def _watch(self):
        path = os.path.join(self._runs, "metrics.jsonl")
        size = os.path.getsize(path) if os.path.exists(path) else 0
        if size != self._size:
            self._size = size
            lines = [line for line in pages(self.read("metrics.jsonl")) if line["kind"] == "train"]
            if lines:
                self.steps.append((time.monotonic(), lines[-1]["step"]))

    def run_until(self, condition, what, patience=120):
        self.cluster.run_until(condition, what, patience)

    def await_step(self, step):
        self.run_until(lambda: self.steps and self.steps[-1][1] >= step, f"step {step}")

    def harm(self):
        """From now on is afterwards."""
        self.harmed, self.harmed_at = time.monotonic(), time.time()
        self._views = len(self.views())

    def await_view(self, word, more=1):
        """As many views since the harm whose reason has the word."""
        self.run_until(lambda: sum(bool(re.search(word, view["reason"])) for view in self.views()[self._views:]) >= more, f"a view: {word}")

    def standstill(self):
        """The longest time from the harm to the last step without a new line of metrics, and that until a new step: seconds."""
        before = [step for at, step in self.steps if at <= self.harmed]
        end = next(at for at, step in self.steps if step == self.steps[-1][1])
        after = [(at, step) for at, step in self.steps if self.harmed < at <= end]
        times = [self.harmed] + [at for at, _ in after]
        longest = max(b - a for a, b in zip(times, times[1:]))
        return longest, next(at for at, step in after if step > before[-1] + 5) - self.harmed

    def complete(self):
        """Until all Jobs have ended well; the digest."""
        self.run_until(lambda: all(job.condition for job in self.cluster.jobs.values()), "the Jobs' ends")
        wrong = [f"{job.name}: {job.condition} {job.reason}" for job in self.cluster.jobs.values() if job.condition != "Complete"]
        if wrong:
            raise AssertionError("; ".join(wrong) + "\n" + self.cluster.said())
        return self.summary()["digest"]

    def summary(self):
        return json.loads(self.read("summary.json"))

    def said_after(self, pods, words):
        """The first line that one of the pods has said since the harm with one of the words: seconds after the harm, and the line."""
        found = []
        for pod in pods:
            for line in pod.said().splitlines():
                match = re.match(r"(\d{4}-\S+Z) (.*)", line)
                if not match or not re.search(words, line):
                    continue
                at = datetime.datetime.fromisoformat(match[1].replace("Z", "+00:00")).timestamp()
                if at > self.harmed_at:
                    found.append((at - self.harmed_at, match[2]))
        return min(found) if found else None

    def connected(self, pod):
        """Who has a connection to the pod's port, as addresses; None if nobody listens there."""
        listens, peers = False, set()
        for path in glob.glob(f"/proc/{pod.pid()}/net/tcp*"):
            with open(path, encoding="utf-8") as file:
                for line in file.readlines()[1:]:
                    _, local, remote, state = line.split()[:4]
                    if int(local.split(":")[1], 16) != PORT:
                        continue
                    listens |= state == "0A"
                    if state == "01":
                        digits = remote.split(":")[0][-8:]
                        peers.add(".".join(str(byte) for byte in reversed(bytes.fromhex(digits))))
        return peers if listens else None

    @staticmethod
    def now():
        return time.monotonic()

    @property
    def network(self):
        return self.cluster.network

    def head(self, pattern):
        """What the head of the manifests says to type."""
        return re.search("^#   (" + pattern + ")$", self.text, re.MULTILINE)[1]

    def head_pod(self):
        """The pod in the comments."""
        return "".join(re.findall(r"^#\| (.*\n)", self.text, re.MULTILINE))

    def close(self):
        self.cluster.close()
