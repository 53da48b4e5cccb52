"""A Job: which pods there should be, and what follows when one ends."""

import time
import uuid

# Seconds between a failure and the next pod, doubled each time.
FIRST_DELAY, LONGEST_DELAY = 10, 360


class Job:
    """`make` makes a pod of a name, a document and a host's name. `haste` is a factor of the time
    between failures and new pods."""

    def __init__(self, document, make, haste):
        self.name, self.spec = document["metadata"]["name"], document["spec"]
        self.uid = str(uuid.uuid4())
        self.pods, self.condition, self.reason = [], None, ""
        self._make, self._haste, self._counted = make, haste, set()
        self._failures, self._ends, self._not_before = {}, {}, {}  # by index
        self._succeeded, self._failed = set(), set()
        self._is_indexed = self.spec.get("completionMode") == "Indexed"
        if self._is_indexed == ("backoffLimit" in self.spec):
            raise ValueError(f"{self.name}: backoffLimit is executed without, and "
                             "backoffLimitPerIndex with completionMode: Indexed")

    def indices(self):
        return range(self.spec.get("completions", 1))

    def running(self):
        """By index."""
        return {pod.index: pod for pod in self.pods if pod.ended is None}

    def _create(self, index):
        template, host = self.spec["template"], None
        drawn = f"{self.uid[:5]}-{len(self.pods)}"
        spec, name = template["spec"], f"{self.name}-{drawn}"
        labels = dict(template["metadata"]["labels"])
        labels["batch.kubernetes.io/controller-uid"] = self.uid
        labels["batch.kubernetes.io/job-name"] = self.name
        if self._is_indexed:
            label = "batch.kubernetes.io/job-completion-index"
            labels[label] = str(index)
            host, name = f"{self.name}-{index}", f"{self.name}-{index}-{drawn}"
            last = {"name": "JOB_COMPLETION_INDEX",
                    "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}}
            container, = spec["containers"]
            spec = dict(spec, containers=[dict(container, env=container["env"] + [last])])
        pod = self._make(name, {"metadata": {"labels": labels}, "spec": spec}, host)
        pod.index = index
        self.pods.append(pod)

    def _action(self, pod):
        """Of the first rule that the end of a pod meets."""
        for rule in self.spec.get("podFailurePolicy", {}).get("rules", []):
            codes = rule.get("onExitCodes")
            is_of_code = (codes and codes["containerName"] == pod.container["name"] and
                          pod.exit_code() in codes["values"])
            if is_of_code or (pod.is_disrupted and "onPodConditions" in rule):
                return rule["action"]
        return "Count"

    def _on_end(self, pod):
        index = pod.index
        if index not in self.indices():  # deleted when the Job was made smaller
            return
        if pod.exit_code() == 0 and not pod.is_disrupted:
            self._succeeded.add(index)
            return
        self._ends[index] = self._ends.get(index, 0) + 1
        delay = min(FIRST_DELAY << self._ends[index] - 1, LONGEST_DELAY)
        self._not_before[index] = pod.ended + self._haste * delay
        action = self._action(pod)
        if action == "FailJob":
            self._end("Failed", "PodFailurePolicy")
        elif action == "FailIndex":
            self._failed.add(index)
        elif action == "Count":
            self._failures[index] = self._failures.get(index, 0) + 1
            limit = self.spec["backoffLimitPerIndex" if self._is_indexed else "backoffLimit"]
            if self._failures[index] > limit and self._is_indexed:
                self._failed.add(index)
            elif self._failures[index] > limit:
                self._end("Failed", "BackoffLimitExceeded")
        if len(self._failed) > self.spec.get("maxFailedIndexes", len(self.indices())):
            self._end("Failed", "MaxFailedIndexesExceeded")

    def _end(self, condition, reason):
        if self.condition is None:
            self.condition, self.reason = condition, reason
            for pod in self.running().values():
                pod.delete()

    def delete(self):
        """With its pods, and no others are made."""
        self._end("Deleted", "")

    def patch(self, spec):
        """parallelism and completions, which of an Indexed Job are changed to equal numbers."""
        assert spec["parallelism"] == spec["completions"] and len(spec) == 2, spec
        self.spec.update(spec)

    def tick(self):
        for pod in self.pods:
            pod.tick()
            if pod.ended is not None and pod not in self._counted:
                self._counted.add(pod)
                self._on_end(pod)
        if self.condition is not None:
            return
        running, ended = self.running(), self._succeeded | self._failed
        for index, pod in running.items():
            if index not in self.indices():
                pod.delete()
        missing = [i for i in self.indices() if i not in running and i not in ended]
        for index in missing[:max(self.spec.get("parallelism", 1) - len(running), 0)]:
            # A pod has ended before another is made: podReplacementPolicy: Failed.
            if time.monotonic() >= self._not_before.get(index, 0):
                self._create(index)
        if not missing and not running:
            is_failed = self._failed & set(self.indices())
            self._end(*("Failed", "FailedIndexes") if is_failed else ("Complete", ""))
