#!/usr/bin/env python3
"""The 7-layer CIFAR net here and in PyTorch (channels_last), in turn, so that a noisy neighbour meets both.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install torch 'numpy<2'
    /tmp/venv/bin/python tests/bench/net/torch_cifar7.py build/tests/bench/psbench [--threads 1] [--rounds 9]

A round is some seconds of training steps (forward, backward, momentum update) of each. Prints the medians of
images/s and of the rounds' ratios. PyTorch is no dependency of psd: this is run by hand.
"""
import argparse
import json
import os
import statistics
import subprocess
import time

import torch
from torch import nn

BATCH = 128


def make_step():
    net = nn.Sequential(
        nn.Conv2d(3, 64, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(128, 64, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(256, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 10),
    ).to(memory_format=torch.channels_last)
    images = torch.randn(BATCH, 3, 28, 28).to(memory_format=torch.channels_last)
    labels = torch.arange(BATCH) % 10
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad()
        loss_of(net(images), labels).backward()
        optimizer.step()

    return step


def torch_images_s(step, seconds):
    times = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(times) < 3:
        start = time.monotonic()
        step()
        times.append(time.monotonic() - start)
    return BATCH / statistics.median(times)


def psbench_images_s(args):
    command = [args.psbench, "net", "--net", "cifar7", "--batch", str(BATCH), "--threads", str(args.threads),
               "--seconds", str(args.seconds), "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])["images_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("psbench")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=3)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    step = make_step()
    for _ in range(3):
        step()
    ours, theirs = [], []
    for _ in range(args.rounds):
        ours.append(psbench_images_s(args))
        theirs.append(torch_images_s(step, args.seconds))
        print(f"psbench {ours[-1]:.0f}, PyTorch {theirs[-1]:.0f} images/s", flush=True)
    ratios = [a / b for a, b in zip(ours, theirs)]
    print(f"cifar7, batch {BATCH}, threads {args.threads}, {os.cpu_count()} cores: psbench {statistics.median(ours):.0f}, "
          f"PyTorch {torch.__version__} {statistics.median(theirs):.0f} images/s; "
          f"median ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
