"""A script's job goes on from a checkpoint to the bits of the run that did not stop; PyTorch opens what it has saved.

Usage: checkpoints_test.py RUBATO   (the binary). Needs Debian's python3-torch; skipped without it.
"""

import json
import subprocess

from programs import HERE, PYTHON, TRAIN, WithPrograms, need_torch
import safetensors_file
from skipped import run_cases

need_torch("CheckpointsTest", "GoesOn")
import torch
from torch import nn


def load_file(path):
    """As safetensors.torch.load_file."""
    return {name: torch.tensor(values).reshape(shape) for name, (shape, values) in safetensors_file.read(path).items()}


# The gradient is always 1, 2, -3, 4.
GOES_ON = f"""
import sys
sys.path.insert(0, {str(HERE.parent)!r})
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import rubato
job = rubato.join()
model = nn.Linear(4, 1, bias=False)
loader = DataLoader(TensorDataset(torch.tensor([[1.0, 2.0, -3.0, 4.0]]).repeat(64, 1)), batch_size=16)
model, optimizer, loader = job.prepare(model, OPTIMIZER, loader)
for epoch in job.epochs():
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
"""


class CheckpointsTest(WithPrograms):
    def rubato(self, *arguments):
        done = subprocess.run([str(self.folder / "bin" / "rubato"), *arguments], cwd=self.folder, env=self.environment,
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_goes_on_from_a_checkpoint_and_is_opened_by_torch(self):
        job = {"version": 1, "name": "saved", "cluster": {"workers": 2, "address": "127.0.0.1:0"},
               "script": [PYTHON, TRAIN, "--model=noisy", "--shuffle", "--parts=2", "--out=model.pt"],
               "train": {"batch_size": 16, "micro_batches": 2, "until": {"epochs": 4}},
               "checkpoint": {"every": {"epochs": 1}, "keep_last": 5}}
        (self.folder / "job.yaml").write_text(json.dumps(job))
        self.rubato("train", "job.yaml", "--run-dir", "whole")
        # Of the first epoch, or the second: one that is due while another is written is left out.
        checkpoint = min((self.folder / "whole" / "checkpoints").glob("step-*"))
        self.rubato("train", "job.yaml", "--run-dir", "rest", "--resume", str(checkpoint))
        whole, rest = (json.loads((self.folder / run / "summary.json").read_text()) for run in ("whole", "rest"))
        self.assertEqual(rest["digest"], whole["digest"])

        model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))
        model.load_state_dict(torch.load(self.folder / "model.pt"))
        saved = {name: value.clone() for name, value in model.state_dict().items()}
        self.rubato("export", "whole", "model.safetensors")
        exported = load_file(self.folder / "model.safetensors")
        model.load_state_dict(exported)
        for name, value in exported.items():
            self.assertTrue(torch.equal(value, saved[name]), name)
        self.rubato("export", str(checkpoint), "earlier.safetensors")
        self.assertFalse(torch.equal(load_file(self.folder / "earlier.safetensors")["0.weight"], saved["0.weight"]))

    def test_another_optimizer_begins_anew(self):
        of = {"momentum": "torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, dampening=0.5)",
              "adam": "torch.optim.Adam(model.parameters(), lr=0.01)",
              "adagrad": "torch.optim.Adagrad(model.parameters(), lr=0.01, initial_accumulator_value=9)",
              "centered": "torch.optim.RMSprop(model.parameters(), lr=0.01, centered=True)"}

        def train(run, optimizer, steps, *resume):
            job = {"version": 1, "name": "anew", "cluster": {"workers": 1, "address": "127.0.0.1:0"},
                   "script": [PYTHON, f"{optimizer}.py"],
                   "train": {"batch_size": 16, "until": {"steps": steps}}, "checkpoint": {"every": {"steps": 20}}}
            (self.folder / "job.yaml").write_text(json.dumps(job))
            (self.folder / f"{optimizer}.py").write_text(GOES_ON.replace("OPTIMIZER", of[optimizer]))
            self.rubato("train", "job.yaml", "--run-dir", run, *resume)

        for before, after in (("momentum", "adam"), ("momentum", "adagrad"), ("adam", "momentum"),
                              ("adam", "centered")):
            with self.subTest(before=before, after=after):
                train(f"{before}_{after}", before, 20)
                checkpoint = f"{before}_{after}/checkpoints/step-00000020"
                train(f"{after}_of_{before}", after, 23, "--resume", checkpoint)
                self.assertIn("the optimizer begins anew: the checkpoint holds ",
                              (self.folder / f"{after}_of_{before}/logs/server-0.log").read_text())
                self.rubato("export", checkpoint, "before.safetensors")
                self.rubato("export", f"{after}_of_{before}", "after.safetensors")
                model = nn.Linear(4, 1, bias=False)
                model.load_state_dict(load_file(self.folder / "before.safetensors"))
                optimizer = eval(of[after])
                for _ in range(3):
                    optimizer.zero_grad()
                    model(torch.tensor([[1.0, 2.0, -3.0, 4.0]])).mean().backward()
                    optimizer.step()
                found = load_file(self.folder / "after.safetensors")["weight"]
                torch.testing.assert_close(found, model.weight.detach(), rtol=1e-6, atol=1e-7)
                (self.folder / "before.safetensors").unlink()
                (self.folder / "after.safetensors").unlink()


run_cases()
