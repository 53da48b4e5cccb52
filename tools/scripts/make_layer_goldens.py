#!/usr/bin/python3
"""Makes tests/goldens/{compositions,preset_trajectories}.safetensors: PyTorch in float64.

Needs python3-torch. The tests need only the files.

Long because each layer has its case, in one list.

    tools/scripts/make_layer_goldens.py [FOLDER]

compositions.safetensors: models of one or a few layers, without a loss. For each case the metadata
hold the model as a text-format proto; the tensors are CASE/x, CASE/y, the parameters CASE/NAME and
the gradients of sum(y * CASE/dy): CASE/dx (unless x are indices) and CASE/d:NAME. Of batch norm also
CASE/running:NAME, the buffers after one call that began with 0 and 1, and CASE/eval, what the module
gives for x in evaluation with those buffers. Cases whose metadata begin with `loss` hold a Loss
message behind it: CASE/x (logits; (n, outputs) or (n, places, outputs)), CASE/labels, CASE/loss and
CASE/dx, of a sum over n (of means over places), and CASE/mean and CASE/accuracy, of the labels that
are not ignored.

preset_trajectories.safetensors: 20 steps of SGD with momentum 0.9 on small versions of presets. The
metadata hold each model as a text-format proto; PRESET/features (batches, batch, ...),
PRESET/labels (batches, batch, ...), PRESET/rate, PRESET/losses (steps), and each parameter before and
after: PRESET/NAME, PRESET/end/NAME; of resnet20, which begins as Rubato draws it with seed 6, some after,
and all buffers.
"""

import pathlib
import sys

import numpy
import torch
from torch import nn

from make_model_goldens import File, normal

MOMENTUM, STEPS, BATCHES = 0.9, 20, 4


class Residual(nn.Module):
    def __init__(self, layers, shortcut=None, name="shortcut"):
        super().__init__()
        for key, layer in layers.items():
            self.add_module(key, layer)
        self.keys = list(layers)
        self.name = name if shortcut is not None else None
        if shortcut is not None:
            self.add_module(name, shortcut)

    def forward(self, x):
        y = x
        for key in self.keys:
            y = self._modules[key](y)
        return y + (x if self.name is None else self._modules[self.name](x))


class SelfAttention(nn.MultiheadAttention):
    def __init__(self, channels, heads, causal=True, bias=True):
        super().__init__(channels, heads, batch_first=True, bias=bias)
        self.causal = causal

    def forward(self, x):
        t = x.shape[1]
        mask = torch.full((t, t), float("-inf"), dtype=x.dtype).triu(1) if self.causal else None
        return super().forward(x, x, x, attn_mask=mask, need_weights=False)[0]


class Block(nn.TransformerEncoderLayer):
    def __init__(self, channels, heads, width=None, causal=True):
        super().__init__(channels, heads, width or 4 * channels, dropout=0.0, activation="gelu",
                         batch_first=True, norm_first=True)
        self.causal = causal

    def forward(self, x):
        t = x.shape[1]
        mask = torch.full((t, t), float("-inf"), dtype=x.dtype).triu(1) if self.causal else None
        return super().forward(x, src_mask=mask)


class PositionEmbedding(nn.Module):
    def __init__(self, places, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(places, channels))

    def forward(self, x):
        return x + self.weight


class Indices(nn.Embedding):
    def forward(self, x):
        return super().forward(x.long())


def conv_text(channels, kernel, stride=1, padding=0, groups=1, bias=True):
    return (f"conv2d {{ out_channels: {channels} kernel_size: {kernel} stride: {stride} "
            f"padding: {padding} groups: {groups} bias: {str(bias).lower()} }}")


def layer(text):
    return f"layers {{ {text} }}"


