"""The jobs on real tables in configs/ reach what PyTorch reaches with the same settings.

The ranges are those that tools/scripts/train_in_pytorch.py printed over six seeds, widened by their own width.

Usage: real_data_training_test.py RUBATO   (the binary). Skipped unless RUBATO_TEST_DATA is set.
"""

import json
import os
import subprocess
import sys
import tempfile
import xml.sax.saxutils


def report(cases):
    """Writes the file from which the cases are counted: (name, None, a failure or a reason to skip)."""
    path = os.environ.get("XML_OUTPUT_FILE")
    if not path:
        return
    lines = []
    for name, kind, message in cases:
        inner = f"<{kind} message={xml.sax.saxutils.quoteattr(message)}/>" if kind else ""
        lines.append(f'<testcase name="{name}" classname="RealDataTrainingTest">{inner}</testcase>')
    with open(path, "w") as file:
        file.write(f'<testsuites><testsuite name="RealDataTrainingTest" tests="{len(cases)}">'
                   f'{"".join(lines)}</testsuite></testsuites>')


# Configuration, what it overrides, PyTorch's test loss over six seeds.
CASES = [
    ("agaricus", {"data.path": "agaricus/agaricus.txt.train", "data.test_path": "agaricus/agaricus.txt.test"},
     0.00052, 0.00063),
    ("california_housing", {"data.path": "california-housing/housing.csv"}, 0.2790, 0.2858),
]


def train(rubato, config, settings, folder):
    command = [rubato, "train", f"configs/{config}.yaml", "--run-dir", folder, "--set", "cluster.address=127.0.0.1:0"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(folder, "summary.json")) as file:
        return json.load(file)


def main():
    root = os.environ.get("RUBATO_TEST_DATA")
    results = []
    for config, paths, low, high in CASES:
        if not root:
            print("SKIPPED:", config, "RUBATO_TEST_DATA is not set")
            results.append((config, "skipped", "RUBATO_TEST_DATA is not set"))
            continue
        settings = {key: os.path.join(root, path) for key, path in paths.items()}
        with tempfile.TemporaryDirectory() as folder:
            summary = train(sys.argv[1], config, settings, os.path.join(folder, "run"))
        loss = summary["test_loss"]
        width = high - low
        right = low - width <= loss <= high + width
        print(f"{config}: test loss {loss:.5f}; PyTorch {low} to {high}")
        failure = ("failure", f"test loss {loss}, PyTorch's {low} to {high}")
        results.append((config, *((None, None) if right else failure)))
    report(results)
    sys.exit(any(kind == "failure" for _, kind, _ in results))


if __name__ == "__main__":
    main()
