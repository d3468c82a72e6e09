"""What psclient adds to the C library's step, and what an elastic exchange of ResNet-18's parameters takes: printed, and
judged by nobody. CPU time, the best of 7 runs of 2000 steps each; the exchange is a median of 20, and its share is of 30
steps of ResNet-18 with 32 images of 64 x 64, on one thread."""

from __future__ import annotations

import importlib.util
import pathlib
import statistics
import sys
import time
import unittest
from collections.abc import Callable

import numpy as np
import torch

import psclient
import psclient.torch
from psclient import _native
from psd_fixture import PsdCase

RESNET18_FLOATS = 11_173_962


def microseconds(call: Callable[[], object], n: int = 2000) -> float:
    best = float("inf")
    for _ in range(7):
        begin = time.thread_time()
        for _ in range(n):
            call()
        best = min(best, (time.thread_time() - begin) / n)
    return best * 1e6


class Step(PsdCase):
    def test_what_python_adds_for_100_tensors(self) -> None:
        model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(50)])
        with psclient.torch.Trainer(model, local=psclient.Local("sgd")) as trainer:
            model(torch.ones(1, 16)).sum().backward()
            trainer.step()
            worker, x, g = trainer.worker, trainer._x_array, trainer._g_array
            alone = microseconds(lambda: _native.lib.psc_step(worker._handle, worker._x_at, worker._g_at, 1))
            print(f"psc_step {alone:.1f} us, Worker.step {microseconds(lambda: worker.step(x, g)):.1f} us", end=", ")
            print(f"Trainer.step {microseconds(trainer.step):.1f} us")

    def test_an_elastic_exchange_of_resnet18(self) -> None:
        psd = self.psd("async-easgd", "alpha=0.1", "period=1", "learning_rate=0.1")
        with psclient.Worker(psd.endpoint) as worker:
            x, g = worker.alloc(RESNET18_FLOATS), np.zeros(RESNET18_FLOATS, np.float32)
            worker.begin({"w": (RESNET18_FLOATS,)}, x)
            took = []
            for _ in range(23):
                before = worker.info.exchange_seconds
                worker.step(x, g)
                took.append(worker.info.exchange_seconds - before)
            print(f"exchange by {worker.info.transport}: {1e3 * statistics.median(took[3:]):.1f} ms")

    @unittest.skipUnless(importlib.util.find_spec("PIL"), "examples/python/resnet.py needs Pillow")
    def test_the_exchanges_share_of_resnet18s_steps(self) -> None:
        sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples" / "python"))
        self.addCleanup(sys.path.pop, 0)
        model = importlib.import_module("resnet").ResNet(10)
        psd = self.psd("async-easgd", "optimizer=external", "alpha=0.1", "period=10")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        images, labels = torch.randn(32, 3, 64, 64), torch.arange(32) % 10
        with psclient.torch.Trainer(model, optimizer, server=psd.endpoint) as worker:
            begin = time.monotonic()
            for _ in range(30):
                worker.zero_grad()
                torch.nn.functional.cross_entropy(model(images), labels).backward()
                worker.step(32)
            took, info = time.monotonic() - begin, worker.info
        share = info.exchange_seconds / took
        print(f"{info.n_floats} floats, {info.exchanges} exchanges by {info.transport}:", end=" ")
        print(f"{1e3 * took / 30:.0f} ms a step, of it for exchanges {100 * share:.2f} %")


if __name__ == "__main__":
    unittest.main()
