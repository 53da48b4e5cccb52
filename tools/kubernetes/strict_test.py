"""The goldens against Kubernetes' own schemas, and Kustomize's reading of them.

What it needs of PyPI is in tools/test_requirements.txt, looked for in the folder that
RUBATO_TEST_PACKAGES names; without it the test is skipped.
"""

import copy
import glob
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, "tests")
sys.path.insert(0, "tools/kubernetes")
from packaged import program  # pylint: disable=wrong-import-position
from skipped import skip  # pylint: disable=wrong-import-position

PACKAGES = os.environ.get("RUBATO_TEST_PACKAGES", "")
sys.path.insert(0, PACKAGES or "/nonexistent")
try:
    import yaml
    from strict import newest, refusal
except ImportError:
    skip("KubernetesTest", "StrictSchemas",
         "RUBATO_TEST_PACKAGES names no folder with kubernetes-validate (CONTRIBUTING.md)")

OLDEST = "1.33"


def documents(path):
    """All of a golden, the pod in its comments included."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    pod = "".join(line[3:] for line in text.splitlines(True) if line.startswith("#| "))
    return [d for d in yaml.safe_load_all(text) if d] + [yaml.safe_load(pod)]


def planted(document):
    """The document with one mistake each."""
    def change(what):
        changed = copy.deepcopy(document)
        what(changed)
        return changed

    yield "unknown key", change(lambda d: d["spec"].update(replicas=2))
    yield "unknown key within", change(
        lambda d: d["spec"]["template"]["spec"]["containers"][0].update(comand=["x"]))
    yield "wrong type", change(lambda d: d["spec"].update(backoffLimit="three"))
    yield "missing containers", change(lambda d: d["spec"]["template"]["spec"].pop("containers"))
    yield "missing template", change(lambda d: d["spec"].pop("template"))
    yield "missing name", change(
        lambda d: d["spec"]["template"]["spec"]["containers"][0].pop("name"))


def main():
    goldens = sorted(glob.glob("tools/kubernetes/goldens/*.yaml"))
    assert goldens
    for version in (OLDEST, newest()):
        for path in goldens:
            for document in documents(path):
                found = refusal(document, version)
                assert found is None, f"{path}, {document['kind']}, {version}: {found}"
        job = [d for d in documents(goldens[0]) if d["kind"] == "Job"][0]
        for mistake, document in planted(job):
            assert refusal(document, version), f"{version}: {mistake} was not refused"
    kubectl = program("kubectl")
    if kubectl is None:
        print("kubectl was not found: its kustomize did not read the goldens")
        return
    for path in goldens:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(path, folder + "/job.yaml")
            with open(folder + "/kustomization.yaml", "w", encoding="utf-8") as file:
                file.write("resources: [job.yaml]\n")
            read = subprocess.run([kubectl, "kustomize", folder], stdout=subprocess.PIPE, check=True)
            key = lambda d: (d["kind"], d["metadata"]["name"])
            assert sorted(yaml.safe_load_all(read.stdout), key=key) == sorted(
                documents(path)[:-1], key=key), path


main()
