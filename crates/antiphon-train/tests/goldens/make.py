#!/usr/bin/env python3
"""Values and gradients of layers and small networks, from PyTorch in double precision.

Usage: pip install torch==2.15.0 numpy, then make.py > goldens.json

Random numbers are rounded to multiples of 1/64, so that both sides start from the same ones and the file stays small. Images and
weights are written as PyTorch has them (channel, row, column; output, input, row, column); the test turns them.
"""

import json
import torch
import torch.nn.functional as F

torch.manual_seed(20)
torch.set_default_dtype(torch.float64)


def draw(*shape, scale=1.0):
    return (scale * torch.randn(*shape) * 64).round() / 64


def plain(x):
    return x.detach().flatten().tolist()


def layer(function, x, *parameters):
    """Output, and the gradients of a weighted sum of it."""
    x, parameters = x.requires_grad_(), [p.requires_grad_() for p in parameters]
    y = function(x, *parameters)
    d = draw(*y.shape)
    gradients = torch.autograd.grad(y, [x, *parameters], d)
    return {
        "shape": list(x.shape),
        "output_shape": list(y.shape),
        "input": plain(x),
        "parameters": [plain(p) for p in parameters],
        "output": plain(y),
        "output_gradient": plain(d),
        "input_gradient": plain(gradients[0]),
        "parameter_gradients": [plain(g) for g in gradients[1:]],
    }


def convolution(height, width, channels, outputs):
    conv = lambda x, w, b: F.conv2d(x, w, b, padding=1)
    return layer(conv, draw(1, channels, height, width), draw(outputs, channels, 3, 3), draw(outputs))


def pooling(height, width, channels):
    # Few different values, so that many windows have several maxima.
    x = torch.randint(-2, 3, (1, channels, height, width)).double()
    return layer(lambda x: F.max_pool2d(x, 2), x)


def softmax(x, label):
    return layer(lambda x: F.cross_entropy(x, torch.tensor([label]), reduction="none"), x) | {"label": label}


def network(height, width, channels, stages, examples, name):
    """Per-example gradients of a network: one example at a time through autograd."""
    parameters, functions, c, h, w = [], [], channels, height, width
    for kind, size in stages:
        if kind == "conv":
            parameters += [draw(size, c, 3, 3, scale=0.4), draw(size, scale=0.4)]
            functions.append(lambda x, w, b: F.conv2d(x, w, b, padding=1))
            c = size
        elif kind == "dense":
            inputs = c * h * w
            parameters += [draw(size, inputs, scale=0.4), draw(size, scale=0.4)]
            functions.append(lambda x, w, b: F.linear(x.flatten(1), w, b))
            c, h, w = size, 1, 1
        elif kind == "pool":
            functions.append(lambda x: F.max_pool2d(x, 2))
            h, w = h // 2, w // 2
        else:
            functions.append({"tanh": torch.tanh, "relu": torch.relu}[kind])
    parameters = [p.requires_grad_() for p in parameters]

    def run(x):
        rest = iter(parameters)
        for (kind, _), function in zip(stages, functions):
            x = function(x, next(rest), next(rest)) if kind in ("conv", "dense") else function(x)
        return x

    x = draw(examples, channels, height, width)
    labels = torch.randint(0, c, (examples,))
    losses, gradients = [], []
    for i in range(examples):
        loss = F.cross_entropy(run(x[i : i + 1]), labels[i : i + 1])
        losses.append(loss.item())
        gradients.append([plain(g) for g in torch.autograd.grad(loss, parameters)])
    return {
        "name": name,
        "shape": [channels, height, width],
        "stages": [[kind, size] for kind, size in stages],
        "input": plain(x),
        "labels": labels.tolist(),
        "parameters": [plain(p) for p in parameters],
        "parameter_shapes": [list(p.shape) for p in parameters],
        "losses": losses,
        "gradients": gradients,
    }


def window(vocabulary, width, context, positions, batch, rate):
    """The window language model: logits and losses, and the update of two local steps by autograd."""
    shapes = [(width, vocabulary), (context * width, width), (width,), (vocabulary,)]
    start = [draw(*shape, scale=0.5) for shape in shapes]
    contexts = torch.randint(0, vocabulary, (positions, context))
    labels = torch.randint(0, vocabulary, (positions,))

    def run(parameters, contexts):
        table, weights, bias, tokens = parameters
        x = F.embedding(contexts, table.T).flatten(1)
        return F.linear(torch.tanh(x @ weights + bias), table.T, tokens)

    logits = run(start, contexts)
    parameters = [p.clone().requires_grad_() for p in start]
    optimizer = torch.optim.SGD(parameters, lr=rate)
    for at in (0, batch):
        optimizer.zero_grad()
        F.cross_entropy(run(parameters, contexts[at : at + batch]), labels[at : at + batch]).backward()
        optimizer.step()
    return {
        "sizes": [vocabulary, width, context],
        "batch": batch,
        "rate": rate,
        "contexts": plain(contexts),
        "labels": labels.tolist(),
        "parameters": sum([plain(p) for p in start], []),
        "logits": plain(logits),
        "losses": plain(F.cross_entropy(logits, labels, reduction="none")),
        "update": sum([plain(a - b) for a, b in zip(start, parameters)], []),
    }


def main():
    goldens = {
        "torch": torch.__version__.split("+")[0],
        "conv": [convolution(5, 4, 3, 2), convolution(3, 9, 2, 11), convolution(1, 1, 1, 1)],
        "pool": [pooling(4, 6, 3), pooling(5, 7, 2)],
        "tanh": layer(torch.tanh, draw(40, scale=3.0)),
        "relu": layer(torch.relu, torch.cat([draw(19), torch.zeros(1)])),
        "dense": layer(F.linear, draw(3, 7), draw(5, 7), draw(5)),
        "softmax": [softmax(draw(1, 10), 3), softmax(draw(1, 4, scale=300.0), 0)],
        "networks": [
            network(5, 6, 3, [("conv", 4), ("tanh", 0), ("conv", 3), ("tanh", 0), ("pool", 0), ("dense", 5), ("tanh", 0), ("dense", 4)], 3, "tanh"),
            network(6, 5, 1, [("conv", 9), ("relu", 0), ("pool", 0), ("conv", 2), ("relu", 0), ("dense", 3)], 3, "relu"),
            network(2, 3, 2, [("dense", 10)], 2, "linear"),
        ],
        "windows": [window(7, 2, 3, 6, 3, 0.5), window(37, 5, 4, 13, 8, 0.25)],
    }
    print(json.dumps(goldens))


main()
