"""The probes of a container, asked as the kubelet asks them."""

import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "attacks"))
import http2  # pylint: disable=wrong-import-position

CHECK = "/grpc.health.v1.Health/Check"
SERVING = b"\x08\x01"


def check(address, port, service, patience):
    """Whether the service says within so many seconds that it is serving."""
    http2.PATIENCE = patience  # that of all probes is the same
    try:
        with http2.Connection(f"{address}:{port}") as connection:
            number = connection.open(CHECK)
            name = service.encode()
            connection.message(number, b"\x0a" + bytes([len(name)]) + name, end=True)
            return connection.await_message(number, patience=patience) == [SERVING]
    except (OSError, http2.Gone):
        return False


class Probes(threading.Thread):
    """Of one pod, one after the other: start-up until it succeeds, then the two others. It sets `is_ready` of the pod, and says by
    `verdict` that the container is to be killed."""

    def __init__(self, pod):
        super().__init__(daemon=True)
        self._pod, self.verdict = pod, None
        self._probes = {name: pod.container[name] for name in ("startupProbe", "readinessProbe", "livenessProbe") if name in pod.container}
        if self._probes:
            self.start()
        else:
            pod.is_ready = True

    def _ask(self, name):
        probe = self._probes[name]
        return check(self._pod.address, probe["grpc"]["port"], probe["grpc"].get("service", ""), probe.get("timeoutSeconds", 1))

    def run(self):
        pod, failures = self._pod, dict.fromkeys(self._probes, 0)
        due = {name: time.monotonic() for name in self._probes}
        is_started = "startupProbe" not in self._probes
        while pod.ended is None and self.verdict is None:
            names = [name for name in self._probes if (name == "startupProbe") != is_started]
            name = min(names, key=due.get)
            wait = due[name] - time.monotonic()
            if wait > 0:
                time.sleep(min(wait, 0.2))
                continue
            due[name] += self._probes[name]["periodSeconds"]
            good = self._ask(name)
            failures[name] = 0 if good else failures[name] + 1
            if good and name == "startupProbe":
                is_started = True
                due = dict.fromkeys(self._probes, time.monotonic())
            elif name == "readinessProbe":
                pod.is_ready = good if good or failures[name] >= self._probes[name].get("failureThreshold", 3) else pod.is_ready
            elif failures[name] >= self._probes[name].get("failureThreshold", 3):
                self.verdict = f"{name} failed {failures[name]} times"
