"""Each example runs to its end, on small data in the format of the real; so do those of docs/pytorch.md.

Usage: examples_test.py RUBATO   (the binary). Needs Debian's python3-torch; skipped without it.
"""

import gzip
import os
import struct
import subprocess

from programs import HERE, PROGRAMS, PYTHON, WithPrograms, need_torch
from skipped import run_cases

need_torch("ExamplesTest", "Run")
import numpy as np
import torch

DRAW = np.random.default_rng(1)
GAN = """
import torch, torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(1)
G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
D = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(), nn.Linear(16, 1))
loader = DataLoader(TensorDataset(torch.randn(640, 2) * 0.3 + 2), batch_size=64)
drawn = torch.randn(64, 4)
noise = lambda n: drawn[:n]
g_loss = lambda output: F.softplus(-output).mean()
d_loss = lambda real, fake: (F.softplus(-real) + F.softplus(fake)).mean()
"""
PLAIN_GAN = """
adams = [torch.optim.Adam(model.parameters(), lr, betas=(0.5, 0.999)) for model, lr in ((G, 1e-3), (D, 4e-3))]
for epoch in range(3):
    for (real,) in loader:
        fake = G(noise(len(real)))
        of_d = torch.autograd.grad(d_loss(D(real), D(fake.detach())), list(D.parameters()))
        of_g = torch.autograd.grad(g_loss(D(fake)), list(G.parameters()))
        for parameter, gradient in zip((*D.parameters(), *G.parameters()), of_d + of_g):
            parameter.grad = gradient
        for adam in adams:
            adam.step()
torch.save(nn.ModuleDict({"g": G, "d": D}).state_dict(), "plain.pt")
"""
SEVERAL = """
import torch, torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(1)
labelled = TensorDataset(torch.randn(320, 4), torch.randint(0, 2, (320,)))
unlabelled = TensorDataset(torch.randn(200, 4))
model = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
unsupervised = lambda output: output.pow(2).mean()
"""
PLAIN_BOTH = SEVERAL + """
for epoch in range(2):
    for begin in range(0, 320, 32):
        x, y = labelled[begin:begin + 32]
        u, = unlabelled[[index % 200 for index in range(begin, begin + 32)]]
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y) + unsupervised(model(u))
        loss.backward()
        optimizer.step()
torch.save(model.state_dict(), "plain.pt")
"""
PLAIN_STEPS = SEVERAL + """
from torch.optim.swa_utils import update_bn
loader = DataLoader(labelled, batch_size=32)
it = iter(loader)
for step in range(25):
    try:
        x, y = next(it)
    except StopIteration:
        it = iter(loader)
        x, y = next(it)
    optimizer.zero_grad()
    loss = min(1.0, (1 + step) / 30) * F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
update_bn(loader, model)
torch.save(model.state_dict(), "plain.pt")
"""