def cases():
    """Name, the shape of x, the module, the model."""
    for name, shape, out, kernel, stride, padding, groups, bias in [
        ("conv", (3, 2, 7, 9), 5, 3, 1, 0, 1, True),
        ("conv_batch_1", (1, 3, 5, 4), 2, 2, 1, 1, 1, True),
        ("conv_stride", (2, 3, 11, 8), 4, 3, 2, 1, 1, True),
        ("conv_stride_beyond_kernel", (2, 1, 10, 7), 3, 2, 3, 0, 1, False),
        ("conv_groups", (2, 6, 6, 5), 9, 3, 1, 1, 3, True),
        ("conv_depthwise", (3, 5, 6, 7), 10, 3, 2, 2, 5, False),
        ("conv_pointwise", (2, 7, 3, 5), 4, 1, 1, 0, 1, True),
        ("conv_pointwise_stride", (2, 4, 5, 5), 6, 1, 2, 0, 2, True),
        ("conv_large_kernel", (2, 2, 5, 6), 3, 5, 1, 2, 1, True),
        ("conv_wide", (1, 1, 4, 37), 2, 3, 1, 1, 1, True),
        ("conv_one_by_one", (1, 1, 1, 1), 1, 3, 1, 1, 1, True),
        # Of many channels, where another library computes.
        ("conv_channels", (2, 16, 5, 4), 9, 3, 1, 1, 1, True),
        ("conv_channels_groups_stride", (1, 16, 7, 6), 24, 3, 2, 0, 2, False),
        ("conv_depthwise_equal", (2, 9, 6, 5), 9, 3, 1, 1, 9, True),
    ]:
        module = nn.Conv2d(shape[1], out, kernel, stride, padding, groups=groups, bias=bias)
        yield name, shape, module, layer(conv_text(out, kernel, stride, padding, groups, bias))
    for name, shape, kernel, stride, padding in [
        ("2", (2, 3, 6, 8), 2, 2, 0),
        ("2_odd", (3, 2, 7, 5), 2, 2, 0),
        ("2_batch_1_wide", (1, 2, 5, 38), 2, 2, 0),
        ("3_stride_2", (2, 2, 9, 7), 3, 2, 1),
        ("3_stride_1", (2, 1, 5, 6), 3, 1, 1),
        ("2_stride_3", (2, 2, 8, 7), 2, 3, 1),
    ]:
        text = f"{{ kernel_size: {kernel} stride: {stride} padding: {padding} }}"
        yield ("max_pool_" + name, shape, nn.MaxPool2d(kernel, stride, padding),
               layer("max_pool2d " + text))
        for pads in (True, False):
            yield (f"avg_pool_{name}_{pads}", shape,
                   nn.AvgPool2d(kernel, stride, padding, count_include_pad=pads),
                   layer(f"avg_pool2d {text[:-1]} count_include_pad: {str(pads).lower()} }}"))
    for size, shape in [(1, (2, 3, 5, 7)), (3, (2, 2, 7, 5)), (4, (1, 2, 3, 9))]:
        yield (f"adaptive_{size}", shape, nn.AdaptiveAvgPool2d(size),
               layer(f"adaptive_avg_pool2d {{ output_size: {size} }}"))
    for name, shape, dims, affine, eps in [
        ("row", (3, 17), 1, True, 1e-5),
        ("places", (2, 5, 33), 1, True, 1e-5),
        ("plain", (1, 4, 16), 1, False, 1e-3),
        ("image", (2, 3, 4, 5), 3, True, 1e-5),
        ("plane", (2, 3, 4, 5), 2, True, 1e-2),
    ]:
        yield ("layer_norm_" + name, shape,
               nn.LayerNorm(shape[-dims:], eps=eps, elementwise_affine=affine),
               layer(f"layer_norm {{ eps: {eps} dimensions: {dims} "
                     f"elementwise_affine: {str(affine).lower()} }}"))
    for name, shape, groups, affine in [
        ("one", (2, 3, 5, 4), 1, True),
        ("three", (3, 6, 3, 7), 3, True),
        ("instance", (2, 4, 5, 5), 4, True),
        ("plain", (1, 6, 3, 3), 2, False),
        ("row", (3, 12), 3, True),
    ]:
        yield ("group_norm_" + name, shape, nn.GroupNorm(groups, shape[1], affine=affine),
               layer(f"group_norm {{ num_groups: {groups} affine: {str(affine).lower()} }}"))
    for name, shape, affine, momentum in [
        ("image", (3, 5, 4, 7), True, 0.1),
        ("row", (7, 6), True, 0.3),
        ("plain", (2, 3, 5, 5), False, 0.1),
        ("batch_1", (1, 4, 3, 6), True, 0.1),
    ]:
        kind = nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d
        yield ("batch_norm_" + name, shape, kind(shape[1], affine=affine, momentum=momentum),
               layer(f"batch_norm {{ affine: {str(affine).lower()} momentum: {momentum} }}"))
    yield ("linear_places", (2, 5, 7), nn.Linear(7, 3), layer("linear { out_features: 3 }"))
    for name, shape, heads, causal, bias in [
        ("causal", (2, 7, 12), 3, True, True),
        ("all", (2, 5, 8), 2, False, True),
        ("batch_1_one_head", (1, 19, 6), 1, True, False),
        ("one_place", (2, 1, 4), 2, True, True),
        ("long", (1, 33, 8), 2, True, True),
    ]:
        yield ("attention_" + name, shape, SelfAttention(shape[2], heads, causal, bias),
               layer(f"attention {{ heads: {heads} causal: {str(causal).lower()} "
                     f"bias: {str(bias).lower()} }}"))
    for name, shape, heads, width, causal in [
        ("causal", (2, 6, 8), 2, None, True),
        ("all_narrow", (1, 5, 12), 4, 10, False),
    ]:
        wide = "" if width is None else f"dim_feedforward: {width} "
        yield ("block_" + name, shape, Block(shape[2], heads, width, causal),
               layer(f"transformer_block {{ heads: {heads} {wide}causal: {str(causal).lower()} }}"))
    yield ("residual", (2, 3, 5, 6), Residual({"0": nn.Conv2d(3, 3, 3, padding=1)}),
           layer(f"residual {{ {layer(conv_text(3, 3, padding=1))} }}"))
    # The same value is read by a relu that could run in place, a convolution and a sum.
    yield ("residual_relu_first", (2, 3, 4, 4),
           nn.Sequential(
               nn.Conv2d(3, 3, 1),
               Residual({"a": nn.ReLU(), "b": nn.Conv2d(3, 3, 3, padding=1), "c": nn.ReLU()}),
               nn.ReLU()),
           f"{layer(conv_text(3, 1))} layers {{ residual {{ {layer('relu {}')} "
           f"{layer(conv_text(3, 3, padding=1))} {layer('relu {}')} "
           "names: 'a' names: 'b' names: 'c' } } layers { relu {} }")
    yield ("residual_nested", (2, 2, 3, 5),
           Residual({"0": Residual({"0": nn.Conv2d(2, 2, 3, padding=1), "1": nn.Tanh()}),
                     "1": nn.Sequential(nn.GELU(), nn.Conv2d(2, 4, 1))},
                    nn.Sequential(nn.Conv2d(2, 4, 1, bias=False), nn.GroupNorm(2, 4)), "down"),
           f"layers {{ residual {{ layers {{ residual {{ {layer(conv_text(2, 3, padding=1))} "
           f"{layer('tanh {}')} }} }} layers {{ sequential {{ {layer('gelu {}')} "
           f"{layer(conv_text(4, 1))} }} }} "
           f"shortcut {{ {conv_text(4, 1, bias=False)} }} "
           f"shortcut {{ group_norm {{ num_groups: 2 }} }} shortcut_name: 'down' }} }}")
    yield ("residual_flatten", (3, 2, 2, 3),
           nn.Sequential(nn.Flatten(), Residual({"0": nn.ReLU(), "1": nn.Linear(12, 12)},
                                                nn.Sequential(nn.ReLU())), nn.Linear(12, 2)),
           f"{layer('flatten {}')} layers {{ residual {{ {layer('relu {}')} "
           f"{layer('linear { out_features: 12 }')} shortcut {{ relu {{}} }} }} }} "
           f"{layer('linear { out_features: 2 }')}")
    yield ("embedding", (3, 5), nn.Sequential(Indices(11, 6), PositionEmbedding(5, 6)),
           f"{layer('embedding { embedding_dim: 6 num_embeddings: 11 }')} "
           f"{layer('position_embedding {}')}")


