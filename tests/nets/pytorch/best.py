#!/usr/bin/env python3
"""best.safetensors scored again: by psworker's evaluator and by PyTorch, beside the figure in its label.

    /tmp/torch-venv/bin/python tests/nets/pytorch/best.py build [METHOD...] [--data SPEC] [--evaluations N]

Two workers train a net under each method, while an evaluator looks at the center some times; the center goes on while it is
scored, and after the last time. Then the figure in best.safetensors is compared with what a job that begins at that file finds, and with what
PyTorch counts over the same test images. Prints a row a method; ends with 1 where two figures differ, by one image even.
"""
import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

import numpy
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from net import Net, read_tensors  # noqa: E402

METHODS = ["async-sgd", "eamsgd", "sync-easgd"]
WORKERS, BATCH, PATIENCE_S = 2, 64, 1800
ENDLESS, SINCE = 10**9, 20  # steps; versions of the center after the last evaluation
LOSS_BOUND = 1e-5  # two libraries' sums in float32 of the same numbers


class Job:
    """A psd in a folder of its own."""

    def __init__(self, build, folder, method, *settings):
        self.build, self.folder, self.children = build, folder, []
        os.mkdir(folder)
        self.endpoint, self.socket = os.path.join(folder, "endpoint"), os.path.join(folder, "psd.sock")
        self.state = os.path.join(folder, "state")
        words = ["--method", method, "--state-dir", self.state, "--endpoint-file", self.endpoint,
                 "--status", "unix:" + self.socket]
        for setting in settings:
            words += ["--set", setting]
        self.start("psd", os.path.join(build, "server/psd"), *words)

    def start(self, name, *command):
        with open(os.path.join(self.folder, name + ".log"), "w", encoding="utf-8") as log:
            child = subprocess.Popen(command, stdout=log, stderr=log)
        self.children.append((name, child))
        return child

    def psworker(self, name, *words):
        return self.start(name, os.path.join(self.build, "nets/worker/psworker"), "--server", "@" + self.endpoint,
                          "--name", name, *words)

    def psctl(self, *words):
        return subprocess.run([os.path.join(self.build, "server/ctl/psctl"), "--socket", self.socket, "--timeout",
                               str(PATIENCE_S), *words], check=True, stdout=subprocess.PIPE).stdout

    def version(self):
        return json.loads(self.psctl("status", "--json"))["center"]["version"]

    def drain(self):
        """Ends all; what ended otherwise than well is an error."""
        self.psctl("drain")
        for name, child in self.children:
            if child.wait(PATIENCE_S) != 0:
                with open(os.path.join(self.folder, name + ".log"), encoding="utf-8") as log:
                    raise RuntimeError(f"{name} ended with {child.returncode}: {log.read()[-2000:]}")

    def kill(self):
        for _, child in self.children:
            child.kill()
            child.wait()


def wait_for(job, what, reached):
    end = time.monotonic() + PATIENCE_S
    while not reached():
        ended = [name for name, child in job.children if child.poll() is not None]
        if time.monotonic() > end or ended:
            raise RuntimeError(f"{what}: not reached; ended: {ended}; see {job.folder}")
        time.sleep(0.05)


def end(child):
    child.terminate()
    child.wait(PATIENCE_S)


def train(args, method, folder):
    """Leaves the folder of a job that has ended, and the version that it ended at."""
    common = ["--net", args.net, "--data", args.data]
    settings = ["checkpoint.every_s=1"] + ([f"workers={WORKERS}"] if method.startswith("sync") else [])
    job = Job(args.build, folder, method, *settings)
    try:
        workers = [job.psworker(f"worker-{rank}", *common, "--batch", str(BATCH), "--steps", str(ENDLESS), "--rank", str(rank))
                   for rank in range(WORKERS)]
        evaluator = job.psworker("evaluator", *common, "--evaluate", "--every", "0.1", "--history", history_of(folder))
        wait_for(job, "evaluations", lambda: len(scored(folder)) >= args.evaluations)
        end(evaluator)
        job.children = [(name, child) for name, child in job.children if child is not evaluator]
        last = scored(folder)[-1]["center_version"]
        wait_for(job, "versions after the last evaluation", lambda: job.version() >= last + SINCE)
        for worker in workers:
            end(worker)
        version = job.version()
        job.drain()
    finally:
        job.kill()
    return job, version


