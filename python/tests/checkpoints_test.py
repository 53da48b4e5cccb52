"""A script's job goes on from a checkpoint to the bits of the run that did not stop; PyTorch opens what it has saved.

Usage: checkpoints_test.py RUBATO   (the binary). Needs Debian's python3-torch; skipped without it.
"""

import json
import struct
import subprocess

from programs import PYTHON, TRAIN, WithPrograms, need_torch
from skipped import run_cases

need_torch("CheckpointsTest", "GoesOn")
import torch
from torch import nn


def load_file(path):
    """As safetensors.torch.load_file."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    values = bytearray(data[8 + size:])
    return {name: torch.frombuffer(values, dtype=torch.float32, offset=of["data_offsets"][0],
                                   count=(of["data_offsets"][1] - of["data_offsets"][0]) // 4).reshape(of["shape"])
            for name, of in header.items()}


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


run_cases()