def image_cases():
    """Likewise, of even numbers of channels, of which devices have other orders."""
    conv = layer(conv_text(4, 3, padding=1))
    yield ("image_residual", (3, 2, 6, 5),
           nn.Sequential(
               nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Tanh(),
               Residual({"0": nn.Conv2d(4, 4, 3, padding=1), "1": nn.BatchNorm2d(4)},
                        nn.Sequential(nn.Conv2d(4, 4, 1, bias=False))),
               nn.AvgPool2d(2, padding=1), nn.Conv2d(4, 6, 3, stride=2), nn.Flatten(),
               nn.Linear(6, 2)),
           f"{conv} layers {{ batch_norm {{}} }} layers {{ tanh {{}} }} "
           f"layers {{ residual {{ {conv} layers {{ batch_norm {{}} }} "
           f"shortcut {{ {conv_text(4, 1, bias=False)} }} }} }} "
           f"{layer('avg_pool2d { kernel_size: 2 padding: 1 }')} "
           f"{layer(conv_text(6, 3, stride=2))} {layer('flatten {}')} "
           f"{layer('linear { out_features: 2 }')}")
    # Products of matrices beside convolutions that are computed in one piece.
    yield ("image_groups", (2, 2, 7, 8),
           nn.Sequential(
               nn.Conv2d(2, 8, 3, padding=1), nn.Sigmoid(),
               nn.Conv2d(8, 8, 3, padding=1, groups=4), nn.BatchNorm2d(8, affine=False),
               nn.Conv2d(8, 4, 3, padding=1), nn.GELU(), nn.AvgPool2d(2), nn.Flatten(),
               nn.Linear(48, 3)),
           f"{layer(conv_text(8, 3, padding=1))} {layer('sigmoid {}')} "
           f"{layer(conv_text(8, 3, padding=1, groups=4))} "
           f"{layer('batch_norm { affine: false }')} {conv} {layer('gelu {}')} "
           f"{layer('avg_pool2d { kernel_size: 2 }')} {layer('flatten {}')} "
           f"{layer('linear { out_features: 3 }')}")
    yield ("image_pools", (2, 2, 8, 8),
           nn.Sequential(
               nn.Conv2d(2, 4, 1, bias=False), nn.MaxPool2d(3, stride=2, padding=1),
               nn.Conv2d(4, 8, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
               nn.Linear(8, 3)),
           f"{layer(conv_text(4, 1, bias=False))} "
           f"{layer('max_pool2d { kernel_size: 3 stride: 2 padding: 1 }')} "
           f"{layer(conv_text(8, 3, padding=1))} "
           f"{layer('adaptive_avg_pool2d { output_size: 1 }')} {layer('flatten {}')} "
           f"{layer('linear { out_features: 3 }')}")
    # Of the numbers of channels that cuDNN is asked for.
    wide = layer(conv_text(8, 3, padding=1))
    yield ("image_eights", (2, 8, 5, 6),
           nn.Sequential(
               nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Tanh(),
               Residual({"0": nn.Conv2d(8, 16, 3, padding=1), "1": nn.BatchNorm2d(16)},
                        nn.Sequential(nn.Conv2d(8, 16, 1, bias=False))),
               nn.AvgPool2d(2, padding=1), nn.Conv2d(16, 8, 3, stride=2), nn.Flatten(),
               nn.Linear(8, 2)),
           f"{wide} layers {{ batch_norm {{}} }} layers {{ tanh {{}} }} "
           f"layers {{ residual {{ {layer(conv_text(16, 3, padding=1))} "
           f"layers {{ batch_norm {{}} }} shortcut {{ {conv_text(16, 1, bias=False)} }} }} }} "
           f"{layer('avg_pool2d { kernel_size: 2 padding: 1 }')} "
           f"{layer(conv_text(8, 3, stride=2))} {layer('flatten {}')} "
           f"{layer('linear { out_features: 2 }')}")


def add_compositions(file, generator, all_cases):
    for name, shape, module, text in all_cases:
        # What is one layer to us is one in a Sequential too, so that it is called "0".
        model = module if type(module) is nn.Sequential else nn.Sequential(module)
        model = model.double()
        for parameter in model.parameters():
            parameter.data = normal(generator, *parameter.shape)
        indices = name == "embedding"
        if indices:
            x = torch.randint(11, shape, generator=generator).double()
            x[0, 0] = x[1, 2]  # one row, twice
        else:
            x = normal(generator, *shape).requires_grad_(True)
        y = model(x)
        dy = normal(generator, *y.shape)
        (y * dy).sum().backward()
        for key, value in {"x": x, "y": y, "dy": dy}.items():
            file.add(f"{name}/{key}", value)
        if not indices:
            file.add(f"{name}/dx", x.grad)
        for key, parameter in model.named_parameters():
            file.add(f"{name}/{key}", parameter)
            file.add(f"{name}/d:{key}", parameter.grad)
        buffers = {k: v for k, v in model.named_buffers() if v.is_floating_point()}
        for key, buffer in buffers.items():
            file.add(f"{name}/running:{key}", buffer)
        if buffers:
            file.add(f"{name}/eval", model.eval()(x))
        file.metadata[name] = text


def compositions():
    generator = torch.Generator().manual_seed(5)
    file = File()
    add_compositions(file, generator, cases())
    add_losses(file, generator, [
        ("loss_smoothed", (7, 10), 10, 0.1, None, None),
        ("loss_smoothed_batch_1", (1, 3), 3, 0.5, None, None),
        ("loss_ignored", (9, 4), 4, 0.0, 2, None),
        ("loss_smoothed_ignored", (9, 17), 5, 0.2, 0, None),
        ("loss_places", (4, 6, 11), 11, 0.0, None, None),
        ("loss_places_smoothed", (3, 5, 7), 7, 0.3, 1, None),
    ])
    add_compositions(file, generator, image_cases())
    add_losses(file, generator, [
        ("loss_weighted", (9, 4), 4, 0.0, None, [0.5, 2, 0, 1]),
        ("loss_weighted_smoothed", (8, 3), 3, 0.25, None, [3, 0.125, 1]),
        ("loss_weighted_places", (3, 5, 5), 5, 0.125, 1, [1, 4, 0.5, 2, 0.25]),
    ])
    return file


def add_losses(file, generator, losses):
    for name, shape, classes, smoothing, ignored, weights in losses:
        x = (3 * normal(generator, *shape)).float().double().requires_grad_(True)
        labels = torch.randint(classes, shape[:-1], generator=generator)
        options = dict(label_smoothing=smoothing, ignore_index=-100 if ignored is None else ignored,
                       weight=None if weights is None else torch.tensor(weights).double())
        loss = nn.functional.cross_entropy(
            x.reshape(-1, shape[-1]), labels.reshape(-1), reduction="sum", **options)
        loss = loss / (shape[1] if len(shape) == 3 else 1)
        loss.backward()
        mean = nn.functional.cross_entropy(
            x.reshape(-1, shape[-1]), labels.reshape(-1), **options)
        judged = labels != ignored
        accuracy = (x.argmax(-1) == labels)[judged].double().mean()
        for key, value in {"x": x, "labels": labels.float(), "loss": loss, "dx": x.grad,
                           "mean": mean, "accuracy": accuracy}.items():
            file.add(f"{name}/{key}", value)
        ignore = "" if ignored is None else f" ignore_index: {ignored}"
        weigh = "".join(f" class_weights: {weight}" for weight in weights or [])
        file.metadata[name] = f"loss label_smoothing: {smoothing}{ignore}{weigh}"


def cnn(side, classes):
    flat = 64 * (((side - 2) // 2 - 2) // 2) ** 2
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(flat, 128), nn.ReLU(), nn.Linear(128, classes))


def lenet(side, classes):
    flat = 16 * ((side // 2 - 4) // 2) ** 2
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(flat, 120), nn.ReLU(), nn.Linear(120, 84),
        nn.ReLU(), nn.Linear(84, classes))


def char_gpt(context, classes, channels, heads, blocks):
    return nn.Sequential(
        Indices(classes, channels), PositionEmbedding(context, channels),
        *[Block(channels, heads) for _ in range(blocks)], nn.LayerNorm(channels),
        nn.Linear(channels, classes))


class Basic(nn.Module):
    """torchvision's BasicBlock, without its last relu."""

    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.downsample = None
        if channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False),
                                            nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


def resnet(depth, classes):
    """resnet20 of CIFAR-10, and torchvision's resnet18."""
    widths, blocks = ((16, 32, 64), 3) if depth == 20 else ((64, 128, 256, 512), 2)
    net = nn.Sequential()
    kernel = (3, 1, 1) if depth == 20 else (7, 2, 3)
    net.add_module("conv1", nn.Conv2d(3, widths[0], *kernel, bias=False))
    net.add_module("bn1", nn.BatchNorm2d(widths[0]))
    net.add_module("relu", nn.ReLU())
    if depth == 18:
        net.add_module("maxpool", nn.MaxPool2d(3, 2, 1))
    channels = widths[0]
    for stage, width in enumerate(widths):
        layers = []
        for i in range(blocks):
            layers.append(Basic(channels, width, 2 if stage > 0 and i == 0 else 1))
            channels = width
        net.add_module(f"layer{stage + 1}", nn.Sequential(*layers))
    net.add_module("avgpool", nn.AdaptiveAvgPool2d(1))
    net.add_module("flatten", nn.Flatten())
    net.add_module("fc", nn.Linear(channels, classes))
    return net


def key(seed, *parts):
    """common/base/random.h."""
    def mix(x):
        x = (x + 0x9e3779b97f4a7c15) % 2**64
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 % 2**64
        x = (x ^ x >> 27) * 0x94d049bb133111eb % 2**64
        return x ^ x >> 31

    for part in parts:
        value = 0xcbf29ce484222325
        for character in part.encode():
            value = (value ^ character) * 0x100000001b3 % 2**64
        seed = mix(seed) ^ value
    return mix(seed)


def uniform(seed, name, shape, bound):
    """common/space/initialize.h: what Rubato draws for a parameter, by Philox 4x32-10."""
    count = int(numpy.prod(shape))
    its_key = key(seed, "parameter", name)
    block = numpy.arange((count + 3) // 4, dtype=numpy.uint64)
    low = numpy.uint64(0xffffffff)
    c = [block & low, block >> numpy.uint64(32), block * numpy.uint64(0), block * numpy.uint64(0)]
    k0, k1 = its_key & 0xffffffff, its_key >> 32
    for _ in range(10):
        p0, p1 = numpy.uint64(0xD2511F53) * c[0], numpy.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> numpy.uint64(32)) ^ c[1] ^ numpy.uint64(k0), p1 & low,
             (p0 >> numpy.uint64(32)) ^ c[3] ^ numpy.uint64(k1), p0 & low]
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    bits = numpy.stack(c, axis=1).reshape(-1)[:count]
    unit = (bits >> numpy.uint64(8)).astype(numpy.float32) * numpy.float32(2.0**-24)
    values = (2 * unit - 1) * numpy.float32(bound)
    return torch.from_numpy(values.reshape(shape)).double()


def trajectory(file, name, text, model, features, labels, rate, keep=None):
    """keep: the only parameters that are written down, at the end; all begin as Rubato draws them
    with seed 6."""
    model = model.double()
    if keep is not None:
        for key_, parameter in model.named_parameters():
            if parameter.dim() == 4 or key_.startswith("fc."):
                fan = parameter[0].numel() if parameter.dim() > 1 else 64
                parameter.data = uniform(6, key_, parameter.shape, fan**-0.5)
    for parameter in model.parameters():
        parameter.data = parameter.data.float().double()
    file.metadata[name] = text
    file.add(f"{name}/features", features.float())
    file.add(f"{name}/labels", labels.float())
    file.add(f"{name}/rate", torch.tensor([rate], dtype=torch.float64))
    for key_, parameter in model.named_parameters():
        if keep is None:
            file.add(f"{name}/{key_}", parameter.float().clone())
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=MOMENTUM)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        outputs = model(features[step % BATCHES].double())
        targets = labels[step % BATCHES]
        loss = nn.functional.cross_entropy(outputs.reshape(-1, outputs.shape[-1]),
                                           targets.reshape(-1))
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    file.add(f"{name}/losses", torch.tensor(losses, dtype=torch.float64))
    for key_, parameter in model.named_parameters():
        if keep is None or key_ in keep:
            file.add(f"{name}/end/{key_}", parameter.float())
    for key_, buffer in model.named_buffers():
        if buffer.is_floating_point():
            file.add(f"{name}/end/{key_}", buffer.float())


