"""One rank of PyTorch's DistributedDataParallel over gloo, with the layers of psbench step as sleeps.

A layer's backward ends where psbench step's would: its parameters' gradients become ready then, and DDP sums its buckets
meanwhile. Prints the median iteration of rank 0 as one JSON object.

usage: ddp.py LAYERS.json STEP_MS STEPS      with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, GLOO_SOCKET_IFNAME set
"""

import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def sleep_until(deadline: float) -> None:
    left = deadline - time.perf_counter()
    if left > 0:
        time.sleep(left)


class Clock:
    begin = 0.0


class TimedLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, ready_s, grad, weight):
        ctx.ready_s, ctx.grad = ready_s, grad
        return x.clone()

    @staticmethod
    def backward(ctx, dx):
        sleep_until(Clock.begin + ctx.ready_s)
        return dx, None, None, ctx.grad


class Net(torch.nn.Module):
    def __init__(self, layers, step_s):
        super().__init__()
        total = sum(layer["forward_flops"] + layer["backward_flops"] for layer in layers)
        at = sum(layer["forward_flops"] for layer in layers)
        self.forward_s = step_s * at / total
        ready = []
        for layer in reversed(layers):
            at += layer["backward_flops"]
            ready.append(step_s * at / total)
        self.weights = torch.nn.ParameterList()
        self.layers = []
        for layer, ready_s in zip(layers, reversed(ready)):
            if layer["params"] > 0:
                self.weights.append(torch.nn.Parameter(torch.zeros(layer["params"])))
                self.layers.append((ready_s, torch.zeros(layer["params"])))

    def forward(self, x):
        for (ready_s, grad), weight in zip(self.layers, self.weights):
            x = TimedLayer.apply(x, ready_s, grad, weight)
        sleep_until(Clock.begin + self.forward_s)
        return x


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as f:
        layers = json.load(f)
    step_s, steps = float(sys.argv[2]) / 1e3, int(sys.argv[3])
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    net = Net(layers, step_s)
    model = DistributedDataParallel(net, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    times = []
    for k in range(-3, steps):
        dist.barrier() if k == 0 else None
        Clock.begin = time.perf_counter()
        optimizer.zero_grad()
        model(torch.ones(1, requires_grad=True)).sum().backward()
        sleep_until(Clock.begin + step_s)
        optimizer.step()
        if k >= 0:
            times.append(time.perf_counter() - Clock.begin)
    if dist.get_rank() == 0:
        floats = sum(layer["params"] for layer in layers)
        print(json.dumps({"bench": "ddp", "floats": floats, "ranks": dist.get_world_size(), "step_ms": step_s * 1e3,
                          "iteration_ms": round(statistics.median(times) * 1e3, 3)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
