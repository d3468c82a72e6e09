"""Fits y = a t + b by gradient descent with NumPy: python line.py [@endpoint]. Start several of them."""

import sys

import numpy as np

import psclient

with psclient.Worker(sys.argv[1] if len(sys.argv) > 1 else "@endpoint") as worker:
    x = worker.alloc(2)  # a, b, in memory shared with a psd on this machine
    worker.begin({"a": (1,), "b": (1,)}, x)
    dice = np.random.default_rng(worker.rank)
    for _ in worker.steps(range(2000)):
        t = dice.uniform(-1, 1, 32).astype(np.float32)
        error = x[0] * t + x[1] - (2 * t - 1)
        worker.step(x, np.array([(error * t).mean(), error.mean()], np.float32), n_samples=t.size)
    print(f"a = {x[0]:.3f}, b = {x[1]:.3f}")
