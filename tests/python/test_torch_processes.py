"""psclient.torch in processes of its own: workers that are killed, and DDP's hook."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable

import torch
from torch import nn

import psclient.torch
from psd_fixture import HANG_S, PsdCase
from test_examples import write_mnist

KILLED = """
import sys
import torch
import psclient.torch
torch.manual_seed(1)
net = torch.nn.Linear(4, 2)
optimizer = torch.optim.AdamW(net.parameters())
with psclient.torch.Trainer(net, optimizer, server=sys.argv[1], state=sys.argv[2]) as worker:
    steps = [float(s["step"]) for s in optimizer.state.values()]
    print("began", worker.worker.clock, *steps, flush=True)
    for _ in worker.steps():
        optimizer.zero_grad()
        net(torch.ones(3, 4)).square().sum().backward()
        worker.step(3)
"""


class Killed(PsdCase):
    def test_a_killed_worker_comes_back_with_its_optimizer(self) -> None:
        """The other one's job goes on."""
        psd = self.psd("async-easgd", "optimizer=external", "alpha=0.1", "period=2", "checkpoint.every_s=1")
        torch.manual_seed(1)
        net = nn.Linear(4, 2)
        worker = psclient.torch.Trainer(net, torch.optim.AdamW(net.parameters()), server=psd.endpoint)
        self.addCleanup(worker.close)
        path = psd.folder / "killed"

        def start() -> subprocess.Popen[str]:
            command = [sys.executable, "-c", KILLED, psd.endpoint, str(path)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            self.addCleanup(process.stdout.close)
            self.addCleanup(process.wait, HANG_S)
            self.addCleanup(process.kill)
            return process

        def began(process: subprocess.Popen[str]) -> list[float]:
            assert process.stdout is not None
            word, *numbers = process.stdout.readline().split()
            self.assertEqual(word, "began")
            return [float(n) for n in numbers]

        def train_until(done: Callable[[], bool]) -> None:
            while not done():
                worker.zero_grad()
                net(torch.ones(3, 4)).square().sum().backward()
                worker.step(3)

        first = start()
        self.assertEqual(began(first), [0])
        train_until(path.exists)
        first.kill()
        first.wait(HANG_S)
        second = start()
        clock, *steps = began(second)
        self.assertGreater(clock, 0)
        self.assertEqual(steps, [clock, clock])  # AdamW's own count of each parameter
        exchanges = worker.info.exchanges
        train_until(lambda: worker.info.exchanges > exchanges)


CARRIES_ON = """
import sys
import torch
import psclient.torch
net = torch.nn.Linear(4, 2)
optimizer = torch.optim.AdamW(net.parameters())
with psclient.torch.Trainer(net, optimizer, server=sys.argv[1]) as worker:
    told = set()
    for _ in worker.steps():
        optimizer.zero_grad()
        net(torch.ones(3, 4)).square().sum().backward()
        worker.step(3)
        for word in ["saved"] * (worker.info.save_version > 0) + ["back"] * (worker.info.reconnects > 0):
            if word not in told:
                told.add(word)
                print(word, flush=True)
print("drained", flush=True)
"""


class Restarted(PsdCase):
    def test_a_trainer_carries_on_when_psd_is_killed_and_resumed(self) -> None:
        """The program is a plain loop: nothing in it knows of the restart. (What it prints is for the test.)"""
        psd = self.psd("async-easgd", "optimizer=external", "alpha=0.1", "period=2", "checkpoint.every_s=1")
        process = subprocess.Popen([sys.executable, "-c", CARRIES_ON, psd.endpoint], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait, HANG_S)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "saved\n")
        psd.kill()
        psd.start("--resume")
        self.assertEqual(process.stdout.readline(), "back\n")
        psd.drain()
        self.assertEqual(process.stdout.readline(), "drained\n")
        self.assertEqual(process.wait(HANG_S), 0)


DDP = """
import sys
import torch
from torch.nn.parallel import DistributedDataParallel
import psclient.torch
rank, folder = int(sys.argv[1]), sys.argv[2]
store = torch.distributed.FileStore(folder + "/store", 2)
torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
torch.manual_seed(1)
net = DistributedDataParallel(torch.nn.Linear(2, 1, bias=False))
with psclient.Ring("file:" + folder + "/ring", 2, rank=rank) as ring:
    net.register_comm_hook(ring, psclient.torch.ddp_hook)
    net(torch.full((1, 2), 1.0 + rank)).sum().backward()
    print(net.module.weight.grad.tolist(), flush=True)
    ring.barrier()
torch.distributed.destroy_process_group()
"""


class Ddp(PsdCase):
    def test_its_gradients_are_averaged_over_the_ring(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            processes = [
                subprocess.Popen([sys.executable, "-c", DDP, str(rank), folder], stdout=subprocess.PIPE, text=True)
                for rank in range(2)
            ]
            for process in processes:
                self.addCleanup(process.kill)
            found = [process.communicate(timeout=HANG_S)[0] for process in processes]
        self.assertEqual(found, ["[[1.5, 1.5]]\n"] * 2)


class Comparison(PsdCase):
    """The processes of scripts/compare-ddp, over noise: every loss is low enough."""

    def compare(self, way: str, server: str, folder: pathlib.Path, *more: str) -> None:
        program = str(pathlib.Path(__file__).with_name("compare_ddp.py"))
        write_mnist(folder)
        command = [sys.executable, program, "--way", way, "--ranks", "2", "--data", str(folder), "--folder", str(folder)]
        command += ["--server", server, "--learning-rate", "0.001", "--batch", "4", "--loss", "100", "--look", "2", *more]
        processes = [
            subprocess.Popen([*command, "--rank", str(rank)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for rank in range(2)
        ]
        for process in processes:
            self.addCleanup(process.kill)
        found = [process.communicate(timeout=HANG_S)[0] for process in processes]
        self.assertEqual([process.returncode for process in processes], [0, 0], found)
        result = json.loads([line for line in found[0].splitlines() if line.startswith("{")][-1])
        self.assertEqual((result["way"], result["reached"], result["steps"]), (way, True, 2), found)

    def test_d_sync_steps_by_torchs_optimizer_over_psds_ring(self) -> None:
        psd = self.psd("d-sync", "optimizer=external")
        self.compare("d-sync", psd.endpoint, psd.folder)

    @unittest.skipUnless(importlib.util.find_spec("torchft"), "this Python has no torchft")
    def test_torchfts_diloco_takes_its_workers_steps(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.compare("torchft", "@none", pathlib.Path(folder), "--period", "1", "--interface", "lo")

    def test_diloco_takes_its_workers_steps(self) -> None:
        psd = self.psd("diloco", "optimizer=external", "workers=2", "period=2", "codec.message=int8", "codec.answer=fp16")
        self.compare("diloco", psd.endpoint, psd.folder)


if __name__ == "__main__":
    unittest.main()
