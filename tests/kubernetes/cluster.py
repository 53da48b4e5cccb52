"""A cluster of one node: takes manifests, runs what they say, and does as `kubectl` for the commands at their head."""

import json
import os
import re
import shlex
import subprocess
import time

import yaml

import fields
from job import Job
from network import Network
from pod import Pod
from probes import Probes
from stores import Stores


class Refused(Exception):
    """A manifest that is not executed, in sentences."""


class Cluster:
    """`programs` are the image's, `environment` its variables."""

    def __init__(self, folder, programs, environment, delays):
        self.stores, self.network = Stores(folder, programs), Network(folder)
        self.jobs, self._services, self._probes, self.pods = {}, [], {}, {}
        self._environment, self._delays, self._folder = environment, delays, folder
        self.watchers = []  # called at each tick

    def _make(self, name, document, host=None):
        pod = Pod(name, document, self.stores, self.network, self._environment, host)
        self._probes[pod] = Probes(pod)
        self.pods[name] = pod
        return pod

    def apply(self, text):
        """All documents, or none with what is wrong."""
        documents = [document for document in yaml.safe_load_all(text) if document]
        wrong = [sentence for document in documents for sentence in fields.refusals(document)]
        if wrong:
            raise Refused("\n".join(wrong))
        for document in documents:
            kind, name = document["kind"], document["metadata"]["name"]
            if kind == "ConfigMap":
                self.stores.add_map(name, document["data"])
            elif kind == "Service":
                self._services.append(document)
            elif kind == "Job":
                self.jobs[name] = Job(document, self._make, self._delays)
            elif kind == "Pod":
                self._make(name, document)

    def _publish(self):
        names = set()
        for service in self._services:
            name, spec = service["metadata"]["name"], service["spec"]
            for pod in self.pods.values():
                if pod.ended is not None or not spec["selector"].items() <= pod.labels.items():
                    continue
                for port in spec["ports"]:
                    if port["targetPort"] not in [p["name"] for p in pod.container["ports"]]:
                        raise ValueError(f"{pod.name} has no port {port['targetPort']}")
                if not (pod.is_ready or spec.get("publishNotReadyAddresses")):
                    continue
                names.add((pod.address, name))
                if pod.spec.get("subdomain") == name:
                    names.add((pod.address, f"{pod.host}.{name}"))
        self.network.publish(names)

    def tick(self):
        for job in self.jobs.values():
            job.tick()
        for pod, probes in self._probes.items():
            pod.tick()
            if probes.verdict and pod.ended is None:
                pod.delete()
        self._publish()
        for watcher in self.watchers:
            watcher()
        time.sleep(0.02)

    def run_until(self, condition, what, patience=120):
        """Raises with all that the pods have said if it does not come to pass."""
        deadline = time.monotonic() + patience
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{patience} s passed without: {what}\n" + self.said())
            self.tick()

    def said(self):
        return "".join(f"--- {pod.name} ({pod.address}) exit code {pod.exit_code()}\n{pod.said()[-1500:]}" for pod in self.pods.values())

    def make_keys(self, head):
        """What the head of the manifests says to type before they are applied."""
        folder = os.path.join(self._folder, "keys")
        os.makedirs(folder)
        for line in re.findall(r"^#   (.*)$", head, re.MULTILINE):
            if line.startswith("(umask 077; rubato "):
                path = self.stores.programs + ":" + os.environ["PATH"]
                subprocess.run(["sh", "-c", line], cwd=folder, env=dict(os.environ, PATH=path), check=True)
            elif line.startswith("kubectl create secret "):
                words = shlex.split(line)
                data = {}
                for word in words[5:]:
                    key, name = re.fullmatch(r"--from-file=([^=]+)=(.+)", word).groups()
                    with open(os.path.join(folder, name), "rb") as file:
                        data[key] = file.read()
                self.stores.add_secret(words[4], data)

    def kubectl(self, line):
        """`patch job`, `exec` and `delete pod`; the exit code and output of exec."""
        words = shlex.split(line)
        if words[1] == "patch":
            self.jobs[words[3]].patch(json.loads(words[words.index("-p") + 1])["spec"])
        elif words[1] == "exec":
            kind, _, name = words[2].rpartition("/")
            pod = self.jobs[name].pod() if kind == "job" else self.pods[name]
            return pod.execute(words[words.index("--") + 1:])
        elif words[1:3] == ["delete", "pod"]:
            self.pods[words[3]].delete()
        else:
            raise ValueError(f"{line}: is not executed")
        return None

    def close(self):
        for pod in self.pods.values():
            pod.tick()
            if pod.ended is None:
                os.kill(pod.pid() or pod.launcher(), 9)
        self.network.close()
