"""What is not executed is refused, and docs/kubernetes.md prints what is only looked at."""

import copy
import glob
import os
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE), os.environ.get("RUBATO_TEST_PACKAGES") or "/nonexistent"]
import fields  # pylint: disable=wrong-import-position
from skipped import skip  # pylint: disable=wrong-import-position

try:
    import yaml
except ImportError:
    skip("KubernetesTest", "Fields", "PyYAML is not installed")


def planted(job):
    """The Job with one thing each that is not executed, and a word of the refusal."""
    for change, word in (
            (lambda spec: spec.update(suspend=True), "spec.suspend is neither"),
            (lambda spec: spec.update(podReplacementPolicy="TerminatingOrFailed"), "found TerminatingOrFailed"),
            (lambda spec: spec["template"]["spec"].update(restartPolicy="OnFailure"), "found OnFailure"),
            (lambda spec: spec["template"]["spec"].update(initContainers=[{"name": "data"}]), "initContainers[].name is neither"),
            (lambda spec: spec["template"]["spec"]["containers"][0].update(lifecycle={"preStop": {}}), "lifecycle.preStop is neither"),
            (lambda spec: spec["template"]["spec"]["securityContext"].update(runAsNonRoot=False), "found False")):
        changed = copy.deepcopy(job)
        change(changed["spec"])
        yield changed, word


def main():
    goldens = sorted(glob.glob("tools/kubernetes/goldens/*.yaml"))
    assert goldens
    for path in goldens:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        pod = "".join(line[3:] for line in text.splitlines(True) if line.startswith("#| "))
        documents = [document for document in yaml.safe_load_all(text) if document] + [yaml.safe_load(pod)]
        found = [sentence for document in documents for sentence in fields.refusals(document)]
        assert not found, f"{path}: {found}"
        for job in documents:
            for changed, word in planted(job) if job["kind"] == "Job" else ():
                found = list(fields.refusals(changed))
                assert len(found) == 1 and word in found[0], (path, word, found)
    with open("docs/kubernetes.md", encoding="utf-8") as file:
        assert fields.table() in file.read(), "docs/kubernetes.md is to have this table:\n" + fields.table()


main()
