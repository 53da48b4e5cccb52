"""Ratings of films as products of factors, in async: each worker at its own pace.

    python3 matrix_factorisation.py [RATINGS]            # lines "user<TAB>item<TAB>rating", as MovieLens 100K's u.data;
                                                         # without a file they are drawn
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import rubato


def ratings():
    """Users, items and ratings."""
    if len(sys.argv) > 1:
        table = np.loadtxt(sys.argv[1], usecols=(0, 1, 2))
        return torch.from_numpy(table[:, 0]).long(), torch.from_numpy(table[:, 1]).long(), torch.from_numpy(table[:, 2])
    draw = torch.Generator().manual_seed(1)
    users, items = torch.randint(300, (40000,), generator=draw), torch.randint(500, (40000,), generator=draw)
    a, b = torch.randn(300, 4, generator=draw), torch.randn(500, 4, generator=draw)
    noise = 0.3 * torch.randn(40000, generator=draw)
    return users, items, 3 + (a[users] * b[items]).sum(1) / 2 + noise


class Factors(nn.Module):
    def __init__(self, users, items, mean, rank=8):
        super().__init__()
        self.user, self.item = nn.Embedding(users, rank), nn.Embedding(items, rank)
        self.user_bias, self.item_bias = nn.Embedding(users, 1), nn.Embedding(items, 1)
        self.mean = nn.Parameter(torch.tensor(mean))
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=0.3)
        for table in (self.user_bias, self.item_bias):
            nn.init.zeros_(table.weight)

    def forward(self, user, item):
        product = (self.user(user) * self.item(item)).sum(1)
        return self.mean + product + self.user_bias(user).squeeze(1) + self.item_bias(item).squeeze(1)


def main():
    users, items, stars = ratings()
    stars = stars.float()
    order = torch.randperm(len(stars), generator=torch.Generator().manual_seed(2))
    test, train = order[:len(order) // 10], order[len(order) // 10:]
    loader = DataLoader(TensorDataset(users[train], items[train], stars[train]), batch_size=256, shuffle=True)
    job = rubato.join(epochs=10, consistency="async")
    model = Factors(int(users.max()) + 1, int(items.max()) + 1, float(stars[train].mean()))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-5)
    model, optimizer, loader = job.prepare(model, optimizer, loader)
    for epoch in job.epochs():
        for user, item, star in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(user, item), star)
            loss.backward()
            optimizer.step()
            job.log(loss=loss)
        figures = job.evaluate(lambda: {"loss": F.mse_loss(model(users[test], items[test]), stars[test]).item()})
        if figures:
            print(f"epoch {epoch}: root mean square error {figures['loss'] ** 0.5:.3f}", flush=True)
    job.save("factors.pt")


if __name__ == "__main__":
    main()
