"""A small GPT over the characters of a text, such as tinyshakespeare's input.txt.

    python3 char_gpt.py TEXT [STEPS]
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

import rubato

CONTEXT, CHANNELS, HEADS, BLOCKS = 64, 128, 4, 4


class Windows(Dataset):
    """(CONTEXT,) characters, and for each the one that follows; the next window begins behind this one."""

    def __init__(self, numbers):
        self.numbers = numbers

    def __len__(self):
        return (len(self.numbers) - 1) // CONTEXT

    def __getitem__(self, index):
        begin = index * CONTEXT
        window = self.numbers[begin:begin + CONTEXT + 1]
        return window[:-1], window[1:]


class CharGpt(nn.Module):
    def __init__(self, characters):
        super().__init__()
        self.token = nn.Embedding(characters, CHANNELS)
        self.place = nn.Parameter(torch.randn(CONTEXT, CHANNELS) * 0.02)
        layer = nn.TransformerEncoderLayer(CHANNELS, HEADS, 4 * CHANNELS, dropout=0.1, activation="gelu",
                                           batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, BLOCKS, nn.LayerNorm(CHANNELS), enable_nested_tensor=False)
        self.head = nn.Linear(CHANNELS, characters, bias=False)
        self.head.weight = self.token.weight
        nn.init.normal_(self.token.weight, std=0.02)
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1))

    def forward(self, x):  # (batch, CONTEXT) to (batch, CONTEXT, characters)
        return self.head(self.blocks(self.token(x) + self.place, self.mask))


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: python3 char_gpt.py TEXT [STEPS]")
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    characters = sorted(set(text))
    of = {character: number for number, character in enumerate(characters)}
    numbers = torch.tensor([of[character] for character in text])
    split = len(numbers) * 9 // 10
    train_set, test_set = Windows(numbers[:split]), Windows(numbers[split:])

    job = rubato.join(train={"until": {"steps": steps}})
    model = CharGpt(len(characters))
    decays = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decays}, {"params": others, "weight_decay": 0}], lr=1e-3,
                                  betas=(0.9, 0.95), weight_decay=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 100))
    loader = DataLoader(train_set, batch_size=32, shuffle=True)
    model, optimizer, loader, scheduler = job.prepare(model, optimizer, loader, scheduler, clip_grad_norm=1.0)

    def test():
        losses = [F.cross_entropy(model(x).flatten(0, 1), y.flatten()) for x, y in DataLoader(test_set, batch_size=64)]
        return {"loss": torch.stack(losses).mean().item()}

    for epoch in job.epochs():
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
            loss.backward()
            optimizer.step()
            scheduler.step()
            job.log(loss=loss)
        figures = job.evaluate(test)
        if figures:
            print(f"epoch {epoch}: loss {figures['loss']:.4f}", flush=True)
    job.save("char_gpt.pt")


if __name__ == "__main__":
    main()
