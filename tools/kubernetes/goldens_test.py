"""Every example job renders to its golden file, and mistakes are told in one line."""

import difflib
import os
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import render_examples  # pylint: disable=wrong-import-position

RUBATO = sys.argv.pop(1)


class GoldensTest(unittest.TestCase):

    def test_examples_render_to_their_goldens(self):
        goldens = "tools/kubernetes/goldens"
        self.assertEqual(render_examples.examples(),
                         sorted(n[:-5] for n in os.listdir(goldens) if n.endswith(".yaml")))
        cases = [(name, "plain", name) for name in render_examples.examples()]
        cases += [("quickstart", f, "formats/" + f) for f in render_examples.FORMATS]
        texts = [(path + ".yaml", render_examples.render(RUBATO, name, f)) for name, f, path in cases]
        folders = dict(render_examples.overlays(RUBATO), **render_examples.chart(RUBATO))
        texts += [("formats/" + name, text) for name, text in folders.items()]
        for path, rendered in texts:
            with open(f"{goldens}/{path}", encoding="utf-8") as file:
                golden = file.read()
            difference = "".join(difflib.unified_diff(golden.splitlines(True),
                                                      rendered.splitlines(True),
                                                      "golden", "rendered"))
            self.assertEqual(difference, "",
                             f"{path}: tools/kubernetes/render_examples.py makes goldens anew")

    def test_sizes_may_be_written_as_kubernetes_writes_them(self):
        def rendered(size):
            command = [RUBATO, "render", "kubernetes", "configs/quickstart.yaml", "--image", "x"]
            for flag in ("--server-memory", "--worker-memory", "--runs-size"):
                command += [flag, size]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            # The head quotes the command.
            return [line for line in done.stdout.splitlines() if not line.startswith("#")]
        for theirs, ours in (("1Gi", "1GiB"), ("1536Mi", "1.5GiB"), ("1048576Ki", "1GiB")):
            self.assertEqual(rendered(theirs), rendered(ours))

    def test_warns_of_what_has_nothing_to_do(self):
        render = [RUBATO, "render", "kubernetes", "configs/quickstart.yaml", "--image", "x", "--set",
                  "cluster={workers: 50, servers: 20}"]
        idle = "warning: 46 of 50 workers have nothing to compute: train.micro_batches is 4\n"
        known = ["--server-memory", "1Gi", "--worker-memory", "1Gi", "--runs-size", "1Gi"]
        for more, servers in (([], "warning: 16 of 20 servers hold no parameters"), (known, "")):
            done = subprocess.run(render + more, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(idle, done.stderr)
            self.assertIn(servers, done.stderr)

    def test_mistakes_are_one_line(self):
        quickstart = ["kubernetes", "configs/quickstart.yaml"]
        for arguments, said in (
                (quickstart, "--image"),
                (["nomad", "configs/quickstart.yaml", "--image", "x"], "found nomad"),
                (quickstart + ["--image", "two words"], "expected an image"),
                (quickstart + ["--image", "x", "--worker-image", "-x"], "--worker-image: found"),
                (["kubernetes", "tools/kubernetes/script.yaml", "--image", "x"],
                 "script: how large its model is"),
                (["kubernetes", "tools/kubernetes/script.yaml", "--image", "x", "--data-path",
                  "/d"], "--data-path: the job is a script's"),
                (["kubernetes", "tools/kubernetes/script.yaml", "--image", "x", "--set",
                  "script=[]", "--set", "model=script"], "model: found script, and no `script`"),
                (quickstart + ["--image", "x", "--gpus", "-1"], "--gpus: found -1"),
                (["kubernetes", "configs/fashion_mnist.yaml", "--image", "x"], "--data-claim"),
                (["kubernetes", "configs/fashion_mnist.yaml", "--image", "x", "--data-claim", "d"],
                 "--worker-memory"),
                (quickstart + ["--image", "x", "--worker-memory", "much"], "expected a size"),
                (quickstart + ["--image", "x", "--worker-memory", "1G"], "expected a size"),
                (quickstart + ["--image", "x", "--server-memory", "1"], "at least 32Mi"),
                (quickstart + ["--image", "x", "--runs-size", "2Gi", "--runs-claim", "mine"],
                 "--runs-size: found beside --runs-claim"),
                (quickstart + ["--image", "x", "--format", "json"], "--format: found json"),
                (quickstart + ["--image", "x", "--format", "kustomize"], "--output is missing"),
                (quickstart + ["--image", "x", "--output", "d"], "--output: expected with"),
                (quickstart + ["--image", "x", "--format", "kustomize", "--output", "d", "--gpus",
                               "1"], "--gpus: found with --format kustomize"),
                (quickstart + ["--image", "x", "--format", "kustomize", "--output", "configs"],
                 "--output: configs is there"),
                (quickstart + ["--image", "x", "--queue", "q"], "--queue: expected with --format"),
                (quickstart + ["--image", "x", "--format", "jobset", "--queue", "Q"],
                 "--queue: found Q"),
                (quickstart + ["--image", "x", "--monitoring-namespace", "a.b"],
                 "--monitoring-namespace: found a.b"),
        ):
            done = subprocess.run([RUBATO, "render"] + arguments, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual(done.returncode, 2, (arguments, done.stderr))
            self.assertEqual(done.stdout, "")
            self.assertIn(said, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
