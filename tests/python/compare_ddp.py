"""One process of scripts/compare-ddp: trains LeNet on MNIST with others, by PyTorch's DDP over gloo, torchft's DiLoCo over gloo
or by a job of psd's, until
the loss over a part of the test set is low enough. Rank 0 prints what it took, as one JSON object.

Every way has the same net, batches, optimizer (SGD with Nesterov's momentum) and machine; what differs is what travels. The clock
is of training: it begins when all processes are ready, and looks at the test set, which all make alike, are no part of it."""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import pathlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import psclient.torch

LOOK_IMAGES = 2000


def read(folder: str, name: str, head: int) -> torch.Tensor:
    with gzip.open(f"{folder}/{name}-ubyte.gz") as file:
        return torch.from_numpy(np.frombuffer(file.read(), np.uint8, offset=head).copy())


def lenet() -> nn.Sequential:
    """psworker's: 431,080 parameters."""
    net = nn.Sequential(nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2))
    net.extend([nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10)])
    return net


def moved(interface: str | None) -> tuple[int, int] | None:
    if interface is None:
        return None
    place = pathlib.Path("/sys/class/net") / interface / "statistics"
    return int((place / "tx_bytes").read_text()), int((place / "rx_bytes").read_text())


class Meter:
    """The clock of training, and where it went. A step takes `step_s` at least: the rest is slept."""

    def __init__(self, step_s: float) -> None:
        self.started, self.aside, self.computing, self.steps = time.monotonic(), 0.0, 0.0, 0
        self._step_s = step_s
        self._interface: str | None = None
        self._before: tuple[int, int] | None = None

    def gradient(self, compute: Callable[[], None]) -> None:
        begin = time.monotonic()
        compute()
        time.sleep(max(0.0, begin + self._step_s - time.monotonic()))
        self.computing += time.monotonic() - begin
        self.steps += 1

    def start(self, interface: str | None) -> None:
        """The kernel's counters of the interface count all that the process's network namespace sends and receives."""
        self.started, self._interface, self._before = time.monotonic(), interface, moved(interface)

    def bytes_moved(self) -> list[int] | None:
        """Sent and received since start; None: unknown."""
        now = moved(self._interface)
        return None if self._before is None or now is None else [n - b for n, b in zip(now, self._before)]

    def seconds(self) -> float:
        return time.monotonic() - self.started - self.aside


def await_all(folder: str, rank: int, ranks: int, limit_s: float) -> None:
    """All processes are ready to train."""
    place = pathlib.Path(folder)
    (place / f"ready-{rank}").touch()
    end = time.monotonic() + limit_s
    while not all((place / f"ready-{r}").exists() for r in range(ranks)):
        if time.monotonic() > end:
            raise TimeoutError(f"not all of {ranks} processes were ready after {limit_s:.0f} s")
        time.sleep(0.01)


def await_text(path: pathlib.Path, limit_s: float) -> str:
    end = time.monotonic() + limit_s
    while not path.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"{path} was not written in {limit_s:.0f} s")
        time.sleep(0.01)
    return path.read_text()


def join_torchft(args: argparse.Namespace, net: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    """torchft's DiLoCo with the outer step of psd's way diloco; rank 0 runs the lighthouse."""
    from torchft import Manager, ProcessGroupGloo
    from torchft.coordination import LighthouseServer
    from torchft.local_sgd import DiLoCo

    place = pathlib.Path(args.folder) / "lighthouse"
    if args.rank == 0:
        lighthouse = LighthouseServer(bind=f"{args.host}:0", min_replicas=args.ranks, join_timeout_ms=1000)
        written = place.with_suffix(".new")
        written.write_text(f"http://{args.host}:{lighthouse.address().rsplit(':', 1)[1]}")
        written.rename(place)
    address = await_text(place, args.seconds)
    distributed: Any = torch.distributed
    store = distributed.TCPStore(args.host, 0, is_master=True, wait_for_workers=False)
    limit = datetime.timedelta(seconds=args.seconds)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=limit),
        load_state_dict=net.load_state_dict,
        state_dict=net.state_dict,
        min_replica_size=args.ranks,
        use_async_quorum=False,
        timeout=limit,
        quorum_timeout=limit,
        rank=0,
        world_size=1,
        store_addr=args.host,
        store_port=store.port,
        lighthouse_addr=address,
        replica_id=f"worker-{args.rank}",
        hostname=args.host,
        init_sync=False,
    )
    outer = torch.optim.SGD(net.parameters(), lr=0.7, momentum=0.5, nesterov=True)
    diloco = DiLoCo(manager, [net], optimizer, outer, sync_every=args.period)
    diloco.__enter__()
    used = (diloco, manager, store, lighthouse if args.rank == 0 else None)

    def step() -> None:
        optimizer.step()
        assert used

    return step


