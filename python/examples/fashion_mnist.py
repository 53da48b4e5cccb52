"""A convolutional network on Fashion-MNIST, or on MNIST: 91 % after 3 epochs.

    python3 fashion_mnist.py FOLDER                      # alone, with a server of its own
    rubato train job.yaml                                # distributed; with this in job.yaml:

        version: 1
        name: fashion
        script: [python3, fashion_mnist.py, FOLDER]
        cluster: {servers: 1, workers: 2}
        train: {batch_size: 64, micro_batches: 2, until: {epochs: 3}}

FOLDER has the four files of the data set, such as train-images-idx3-ubyte.gz.
"""

import gzip
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import rubato


def read(folder, name):
    """An array of a file in MNIST's format."""
    path = next(pathlib.Path(folder).glob(name + "*"))
    raw = (gzip.open if path.suffix == ".gz" else open)(path, "rb").read()
    dimensions = raw[3]
    shape = np.frombuffer(raw, ">u4", dimensions, 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def load(folder, split):
    images = torch.from_numpy(read(folder, split + "-images").copy()).unsqueeze(1).float() / 255
    labels = torch.from_numpy(read(folder, split + "-labels").astype(np.int64))
    return TensorDataset((images - 0.2860) / 0.3530, labels)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(1600, 128), nn.ReLU(), nn.Dropout(0.25), nn.Linear(128, 10))

    def forward(self, x):
        return self.head(self.features(x))


def test(model, data):
    loss = correct = 0
    for x, y in DataLoader(data, batch_size=1000):
        output = model(x)
        loss += F.cross_entropy(output, y, reduction="sum").item()
        correct += (output.argmax(1) == y).sum().item()
    return {"loss": loss / len(data), "accuracy": correct / len(data)}


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: python3 fashion_mnist.py FOLDER")
    folder = sys.argv[1]
    train_set, test_set = load(folder, "train"), load(folder, "t10k")
    job = rubato.join(epochs=3)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3 * 938)
    loader = DataLoader(train_set, batch_size=64, shuffle=True)
    model, optimizer, loader, scheduler = job.prepare(model, optimizer, loader, scheduler, clip_grad_norm=1.0)
    for epoch in job.epochs():
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            scheduler.step()
            job.log(loss=loss)
        figures = job.evaluate(lambda: test(model, test_set))
        if figures:
            print(f"epoch {epoch}: loss {figures['loss']:.4f}, accuracy {figures['accuracy']:.2%}", flush=True)
    job.save("fashion.pt")


if __name__ == "__main__":
    main()
