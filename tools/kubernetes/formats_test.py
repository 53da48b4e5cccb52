"""Every example job in the other formats, against schemas and the programs that read them.

RUBATO_KUBERNETES_SCHEMAS names a folder with NAME.json files {apiVersion, kind, schema}, where
`schema` is the OpenAPI schema of a published custom resource. The packages are those of
tools/test_requirements.txt in the folder that RUBATO_TEST_PACKAGES names.
"""

import copy
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, "tests")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import render_examples  # pylint: disable=wrong-import-position
from packaged import program  # pylint: disable=wrong-import-position
from skipped import run_cases, skip  # pylint: disable=wrong-import-position

RUBATO = sys.argv.pop(1)
SCHEMAS = os.environ.get("RUBATO_KUBERNETES_SCHEMAS", "")
sys.path.insert(0, os.environ.get("RUBATO_TEST_PACKAGES") or "/nonexistent")
try:
    import jsonschema
    import yaml
    from strict import newest, refusal
except ImportError:
    skip("FormatsTest", "Schemas",
         "RUBATO_TEST_PACKAGES names no folder with kubernetes-validate and jsonschema")

CUSTOM = {"JobSet", "TrainingRuntime", "TrainJob"}


def closed(schema):
    """The schema with unknown keys refused wherever it lists the known ones."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: closed(value) for key, value in schema.items()}
    if (isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema
            and not schema.get("x-kubernetes-preserve-unknown-fields")):
        result["additionalProperties"] = False
    return result


def custom_schemas():
    found = {}
    for path in glob.glob(os.path.join(SCHEMAS, "*.json")):
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        found[content["apiVersion"], content["kind"]] = closed(content["schema"])
    return found


def documents(text):
    """All of a rendering, those in its comments included."""
    parts = [text]
    for mark in ("#| ", "#> "):
        parts.append("".join(l[3:] for l in text.splitlines(True) if l.startswith(mark)))
    return [d for part in parts for d in yaml.safe_load_all(part) if d]


def jobs(document):
    """The Jobs that a custom resource makes, as documents of their own."""
    spec = document["spec"]
    if document["kind"] == "TrainingRuntime":
        spec = spec["template"]["spec"]
    return [{"apiVersion": "batch/v1", "kind": "Job",
             "metadata": dict(job["template"]["metadata"], name="x"),
             "spec": job["template"]["spec"]} for job in spec.get("replicatedJobs", [])]


def by_name(found):
    return sorted(found, key=lambda d: (d["kind"], d["metadata"]["name"]))


class FormatsTest(unittest.TestCase):

    def test_what_is_not_custom_is_as_kubernetes_has_it(self):
        for output_format in render_examples.FORMATS:
            for name in render_examples.examples():
                found = documents(render_examples.render(RUBATO, name, output_format))
                plain = [d for d in found if d["kind"] not in CUSTOM]
                made = [job for d in found if d["kind"] in CUSTOM for job in jobs(d)]
                self.assertGreaterEqual(len(made), 2)
                for version in ("1.33", newest()):
                    for document in plain + made:
                        self.assertIsNone(refusal(document, version),
                                          (output_format, name, document["kind"]))

    def test_custom_resources_are_as_published(self):
        if not os.path.isdir(SCHEMAS):
            self.skipTest("RUBATO_KUBERNETES_SCHEMAS names no folder (CONTRIBUTING.md)")
        schemas = custom_schemas()
        kinds = set()
        for output_format in render_examples.FORMATS:
            for name in render_examples.examples():
                for document in documents(render_examples.render(RUBATO, name, output_format)):
                    if document["kind"] not in CUSTOM:
                        continue
                    kinds.add(document["kind"])
                    schema = schemas[document["apiVersion"], document["kind"]]
                    errors = list(jsonschema.Draft7Validator(schema).iter_errors(document))
                    self.assertEqual(errors, [], (output_format, name))
        self.assertEqual(kinds, CUSTOM)

    def test_overlays_are_what_the_flags_render(self):
        kubectl = program("kubectl")
        if kubectl is None:
            self.skipTest("RUBATO_TEST_PACKAGES names no folder with kubectl")

        def built(folder, overlay):
            done = subprocess.run([kubectl, "kustomize", f"{folder}/overlays/{overlay}"],
                                  stdout=subprocess.PIPE, check=True)
            return by_name(yaml.safe_load_all(done.stdout))

        def plain(name, more=()):
            text = render_examples.render(RUBATO, name, "plain", more, leave_out=["--gpus"])
            return by_name(d for d in yaml.safe_load_all(text) if d)

        for name in render_examples.examples():
            with tempfile.TemporaryDirectory() as folder:
                render_examples.kustomize(RUBATO, name, folder)
                self.assertEqual(built(folder, "cpu"), plain(name), name)
                gpu = render_examples.render(RUBATO, name, "plain",
                                             [] if name == "fashion_cnn" else ["--gpus", "1"])
                self.assertEqual(built(folder, "gpu"),
                                 by_name(d for d in yaml.safe_load_all(gpu) if d), name)
                dev = built(folder, "dev")
                small = [d for d in dev if d["kind"] == "Job"]
                self.assertEqual([d["spec"]["completions"] for d in small
                                  if d["metadata"]["name"].endswith("-workers")], [1])
                for job in small:
                    container = job["spec"]["template"]["spec"]["containers"][0]
                    self.assertEqual(container["resources"]["requests"]["cpu"], "100m")
                for document in dev:
                    self.assertIsNone(refusal(document, newest()), (name, document["kind"]))
        # What an overlay says wrongly is seen in what is made with it.
        with tempfile.TemporaryDirectory() as folder:
            render_examples.kustomize(RUBATO, "quickstart", folder)
            path = folder + "/overlays/dev/kustomization.yaml"
            with open(path, encoding="utf-8") as file:
                text = file.read()
            self.assertIn("/spec/parallelism", text)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text.replace("/spec/parallelism", "/spec/paralelism"))
            self.assertTrue([d for d in built(folder, "dev") if refusal(d, newest())])

    def test_the_page_shows_patches_of_all_pods(self):
        kubectl = program("kubectl")
        if kubectl is None:
            self.skipTest("RUBATO_TEST_PACKAGES names no folder with kubectl")
        with open("docs/kubernetes.md", encoding="utf-8") as file:
            found = re.search("^    resources: \\[job.yaml\\]\n(    .*\n|\n)*", file.read(), re.MULTILINE)
        with tempfile.TemporaryDirectory() as folder:
            text = render_examples.render(RUBATO, "quickstart")
            for name, content in (("job", text), ("kustomization", textwrap.dedent(found[0]))):
                with open(f"{folder}/{name}.yaml", "w", encoding="utf-8") as file:
                    file.write(content)
            done = subprocess.run([kubectl, "kustomize", folder], stdout=subprocess.PIPE, check=True)
        patched = by_name(yaml.safe_load_all(done.stdout))
        self.assertEqual(len([d for d in patched if refusal(d, newest())]), 0)
        for document in patched:
            if document["kind"] == "PersistentVolumeClaim":
                self.assertEqual(document["spec"].pop("storageClassName"), "fast")
            if document["kind"] != "Job":
                continue
            pod = document["spec"]["template"]["spec"]
            self.assertEqual(pod.pop("imagePullSecrets"), [{"name": "registry"}])
            self.assertEqual(pod.pop("nodeSelector"), {"pool": "training"})
            if document["metadata"]["name"].endswith("-workers"):
                self.assertEqual(pod.pop("tolerations"), [{"key": "nvidia.com/gpu", "operator": "Exists"}])
        self.assertEqual(patched, by_name(d for d in yaml.safe_load_all(text) if d))

    def test_a_chart_is_what_the_flags_render(self):
        helm = program("helm")
        if helm is None:
            self.skipTest("RUBATO_TEST_PACKAGES names no folder with helm")

        def run(*arguments):
            return subprocess.run([helm] + list(arguments), stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, check=False,
                                  env=dict(os.environ, HOME=os.environ["TEST_TMPDIR"]))

        def filled(folder, *more):
            done = run("template", "x", folder, *more)
            self.assertEqual(done.returncode, 0, done.stderr)
            return by_name(d for d in yaml.safe_load_all(done.stdout) if d)

        for name in render_examples.examples():
            with tempfile.TemporaryDirectory() as folder:
                render_examples.render(RUBATO, name, "helm", ["--output", folder])
                lint = run("lint", "--strict", folder)
                self.assertEqual(lint.returncode, 0, lint.stdout + lint.stderr)
                plain = by_name(d for d in yaml.safe_load_all(
                    render_examples.render(RUBATO, name)) if d)
                self.assertEqual(filled(folder), plain, name)
        with tempfile.TemporaryDirectory() as folder:
            render_examples.render(RUBATO, "quickstart", "helm", ["--output", folder])
            changed = filled(folder, "--set", "gpus=1,workers=1,name=other,claims.runs=mine,image=a/b:1")
            flags = ["--gpus", "1", "--runs-claim", "mine", "--image", "a/b:1"]
            text = render_examples.render(RUBATO, "quickstart", "plain", flags)
            wanted = [d for d in yaml.safe_load_all(text) if d]
            base = [d for d in wanted if d["kind"] == "ConfigMap"][0]["metadata"]["name"]
            wanted = by_name(yaml.safe_load_all(text.replace(base, "other")))
            for found, expected in zip(changed, [d for d in wanted if d], strict=True):
                if found["kind"] == "ConfigMap":
                    # One worker of two that there may be; the digest counts them.
                    self.assertEqual(found["metadata"]["annotations"]["rubato-job-digest"], "")
                    self.assertEqual(found["data"]["job.yaml"], expected["data"]["job.yaml"].replace(
                        "workers: {start: 2,", "workers: {start: 1,"))
                elif found["metadata"]["name"] == "other-workers":
                    self.assertEqual(found["spec"]["parallelism"], 1)
                    self.assertEqual(found["spec"]["completions"], 1)
                    container = found["spec"]["template"]["spec"]["containers"][0]
                    self.assertEqual(container["resources"]["limits"]["nvidia.com/gpu"], "1")
                else:
                    self.assertEqual(found["metadata"], expected["metadata"])
            # Where pods may run, of which nodes, and what pulls their images.
            placed = {"nodeSelector": {"workers": {"pool": "gpus"}},
                      "tolerations": {"workers": [{"key": "gpus", "operator": "Exists"}]},
                      "imagePullSecrets": [{"name": "registry"}], "storageClass": "fast"}
            with open(folder + "/placed.yaml", "w", encoding="utf-8") as file:
                yaml.safe_dump(placed, file)
            for document in filled(folder, "-f", folder + "/placed.yaml"):
                self.assertIsNone(refusal(document, newest()), document)
                if document["kind"] == "PersistentVolumeClaim":
                    self.assertEqual(document["spec"]["storageClassName"], "fast")
                if document["kind"] == "Job":
                    pod = document["spec"]["template"]["spec"]
                    self.assertEqual(pod["imagePullSecrets"], placed["imagePullSecrets"])
                    for key in ("nodeSelector", "tolerations"):
                        group = document["metadata"]["name"].rpartition("-")[2]
                        self.assertEqual(pod.get(key), placed[key].get(group), (key, group))
            # Folders on the node's disk are as large as the container may make them.
            for document in filled(folder, "--set", "resources.workers.limits.ephemeral-storage=3Gi"):
                if document["metadata"]["name"].endswith("-workers"):
                    tmp = document["spec"]["template"]["spec"]["volumes"][1]
                    self.assertEqual(tmp, {"name": "tmp", "emptyDir": {"sizeLimit": "3Gi"}})
            # The notes are the commands of the plain head, with the values' names.
            with open(folder + "/templates/NOTES.txt", encoding="utf-8") as file:
                notes = file.read()
            with open(folder + "/templates/notes.yaml", "w", encoding="utf-8") as file:
                file.write('{{ define "notes" }}' + notes + '{{ end }}kind: Notes\nmetadata: {name: x}\n'
                           'text: {{ include "notes" . | toJson }}\n')
            for more, flags in (([], []), (["claims.runs=mine"], ["--runs-claim", "mine"])):
                given = ",".join(["name=other,image=a/b:1"] + more)
                text, = [d["text"] for d in filled(folder, "--set", given) if d["kind"] == "Notes"]
                plain = render_examples.render(RUBATO, "quickstart", "plain", flags + ["--image", "a/b:1"])
                base = re.search("instance=(.*)", plain)[1]
                head = plain[plain.index("# Look inside"):plain.index("---")].replace(base, "other")
                head = re.sub("^# ", "", head, flags=re.MULTILINE)
                head = head.replace("' job.yaml", "'").replace("  sed", "  helm get notes x | sed")
                head = head.replace("kubectl delete -f job.yaml", "helm uninstall x")
                pod = lambda text: yaml.safe_load("".join(re.findall(r"^#\| (.*\n)", text, re.MULTILINE)))
                self.assertEqual(pod(text), pod(head))
                commands = lambda text: [l for l in text.splitlines() if not l.startswith("#| ")]
                self.assertEqual(commands(text[text.index("Look"):]), commands(head))
                self.assertIn("kubectl create secret generic quickstart-server", text)
            os.remove(folder + "/templates/notes.yaml")
            # What are words for truth or nothing in YAML are names here.
            names = lambda d: [d["metadata"]["name"].partition("-")[0],
                               d["metadata"]["labels"]["app.kubernetes.io/instance"]]
            for name in ("on", "null", "y", "no", "true"):
                for document in filled(folder, "--set-string", "name=" + name):
                    self.assertEqual(names(document), [name, name])
                    self.assertIsNone(refusal(document, newest()), name)
            for mistake in ("worker=1", "workers=3", "workers=two", "gpus=2", "name=A", "image=",
                            "resources.shard-0.cpu=1", "claims.run=x", "storageClass=A", "nodeSelector.worker.a=b",
                            "tolerations.workers=x", "imagePullSecrets[0].nam=x"):
                self.assertNotEqual(run("template", "x", folder, "--set", mistake).returncode, 0,
                                    mistake)

    def test_planted_mistakes_are_refused(self):
        if not os.path.isdir(SCHEMAS):
            self.skipTest("RUBATO_KUBERNETES_SCHEMAS names no folder (CONTRIBUTING.md)")
        schemas = custom_schemas()

        def spec(d):
            return d["spec"]["template"]["spec"] if d["kind"] == "TrainingRuntime" else d["spec"]

        def pod(d):
            return spec(d)["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]

        mistakes = {
            "unknown key": lambda d: spec(d).update(sucessPolicy={}),
            "unknown key of a job": lambda d: spec(d)["replicatedJobs"][0].update(count=1),
            "unknown key of a container": lambda d: pod(d)["containers"][0].update(comand=["x"]),
            "wrong type": lambda d: spec(d)["failurePolicy"].update(maxRestarts="one"),
            "wrong word": lambda d: spec(d)["successPolicy"].update(operator="Most"),
            "missing name": lambda d: spec(d)["replicatedJobs"][0].pop("name"),
            "missing containers": lambda d: pod(d).pop("containers"),
        }
        for output_format in render_examples.FORMATS:
            found = documents(render_examples.render(RUBATO, "quickstart", output_format))
            whole = [d for d in found if d["kind"] in ("JobSet", "TrainingRuntime")][0]
            schema = schemas[whole["apiVersion"], whole["kind"]]
            for mistake, plant in mistakes.items():
                document = copy.deepcopy(whole)
                plant(document)
                self.assertFalse(jsonschema.Draft7Validator(schema).is_valid(document),
                                 (output_format, mistake))
        train_job = [d for d in found if d["kind"] == "TrainJob"][0]
        schema = schemas[train_job["apiVersion"], train_job["kind"]]
        for change in ({"trainers": {}}, {"trainer": {"numNodes": "two"}}, {"runtimeRef": {}}):
            document = copy.deepcopy(train_job)
            document["spec"].update(change)
            self.assertFalse(jsonschema.Draft7Validator(schema).is_valid(document), change)


run_cases()
