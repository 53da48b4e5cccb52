"""What PyTorch reaches with the settings of configs/agaricus.yaml, california_housing.yaml, fashion_cnn.yaml and
char_gpt.yaml.

    tools/scripts/train_in_pytorch.py SET DIR [SEED...]

SET is agaricus, california-housing, fashion-cnn, fashion-cnn-unpadded (the convolutions pad nothing) or
tiny-shakespeare; DIR holds the data set's files as they are. Prints, for each seed, the loss and the accuracy or the
root of the mean squared error on the test split, of tiny Shakespeare every 500 steps; the configs state the range.
Needs Debian's python3-torch. The examples of each split are those of Rubato; initial parameters and the order of
samples are drawn by PyTorch, so figures are comparable, not equal.
"""

import csv
import gzip
import math
import os
import sys

import torch


def mix(x):
    x = (x + 0x9e3779b97f4a7c15) % 2**64
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 % 2**64
    x = (x ^ x >> 27) * 0x94d049bb133111eb % 2**64
    return x ^ x >> 31


def key(seed, *parts):
    """common/base/random.h."""
    for part in parts:
        if isinstance(part, str):
            value = 0xcbf29ce484222325
            for character in part.encode():
                value = (value ^ character) * 0x100000001b3 % 2**64
            part = value
        seed = mix(seed) ^ part
    return mix(seed)


def permutation(its_key, size):
    """common/space/permutation.h, as a list."""
    half = ((size - 1).bit_length() + 1) // 2
    mask = 2**half - 1
    round_keys = [key(its_key, 'feistel', i) for i in range(8)]

    def feistel(value):
        left, right = value >> half, value & mask
        for round_key in round_keys:
            left, right = right, left ^ mix(round_key ^ right) & mask
        return left << half | right

    order = []
    for index in range(size):
        index = feistel(index)
        while index >= size:
            index = feistel(index)
        order.append(index)
    return order


def read_agaricus(folder):
    def read(name):
        with open(os.path.join(folder, name)) as file:
            rows = [line.split() for line in file]
        x = torch.zeros(len(rows), 126)
        for i, row in enumerate(rows):
            for field in row[1:]:
                index, value = field.split(':')
                x[i, int(index) - 1] = float(value)
        return x, torch.tensor([int(row[0]) for row in rows])
    return read('agaricus.txt.train'), read('agaricus.txt.test')


def read_california_housing(folder):
    with open(os.path.join(folder, 'housing.csv'), newline='') as file:
        rows = list(csv.DictReader(file))
    numeric = [name for name in rows[0] if name not in ('median_house_value', 'ocean_proximity')]
    places = sorted({row['ocean_proximity'] for row in rows})
    x = torch.tensor([[float(row[name] or 'nan') for name in numeric] for row in rows])
    place = torch.tensor([[float(row['ocean_proximity'] == name) for name in places] for row in rows])
    y = torch.tensor([[float(row['median_house_value']) / 100000] for row in rows])
    order = permutation(key(0, 'test split'), len(rows))  # data.seed: 0, test_fraction: 0.2
    test, train = order[:len(rows) // 5], order[len(rows) // 5:]
    mean = torch.stack([column[~column.isnan()].double().mean() for column in x[train].T]).float()
    x = torch.where(x.isnan(), mean, x)
    std, mean = torch.std_mean(x[train].double(), dim=0, unbiased=False)
    x = torch.cat([(x - mean.float()) / std.float(), place], dim=1)
    return (x[train], y[train]), (x[test], y[test])


def read_fashion_mnist(folder):
    def read(name, shape):
        with gzip.open(os.path.join(folder, name + '.gz')) as file:
            values = bytearray(file.read()[4 + 4 * len(shape):])
            return torch.frombuffer(values, dtype=torch.uint8).reshape(-1, *shape[1:])
    splits = []
    for prefix in 'train', 't10k':
        images = read(prefix + '-images-idx3-ubyte', (0, 28, 28)).unsqueeze(1) / 255
        splits.append((images, read(prefix + '-labels-idx1-ubyte', (0,)).long()))
    std, mean = torch.std_mean(splits[0][0].double(), unbiased=False)  # data.normalize: auto
    return [((images - mean.float()) / std.float(), labels) for images, labels in splits]


def fashion_cnn(padding):
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=padding), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=padding), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * (7 if padding else 5)**2, 128), nn.ReLU(), nn.Linear(128, 10))