def join(args: argparse.Namespace, net: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, Callable[[], None]]:
    """The model to train, and what makes a step with its gradients."""
    if args.way == "ddp":
        torch.distributed.init_process_group("gloo", init_method=f"tcp://{args.master}", rank=args.rank, world_size=args.ranks)
        return DistributedDataParallel(net), lambda: (optimizer.step(), None)[1]
    if args.way == "torchft":
        return net, join_torchft(args, net, optimizer)
    clique = None
    if args.way == "d-sync":
        clique = psclient.Ring(f"psd:{args.server}", args.ranks, rank=args.rank, listen=f"tcp://{args.host}", timeout_ms=600000)
    rank = None if clique else args.rank
    worker = psclient.torch.Trainer(net, optimizer, server=args.server, rank=rank, clique=clique, timeout_ms=600000)
    return net, lambda: worker.step(args.batch)


def main(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    images, labels = read(args.data, "train-images-idx3", 16).view(-1, 1, 28, 28), read(args.data, "train-labels-idx1", 8).long()
    tests = read(args.data, "t10k-images-idx3", 16).view(-1, 1, 28, 28)[:LOOK_IMAGES] / 255
    answers = read(args.data, "t10k-labels-idx1", 8).long()[:LOOK_IMAGES]
    net = lenet()
    optimizer = torch.optim.SGD(net.parameters(), lr=args.learning_rate, momentum=0.9, nesterov=True)
    model, step = join(args, net, optimizer)
    dice = torch.Generator().manual_seed(100 * args.seed + args.rank)

    def compute() -> None:
        batch = torch.randint(len(images), (args.batch,), generator=dice)
        optimizer.zero_grad()
        cross_entropy(model(images[batch] / 255), labels[batch]).backward()

    def look() -> float:
        begin = time.monotonic()
        with torch.no_grad():
            loss = float(cross_entropy(net(tests), answers))
        meter.aside += time.monotonic() - begin
        return loss

    await_all(args.folder, args.rank, args.ranks, args.seconds)
    meter = Meter(args.step_ms / 1e3)
    meter.start(args.interface)
    loss = float("inf")
    while loss > args.loss and meter.seconds() < args.seconds:
        meter.gradient(compute)
        step()
        if meter.steps % args.look == 0:
            loss = look()
    if args.rank == 0:
        result = {"way": args.way, "reached": loss <= args.loss, "loss": loss, "seconds": meter.seconds(), "steps": meter.steps}
        print(json.dumps({**result, "compute_ms": 1e3 * meter.computing / meter.steps, "bytes": meter.bytes_moved()}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--way", required=True, choices=["ddp", "torchft", "d-sync", "diloco", "eamsgd"])
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--data", required=True, help="MNIST's folder")
    parser.add_argument("--folder", required=True, help="where the processes find each other")
    parser.add_argument("--server", help="psd's endpoint, of all but ddp")
    parser.add_argument("--master", help="HOST:PORT where rank 0 listens, of ddp")
    parser.add_argument("--host", default="127.0.0.1", help="this process's address to the others")
    parser.add_argument("--interface", help="this process's alone: its bytes are counted")
    parser.add_argument("--period", type=int, default=50, help="steps between exchanges, of torchft")
    parser.add_argument("--learning-rate", type=float, required=True)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--step-ms", type=float, default=0)
    parser.add_argument("--loss", type=float, required=True, help="to reach")
    parser.add_argument("--look", type=int, default=50, help="steps from one look at the test set to the next")
    parser.add_argument("--seconds", type=float, default=600, help="of training, at most")
    parser.add_argument("--seed", type=int, default=1)
    main(parser.parse_args())
