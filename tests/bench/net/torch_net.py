#!/usr/bin/env python3
"""Compares nets of psd with the same nets in PyTorch (channels_last, float32 or bf16 by autocast). The two alternate, so that other load
affects both.

    python3 -m venv /tmp/torch-venv && /tmp/torch-venv/bin/pip install torch 'numpy<2'
    /tmp/torch-venv/bin/python tests/bench/net/torch_net.py build [NET...] [--threads 1] [--batch 16] [--rounds 5]
        [--precision float32]

A round is some seconds of training steps (forward, backward, momentum update) of each, at least one. Prints the medians of images/s
and of the rounds' ratios, by the clock and by CPU time, which other load on the machine changes little with one thread; and the part
of psd's step that oneDNN's primitives take. psd does not depend on PyTorch: run this by hand.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.fx

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../nets/pytorch"))
from net import Net  # noqa: E402

NETS = ["resnet18", "resnet50", "googlenet", "alexnet", "vgg19"]


# Of a step in PyTorch: the mode of torch.compile, for forward and loss, and whether a CUDA graph is made of the whole step.
MODES = {"eager": (None, False), "graph": (None, True), "compile": ("default", False),
         "compile-graph": ("reduce-overhead", False), "graph-of-compile": ("default", True)}
WARM_UPS = 3


def describe(build, spec, environment=None):
    """The layers of a net. environment: net-dump's; None: this process's."""
    with tempfile.TemporaryDirectory() as folder:
        prefix = os.path.join(folder, "net")
        subprocess.run([os.path.join(build, "tests/nets/net-dump"), spec, "none", "1", prefix], check=True, env=environment)
        with open(prefix + ".json", encoding="utf-8") as f:
            return json.load(f)


def make_params(description, device):
    params = {}
    for layer in description["layers"]:
        name, out, inside = layer["name"], layer["out"], layer["in"]
        if layer["kind"] == "conv":
            shape = (out[0], inside[0] // layer["groups"], *layer["kernel"])
            params[name + ".weight"] = (0.01 * torch.randn(shape, device=device)).to(memory_format=torch.channels_last)
        elif layer["kind"] == "fc":
            params[name + ".weight"] = 0.01 * torch.randn(out[0], inside[0] * inside[1] * inside[2], device=device)
        elif layer["kind"] == "batchnorm":
            params[name + ".weight"] = torch.ones(out[0], device=device)
        if name + ".weight" in params and (layer["bias"] or layer["kind"] == "batchnorm"):
            params[name + ".bias"] = torch.zeros(out[0], device=device)
    return {name: torch.nn.Parameter(p) for name, p in params.items()}


class Loss(torch.nn.Module):
    """A net's loss. Its parameters are a module's: torch.compile need not copy them to where its graphs read."""

    def __init__(self, description, device):
        super().__init__()
        params = make_params(description, device)
        self.all = torch.nn.ParameterList(params.values())
        self.net = Net(description, params)

    def forward(self, images, labels):
        return self.net.run(images, labels, True)[0]


class GraphedStep:
    """One CUDA graph of a step. It keeps the step, whose tensors the graph uses."""

    def __init__(self, step, optimizer):
        self.step = step
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        optimizer.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            step()

    def __call__(self):
        self.graph.replay()


def set_up_cuda(precision):
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"


def make_step(build, spec, batch, precision, device="cpu", mode="eager", environment=None):
    """A call that makes one training step. precision: float32, tf32 (on cuda) or bf16; mode: a name of MODES."""
    compile_mode, is_graph = MODES[mode]
    if device == "cuda":
        set_up_cuda(precision)
    elif is_graph:
        raise ValueError(f"mode {mode} needs cuda")
    description = describe(build, spec, environment)
    # As one module of plain calls: the interpreter of the layers does not run in each step.
    loss_of = torch.fx.symbolic_trace(Loss(description, device))
    images = torch.randn(batch, *description["images"], device=device).to(memory_format=torch.channels_last)
    labels = torch.arange(batch, device=device) % description["classes"]
    optimizer = torch.optim.SGD([p for p in loss_of.parameters() if p.requires_grad], lr=0.001, momentum=0.9,
                                fused=device == "cuda" or None)
    if compile_mode is not None:
        loss_of = torch.compile(loss_of, mode=compile_mode, fullgraph=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        if compile_mode == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16", cache_enabled=not is_graph):
            loss = loss_of(images, labels)
        loss.backward()
        optimizer.step()

    return GraphedStep(step, optimizer) if is_graph else step


def torch_images_s(step, batch, seconds):
    """By the clock, and by CPU time of all threads."""
    times, cpu_times = [], []
    end = time.monotonic() + seconds
    while time.monotonic() < end or not times:
        start, cpu_start = time.monotonic(), time.process_time()
        step()
        times.append(time.monotonic() - start)
        cpu_times.append(time.process_time() - cpu_start)
    return batch / statistics.median(times), batch / statistics.median(cpu_times)


def psbench(args, spec):
    command = [os.path.join(args.build, "tests/bench/psbench"), "net", "--net", spec, "--batch", str(args.batch), "--threads",
               str(args.threads), "--seconds", str(args.seconds), "--precision", args.precision, "--only-steps", "--json"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(out.splitlines()[-1])


def compare(args, spec):
    step = make_step(args.build, spec, args.batch, args.precision)
    step()
    ours, theirs, ours_cpu, theirs_cpu, share = [], [], [], [], []
    for _ in range(args.rounds):
        result = psbench(args, spec)
        ours.append(result["images_s"])
        share.append(result["library_ms"] / result["step_ms"])
        ours_cpu.append(args.batch / result["cpu_ms"] * 1e3)
        by_clock, by_cpu = torch_images_s(step, args.batch, args.seconds)
        theirs.append(by_clock)
        theirs_cpu.append(by_cpu)
    ratios = [a / b for a, b in zip(ours, theirs)]
    cpu_ratios = [a / b for a, b in zip(ours_cpu, theirs_cpu)]
    print(f"{spec}, batch {args.batch}, threads {args.threads}, {args.precision}: psbench {statistics.median(ours):.2f}, "
          f"PyTorch {torch.__version__} {statistics.median(theirs):.2f} images/s, median ratio {statistics.median(ratios):.2f} "
          f"({min(ratios):.2f} to {max(ratios):.2f}); by CPU time {statistics.median(ours_cpu):.2f} and "
          f"{statistics.median(theirs_cpu):.2f}, {statistics.median(cpu_ratios):.2f} ({min(cpu_ratios):.2f} to {max(cpu_ratios):.2f}); "
          f"oneDNN's primitives are {statistics.median(share):.2f} of psbench's step", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("nets", nargs="*", default=NETS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--precision", choices=["float32", "bf16"], default="float32")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for spec in args.nets:
        compare(args, spec)


if __name__ == "__main__":
    main()