def label_of(path):
    with open(path, "rb") as f:
        metadata = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))["__metadata__"]
    return metadata["psd.test_accuracy"], int(metadata["psd.evaluated_version"])


def history_of(folder):
    return os.path.join(folder, "history.jsonl")


def scored(folder):
    if not os.path.exists(history_of(folder)):
        return []
    with open(history_of(folder), encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.endswith("\n")]


def evaluate_again(args, best, folder):
    """What an evaluator finds in a job that begins at the file: a worker offers it, and takes no step meanwhile."""
    job = Job(args.build, folder, "async-sgd")
    common = ["--net", args.net, "--data", args.data]
    try:
        worker = job.psworker("worker", *common, "--init", best, "--steps", "1", "--step-ms", "3600000")
        evaluator = job.psworker("evaluator", *common, "--evaluate", "--once", "--history", history_of(folder))
        if evaluator.wait(PATIENCE_S) != 0:
            raise RuntimeError("the evaluator failed")
        end(worker)
        job.drain()
    finally:
        job.kill()
    row = scored(folder)[-1]
    if row["center_version"] != 0:
        raise RuntimeError("the worker has moved the center")
    return row["test_accuracy"]


def by_pytorch(description, best, images, labels):
    """How many of the test images are right, and the loss."""
    torch.set_default_dtype(torch.float32)
    net = Net(description, read_tensors(best))
    right, loss = 0, 0.0
    with torch.no_grad():
        for first in range(0, len(labels), 1000):
            part = labels[first:first + 1000]
            _, logits = net.run(images[first:first + 1000], part, False)
            right += (logits.argmax(1) == part).sum().item()
            loss += F.cross_entropy(logits.double(), part, reduction="sum").item()
    return right, loss / len(labels)


def compare(args, method, folder, description, test_set):
    job, ended_at = train(args, method, os.path.join(folder, method))
    best = os.path.join(job.state, "checkpoints/best.safetensors")
    label, version = label_of(best)
    rows = scored(job.folder)
    row = next(r for r in rows if r["center_version"] == version and f"{r['test_accuracy']:.9f}" == label)
    again = evaluate_again(args, best, os.path.join(folder, method + "-again"))
    n = len(test_set[1])
    right, loss = by_pytorch(description, best, *test_set)
    good = f"{again:.9f}" == label and f"{right / n:.9f}" == label and abs(loss - row["test_loss"]) <= LOSS_BOUND * loss
    print(f"{method:12} best of {len(rows):3} evaluations: version {version:5} of {ended_at:5}  "
          f"label {label}  evaluator {again:.9f}  PyTorch {right / n:.9f} ({right} of {n})  "
          f"loss {row['test_loss']:.8f} PyTorch {loss:.8f}{'' if good else '  DIFFERS'}", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("methods", nargs="*", default=METHODS)
    parser.add_argument("--net", default="lenet")
    parser.add_argument("--data", default="digits")
    parser.add_argument("--evaluations", type=int, default=8)
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    dumps = os.path.join(args.build, "tests/nets")
    with tempfile.TemporaryDirectory() as folder:
        prefix = os.path.join(folder, "set")
        subprocess.run([os.path.join(dumps, "net-dump"), args.net, "none", "1", prefix], check=True)
        subprocess.run([os.path.join(dumps, "test-set-dump"), args.net, args.data, prefix], check=True)
        with open(prefix + ".json", encoding="utf-8") as f:
            description = json.load(f)
        labels = torch.from_numpy(numpy.fromfile(prefix + ".labels", numpy.uint16).astype(numpy.int64))
        images = torch.from_numpy(numpy.fromfile(prefix + ".images", numpy.float32)).reshape(-1, *description["images"])
        results = [compare(args, method, folder, description, (images, labels)) for method in args.methods or METHODS]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
