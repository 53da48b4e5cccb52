"""A Job: which pods there should be, and what follows when one ends."""

import time
import uuid

FIRST_DELAY, LONGEST_DELAY = 10, 360  # seconds between a failure and the next pod, doubled each time


class Job:
    """`make` makes a pod of a name, a document and a host's name. `delays` is a factor of the time between failures and new pods."""

    def __init__(self, document, make, delays):
        self.name, self.spec, self.uid = document["metadata"]["name"], document["spec"], str(uuid.uuid4())
        self.pods, self.condition, self.reason = [], None, ""
        self._make, self._delays = make, delays
        self._failures, self._ends, self._not_before = {}, {}, {}  # by index
        self._succeeded, self._failed = set(), set()
        self._is_indexed = self.spec.get("completionMode") == "Indexed"
        if self._is_indexed == ("backoffLimit" in self.spec):
            raise ValueError(f"{self.name}: an Indexed Job has backoffLimitPerIndex, and only another one backoffLimit")

    def indices(self):
        return range(self.spec.get("completions", 1))

    def running(self):
        """By index."""
        return {pod.index: pod for pod in self.pods if pod.ended is None}

    def pod(self, index=0):
        return self.running()[index]

    def _create(self, index):
        template = self.spec["template"]
        labels = dict(template["metadata"]["labels"], **{
            "batch.kubernetes.io/controller-uid": self.uid, "batch.kubernetes.io/job-name": self.name})
        spec, host = template["spec"], None
        name = f"{self.name}-{len(self.pods)}"
        if self._is_indexed:
            labels["batch.kubernetes.io/job-completion-index"] = str(index)
            host, name = f"{self.name}-{index}", f"{self.name}-{index}-{len(self.pods)}"
            first = {"name": "JOB_COMPLETION_INDEX",
                     "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']"}}}
            container, = spec["containers"]
            spec = dict(spec, containers=[dict(container, env=[first] + container.get("env", []))])
        pod = self._make(name, {"metadata": {"labels": labels}, "spec": spec}, host)
        pod.index = index
        self.pods.append(pod)

    def _action(self, pod):
        """Of the first rule that the end of a pod meets."""
        for rule in self.spec.get("podFailurePolicy", {}).get("rules", []):
            codes = rule.get("onExitCodes")
            if codes and codes["containerName"] == pod.container["name"] and pod.exit_code() in codes["values"]:
                return rule["action"]
            if any(c["type"] == "DisruptionTarget" and pod.is_disrupted for c in rule.get("onPodConditions", [])):
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
        self._not_before[index] = pod.ended + self._delays * min(FIRST_DELAY << self._ends[index] - 1, LONGEST_DELAY)
        action = self._action(pod)
        if action == "FailJob":
            self._end("Failed", "PodFailurePolicy")
        elif action == "FailIndex":
            self._failed.add(index)
        elif action == "Count":
            self._failures[index] = self._failures.get(index, 0) + 1
            if self._failures[index] > self.spec.get("backoffLimitPerIndex" if self._is_indexed else "backoffLimit", 6):
                if not self._is_indexed:
                    self._end("Failed", "BackoffLimitExceeded")
                self._failed.add(index)
        if len(self._failed) > self.spec.get("maxFailedIndexes", len(self.indices())):
            self._end("Failed", "MaxFailedIndexesExceeded")

    def _end(self, condition, reason):
        if self.condition is None:
            self.condition, self.reason = condition, reason
            self.delete_pods()

    def delete_pods(self):
        for pod in self.running().values():
            pod.delete()

    def patch(self, spec):
        """parallelism and completions of an Indexed Job, which must be equal to be changed."""
        if set(spec) != {"parallelism", "completions"} or spec["parallelism"] != spec["completions"] or not self._is_indexed:
            raise ValueError(f"{self.name}: only parallelism and completions of an Indexed Job are changed, to equal numbers: {spec}")
        self.spec.update(spec)

    def tick(self):
        for pod in self.pods:
            pod.tick()
            if pod.ended is not None and not pod.is_counted:
                pod.is_counted = True
                self._on_end(pod)
        if self.condition is not None:
            return
        running = self.running()
        for index, pod in running.items():
            if index not in self.indices():
                pod.delete()
        missing = [i for i in self.indices() if i not in running and i not in self._succeeded | self._failed]
        for index in missing[:max(self.spec.get("parallelism", 1) - len(running), 0)]:
            if time.monotonic() >= self._not_before.get(index, 0):  # also podReplacementPolicy: Failed
                self._create(index)
        done = {i for i in self._succeeded | self._failed if i in self.indices()}
        if not missing and not running and len(done) == len(self.indices()):
            if self._failed & done:
                self._end("Failed", "FailedIndexes")
            else:
                self._end("Complete", "")
