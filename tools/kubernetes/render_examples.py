"""Renders every example job as the goldens are rendered.

    tools/kubernetes/render_examples.py RUBATO FOLDER

writes FOLDER/NAME.yaml for each configs/NAME.yaml, and FOLDER/formats/FORMAT.yaml for one of them in
each other format; with tools/kubernetes/goldens for FOLDER it makes the goldens anew. Run it from the repository's root.
"""

import os
import subprocess
import sys

# Of those with data, which need not be here to render: sizes are told, not predicted.
TOLD = ["--data-claim", "datasets", "--server-memory", "256MiB", "--worker-memory", "1GiB",
        "--runs-size", "2GiB"]
# What an example shows beside its job.
MORE = {
    "fashion_cnn": ["--gpus", "1", "--priority-class", "training"],
    "char_gpt": ["--disruption-budget"],
    "bounded": ["--runs-claim", "runs"],
}

# The other formats, and what is shown beside them.
FORMATS = {
    "jobset": ["--queue", "team-a", "--monitoring-namespace", "monitoring"],
    "trainingruntime": [],
}


def examples():
    """Names of the example jobs."""
    return sorted(name[:-5] for name in os.listdir("configs") if name.endswith(".yaml"))


def reads_files(name):
    with open(f"configs/{name}.yaml", encoding="utf-8") as file:
        return " path:" in file.read()


def render(rubato, name, output_format="plain"):
    """The manifests of an example job."""
    command = [rubato, "render", "kubernetes", f"configs/{name}.yaml", "--image",
               "example.org/rubato:0.1.0"]
    if output_format != "plain":
        command += ["--format", output_format] + FORMATS[output_format]
    command += (TOLD if reads_files(name) else []) + MORE.get(name, [])
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode != 0:
        raise SystemExit(f"{name}: exit code {done.returncode}: {done.stderr}")
    return done.stdout


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
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
