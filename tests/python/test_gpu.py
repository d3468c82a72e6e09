"""psclient and psclient.torch on a real GPU. Ends with 77, which is Meson's "skipped", where PyTorch sees none."""

from __future__ import annotations

import threading
import unittest
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import psclient
import psclient.torch
from place_fixture import EXTERNAL, adamw, momentum, trained
from psd_fixture import HANG_S, Psd
from test_torch import Case, Wide, batch, make_net

if not torch.cuda.is_available():
    print("skipped: PyTorch sees no GPU (torch.cuda.is_available())")
    raise SystemExit(77)


def loss_of(net: nn.Module, t: int) -> torch.Tensor:
    images, labels = batch(t)
    return functional.cross_entropy(net(images.cuda()), labels.cuda())


class OnAGpu(Case):
    def memories(self) -> Iterator[str]:
        """Both, where libpsclient has its module."""
        yield "pinned"
        try:
            psclient.Worker(local=psclient.Local("sgd"), memory="cuda").close()
        except psclient.Unsupported as why:
            print(f'memory "cuda" is not tested: {why}')
            return
        yield "cuda"

    def steps(self, worker: psclient.torch.Trainer, steps: range) -> None:
        for t in worker.steps(steps):
            worker.zero_grad()
            (loss_of(worker.model, t) / 2).backward()
            with torch.autocast("cuda", torch.bfloat16):
                loss = loss_of(worker.model, 100 + t) / 2
            loss.backward()
            worker.step(16)

    def alone(self, net: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
        for t in steps:
            optimizer.zero_grad(set_to_none=False)
            (loss_of(net, t) / 2).backward()
            with torch.autocast("cuda", torch.bfloat16):
                loss = loss_of(net, 100 + t) / 2
            loss.backward()
            optimizer.step()

    def test_an_optimizer_steps_as_in_pytorch_alone(self) -> None:
        """alpha 0 leaves nothing of psd: bit for bit. In the default stream, and in another."""
        for memory in self.memories():
            for make in adamw, momentum:
                for stream in torch.cuda.default_stream(), torch.cuda.Stream():
                    with self.subTest((memory, make.__name__, stream)):
                        psd = self.psd("async-easgd", EXTERNAL, "alpha=0", "period=2")
                        net, other = make_net().cuda(), make_net().cuda()
                        worker = self.trainer(psd, net, make(net), memory=memory)
                        self.assertEqual(worker.memory, memory)
                        torch.cuda.synchronize()  # the model was made in the default stream
                        with torch.cuda.stream(stream):
                            self.steps(worker, range(8))
                        self.alone(other, make(other), range(8))
                        torch.cuda.synchronize()
                        self.assert_same(net, other)
                        worker.close()

    def test_both_places_have_the_same_bits(self) -> None:
        rows: list[tuple[tuple[str, ...], Callable[[nn.Module], Any]]] = [
            (("eamsgd", "alpha=0.25", "period=2", "learning_rate=0.05"), lambda _net: None),
            (("async-msgd", "learning_rate=0.1", "weight_decay=0.01", "overlap=true"), lambda _net: None),
            (("diloco", EXTERNAL, "period=2", "workers=1"), adamw),
        ]
        for settings, make in rows:
            nets = []
            for memory in self.memories():
                net = make_net().cuda()
                worker = self.trainer(self.psd(*settings), net, make(net), memory=memory)
                self.steps(worker, range(6))
                worker.wait()
                worker.close()
                nets.append(net)
            for net in nets[1:]:
                self.assert_same(net, nets[0])

    def test_a_state_moves_to_the_host_and_back(self) -> None:
        for memory in self.memories():
            psd = self.psd("downpour", EXTERNAL, "period=100")
            net = make_net().cuda()
            worker = self.trainer(psd, net, adamw(net), memory=memory)
            self.steps(worker, range(3))
            torch.cuda.manual_seed(77)
            worker.save(psd.folder / "worker", {"epoch": 3})
            dice = torch.rand(3, device="cuda")
            worker.close()
            on_host, again = make_net(seed=2), make_net(seed=3).cuda()
            worker = self.trainer(psd, on_host, adamw(on_host))
            self.assertEqual(worker.resume(psd.folder / "worker"), {"epoch": 3})
            self.assertTrue(torch.equal(on_host.last.weight, net.last.weight.cpu()))
            worker.close()
            worker = self.trainer(psd, again, adamw(again), memory=memory)
            worker.resume(psd.folder / "worker")
            self.assertTrue(torch.equal(torch.rand(3, device="cuda"), dice))
            self.assertTrue(torch.equal(again.last.weight, net.last.weight))
            self.steps(worker, range(3, 5))

    def test_parts_of_a_gradient_leave_while_backward_runs(self) -> None:
        nets = []
        for reports in False, True:
            torch.manual_seed(1)
            net = Wide().cuda()
            psd = self.psd("async-sgd", "learning_rate=0.01", "chunk_floats=16384")
            worker = self.trainer(psd, net, memory="pinned")
            for t in range(4):
                worker.zero_grad()
                loss = loss_of(net, t)
                if reports:
                    worker.backward(loss, 16)
                else:
                    loss.backward()
                worker.step(16)
            worker.close()
            nets.append(net)
        self.assert_same(nets[0], nets[1])

    def test_members_of_a_clique(self) -> None:
        psd = self.psd("d-sync", EXTERNAL)
        torch.manual_seed(1)
        nets = [Wide().cuda(), Wide().cuda()]
        nets[1].load_state_dict(nets[0].state_dict())

        def member(rank: int) -> None:
            with psclient.Ring(f"psd:{psd.endpoint}", 2, rank=rank) as ring:
                optimizer = torch.optim.SGD(trained(nets[rank]), lr=0.01)
                worker = self.trainer(psd, nets[rank], optimizer, clique=ring)
                self.assertEqual(worker.memory, "pinned")
                with worker:
                    for t in range(3):
                        worker.zero_grad()
                        loss_of(nets[rank], 10 * rank + t).backward()  # one thread of PyTorch runs it for both members
                        worker.step(16)

        self.in_threads(member)
        self.assert_same(nets[0], nets[1])

    def in_threads(self, member: Callable[[int], None]) -> None:
        failures: list[BaseException] = []

        def run(rank: int) -> None:
            try:
                member(rank)
            except BaseException as why:
                failures.append(why)

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG_S)
        if failures:
            raise failures[0]

    def test_gradients_of_ddp_are_summed(self) -> None:
        psd = self.psd("async-sgd")

        class Bucket:
            def __init__(self, rank: int) -> None:
                self.values = torch.full((1000,), 1.0 + rank, device="cuda")

            def buffer(self) -> torch.Tensor:
                return self.values

        found: dict[int, torch.Tensor] = {}

        def member(rank: int) -> None:
            with psclient.Ring(f"psd:{psd.endpoint}", 2, rank=rank) as ring:
                found[rank] = psclient.torch.ddp_hook(ring, Bucket(rank)).wait()

        self.in_threads(member)
        for values in found.values():
            self.assertTrue(torch.equal(values.cpu(), torch.full((1000,), 1.5)))

    def test_evaluators_have_the_center(self) -> None:
        psd = self.psd("async-sgd", "learning_rate=0.1")
        net, other = make_net().cuda(), make_net(seed=5).cuda()
        worker = self.trainer(psd, net)
        self.steps(worker, range(3))
        psclient.torch.evaluate(other, psd.endpoint, lambda m: {"test_loss": float(loss_of(m.eval(), 0).detach())})
        self.assertTrue(torch.equal(net.first.weight, other.first.weight))

    def test_a_worker_takes_tensors_of_the_gpu(self) -> None:
        if "cuda" not in self.memories():
            self.skipTest('libpsclient has no memory "cuda"')
        psd = self.psd("async-sgd", "learning_rate=1")
        stream = torch.cuda.Stream()
        with psclient.Worker(psd.endpoint, memory="cuda", stream=stream) as worker, torch.cuda.stream(stream):
            x, g = torch.arange(5, device="cuda", dtype=torch.float32), torch.ones(5, device="cuda")
            worker.begin({"w": (5,)}, x)
            worker.step(x, g)
            self.assertEqual(x.tolist(), [-1, 0, 1, 2, 3])
            with self.assertRaisesRegex(TypeError, "g is in memory of the host"):
                worker.step(x, torch.ones(5))
            with self.assertRaisesRegex(TypeError, "g has type float16"):
                worker.step(x, g.half())
            with self.assertRaisesRegex(ValueError, "g, of shape .*is not contiguous"):
                worker.step(x, torch.ones(10, device="cuda")[::2])
            with self.assertRaisesRegex(TypeError, "g: .*detach"):
                worker.step(x, nn.Parameter(g))

    def test_models_on_two_devices_are_refused_by_name(self) -> None:
        net = make_net().cuda()
        net.last.cpu()
        with self.assertRaisesRegex(TypeError, "parameter 'last.weight' is on cpu, and parameter .* on cuda:0"):
            psclient.torch.Trainer(net, server="tcp://127.0.0.1:1")

    @unittest.skipUnless(torch.cuda.device_count() > 1, "one GPU")
    def test_the_threads_gpu_stays(self) -> None:
        for memory in self.memories():
            psd: Psd = self.psd("async-sgd", "learning_rate=0.1")
            net = nn.Linear(2, 2).to("cuda:1")
            worker = self.trainer(psd, net, memory=memory)
            net(torch.ones(1, 2, device="cuda:1")).sum().backward()
            worker.step()
            self.assertEqual(torch.cuda.current_device(), 0)


if __name__ == "__main__":
    unittest.main()