def preset_trajectories():
    torch.manual_seed(6)
    generator = torch.Generator().manual_seed(6)
    file = File()
    for name, make, side in [("cnn", cnn, 11), ("lenet", lenet, 16)]:
        features = normal(generator, BATCHES, 8, 1, side, side)
        labels = torch.randint(5, (BATCHES, 8), generator=generator)
        preset = f"preset: PRESET_{name.upper()}"
        trajectory(file, name, preset, make(side, 5), features, labels, 0.01)
    # A text in which what follows depends on the last two characters.
    text = [0, 1]
    while len(text) <= BATCHES * 4 * 12:
        noise = torch.randint(10, (1,), generator=generator).item() == 0
        text.append((text[-1] * 3 + text[-2] + int(noise)) % 11)
    text = torch.tensor(text)
    features = text[:-1].reshape(BATCHES, 4, 12)
    labels = text[1:].reshape(BATCHES, 4, 12)
    trajectory(file, "char_gpt",
               "preset: PRESET_CHAR_GPT channels: 16 heads: 2 blocks: 2",
               char_gpt(12, 11, 16, 2, 2), features, labels, 0.05)
    features = normal(generator, BATCHES, 6, 3, 8, 8)
    labels = torch.randint(4, (BATCHES, 6), generator=generator)
    # Well conditioned: where a relu's input passes 0 by less than float32 can tell, the gradient
    # jumps, and PyTorch in float32 strays from float64 too.
    trajectory(file, "resnet20", "preset: PRESET_RESNET20", resnet(20, 4), features, labels, 0.001,
               keep=("conv1.weight", "bn1.weight", "layer1.2.bn2.bias", "layer2.0.downsample.0.weight",
                     "layer3.0.downsample.1.bias", "fc.weight", "fc.bias"))
    return file


def main():
    here = pathlib.Path(__file__).resolve().parents[2]
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "tests" / "goldens"
    torch.set_num_threads(1)
    compositions().write(folder / "compositions.safetensors")
    preset_trajectories().write(folder / "preset_trajectories.safetensors")


if __name__ == "__main__":
    main()
