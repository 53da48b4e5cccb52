"""Runs the manifests that `rubato render kubernetes` prints, without a cluster, harms the pods, and prints what came of it.

Usage: execute_test.py RUBATO SERVER WORKER [--all] [--delays FACTOR] [--out FOLDER] [SCENARIO...]   (the binaries; words of names)

Pods are network, mount and process namespaces over a bridge; it needs root, iproute2, dnsmasq and PyYAML.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # beside the sources
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
sys.path.insert(0, os.environ.get("RUBATO_TEST_PACKAGES") or "/nonexistent")
from skipped import skip  # pylint: disable=wrong-import-position

os.environ["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
NAMESPACES = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
# Two servers and four workers. The image lets a computation take 20 ms, so that the job lasts.
JOB = """
version: 1
name: quickstart
seed: 1
cluster: {servers: 2, workers: 4}
data: {format: glyphs, train_size: 4000, test_size: 1000}
model: {layers: [flatten, linear: {out_features: 256}, relu, linear: {out_features: 10}]}
loss: cross_entropy
optimizer: {name: sgd, learning_rate: 0.05, momentum: 0.9}
consistency: {mode: sync}
train: {batch_size: 64, micro_batches: 4, until: {steps: %d}}
metrics: {every: {steps: 5}}
checkpoint: {every: {steps: 50}}
"""
STEPS = 400
IMAGE = {"RUBATO_TEST_COMPUTE_MS": "20"}


def why_not():
    """What is missing here, or None."""
    for program in ("unshare", "nsenter", "setpriv", "ip", "dnsmasq"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    try:
        import yaml  # pylint: disable=import-outside-toplevel,unused-import
    except ImportError:
        return "PyYAML is not installed"
    if os.getuid() != 0:
        return "network namespaces with a bridge need root"
    trying = ("mount -t tmpfs tmpfs /run && ip netns add a && ip link add br0 type bridge && "
              "ip link add v0 type veth peer name eth0 netns a && setpriv --reuid=10001 --regid=10001 --groups=10001 true")
    done = subprocess.run(NAMESPACES + ["sh", "-c", trying], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return None if done.returncode == 0 else "the kernel allows no such namespaces: " + done.stdout.strip().split("\n")[-1]


def run_one(arguments):
    """In namespaces of its own: one scenario, whose figures are printed as JSON."""
    import scenarios  # pylint: disable=import-outside-toplevel
    from trial import Trial  # pylint: disable=import-outside-toplevel
    scenario = scenarios.ALL[arguments.one]
    old, new = scenarios.WRONG.get(scenario.__name__, ("", ""))

    def change(text):
        assert old in text
        return text.replace(old, new) if not old.startswith("- ") else new.join(text.rsplit(old, 1))

    programs = [os.path.abspath(path) for path in (arguments.rubato, arguments.server, arguments.worker)]
    trial = Trial(arguments.folder, programs, arguments.folder + ".yaml", IMAGE, arguments.delays, change)
    try:
        print(json.dumps(scenario(trial)), flush=True)
    finally:
        trial.close()


def seconds(value):
    return "" if value is None else f"{value:.2f} s"


def run_all(arguments, folder):
    """Prints a row for each scenario; how many went wrong."""
    import scenarios  # pylint: disable=import-outside-toplevel
    words = arguments.scenarios
    names = [name for name in scenarios.ALL if (any(w in name for w in words) if words else arguments.all or name in scenarios.SHORT)]
    job = os.path.join(folder, "alone.yaml")
    with open(job, "w", encoding="utf-8") as file:
        file.write(JOB % STEPS)
    alone = os.path.join(folder, "alone")
    subprocess.run([os.path.abspath(arguments.rubato), "train", job, "--run-dir", alone], stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, check=True)
    with open(alone + "/summary.json", encoding="utf-8") as file:
        digest = json.load(file)["digest"]
    rows, wrong = [], []
    for number, name in enumerate(names):
        place = os.path.join(folder, str(number))
        os.makedirs(place)
        shutil.copy(job, place + ".yaml")
        command = [sys.executable, os.path.abspath(__file__), arguments.rubato, arguments.server, arguments.worker, "--one", name,
                   "--folder", place, "--delays", str(arguments.delays)]
        done = subprocess.run(NAMESPACES + command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            wrong.append(f"{name}: {done.stderr[-12000:]}")
            continue
        figures = json.loads(done.stdout.splitlines()[-1])
        print(f"{name}: done", flush=True)
        equal = "" if "digest" not in figures else "equal" if figures["digest"] == digest else "DIFFERENT"
        if equal == "DIFFERENT":
            wrong.append(f"{name}: the digest is {figures['digest']}, undisturbed {digest}")
        rows.append([name, figures["what"], seconds(figures.get("noticed")), seconds(figures.get("reached")),
                     seconds(figures.get("first_step")), seconds(figures.get("standstill")), equal])
    print("| scenario | what happened | noticed after | reached after | first new step after | longest without a step | digest |\n"
          "|---|---|---|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    for sentence in wrong:
        print(f"WRONG: {sentence}")
    print(f"{len(rows)} of {len(names)} scenarios ran to their end; the digest of rubato train is {digest[:16]}...")
    return len(wrong)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("rubato")
    parser.add_argument("server")
    parser.add_argument("worker")
    parser.add_argument("scenarios", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--delays", type=float, default=0.1)
    parser.add_argument("--out")
    parser.add_argument("--one")
    parser.add_argument("--folder")
    arguments = parser.parse_intermixed_args()
    if arguments.one:
        return run_one(arguments)
    reason = why_not()
    if reason:
        skip("KubernetesTest", "Execute", reason)
    if arguments.out:
        os.makedirs(arguments.out)
        return 1 if run_all(arguments, os.path.abspath(arguments.out)) else 0
    with tempfile.TemporaryDirectory(prefix="rubato_kubernetes_") as folder:
        return 1 if run_all(arguments, folder) else 0


if __name__ == "__main__":
    sys.exit(main())
