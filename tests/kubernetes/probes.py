"""The probes of a container, asked as the kubelet asks them."""

import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                                "attacks"))
import http2  # pylint: disable=wrong-import-position

CHECK = "/grpc.health.v1.Health/Check"
SERVING = b"\x08\x01"


def check(address, grpc, patience):
    """Whether the service says within so many seconds that it is serving."""
    http2.PATIENCE = patience  # that of all probes is the same
    try:
        with http2.Connection(f"{address}:{grpc['port']}") as connection:
            number, name = connection.open(CHECK), grpc.get("service", "").encode()
            connection.message(number, b"\x0a" + bytes([len(name)]) + name, end=True)
            return connection.await_message(number, patience=patience) == [SERVING]
    except (OSError, http2.Gone):
        return False


class Probes(threading.Thread):
    """Of one pod, one after the other: start-up until it succeeds, then the two others. It sets
    `is_ready` of the pod, and says by `failed` for which probe the container is to be killed.
    `haste` is a factor of all that they wait."""

    def __init__(self, pod, haste):
        super().__init__(daemon=True)
        self._pod, self._haste, self.failed = pod, haste, None
        names = ("startupProbe", "readinessProbe", "livenessProbe")
        self._probes = {name: pod.container[name] for name in names if name in pod.container}
        pod.is_ready = not self._probes
        if self._probes:
            self.start()

    def run(self):
        pod, failures = self._pod, dict.fromkeys(self._probes, 0)
        due = dict.fromkeys(self._probes, time.monotonic())
        is_started = "startupProbe" not in self._probes
        while pod.ended is None and self.failed is None:
            name = min((n for n in due if (n == "startupProbe") != is_started), key=due.get)
            probe = self._probes[name]
            time.sleep(max(due[name] - time.monotonic(), 0))
            due[name] = max(due[name] + probe["periodSeconds"] * self._haste, time.monotonic())
            good = check(pod.address, probe["grpc"], probe.get("timeoutSeconds", 1) * self._haste)
            failures[name] = 0 if good else failures[name] + 1
            is_failed = failures[name] >= probe.get("failureThreshold", 3)
            if good and name == "startupProbe":
                is_started, due = True, dict.fromkeys(self._probes, time.monotonic())
            elif name == "readinessProbe":
                pod.is_ready = good or (pod.is_ready and not is_failed)
            elif is_failed:
                self.failed = name
