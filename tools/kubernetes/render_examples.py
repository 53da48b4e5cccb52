"""Renders every example job as the goldens are rendered.

    tools/kubernetes/render_examples.py RUBATO FOLDER

writes FOLDER/NAME.yaml for each configs/NAME.yaml and for script.yaml of this folder, and FOLDER/formats/FORMAT.yaml
for one of them in each other format; with tools/kubernetes/goldens for FOLDER it makes the goldens anew. Run it from
the repository's root.
"""

import os
import subprocess
import sys
import tempfile

# Of those with data, which need not be here to render: sizes are told, not predicted.
TOLD = ["--data-claim", "datasets", "--server-memory", "256MiB", "--worker-memory", "1GiB",
        "--runs-size", "2GiB"]
# What an example shows beside its job.
MORE = {
    "fashion_cnn": ["--gpus", "1", "--priority-class", "training"],
    "char_gpt": ["--disruption-budget"],
    "bounded": ["--runs-claim", "runs"],
    "script": TOLD + ["--worker-image", "example.org/net:1"],
}

# The other formats, and what is shown beside them.
FORMATS = {
    "jobset": ["--queue", "team-a", "--monitoring-namespace", "monitoring"],
    "trainingruntime": [],
}


def examples():
    """Names of the example jobs."""
    found = [name[:-5] for name in os.listdir("configs") if name.endswith(".yaml")]
    return sorted(found + ["script"])


def path_of(name):
    return ("tools/kubernetes" if name == "script" else "configs") + f"/{name}.yaml"


def reads_files(name):
    with open(path_of(name), encoding="utf-8") as file:
        return " path:" in file.read()


# Of --format kustomize.
OVERLAYS = ("cpu", "gpu", "dev")


def render(rubato, name, output_format="plain", more=(), leave_out=()):
    """The manifests of an example job, or what is said when a folder is written."""
    command = [rubato, "render", "kubernetes", path_of(name), "--image",
               "example.org/rubato:0.1.0"]
    if output_format != "plain":
        command += ["--format", output_format] + FORMATS.get(output_format, [])
    command += (TOLD if reads_files(name) else []) + MORE.get(name, []) + list(more)
    if "--gpus" in command and "--gpus" in leave_out:
        at = command.index("--gpus")
        del command[at:at + 2]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode != 0:
        raise SystemExit(f"{name}: exit code {done.returncode}: {done.stderr}")
    return done.stdout


def kustomize(rubato, name, folder):
    """Renders a base with overlays into `folder`."""
    render(rubato, name, "kustomize", ["--output", folder], leave_out=["--gpus"])


def chart(rubato):
    """The text of some of the files of the chart that has goldens."""
    with tempfile.TemporaryDirectory() as folder:
        render(rubato, "quickstart", "helm", ["--output", folder])
        found = {}
        for path in ("values.yaml", "values.schema.json", "templates/job-workers.yaml",
                     "templates/NOTES.txt"):
            with open(os.path.join(folder, path), encoding="utf-8") as file:
                found["helm-" + os.path.basename(path)] = file.read()
        return found


def overlays(rubato):
    """The text of each overlay of the example that has goldens."""
    with tempfile.TemporaryDirectory() as folder:
        # The command that rendered stands in base/ alone.
        kustomize(rubato, "quickstart", folder)
        found = {}
        for overlay in OVERLAYS:
            path = f"{folder}/overlays/{overlay}/kustomization.yaml"
            with open(path, encoding="utf-8") as file:
                found[f"kustomize-{overlay}.yaml"] = file.read()
        return found


def main(arguments):
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    rubato, folder = arguments
    os.makedirs(os.path.join(folder, "formats"), exist_ok=True)
    for name in examples():
        with open(os.path.join(folder, name + ".yaml"), "w", encoding="utf-8") as file:
            file.write(render(rubato, name))
    for output_format in FORMATS:
        path = os.path.join(folder, "formats", output_format + ".yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(render(rubato, "quickstart", output_format))
    for path, text in dict(overlays(rubato), **chart(rubato)).items():
        with open(os.path.join(folder, "formats", path), "w", encoding="utf-8") as file:
            file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