class ExamplesTest(WithPrograms):
    def run_example(self, name, *arguments):
        """What it prints."""
        done = subprocess.run([PYTHON, str(HERE.parent / "examples" / f"{name}.py"), *arguments], cwd=self.folder,
                              env={**self.environment, "PYTHONPATH": str(HERE.parent), "OMP_NUM_THREADS": "1"},
                              text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(os.path.exists(self.folder / "runs" / "latest" / "summary.json"))
        return done.stdout

    def test_without_arguments_they_say_their_usage(self):
        for name in "char_gpt", "fashion_mnist", "resnet_cifar10":
            done = subprocess.run([PYTHON, str(HERE.parent / "examples" / f"{name}.py")], cwd=self.folder, text=True,
                                  env={**self.environment, "PYTHONPATH": str(HERE.parent)}, capture_output=True)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, rf"^usage: python3 {name}.py [A-Z]+.*\n$")

    def write_idx(self, name, values):
        header = struct.pack(">BBBB", 0, 0, 8, values.ndim) + struct.pack(f">{values.ndim}I", *values.shape)
        with gzip.open(self.folder / f"{name}.gz", "wb") as file:
            file.write(header + values.astype(np.uint8).tobytes())

    def test_fashion_mnist(self):
        for split, count in ("train", 130), ("t10k", 20):
            self.write_idx(f"{split}-images-idx3-ubyte", DRAW.integers(256, size=(count, 28, 28)))
            self.write_idx(f"{split}-labels-idx1-ubyte", DRAW.integers(10, size=count))
        output = self.run_example("fashion_mnist", ".")
        self.assertEqual(output.count("accuracy"), 3, output)
        self.assertEqual(torch.load(self.folder / "fashion.pt")["head.1.weight"].shape, (128, 1600))

    def test_char_gpt(self):
        (self.folder / "text").write_text("To be, or not to be, that is the question. " * 200)
        self.assertIn("loss", self.run_example("char_gpt", "text", "3"))
        self.assertIn("head.weight", torch.load(self.folder / "char_gpt.pt"))

    def test_resnet_cifar10(self):
        for name, count in ("data_batch_1.bin", 140), ("test_batch.bin", 20):
            records = DRAW.integers(256, size=(count, 3073), dtype=np.uint8)
            records[:, 0] %= 10
            records.tofile(self.folder / name)
        self.assertEqual(self.run_example("resnet_cifar10", ".", "2").count("accuracy"), 2)

    def test_matrix_factorisation(self):
        lines = [f"{DRAW.integers(20)}\t{DRAW.integers(30)}\t{DRAW.integers(1, 6)}\t0" for _ in range(600)]
        (self.folder / "u.data").write_text("\n".join(lines) + "\n")
        self.assertEqual(self.run_example("matrix_factorisation", "u.data").count("root mean square error"), 10)

    def test_numpy_logistic_regression(self):
        accuracy = self.run_example("numpy_logistic_regression").split()[-1]
        self.assertGreater(float(accuracy.rstrip("%")), 90)

    def test_the_script_of_the_page(self):
        (self.folder / "line.py").write_text(self.block("line.py"))
        (self.folder / "line.yaml").write_text(
            f"version: 1\nname: line\nscript: [{PYTHON}, line.py]\ncluster: {{workers: 2, address: '127.0.0.1:0'}}\n"
            "train: {batch_size: 50, micro_batches: 2, until: {epochs: 4}}\n")
        for command in [PYTHON, "line.py"], [PROGRAMS[0], "train", "line.yaml"]:
            done = subprocess.run(command, cwd=self.folder, text=True, capture_output=True,
                                  env={**self.environment, "PYTHONPATH": str(HERE.parent)})
            self.assertEqual(done.returncode, 0, done.stderr)
            log = self.folder / "runs" / "latest" / "logs" / "worker-0.log"
            printed = log.read_text() if command[0] != PYTHON else done.stdout
            found = [float(value) for value in printed.splitlines()[-1].replace("[", "").replace("]", "").split()]
            self.assertTrue(np.allclose(found, [1, -2, 3, 0.5], atol=1e-4), printed)

    def test_the_gan_of_the_page_is_that_of_two_optimizers(self):
        page = (HERE.parent.parent / "docs" / "pytorch.md").read_text()
        self.assertEqual(page.count("\n## Two optimizers\n"), 1, "of which messages tell")
        (self.folder / "gan.py").write_text(GAN + "import rubato\njob = rubato.join(epochs=3)\n" +
                                            self.block("gan.py"))
        (self.folder / "plain.py").write_text(GAN + PLAIN_GAN)
        for script in "gan.py", "plain.py":
            done = subprocess.run([PYTHON, script], cwd=self.folder, text=True, capture_output=True,
                                  env={**self.environment, "PYTHONPATH": str(HERE.parent)})
            self.assertEqual(done.returncode, 0, done.stderr)
        found, expected = (torch.load(self.folder / name) for name in ("gan.pt", "plain.pt"))
        self.assertEqual(list(found), list(expected))
        for name, value in expected.items():
            self.assertLessEqual((found[name] - value).norm() / value.norm(), 1e-6, name)

    def block(self, name):
        """Of docs/pytorch.md."""
        return (HERE.parent.parent / "docs" / "pytorch.md").read_text().split(f"```python {name}\n")[1].split("```")[0]

    def same_as_plain(self, script, plain, until):
        """With two workers, each of which computes a step in turn: so batch norm sees whole batches."""
        (self.folder / "script.py").write_text(script)
        (self.folder / "plain.py").write_text(plain)
        (self.folder / "job.yaml").write_text(
            f"version: 1\nname: several\nscript: [{PYTHON}, script.py]\n"
            "cluster: {workers: 2, address: '127.0.0.1:0'}\n"
            f"train: {{batch_size: 32, until: {until}}}\n")
        for command in [PROGRAMS[0], "train", "job.yaml"], [PYTHON, "plain.py"]:
            done = subprocess.run(command, cwd=self.folder, text=True, capture_output=True,
                                  env={**self.environment, "PYTHONPATH": str(HERE.parent)})
            self.assertEqual(done.returncode, 0, done.stderr)
        found, expected = (torch.load(self.folder / name) for name in ("found.pt", "plain.pt"))
        for name, value in expected.items():
            if "num_batches" not in name:
                self.assertLessEqual((found[name] - value).norm() / value.norm(), 1e-5, name)

    def test_the_data_set_of_the_page_gives_what_two_loaders_give(self):
        self.same_as_plain(
            SEVERAL.replace("nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))", "nn.Linear(4, 2)") +
            "import rubato\njob = rubato.join(epochs=2)\n" + self.block("both.py") + "job.save('found.pt')\n",
            PLAIN_BOTH.replace("nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))", "nn.Linear(4, 2)"), "{epochs: 2}")

    def test_the_loop_by_steps_of_the_page_is_that_of_an_endless_iterator(self):
        self.same_as_plain(
            SEVERAL + "import rubato\nfrom torch.optim.swa_utils import update_bn\njob = rubato.join(epochs=3)\n"
            "model, optimizer, loader = job.prepare(model, optimizer, DataLoader(labelled, batch_size=32))\n" +
            self.block("steps.py") + "if job.rank == 0: torch.save(model.state_dict(), 'found.pt')\n",
            PLAIN_STEPS, "{steps: 25}")


run_cases()
