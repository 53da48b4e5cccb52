"""What is not executed is refused, and docs/kubernetes.md prints what is only looked at."""

import copy
import glob
import os
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE),
                os.environ.get("RUBATO_TEST_PACKAGES") or "/nonexistent"]
from skipped import skip  # pylint: disable=wrong-import-position

try:
    import yaml

    import fields
except ImportError:
    skip("KubernetesTest", "Fields", "PyYAML is not installed")


def _looked_at(rule, path, seen):
    if isinstance(rule, dict) and id(rule) not in seen:
        seen.add(id(rule))
        for key, value in rule.items():
            yield from _looked_at(value, f"{path}.{key}", seen)
    elif isinstance(rule, str) and rule != "run":
        yield f"| {path} | {rule} |"


def markdown():
    """What is not executed. What a Job's pods have is told of a Pod."""
    rows, seen = ["| field | why it is not executed |", "|---|---|"], set()
    for kind, rules in fields.TABLE.items():
        for key, rule in rules.items():
            rows += _looked_at(rule, f"{kind} {key}", seen)
    return "\n".join(rows)


def planted(job):
    """The Job with one thing each that is not executed, and a word of the refusal."""
    for path, value, word in (
            ("suspend", True, "spec.suspend is neither"),
            ("podReplacementPolicy", "TerminatingOrFailed", "found TerminatingOrFailed"),
            ("template.spec.restartPolicy", "OnFailure", "found OnFailure"),
            ("template.spec.initContainers", [{"name": "data"}], "initContainers is neither"),
            ("template.spec.containers.0.lifecycle", {"preStop": {}}, "lifecycle is neither"),
            ("template.spec.securityContext.runAsNonRoot", False, "found False")):
        changed = copy.deepcopy(job)
        *way, last = path.split(".")
        node = changed["spec"]
        for key in way:
            node = node[int(key) if isinstance(node, list) else key]
        node[last] = value
        yield changed, word


def main():
    goldens = sorted(glob.glob("tools/kubernetes/goldens/*.yaml"))
    assert goldens
    for path in goldens:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        pod = "".join(line[3:] for line in text.splitlines(True) if line.startswith("#| "))
        documents = [d for d in yaml.safe_load_all(text) if d] + [yaml.safe_load(pod)]
        found = [sentence for document in documents for sentence in fields.refusals(document)]
        assert not found, f"{path}: {found}"
        for job in documents:
            for changed, word in planted(job) if job["kind"] == "Job" else ():
                found = list(fields.refusals(changed))
                assert len(found) == 1 and word in found[0], (path, word, found)
    with open("docs/kubernetes.md", encoding="utf-8") as file:
        assert markdown() in file.read(), "to be in the page:\n" + markdown()


main()
