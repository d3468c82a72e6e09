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
# by a step: they are measured by the length of the error, tensor by tensor. Deep nets do that to PyTorch in float32 too, by as
# much: three times its own error is allowed. ref, which computes in double, is held to less.
OUTPUT_BOUND, LOSS_BOUND = 1e-4, 1e-5
GRADIENT_BOUND = {"ref": 1e-5, "onednn": 1e-2}


def gradients_of(net):
    return {name: p.grad if p.grad is not None else torch.zeros_like(p) for name, p in net.params.items()}


def worst_gradient(found, net):
    largest = max(g.norm().item() for g in found.values())
    worst = (0, "")
    for name, expected in gradients_of(net).items():
        if "running_" in name:
            continue
        error = found[name].double() - expected
        relative = error.norm().item() / max(expected.norm().item(), 0.01 * largest)
        worst = max(worst, (relative, name))
    return worst


def backward(description, tensors, dtype):
    torch.set_default_dtype(dtype)
    params = {name[2:]: t.to(dtype, copy=True) for name, t in tensors.items() if name.startswith("x.")}
    masks = {name[5:]: t.to(dtype) for name, t in tensors.items() if name.startswith("mask.")}
    net = Net(description, params, masks)
    loss, _ = net.run(tensors["images"].to(dtype), tensors["labels"].long(), True)
    loss.backward()
    return net, loss


def compare(dump, spec, backend, folder):
    prefix = os.path.join(folder, "net")
    subprocess.run([dump, spec, backend, str(BATCH), prefix], check=True)
    with open(prefix + ".json", encoding="utf-8") as f:
        description = json.load(f)
    tensors = read_tensors(prefix + ".safetensors")
    single, _ = backward(description, tensors, torch.float32)
    net, loss = backward(description, tensors, torch.float64)
    with torch.no_grad():
        outputs = torch.log_softmax(net.run(tensors["images"].double(), tensors["labels"].long(), False)[1], 1)
    output_error = ((tensors["outputs"].double() - outputs).abs().max() / outputs.abs().max()).item()
    loss_error = abs(tensors["loss"].item() - loss.item()) / abs(loss.item())
    gradient_error, where = worst_gradient({name[2:]: g for name, g in tensors.items() if name.startswith("g.")}, net)
    its_own, _ = worst_gradient(gradients_of(single), net)
    bound = GRADIENT_BOUND[backend] if backend == "ref" else max(GRADIENT_BOUND[backend], 3 * its_own)
    good = output_error <= OUTPUT_BOUND and loss_error <= LOSS_BOUND and gradient_error <= bound
    print(f"{spec:40} {backend:7} outputs {output_error:.1e}  loss {loss_error:.1e}  gradient {gradient_error:.1e} "
          f"({where}; PyTorch's float32 {its_own:.1e}){'' if good else '  BEYOND ITS BOUND'}", flush=True)
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
