"""A residual network on CIFAR-10's binary files, with random crops and flips in loader processes.

    python3 resnet_cifar10.py FOLDER [EPOCHS]            # FOLDER has data_batch_1.bin to _5 and test_batch.bin
"""

import pathlib
import random
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

import rubato

MEAN = torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1)
STD = torch.tensor([0.2470, 0.2435, 0.2616]).view(3, 1, 1)


class Cifar10(Dataset):
    def __init__(self, folder, pattern, augment):
        paths = sorted(pathlib.Path(folder).glob(pattern))
        if not paths:
            sys.exit(f"found no {pattern} in {folder}")
        records = np.concatenate([np.fromfile(path, np.uint8).reshape(-1, 3073) for path in paths])
        self.labels = records[:, 0].astype(np.int64)
        self.images = records[:, 1:].reshape(-1, 3, 32, 32)
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = (torch.from_numpy(self.images[index]).float() / 255 - MEAN) / STD
        if self.augment:  # what is drawn is this image's in this epoch, whichever process loads it
            top, left = random.randrange(9), random.randrange(9)
            image = F.pad(image, (4, 4, 4, 4))[:, top:top + 32, left:left + 32]
            if random.random() < 0.5:
                image = image.flip(2)
        return image, int(self.labels[index])


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential() if stride == 1 else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


def resnet(blocks=3):
    """ResNet-20 of He et al. 2016, section 4.2, with projections."""
    layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    channels = 16
    for width in (16, 32, 64):
        for _ in range(blocks):
            layers.append(Block(channels, width, 1 if channels == width else 2))
            channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: python3 resnet_cifar10.py FOLDER [EPOCHS]")
    folder, epochs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20
    train_set = Cifar10(folder, "data_batch_*.bin", augment=True)
    test_set = Cifar10(folder, "test_batch.bin", augment=False)
    job = rubato.join(epochs=epochs)
    model = resnet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [epochs // 2, epochs * 3 // 4])
    loader = DataLoader(train_set, batch_size=128, shuffle=True, num_workers=2)
    model, optimizer, loader, scheduler = job.prepare(model, optimizer, loader, scheduler, scheduler_per="epoch")

    def test():
        correct = sum((model(x).argmax(1) == y).sum().item() for x, y in DataLoader(test_set, batch_size=500))
        return {"accuracy": correct / len(test_set)}

    for epoch in job.epochs():
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            job.log(loss=loss)
        scheduler.step()
        figures = job.evaluate(test)
        if figures:
            print(f"epoch {epoch}: accuracy {figures['accuracy']:.2%}", flush=True)
    job.save("resnet.pt")


if __name__ == "__main__":
    main()
