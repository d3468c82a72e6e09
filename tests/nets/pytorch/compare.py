#!/usr/bin/env python3
"""Outputs, loss and gradients of psd's nets against PyTorch's in double, with the same weights, images and dropout.

    python3 -m venv /tmp/torch-venv && /tmp/torch-venv/bin/pip install torch 'numpy<2'
    /tmp/torch-venv/bin/python tests/nets/pytorch/compare.py build/tests/nets/net-dump [NET...]

Each net is computed by net-dump, which leaves weights and results in a safetensors file. Prints the relative error of
each, of gradients that of the worst tensor, and ends with 1 where one is beyond its bound.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from net import Net, read_tensors  # noqa: E402

# Sizes that fill the nets' pools, and batches that leave batch normalisation something to normalise.
NETS = ["lenet", "mlp", "cifar7", "resnet8", "alexnet-cifar", "cifar100-cnn", "cifar100-convex", "alexnet:classes=10",
        "alexnet-ungrouped:classes=10", "alexnet-ungrouped-cifar", "googlenet:classes=10", "googlenet-plain:classes=10,size=128",
        "vgg19:classes=10,size=64", "resnet18:classes=10,size=128", "resnet50:classes=10,size=128",
        "imagenet11:classes=10"]
BATCH = 8
# float32 against double. A rounding turns a ReLU or a pool's maximum round here and there, each of which moves single gradients
# by a step: they are measured by the length of the error, tensor by tensor. ref, which computes in double, is held to less.
OUTPUT_BOUND, LOSS_BOUND = 1e-4, 1e-5
GRADIENT_BOUND = {"ref": 1e-5, "onednn": 1e-2}


def worst_gradient(tensors, net):
    largest = max(t.norm().item() for name, t in tensors.items() if name.startswith("g."))
    worst = (0, "")
    for name, g in tensors.items():
        if not name.startswith("g.") or "running_" in name:
            continue
        expected = net.params[name[2:]].grad
        expected = torch.zeros_like(g) if expected is None else expected
        error = g.double() - expected
        relative = error.norm().item() / max(expected.norm().item(), 0.01 * largest)
        worst = max(worst, (relative, name[2:]))
    return worst


def compare(dump, spec, backend, folder):
    prefix = os.path.join(folder, "net")
    subprocess.run([dump, spec, backend, str(BATCH), prefix], check=True)
    with open(prefix + ".json", encoding="utf-8") as f:
        description = json.load(f)
    tensors = read_tensors(prefix + ".safetensors")
    params = {name[2:]: t.double() for name, t in tensors.items() if name.startswith("x.")}
    masks = {name[5:]: t.double() for name, t in tensors.items() if name.startswith("mask.")}
    torch.set_default_dtype(torch.float64)
    net = Net(description, params, masks)
    images, labels = tensors["images"].double(), tensors["labels"].long()
    loss, _ = net.run(images, labels, True)
    loss.backward()
    with torch.no_grad():
        outputs = torch.log_softmax(net.run(images, labels, False)[1], 1)
    output_error = ((tensors["outputs"].double() - outputs).abs().max() / outputs.abs().max()).item()
    loss_error = abs(tensors["loss"].item() - loss.item()) / abs(loss.item())
    gradient_error, where = worst_gradient(tensors, net)
    good = output_error <= OUTPUT_BOUND and loss_error <= LOSS_BOUND and gradient_error <= GRADIENT_BOUND[backend]
    print(f"{spec:40} {backend:7} outputs {output_error:.1e}  loss {loss_error:.1e}  gradient {gradient_error:.1e} "
          f"({where}){'' if good else '  BEYOND ITS BOUND'}", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dump")
    parser.add_argument("nets", nargs="*", default=NETS)
    parser.add_argument("--backend", default="onednn")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = [compare(args.dump, spec, args.backend, folder) for spec in args.nets or NETS]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