def linear_relu(*sizes):
    layers = []
    for inputs, outputs in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


SETTINGS = {
    'agaricus': dict(read=read_agaricus, make=lambda: linear_relu(126, 32, 2), loss=torch.nn.CrossEntropyLoss(),
                     rate=0.1, epochs=5),
    'california-housing': dict(read=read_california_housing, make=lambda: linear_relu(13, 64, 64, 1),
                               loss=torch.nn.MSELoss(), rate=0.01, epochs=20, cosine=True),
    'fashion-cnn': dict(read=read_fashion_mnist, make=lambda: fashion_cnn(1), loss=torch.nn.CrossEntropyLoss(),
                        rate=0.01, epochs=5),
    'fashion-cnn-unpadded': dict(read=read_fashion_mnist, make=lambda: fashion_cnn(0),
                                 loss=torch.nn.CrossEntropyLoss(), rate=0.01, epochs=5),
}


def train(folder, seed, read, make, loss, rate, epochs, cosine=False, batch=64):
    (x, y), (test_x, test_y) = read(folder)
    torch.manual_seed(seed)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    steps = epochs * math.ceil(len(x) / batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: (1 + math.cos(math.pi * step / steps)) / 2 if cosine else 1)
    for _ in range(epochs):
        for indices in torch.randperm(len(x)).split(batch):
            optimizer.zero_grad()
            loss(model(x[indices]), y[indices]).backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        output = torch.cat([model(part) for part in test_x.split(1000)])
        value = loss(output, test_y).item()
        if test_y.dtype == torch.int64:
            return f'loss {value:.5f}, accuracy {100 * (output.argmax(1) == test_y).float().mean():.2f} %'
        return f'loss {value:.4f}, root {math.sqrt(value):.4f}'


def train_char_gpt(folder, seed, context=64, batch=12, steps=5500, warmup=100):
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from make_layer_goldens import char_gpt

    with open(os.path.join(folder, 'input.txt'), encoding='utf-8') as file:
        text = file.read()
    names = {character: number for number, character in enumerate(sorted(set(text)))}
    numbers = torch.tensor([names[character] for character in text])
    count = (len(numbers) - 1) // context
    x = numbers[:count * context].view(count, context)
    y = numbers[1:count * context + 1].view(count, context)
    test = count // 10  # data.test_fraction: 0.1, the end
    x, y, test_x, test_y = x[:-test], y[:-test], x[-test:], y[-test:]
    torch.manual_seed(seed)
    model = char_gpt(context, len(names), 128, 4, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.002, weight_decay=0.1, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, step / warmup) * (1 + math.cos(math.pi * step / steps)) / 2)

    def loss_of(inputs, labels):
        outputs = model(inputs)
        return torch.nn.functional.cross_entropy(outputs.reshape(-1, outputs.shape[-1]), labels.reshape(-1))

    losses = []
    order = []
    for step in range(1, steps + 1):
        if not order:
            order = list(torch.randperm(len(x)).split(batch))
        indices = order.pop(0)
        optimizer.zero_grad()
        loss_of(x[indices], y[indices]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        schedule.step()
        if step % 500 == 0:
            with torch.no_grad():
                parts = [(len(a), loss_of(a, b).item()) for a, b in zip(test_x.split(128), test_y.split(128))]
            losses.append(f'{step}: {sum(n * loss for n, loss in parts) / len(test_x):.3f}')
            print(losses[-1], file=sys.stderr, flush=True)
    return 'loss ' + ', '.join(losses)


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in [*SETTINGS, 'tiny-shakespeare']:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    for seed in map(int, sys.argv[3:] or ['1', '2', '3']):
        is_text = sys.argv[1] == 'tiny-shakespeare'
        found = train_char_gpt(sys.argv[2], seed) if is_text else train(sys.argv[2], seed, **SETTINGS[sys.argv[1]])
        print(f'seed {seed}:', found, flush=True)


if __name__ == '__main__':
    main()
