"""What tests share that run scripts with torch against a fake of rubato-worker (fake/).

Each case is a process of its own, as a script is: job, model and loader at hand, in which something is done.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tests"))

BEGINNING = """
import sys
sys.path.insert(0, {package!r})
import torch, torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, WeightedRandomSampler
import rubato
torch.manual_seed(1)
torch.set_num_threads(1)
x, y = torch.randn(20, 4), torch.randint(0, 2, (20,))
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
job = rubato.join(epochs=2, name="case")
def compute(a, b):
    loss = F.cross_entropy(model(a), b)
    loss.backward()
    return loss
"""
LOOP = """
model, optimizer, loader = job.prepare(model, optimizer, loader)
for epoch in job.epochs():
    for a, b in loader:
        optimizer.zero_grad()
        compute(a, b)
"""


class WithFake(unittest.TestCase):
    def run_script(self, text, name="script.py", **variables):
        """(exit code, output, errors) of the beginning and what follows it."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, name)
            path.write_text(BEGINNING.format(package=str(HERE.parent)) + textwrap.dedent(text))
            environment = {k: v for k, v in os.environ.items() if not k.startswith("RUBATO_")}
            environment.update(variables, RUBATO_BIN_DIR=str(HERE / "fake"))
            done = subprocess.run([sys.executable, str(path)], cwd=folder, env=environment, text=True,
                                  capture_output=True)
            return done.returncode, done.stdout, done.stderr

    def refuses(self, sentence, text):
        code, _, errors = self.run_script(text)
        last = errors.strip().splitlines()[-1] if errors.strip() else ""
        self.assertEqual(code, 1, errors)
        # Newer releases of torch name the rank where there is a process group.
        self.assertTrue(last.replace("[rank0]: ", "", 1).startswith("rubato.errors."), errors)
        self.assertIn(sentence, last)

    def passes(self, text):
        code, output, errors = self.run_script(text)
        self.assertEqual(code, 0, errors)
        return output
