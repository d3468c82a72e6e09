#!/usr/bin/env python3
"""Two workers under sync-sgd, step by step, beside PyTorch with the same first point and the same images.

    /tmp/torch-venv/bin/python tests/nets/pytorch/steps.py build [NET...] [--data SPEC] [--steps N]

For each number of steps a job of its own: psd's center after so many rounds is compared with what PyTorch makes of the center
before the first and of the workers' batches. Prints a row for each; ends with 1 where a value differs by more than BOUND.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

import numpy
import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from best import PATIENCE_S, Job  # noqa: E402
from net import Net, read_tensors  # noqa: E402

NETS = ["linear", "lenet"]
WORKERS, BATCH, SEED, RATE = 2, 16, 7, 0.1
# Of a step, relative to the largest value of a tensor: gradients of float32 sums in another order, times the rate.
BOUND = 1e-5


def center_of(job, version):
    path = os.path.join(job.state, f"checkpoints/center-{version:012}.safetensors")
    return {name: t for name, t in read_tensors(path).items() if not name.startswith("psd.")}


def by_psd(args, net, steps, folder):
    """The first center, and the one after so many rounds."""
    job = Job(args.build, folder, "sync-sgd", f"workers={WORKERS}", f"learning_rate={RATE}", "checkpoint.every_s=0",
              "schedule={kind: constant, warmup_steps: 0}", "weight_decay=0")
    try:
        workers = [job.psworker(f"worker-{rank}", "--net", net, "--data", args.data, "--batch", str(BATCH), "--seed",
                                str(SEED), "--steps", str(steps), "--rank", str(rank)) for rank in range(WORKERS)]
        for worker in workers:
            if worker.wait(PATIENCE_S) != 0:
                raise RuntimeError(f"a worker failed: see {folder}")
        job.drain()
    finally:
        job.kill()
    last = sorted(glob.glob(os.path.join(job.state, "checkpoints/center-*.safetensors")))[-1]
    return {name: t for name, t in read_tensors(last).items() if not name.startswith("psd.")}


def first_point(args, net, folder):
    """psworker's own, by its seed: what a job that has taken no step begins with."""
    job = Job(args.build, folder, "sync-sgd", f"workers={WORKERS}", "checkpoint.every_s=3600")
    try:
        for rank in range(WORKERS):
            job.psworker(f"worker-{rank}", "--net", net, "--data", args.data, "--batch", str(BATCH), "--seed", str(SEED),
                         "--steps", "1", "--rank", str(rank))
        for _, worker in job.children[1:]:
            worker.wait(PATIENCE_S)
        job.drain()
    finally:
        job.kill()
    return center_of(job, 0)


def batches_of(args, net, rank, steps, prefix, shape):
    dump = os.path.join(args.build, "tests/nets/test-set-dump")
    subprocess.run([dump, net, args.data, prefix, str(SEED), str(rank), str(BATCH), str(steps)], check=True)
    labels = torch.from_numpy(numpy.fromfile(prefix + ".labels", numpy.uint16).astype(numpy.int64))
    images = torch.from_numpy(numpy.fromfile(prefix + ".images", numpy.float32)).reshape(-1, *shape)
    return list(zip(images.split(BATCH), labels.split(BATCH)))


def by_pytorch(description, params, batches, steps):
    """The center after each step: x - rate * (mean of the workers' gradients). Yields it."""
    for step in range(steps):
        net = Net(description, params)
        for rank in range(WORKERS):
            loss, _ = net.run(*batches[rank][step], True)
            (loss / WORKERS).backward()
        params = {name: (p - RATE * p.grad).detach() for name, p in params.items()}
        yield params


def worst_of(found, expected):
    return max(((found[name] - p).abs().max() / p.abs().max()).item() for name, p in expected.items())


def compare(args, name, folder):
    prefix = os.path.join(folder, name)
    subprocess.run([os.path.join(args.build, "tests/nets/net-dump"), name, "none", "1", prefix], check=True)
    with open(prefix + ".json", encoding="utf-8") as f:
        description = json.load(f)
    batches = [batches_of(args, name, rank, args.steps, prefix, description["images"]) for rank in range(WORKERS)]
    expected = by_pytorch(description, first_point(args, name, prefix + "-first"), batches, args.steps)
    good = True
    for step, params in enumerate(expected, 1):
        worst = worst_of(by_psd(args, name, step, f"{prefix}-{step}"), params)
        good = good and worst <= step * BOUND
        print(f"{name:10} step {step:3}  largest difference {worst:.1e}{'' if worst <= step * BOUND else '  BEYOND ITS BOUND'}",
              flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("nets", nargs="*", default=NETS)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    with tempfile.TemporaryDirectory() as folder:
        results = [compare(args, name, folder) for name in args.nets or NETS]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
