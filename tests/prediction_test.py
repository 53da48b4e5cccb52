"""Parameters and data.json are all that it takes to predict.

Trains small jobs, reads parameters.safetensors and data.json of their run folders and nothing else of them, predicts
the test split in plain Python, and gets the loss and the accuracy of summary.json. Runs the example of docs/data.md.

Usage: prediction_test.py RUBATO   (the binary).
"""

import csv
import importlib.util
import json
import math
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

import safetensors_file
import skipped

RUBATO = os.path.abspath(sys.argv.pop(1))
DATA = os.environ.get("RUBATO_TEST_DATA")
PAGES = [pathlib.Path(f"docs/{page}.md").read_text() for page in ("data", "tutorial")]
AGARICUS = pathlib.Path("configs/agaricus.yaml").read_text()
JOB = """version: 1
name: small
seed: 1
cluster: {servers: 2, workers: 2, address: "127.0.0.1:0"}
train: {batch_size: 32, micro_batches: 2, until: {epochs: 3}}
optimizer: {learning_rate: 0.1}
"""
TABLE = JOB + """data: {format: csv, path: train.csv, test_path: test.csv, categorical: [kind, "10"],
       numeric: [year, area], impute: mean, normalize: auto, target: %s}
model: {layers: [{linear: {out_features: 8}}, relu, {linear: {out_features: %d}}]}
"""


def matrices(path):
    """Each tensor as rows, or as one row."""
    return {name: [values[i:i + shape[-1]] for i in range(0, len(values), shape[-1])] if len(shape) == 2 else values
            for name, (shape, values) in safetensors_file.read(path).items()}


def linear(p, layer, x):
    return [sum(map(lambda a, b: a * b, row, x)) + c for row, c in zip(p[layer + ".weight"], p[layer + ".bias"])]


def two_layers(p, x):
    return linear(p, "2", [max(y, 0) for y in linear(p, "0", x)])


def normalised(data, numbers):
    return [(x - m) / s for x, m, s in zip(numbers, data["mean"], data["std"])]


def named(text, names):
    """As it stands in the list: whole numbers without sign and point."""
    return text if text in names else str(int(float(text)))


def of_record(data, record):
    """The inputs of a line of a table, {column: text}."""
    numbers = [float(record[column] or mean) for column, mean in zip(data["numeric"], data["impute"])]
    return normalised(data, numbers) + [float(named(record[kind["column"]], kind["names"]) == name)
                                        for kind in data["categorical"] for name in kind["names"]]


def of_sparse_row(data, fields):
    x = [0.0] * data["shape"][0]
    for index, value in (field.split(":") for field in fields):
        x[int(index) - data["index_base"]] = float(value)
    return normalised(data, x) if "mean" in data else x


class PredictionTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def train(self, job, run="run", *arguments):
        """The parameters, the data and what Rubato measured."""
        (self.folder / "job.yaml").write_text(job)
        subprocess.run([RUBATO, "train", "job.yaml", "--run-dir", run, *arguments], cwd=self.folder, check=True,
                       stdout=subprocess.DEVNULL)
        run = self.folder / run
        return (matrices(run / "parameters.safetensors"), json.loads((run / "data.json").read_text()),
                json.loads((run / "summary.json").read_text()))

    def check_loss(self, summary, losses):
        self.assertAlmostEqual(sum(losses) / len(losses), summary["test_loss"], delta=1e-5 * summary["test_loss"])

    def check_classes(self, data, summary, outputs, names):
        losses, right = [], 0
        for y, name in zip(outputs, names):
            label, most = data["classes"].index(named(name, data["classes"])), max(y)
            losses.append(most + math.log(sum(math.exp(z - most) for z in y)) - y[label])
            right += y[label] == most
        self.check_loss(summary, losses)
        self.assertAlmostEqual(right / len(outputs), summary["test_accuracy"], delta=1e-12)

    def write_tables(self):
        """Numbers of different sizes, some of which are missing, and columns of names."""
        rng = random.Random(5)
        for name, count in ("train.csv", 400), ("test.csv", 150):
            with open(self.folder / name, "w", newline="") as file:
                table = csv.writer(file)
                table.writerow(["grade", "area", "kind", "year", "price", "10"])
                for _ in range(count):
                    area, year = rng.uniform(20, 140), rng.randint(1900, 2020)
                    kind = rng.choice(["flat", "a=b", "house"])
                    price = 1000 * area * (2 if kind == "house" else 1) + 500 * (year - 1950)
                    table.writerow(["high" if price > 9e4 else "mid, or so" if price > 5e4 else "low",
                                    area if rng.random() < 0.9 else "", kind, year if rng.random() < 0.9 else "",
                                    price, rng.choice(["9", "10", "10.0", "+11"])])

    def predict_table(self, parameters, data):
        with open(self.folder / "test.csv", newline="") as file:
            records = list(csv.DictReader(file))
        return ([two_layers(parameters, of_record(data, record)) for record in records],
                [record[data["target"]] for record in records])

    def test_classes_of_a_table(self):
        self.write_tables()
        parameters, data, summary = self.train(TABLE % ("grade", 3))
        self.check_classes(data, summary, *self.predict_table(parameters, data))

    def test_numbers_of_a_table_and_a_run_that_goes_on(self):
        self.write_tables()
        job = TABLE % ("price, target_scale: 30000", 1) + "loss: mse\n"
        _, before, _ = self.train(job)
        parameters, data, summary = self.train(job.replace("epochs: 3", "epochs: 4"), "again", "--resume", "run")
        self.assertEqual(data, before)
        outputs, prices = self.predict_table(parameters, data)
        self.check_loss(summary, [(y[0] - float(price) / data["target_scale"])**2 for y, price in zip(outputs, prices)])

    def check_sparse_rows(self, job, test):
        parameters, data, summary = self.train(job)
        rows = [line.split() for line in test.read_text().splitlines()]
        self.check_classes(data, summary, [two_layers(parameters, of_sparse_row(data, row[1:])) for row in rows],
                           [row[0] for row in rows])

    def test_sparse_rows(self):
        rng = random.Random(6)
        for name, count in ("train.svm", 300), ("test.svm", 100):
            lines = []
            for _ in range(count):
                present = {i: rng.uniform(1, 100) for i in range(9) if rng.random() < 0.4}
                label = rng.choice(["8", "+8"]) if 3 in present else "12"
                lines.append(" ".join([label, *(f"{i}:{x}" for i, x in present.items())]))
            (self.folder / name).write_text("\n".join(lines) + "\n")
        self.check_sparse_rows(JOB + "data: {format: libsvm, path: train.svm, test_path: test.svm, index_base: 0,\n"
                               "       normalize: auto}\n"
                               "model: {layers: [{linear: {out_features: 4}}, relu, {linear: {out_features: 2}}]}\n",
                               self.folder / "test.svm")

    @unittest.skipUnless(DATA, "RUBATO_TEST_DATA is not set")
    def test_mushrooms(self):
        self.check_sparse_rows(AGARICUS.replace("../data", DATA), pathlib.Path(DATA, "agaricus/agaricus.txt.test"))

    def test_characters_of_a_text(self):
        rng = random.Random(7)
        text = "".join(rng.choice(["\u00e4h ", "so\n", "\"we\" "]) for _ in range(1000))
        (self.folder / "text.txt").write_text(text)
        parameters, data, summary = self.train(
            JOB + "data: {format: text, path: text.txt, context: 5, test_fraction: 0.25}\n"
            "model: {layers: [{embedding: {embedding_dim: 4}}, {linear: {out_features: %d}}]}\n" % len(set(text)))
        context, = data["shape"]
        examples = (len(text) - 1) // context
        begin, end = context * (examples - int(examples * 0.25 + 0.5)), context * examples
        outputs = [linear(parameters, "1", parameters["0.weight"][data["classes"].index(character)])
                   for character in text[begin:end]]
        self.check_classes(data, summary, outputs, text[begin + 1:end + 1])

    @unittest.skipUnless(importlib.util.find_spec("numpy"), "python3-numpy is not installed")
    def test_the_example_of_the_page(self):
        for name, code in re.findall(r"^```\w+ ([\w.]+)\n(.*?)^```$", "".join(PAGES), re.MULTILINE | re.DOTALL):
            (self.folder / name).write_text(code)

        def run(*command):
            return subprocess.run(command, cwd=self.folder, check=True, text=True, stdout=subprocess.PIPE).stdout
        run(sys.executable, "make_flats.py")
        run(RUBATO, "train", "flats.yaml", "--set", "cluster.address=127.0.0.1:0")
        area, floor, factor = 70, 2, 1.6
        self.assertAlmostEqual(float(run(sys.executable, "predict.py").strip("[]\n")),
                               9 * area * factor + 15 * floor, delta=60)


if __name__ == "__main__":
    skipped.run_cases()
