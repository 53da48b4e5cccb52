"""A cluster of one node: takes manifests, runs what they say, and does as `kubectl` for the
commands at their head."""

import json
import os
import re
import shlex
import subprocess
import time

import yaml

import fields
from job import Job
from pod import Pod
from probes import Probes
from stores import Stores


class Cluster:
    """`programs` are the image's, `image` its variables. `haste` is a factor of the times between
    pods of a Job, and where `is_hasty` of probes and the times to end as well."""

    def __init__(self, folder, programs, network, image, haste, is_hasty):
        self.stores, self.network = Stores(folder, programs), network
        self.jobs, self.pods, self.probes = {}, {}, {}  # by name
        self._services, self._image, self._folder = [], image, folder
        self._haste, self._kubelet = haste, haste if is_hasty else 1
        self.watchers = []  # called at each tick

    def _make(self, name, document, host=None):
        pod = Pod(name, document, self.stores, self.network, self._image, self._kubelet, host)
        self.pods[name], self.probes[name] = pod, Probes(pod, self._kubelet)
        return pod

    def apply(self, text):
        """All documents; ValueError with all that is wrong, and then none."""
        documents = [document for document in yaml.safe_load_all(text) if document]
        wrong = [sentence for document in documents for sentence in fields.refusals(document)]
        if wrong:
            raise ValueError("\n".join(wrong))
        for document in documents:
            kind, name = document["kind"], document["metadata"]["name"]
            if kind == "ConfigMap":
                data = {key: value.encode() for key, value in document["data"].items()}
                self.stores.maps[name] = data
            elif kind == "Service":
                self._services.append(document)
            elif kind == "Job":
                self.jobs[name] = Job(document, self._make, self._haste)
            elif kind == "Pod":
                self._make(name, document)

    def delete_jobs(self):
        """As `kubectl delete -f`, when the pods have ended; claims and what was said stay."""
        self._services = []  # so that names go at once
        for job in self.jobs.values():
            job.delete()
        while any(job.running() for job in self.jobs.values()):
            self.tick()
        self.jobs = {}

    def _publish(self):
        names = set()
        for service in self._services:
            name, spec = service["metadata"]["name"], service["spec"]
            for pod in self.pods.values():
                if pod.ended is not None or not spec["selector"].items() <= pod.labels.items():
                    continue
                if pod.is_ready or spec.get("publishNotReadyAddresses"):
                    names.add((pod.address, name))
                    if pod.spec.get("subdomain") == name:
                        names.add((pod.address, f"{pod.host}.{name}"))
        self.network.publish(names)

    def tick(self):
        for job in self.jobs.values():
            job.tick()
        for name, pod in self.pods.items():
            pod.tick()
            if self.probes[name].failed:
                pod.delete()
        self._publish()
        for watcher in self.watchers:
            watcher()
        time.sleep(0.02)

    def make_keys(self, head):
        """What the head of the manifests says to type before they are applied."""
        folder = os.path.join(self._folder, "keys")
        os.makedirs(folder)
        for line in re.findall(r"^#   (.*)$", head, re.MULTILINE):
            if line.startswith("(umask 077; rubato "):
                path = self.stores.programs + ":" + os.environ["PATH"]
                subprocess.run(["sh", "-c", line], cwd=folder, env=dict(os.environ, PATH=path),
                               check=True)
            elif line.startswith("kubectl create secret "):
                *_, name, source = shlex.split(line)
                key, file_name = re.fullmatch(r"--from-file=([^=]+)=(.+)", source).groups()
                with open(os.path.join(folder, file_name), "rb") as file:
                    self.stores.secrets[name] = {key: file.read()}

    def kubectl(self, line):
        """`patch job`, `exec` and `delete pod`; the exit code and output of exec."""
        words = shlex.split(line)
        if words[1] == "patch":
            self.jobs[words[3]].patch(json.loads(words[words.index("-p") + 1])["spec"])
        elif words[1:3] == ["delete", "pod"]:
            self.pods[words[3]].delete()
        elif words[1] == "exec":
            kind, _, name = words[2].rpartition("/")
            pod = self.jobs[name].running()[0] if kind == "job" else self.pods[name]
            return pod.execute(words[words.index("--") + 1:])
        else:
            raise ValueError(f"{line}: is not executed")
        return None

    def said(self):
        """The last words of all pods."""
        return "".join(f"--- {pod.name} ({pod.address}) exit code {pod.exit_code()}\n"
                       f"{pod.said()[-1500:]}" for pod in self.pods.values())

    def close(self):
        for pod in self.pods.values():
            pod.close()
