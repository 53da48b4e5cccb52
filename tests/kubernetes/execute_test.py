"""Runs the manifests that `rubato render kubernetes` prints, without a cluster, harms the pods, and
prints what came of it.

Usage: execute_test.py RUBATO SERVER WORKER [--all] [--haste FACTOR] [SCENARIO...]

RUBATO, SERVER and WORKER are the binaries, a SCENARIO some words of its name. Pods are network,
mount and process namespaces over a bridge; it needs root, iproute2, dnsmasq and PyYAML.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import traceback

sys.dont_write_bytecode = True  # beside the sources
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.environ.get("RUBATO_TEST_PACKAGES") or "/nonexistent", os.path.dirname(HERE)]
from skipped import skip  # pylint: disable=wrong-import-position

try:
    import yaml

    from network import Network
    from trial import Trial
except ImportError:
    skip("KubernetesTest", "Execute", "PyYAML is not installed")

os.environ["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
NAMESPACES = "unshare --net --mount --pid --fork --kill-child --mount-proc".split()
# The image lets a computation take 20 ms, so that the job lasts.
IMAGE = {"RUBATO_TEST_COMPUTE_MS": "20", "PYTHONPATH": "/usr/local/bin"}
COLUMNS = {"noticed": "noticed after", "reached": "reached after", "first": "first new step after",
           "longest": "longest without a step", "again": "steps trained again",
           "digest": "digest"}


def why_not():
    """What is missing here, or None."""
    trying = """set -e
      for name in nsenter setpriv ip dnsmasq; do
        command -v $name > /dev/null || { echo $name is not installed; exit 1; }
      done
      mount -t tmpfs tmpfs /run
      ip netns add a
      ip link add v0 type veth peer name eth0 netns a
      setpriv --reuid=10001 --regid=10001 --groups=10001 true"""
    done = subprocess.run(NAMESPACES + ["sh", "-c", trying], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout.strip().split("\n")[-1] if done.returncode != 0 else None


def run_one(scenario, trial, digest):
    """The row of a scenario."""
    for step in "; ".join(scenario["do"]).split("; "):
        verb, *words = step.split()
        getattr(trial, verb)(*words)
    figures = trial.figures
    if "digest" in figures:
        assert figures["digest"] == digest, f"the digest is {figures['digest']}, alone {digest}"
        figures["digest"] = "equal"
    return [scenario["what"], *(str(figures.get(name, "")) for name in COLUMNS)]


def digest_of(job, rubato, folder):
    """Of the parameters that `rubato train` makes of it, by the processes of one machine."""
    subprocess.run([rubato, "train", job, "--run-dir", folder], stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, check=True,
                   env=dict(os.environ, PYTHONPATH=os.path.dirname(HERE)))
    with open(folder + "/summary.json", encoding="utf-8") as file:
        return json.load(file)["digest"]


def run_all(arguments, folder):
    """Prints a row for each scenario; how many went wrong."""
    with open(HERE + "/scenarios.yaml", encoding="utf-8") as file:
        jobs, scenarios = yaml.safe_load_all(file)
    words, rows, wrong = arguments.scenarios, [], 0
    names = [name for name, scenario in scenarios.items()
             if (any(w in name for w in words) if words else arguments.all or "short" in scenario)]
    programs = [os.path.abspath(path) for path in arguments.programs]
    image = programs + [os.path.dirname(HERE) + "/script_worker.py"]
    network, digests = Network(folder), {}
    for number, name in enumerate(names):
        scenario, trial = scenarios[name], None
        kind = scenario.get("job", "model")
        job = f"{folder}/{kind}.yaml"
        try:
            if kind not in digests:
                with open(job, "w", encoding="utf-8") as file:
                    yaml.safe_dump(jobs[kind], file)
                digests[kind] = digest_of(job, programs[0], f"{folder}/{kind}")
            trial = Trial(f"{folder}/{number}", image, job, network, IMAGE, arguments.haste,
                          scenario)
            rows.append([name, *run_one(scenario, trial, digests[kind])])
            print(f"{name}: done", flush=True)
        except Exception:  # pylint: disable=broad-exception-caught
            wrong += 1
            print(f"{name}: WRONG\n{traceback.format_exc()[-12000:]}", flush=True)
        finally:
            if trial is not None:
                trial.close()
    head = ["scenario", "what happened", *COLUMNS.values()]
    for row in [head, ["---"] * len(head), *rows]:
        print("| " + " | ".join(row) + " |")
    print(f"{len(rows)} of {len(names)} scenarios ran as they should.")
    return wrong


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("programs", nargs=3)
    parser.add_argument("scenarios", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--haste", type=float, default=0.1)
    parser.add_argument("--inside", action="store_true")
    arguments = parser.parse_intermixed_args()
    if not arguments.inside:
        reason = why_not()
        if reason:
            skip("KubernetesTest", "Execute", reason)
        again = [sys.executable, os.path.abspath(__file__), "--inside"] + sys.argv[1:]
        return subprocess.run(NAMESPACES + again, check=False).returncode
    with tempfile.TemporaryDirectory(prefix="rubato_kubernetes_") as folder:
        return 1 if run_all(arguments, folder) else 0


if __name__ == "__main__":
    sys.exit(main())
