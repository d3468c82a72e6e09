"""psclient.torch with a real psd: a PyTorch model as a worker, against PyTorch alone."""

from __future__ import annotations

import collections
import copy
import gc
import importlib.util
import io
import json
import os
import pathlib
import signal
import tempfile
import threading
import time
import unittest
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import psclient
import psclient.torch
from psd_fixture import HANG_S, Psd, PsdCase

PATIENT: dict[str, Any] = {"retry_ms": 60000, "heartbeat_ms": 10000}


class Net(nn.Module):
    """Every role: trained, frozen, a batch norm's buffers, a counter, a constant that is nobody's business."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8)
        self.frozen = nn.Linear(8, 8)
        self.frozen.requires_grad_(False)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.last = nn.Linear(8, 3)
        self.register_buffer("mask", torch.full((3,), float("-inf")), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.last(self.scale * self.frozen(functional.relu(self.norm(self.first(x)))))
        return y


def make_net(seed: int = 1) -> Net:
    torch.manual_seed(seed)
    return Net()


def batch(t: int) -> tuple[torch.Tensor, torch.Tensor]:
    dice = torch.Generator().manual_seed(1000 + t)
    return torch.randn(16, 6, generator=dice), torch.randint(0, 3, (16,), generator=dice)


def loss_of(net: nn.Module, t: int) -> torch.Tensor:
    images, labels = batch(t)
    return functional.cross_entropy(net(images), labels)


def train_alone(net: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for t in steps:
        optimizer.zero_grad()
        loss_of(net, t).backward()
        optimizer.step()


class Case(PsdCase):
    def trainer(
        self, psd: Psd, net: nn.Module, optimizer: torch.optim.Optimizer | None = None, **options: Any
    ) -> psclient.torch.Trainer:
        trainer = psclient.torch.Trainer(net, optimizer, server=psd.endpoint, **PATIENT, **options)
        self.addCleanup(trainer.close)
        return trainer

    def train(self, worker: psclient.torch.Trainer, steps: range) -> None:
        for t in worker.steps(steps):
            if worker.optimizer is not None:
                worker.optimizer.zero_grad()
            else:
                worker.zero_grad()
            loss_of(worker.model, t).backward()
            worker.step(16)

    def assert_same(self, a: nn.Module, b: nn.Module, tolerance: float = 0) -> None:
        theirs = b.state_dict()
        for name, values in a.state_dict().items():
            torch.testing.assert_close(values, theirs[name], rtol=0, atol=tolerance)


class Against(Case):
    """Worker and PyTorch alone, from the same weights with the same batches."""

    def test_any_optimizer_steps_under_elastic_averaging(self) -> None:
        """alpha 0 leaves nothing of psd: bit for bit."""
        psd = self.psd("async-easgd", "optimizer=external", "alpha=0", "period=2")

        def make(net: nn.Module, nesterov: bool) -> torch.optim.Optimizer:
            trained = [p for p in net.parameters() if p.requires_grad]
            if nesterov:
                return torch.optim.SGD(trained, lr=0.1, momentum=0.9, nesterov=True)
            return torch.optim.AdamW(trained, lr=0.01, weight_decay=0.1)

        for nesterov in (False, True):
            net, alone = make_net(), make_net()
            worker = self.trainer(psd, net, make(net, nesterov))
            train_alone(alone, make(alone, nesterov), range(8))
            worker.pull()  # the job may be another's from before
            self.train(worker, range(8))
            self.assert_same(net, alone)
            worker.close()

    def test_diloco_with_adamw_is_the_papers(self) -> None:
        """Douillard et al. 2023, Algorithm 1, for one worker. Its own vectors are float32; values are below 4 and each period
        adds a few roundings."""
        psd = self.psd("diloco", "optimizer=external", "period=4", "outer_learning_rate=0.7", "outer_momentum=0.9", "workers=1")
        net, alone = make_net(), make_net()
        optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=0.01)
        worker = self.trainer(psd, net, optimizer)
        inner = torch.optim.AdamW([p for p in alone.parameters() if p.requires_grad], lr=0.01)
        trained = [p for p in alone.parameters() if p.requires_grad]
        start = [p.detach().clone() for p in trained]
        momentum = [torch.zeros_like(p) for p in trained]
        for outer in range(3):
            steps = range(4 * outer, 4 * outer + 4)
            self.train(worker, steps)
            train_alone(alone, inner, steps)
            with torch.no_grad():
                for p, s, m in zip(trained, start, momentum):
                    d = s - p
                    m.mul_(0.9).add_(d)
                    s.sub_(0.7 * (d + 0.9 * m))
                    p.copy_(s)
            self.assert_same(net, alone, tolerance=1e-5)

    def test_dilocos_outer_step_is_torchs_nesterov(self) -> None:
        """What torchft's DiLoCo does with outer_optimizer=SGD(nesterov=True): two workers, a mean of the moves, one outer
        step. The outer momentum starts at 0, and dampening is 0."""
        psd = self.psd("diloco", "optimizer=external", "period=3", "outer_learning_rate=0.7", "outer_momentum=0.9", "workers=2")
        nets, alone = [nn.Linear(6, 3), nn.Linear(6, 3)], [nn.Linear(6, 3), nn.Linear(6, 3)]
        for net in (*nets, *alone):
            net.load_state_dict(nets[0].state_dict())
        shared = copy.deepcopy(nets[0])
        workers = [
            self.trainer(psd, net, torch.optim.AdamW(net.parameters(), lr=0.01), rank=rank) for rank, net in enumerate(nets)
        ]

        def run(rank: int) -> None:
            self.train(workers[rank], range(100 * rank, 100 * rank + 12))

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        inner = [torch.optim.AdamW(net.parameters(), lr=0.01) for net in alone]
        outer = torch.optim.SGD(shared.parameters(), lr=0.7, momentum=0.9, nesterov=True)
        for first in range(0, 12, 3):
            for rank in range(2):
                train_alone(alone[rank], inner[rank], range(100 * rank + first, 100 * rank + first + 3))
            with torch.no_grad():
                for p, a, b in zip(shared.parameters(), alone[0].parameters(), alone[1].parameters()):
                    p.grad = ((p - a) + (p - b)) / 2
            outer.step()
            for net in alone:
                net.load_state_dict(shared.state_dict())
        for thread in threads:
            thread.join(HANG_S)
        for net in nets:
            self.assert_same(net, shared, tolerance=1e-5)

    def test_the_rule_steps_where_it_takes_gradients(self) -> None:
        psd = self.psd("async-sgd", "learning_rate=0.1")
        net, alone = make_net(), make_net()
        worker = self.trainer(psd, net)
        self.train(worker, range(6))
        train_alone(alone, torch.optim.SGD([p for p in alone.parameters() if p.requires_grad], lr=0.1), range(6))
        self.assert_same(net, alone, tolerance=1e-6)  # one may fuse a multiply and an add

    def test_rounds_of_two_are_the_mean(self) -> None:
        """sync-sgd: two workers with half a batch each go where one goes with all of it."""
        psd = self.psd("sync-sgd", "learning_rate=0.1", "workers=2")
        torch.manual_seed(1)
        nets = [nn.Linear(6, 3), nn.Linear(6, 3)]
        nets[1].load_state_dict(nets[0].state_dict())
        alone = copy.deepcopy(nets[0])
        workers = [self.trainer(psd, net) for net in nets]

        def run(rank: int) -> None:
            worker = workers[rank]
            for t in range(5):
                images, labels = batch(t)
                half = slice(8 * rank, 8 * rank + 8)
                worker.zero_grad()
                functional.cross_entropy(worker.model(images[half]), labels[half]).backward()
                worker.step(8)

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG_S)
        train_alone(alone, torch.optim.SGD(alone.parameters(), lr=0.1), range(5))
        self.assert_same(nets[0], nets[1])
        self.assert_same(nets[0], alone, tolerance=1e-6)

    def test_a_resumed_worker_goes_on_as_if_nothing_had_been(self) -> None:
        psd = self.psd("downpour", "optimizer=external", "period=100")

        def make(net: nn.Module) -> torch.optim.Optimizer:
            return torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=0.01)

        net, alone = make_net(), make_net()
        train_alone(alone, make(alone), range(8))
        path = psd.folder / "worker"
        with psclient.torch.Trainer(net, make(net), server=psd.endpoint) as worker:
            self.train(worker, range(4))
            torch.manual_seed(77)
            worker.save(path, {"epoch": 3})
            dice = torch.rand(3)
        again = make_net(seed=2)
        worker = self.trainer(psd, again, make(again))
        self.assertEqual(worker.resume(path), {"epoch": 3})
        self.assertTrue(torch.equal(torch.rand(3), dice))
        self.assertEqual(worker.worker.clock, 4)
        self.train(worker, range(4, 8))
        self.assert_same(again, alone)

    def test_mixed_precision_and_accumulation(self) -> None:
        psd = self.psd("async-easgd", "optimizer=external", "alpha=0", "period=2")
        nets = [make_net(), make_net()]
        optimizers = [torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1) for net in nets]
        worker = self.trainer(psd, nets[0], optimizers[0])
        for t in range(0, 8, 2):
            for net, optimizer in zip(nets, optimizers):
                optimizer.zero_grad()
                for micro in (t, t + 1):
                    with torch.autocast("cpu", torch.bfloat16):
                        loss = loss_of(net, micro) / 2
                    loss.backward()
            worker.step()
            optimizers[1].step()
        self.assert_same(nets[0], nets[1])

    def test_a_scaler_leaves_out_steps_that_overflow(self) -> None:
        """As in PyTorch alone, bit for bit; the exchange is made all the same."""
        psd = self.psd("async-easgd", "optimizer=external", "alpha=0", "period=1")
        nets = [make_net(), make_net()]
        optimizers = [torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=0.01) for net in nets]
        scalers = [torch.amp.GradScaler("cpu", init_scale=2.0**10) for _ in nets]
        worker = self.trainer(psd, nets[0], optimizers[0])
        for t in range(6):
            for net, optimizer, scaler in zip(nets, optimizers, scalers):
                optimizer.zero_grad()
                scaled: Any = scaler.scale(loss_of(net, t) * (float("inf") if t == 2 else 1))
                scaled.backward()
                before = net.last.weight.detach().clone()
                if net is nets[0]:
                    worker.step(16, scaler=scaler)
                else:
                    scaler.step(optimizer)
                scaler.update()
                self.assertEqual(torch.equal(net.last.weight, before), t == 2)
        self.assert_same(nets[0], nets[1])
        self.assertEqual(worker.info.exchanges, 6)
        self.assertEqual([scaler.get_scale() for scaler in scalers], [2.0**9] * 2)
        with self.assertRaisesRegex(ValueError, "a scaler needs an optimizer"):
            self.trainer(self.psd("async-sgd"), make_net()).step(16, scaler=scalers[0])

    def external(self, psd: Psd, **options: Any) -> psclient.torch.Trainer:
        net = make_net()
        return self.trainer(psd, net, torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1), **options)

    def scaled(self, worker: psclient.torch.Trainer, scaler: Any) -> list[torch.Tensor]:
        """Scaled gradients, and what plain SGD at rate 0.1 would make of the trained parameters."""
        worker.zero_grad()
        loss_of(worker.model, 0).backward()
        after = [p.detach() - 0.1 * p.grad for p in worker.model.parameters() if p.requires_grad and p.grad is not None]
        worker.zero_grad()
        scaler.scale(loss_of(worker.model, 0)).backward()
        return after

    def test_a_scaled_gradient_is_refused_once_others_step(self) -> None:
        for change in {"optimizer": "sgd"}, {"method": "async-sgd", "optimizer": "none"}:
            with self.subTest(change):
                worker = self.external(self.psd("downpour", "optimizer=external", "period=1"))
                scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
                self.scaled(worker, scaler)
                worker.step(16, scaler=scaler)
                scaler.update()
                worker.worker.set_method(change)
                self.scaled(worker, scaler)
                before, sent = copy.deepcopy(worker.model), worker.info.bytes_sent
                with self.assertRaisesRegex(psclient.Unsupported, "SGD would not be used"):
                    worker.step(16, scaler=scaler)
                self.assert_same(worker.model, before)
                self.assertEqual(worker.info.bytes_sent, sent)

    def test_a_step_in_which_others_begin_to_step_gets_no_scaled_gradient(self) -> None:
        """The news comes behind the check."""
        psd = self.psd("async-easgd", "optimizer=external", "alpha=0", "period=1", "learning_rate=0.1")
        first, worker = self.external(psd, rank=0), self.external(psd, rank=1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
        self.scaled(worker, scaler)
        worker.step(16, scaler=scaler)
        scaler.update()
        after = self.scaled(worker, scaler)
        with mock.patch.object(psclient.torch.Trainer, "info", worker.info):
            first.worker.set_method({"optimizer": "sgd"})
            worker.step(16, scaler=scaler)
        self.assertEqual(worker.info.optimizer, "sgd")
        for p, expected in zip([p for p in worker.model.parameters() if p.requires_grad], after):
            torch.testing.assert_close(p.detach(), expected, rtol=0, atol=1e-6)  # one may fuse a multiply and an add
        scaler.update()

    def test_an_optimizer_that_is_called_no_more_is_a_warning(self) -> None:
        """Once, until it is called again."""
        worker = self.external(self.psd("async-easgd", "optimizer=external", "alpha=0", "period=1"))
        with self.assertNoLogs("psclient", "WARNING"):
            self.train(worker, range(2))
        for _ in range(2):
            worker.worker.set_method({"optimizer": "sgd"})
            with self.assertLogs("psclient", "WARNING") as log:
                self.train(worker, range(3))
            self.assertEqual(len(log.output), 1)
            self.assertIn("optimizer sgd: SGD is not called any more", log.output[0])
            worker.worker.set_method({"optimizer": "external"})
            with self.assertNoLogs("psclient", "WARNING"):
                self.train(worker, range(2))


class Wide(nn.Module):
    """Several buckets of a sum; `spare` gets no gradient in odd steps, and `norm` has buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 40000)
        self.norm = nn.BatchNorm1d(8)
        self.spare = nn.Linear(6, 8)
        self.frozen = nn.Linear(6, 8)
        self.frozen.requires_grad_(False)
        self.last = nn.Linear(40000, 3)
        self.register_buffer("seen", torch.zeros(1))
        self.use_spare = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.frozen(x)).sum() + (self.spare(x).sum() if self.use_spare else 0)
        out: torch.Tensor = self.last(torch.tanh(self.first(x))) + 0.001 * y
        return out


class Ready(Case):
    """Trainer.backward: gradients leave while backward runs, to the other member of a clique or to psd."""

    SMALL = ("learning_rate=0.01", "chunk_floats=16384")  # many chunks

    def clique(
        self,
        psd: Psd,
        run: Callable[[psclient.torch.Trainer, int], None],
        external: bool,
        states: list[pathlib.Path] | None = None,
    ) -> list[nn.Module]:
        nets: list[nn.Module] = []
        failures: list[BaseException] = []
        for _ in range(2):
            torch.manual_seed(1)
            nets.append(Wide())

        def member(rank: int) -> None:
            try:
                trained = [p for p in nets[rank].parameters() if p.requires_grad]
                optimizer = torch.optim.AdamW(trained, lr=0.001) if external else None
                with psclient.Ring(f"psd:{psd.endpoint}", 2, rank=rank) as ring:
                    worker = psclient.torch.Trainer(
                        nets[rank], optimizer, server=psd.endpoint, clique=ring, state=states[rank] if states else None, **PATIENT
                    )
                    with worker:
                        run(worker, rank)
            except BaseException as why:
                failures.append(why)

        threads = [threading.Thread(target=member, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG_S)
        if failures:
            raise failures[0]
        return nets

    def train_clique(self, settings: tuple[str, ...], reports: Callable[[int], bool]) -> list[nn.Module]:
        """Two batches a step, one of them under autocast; members may differ in how they call."""
        external = "optimizer=external" in settings

        def run(worker: psclient.torch.Trainer, rank: int) -> None:
            for t in range(4):
                worker.zero_grad()
                net: Any = worker.model
                net.use_spare = t % 2 == 0
                loss_of(worker.model, 10 * t + rank).backward()
                with torch.autocast("cpu", torch.bfloat16):
                    loss = loss_of(worker.model, 100 + 10 * t + rank)
                if reports(rank):
                    worker.backward(loss, 16 + rank)
                    worker.step()
                else:
                    loss.backward()
                    worker.step(16 + rank)
            worker.wait()

        return self.clique(self.psd(*settings), run, external)

    def test_members_resume_states_of_one_step(self) -> None:
        """As where the clique is killed while it saves: member 1 lacks the newest."""
        psd = self.psd("d-sync", *self.SMALL)
        states = [psd.folder / "member-0", psd.folder / "member-1"]
        clocks = [-1, -1]

        def run(worker: psclient.torch.Trainer, rank: int) -> None:
            clocks[rank] = worker.worker.clock
            for t in range(2):
                worker._saved = -1  # as if psd had asked
                self.train(worker, range(t, t + 1))

        self.clique(psd, run, False, states)
        states[1].with_name("member-1.before").replace(states[1])
        self.clique(psd, run, False, states)
        self.assertEqual(clocks, [1, 1])
        states[1].unlink()
        states[1].with_name("member-1.before").unlink()
        with self.assertRaisesRegex(ValueError, "not saved together"):
            self.clique(psd, run, False, states)

    def test_reported_ranges_change_no_bit(self) -> None:
        ways = (
            ("d-sync", "optimizer=external", "clique.bucket_floats=1"),
            ("async-sgd", "learning_rate=0.01", "clique.bucket_floats=1"),
            ("async-easgd", "optimizer=external", "alpha=0.25", "period=2"),
        )
        for settings in ways:
            with self.subTest(settings[0]):
                plain = self.train_clique(settings, lambda _rank: False)
                self.assert_same(plain[0], plain[1])
                for reports in (lambda _rank: True), (lambda rank: rank == 0):
                    nets = self.train_clique(settings, reports)
                    self.assert_same(nets[0], plain[0])
                    self.assert_same(nets[1], plain[0])

    def test_the_last_layers_are_reported_while_backward_runs(self) -> None:
        found: dict[int, list[str]] = {}

        def run(worker: psclient.torch.Trainer, rank: int) -> None:
            told: list[str] = []
            names = {e.offset: e.name for e in worker._entries}
            ready = worker.worker.ready

            def tell(first: int, count: int) -> None:
                told.append(names[first])
                ready(first, count)

            net = worker.model
            assert isinstance(net, Wide)

            def reached(_p: torch.Tensor) -> None:
                told.append("the first layer")

            net.first.weight.register_post_accumulate_grad_hook(reached)
            net.use_spare = False
            with mock.patch.object(worker.worker, "ready", tell):
                worker.backward(loss_of(net, rank), 16)
            worker.step(16)
            found[rank] = told

        self.clique(self.psd("d-sync", "optimizer=external"), run, external=True)
        for told in found.values():
            self.assertLess(told.index("last.weight"), told.index("the first layer"))
            self.assertLess(told.index("norm.running_mean"), told.index("last.weight"))
            self.assertGreater(told.index("spare.weight"), told.index("the first layer"))
            self.assertEqual(len(told), len(set(told)))

    def test_nothing_is_reported_where_nothing_can_leave_early(self) -> None:
        """A vector of one chunk; a rule that does not take gradients."""
        for method, *settings in ("async-sgd",), ("async-easgd", "alpha=0.25", "period=2", "chunk_floats=1024"):
            trained: list[nn.Module] = []
            for reports in (False, True):
                torch.manual_seed(1)
                net = make_net() if method == "async-sgd" else Wide()
                worker = self.trainer(self.psd(method, "learning_rate=0.01", *settings), net)
                self.assertFalse(worker.worker.early)
                with mock.patch.object(worker.worker, "step_begin", side_effect=AssertionError):
                    self.train_reporting(worker, range(3), reports)
                trained.append(net)
            self.assert_same(trained[0], trained[1])

    def train_reporting(self, worker: psclient.torch.Trainer, steps: range, reports: bool, n: int = 16) -> None:
        for t in steps:
            worker.zero_grad()
            loss = loss_of(worker.model, t)
            if reports:
                worker.backward(loss, n)
                worker.step()
            else:
                loss.backward()
                worker.step(n)

    def test_the_samples_of_backward_count_where_nothing_can_leave_early(self) -> None:
        """A round weights by them: two workers with batches of other sizes."""
        for method, *settings in ("sync-sgd", "learning_rate=0.1"), ("diloco", "optimizer=sgd", "learning_rate=0.1", "period=2"):
            trained: list[nn.Module] = []
            for reports in (False, True):
                psd = self.psd(method, "workers=2", *settings)
                workers = [self.trainer(psd, make_net(), rank=rank) for rank in range(2)]
                threads = [
                    threading.Thread(target=self.train_reporting, args=(worker, range(rank, rank + 4), reports, 8 + 24 * rank))
                    for rank, worker in enumerate(workers)
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(HANG_S)
                for worker in workers:
                    self.assertFalse(worker.worker.early)
                    self.assertEqual(worker.worker.clock, 4)
                trained.append(workers[0].model)
            with self.subTest(method):
                self.assert_same(trained[0], trained[1])

    def test_step_must_follow_backward_where_nothing_can_leave_early(self) -> None:
        """As where something can."""
        worker = self.trainer(self.psd("async-sgd", "learning_rate=0.01"), make_net())
        self.assertFalse(worker.worker.early)
        worker.backward(loss_of(worker.model, 0), 16)
        with self.assertRaisesRegex(RuntimeError, "step.. must follow"):
            worker.backward(loss_of(worker.model, 1), 16)
        with self.assertRaisesRegex(ValueError, "n_samples is 3, and Trainer.backward of this step was given 16"):
            worker.step(3)
        worker.step(16)
        worker.step(3)  # of no backward
        self.assertEqual(worker.worker.clock, 2)

    def wide(self, psd: Psd, **options: Any) -> psclient.torch.Trainer:
        torch.manual_seed(1)
        return self.trainer(psd, Wide(), **options)

    def test_a_worker_alone_has_the_same_bits(self) -> None:
        """Its chunks leave while backward runs. A step by one call sends one exchange, and so does one in parts."""
        for method, *settings in ("async-sgd",), ("mdownpour",), ("dc-asgd", "workers=1"), ("hogwild-sgd",):
            with self.subTest(method):
                workers = [self.wide(self.psd(method, *settings, *self.SMALL)) for _ in range(2)]
                for worker, reports in zip(workers, (False, True)):
                    self.assertTrue(worker.worker.early)
                    self.train_reporting(worker, range(4), reports)
                    self.assertEqual(worker.info.exchanges, 4)
                self.assert_same(workers[0].model, workers[1].model)

    def test_a_round_of_reporting_and_other_workers_has_the_same_bits(self) -> None:
        trained: list[nn.Module] = []
        for how in (False, False), (True, True), (True, False):
            psd = self.psd("sync-sgd", "workers=2", *self.SMALL)
            workers = [self.wide(psd, rank=rank) for rank in range(2)]
            threads = [
                threading.Thread(target=self.train_reporting, args=(worker, range(100 * rank, 100 * rank + 4), reports))
                for rank, (worker, reports) in enumerate(zip(workers, how))
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(HANG_S)
            for worker in workers:
                self.assertEqual(worker.worker.clock, 4)
            self.assert_same(workers[0].model, workers[1].model)
            trained.append(workers[0].model)
        self.assert_same(trained[0], trained[1])
        self.assert_same(trained[0], trained[2])

    def test_a_worker_alone_sends_while_backward_runs(self) -> None:
        """psd has received a part of the gradient before the first layer has one."""
        psd = self.psd("async-sgd", *self.SMALL)
        worker = self.wide(psd)
        net: Any = worker.model
        net.use_spare = False
        before, during = psd.received_bytes(), 0

        def reached(_p: torch.Tensor) -> None:
            nonlocal during
            end = time.monotonic() + HANG_S
            while during == 0 and time.monotonic() < end:
                time.sleep(0.001)
                during = psd.received_bytes() - before

        net.first.weight.register_post_accumulate_grad_hook(reached)
        worker.backward(loss_of(net, 0), 16)
        worker.step()
        self.assertGreater(during, 0)
        self.assertGreater(psd.received_bytes() - before, during)

    def test_a_worker_alone_that_changes_what_it_sent_is_refused(self) -> None:
        psd = self.psd("sync-sgd", "workers=2", *self.SMALL)
        worker, other = [self.wide(psd, rank=rank) for rank in range(2)]
        worker.backward(loss_of(worker.model, 0), 16)
        nn.utils.clip_grad_norm_(worker.model.parameters(), 1e-3)
        with self.assertRaisesRegex(RuntimeError, "gradients were changed between Trainer.backward.*session is closed"):
            worker.step()
        self.assertTrue(worker.worker.closed)
        self.train_reporting(other, range(2), True)  # alone in the round

    def test_a_worker_alone_names_what_is_not_finite(self) -> None:
        """The first chunk to leave is bad: nothing was sent. Another one is: the session ends."""
        psd = self.psd("async-sgd", *self.SMALL)
        worker = self.wide(psd)
        worker.backward(loss_of(worker.model, 0) * float("nan"), 16)
        with self.assertRaisesRegex(psclient.NotFinite, "the gradient of 'first.weight' is not finite: nothing was sent.*pull"):
            worker.step()
        worker.pull()
        self.train_reporting(worker, range(2), True)
        net: Any = worker.model

        def spoil(grad: torch.Tensor) -> torch.Tensor:
            return torch.full_like(grad, float("inf"))

        net.first.weight.register_hook(spoil)
        worker.backward(loss_of(net, 3), 16)
        with self.assertRaisesRegex(psclient.NotFinite, "gradient of 'first.weight' is not finite: parts.*session is closed"):
            worker.step()
        self.assertTrue(worker.worker.closed)
        self.assertTrue(all(torch.isfinite(values).all() for values in net.state_dict().values()))
        self.train_reporting(self.wide(psd), range(1), True)

    def refuse(self, sentence: str, act: Callable[[psclient.torch.Trainer], None], error: type[Exception] = RuntimeError) -> None:
        """Both members do the same, and nobody waits for the other."""

        def run(worker: psclient.torch.Trainer, rank: int) -> None:
            with self.assertRaisesRegex(error, sentence):
                act(worker)

        with self.subTest(sentence):
            self.clique(self.psd("d-sync", "optimizer=external"), run, external=True)

    def test_gradients_that_change_after_they_were_reported_are_refused(self) -> None:
        def then(change: Callable[[psclient.torch.Trainer], object]) -> Callable[[psclient.torch.Trainer], None]:
            def act(worker: psclient.torch.Trainer) -> None:
                worker.backward(loss_of(worker.model, 0), 16)
                change(worker)
                worker.step()

            return act

        def unscale(worker: psclient.torch.Trainer) -> None:
            assert worker.optimizer is not None
            scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
            scaler.scale(torch.zeros(()))
            scaler.unscale_(worker.optimizer)

        changed = "gradients were changed between Trainer.backward.*session is closed.*call loss.backward"
        self.refuse(changed, then(lambda w: nn.utils.clip_grad_norm_(w.model.parameters(), 1e-3)))
        self.refuse(changed, then(unscale))
        self.refuse(changed, then(lambda w: w.model.zero_grad()))
        self.refuse("step.. must follow", then(lambda w: w.backward(loss_of(w.model, 1), 16)))
        self.refuse("n_samples is 3, and Trainer.backward of this step was given 16", then(lambda w: w.step(3)), ValueError)

    def test_reported_gradients_that_are_not_finite_are_named(self) -> None:
        def act(worker: psclient.torch.Trainer) -> None:
            worker.backward(loss_of(worker.model, 0) * float("nan"), 16)
            worker.step()

        self.refuse("the gradient of 'first.weight' is not finite", act, psclient.NotFinite)

    def test_a_backward_that_is_not_final_is_refused(self) -> None:
        def twice(worker: psclient.torch.Trainer) -> None:
            net = worker.model
            assert isinstance(net, Wide)

            at = [e.name for e in worker._entries].index("first.weight")

            def again(_p: torch.Tensor) -> None:
                assert worker._open is not None
                worker._open.tell(at)

            net.first.weight.register_post_accumulate_grad_hook(again)
            worker.backward(loss_of(net, 0), 16)

        def buffer(worker: psclient.torch.Trainer) -> None:
            net = worker.model
            assert isinstance(net, Wide)
            seen = net.get_buffer("seen")

            def change(_p: torch.Tensor) -> None:
                seen.add_(1)

            net.first.weight.register_post_accumulate_grad_hook(change)
            worker.backward(loss_of(net, 0), 16)

        def broken(worker: psclient.torch.Trainer) -> None:
            def fail(_p: torch.Tensor) -> None:
                raise ZeroDivisionError("as asked")

            net = worker.model
            assert isinstance(net, Wide)
            net.first.weight.register_post_accumulate_grad_hook(fail)
            worker.backward(loss_of(net, 0), 16)

        self.refuse("'first.weight' in several parts.*call loss.backward", twice)
        self.refuse("backward changed the buffer 'seen'", buffer)
        self.refuse("as asked", broken, ZeroDivisionError)


class Vector(Case):
    def test_the_model_lies_in_the_vector(self) -> None:
        psd = self.psd("async-easgd", "alpha=0.5", "period=1", "learning_rate=1")
        net = make_net()
        worker = self.trainer(psd, net)
        entries = {e.name: e for e in worker._entries}
        self.assertEqual(set(entries), set(net.state_dict()) - {"norm.num_batches_tracked"})
        roles = {name: entry.role.name for name, entry in entries.items()}
        self.assertEqual(roles["frozen.weight"], "FROZEN")
        self.assertEqual(roles["norm.running_mean"], "BUFFER")
        self.assertEqual(roles["scale"], "PARAM")
        self.assertEqual([n for n, e in entries.items() if e.decays], ["first.weight", "frozen.weight", "last.weight"])
        base = worker._x.data_ptr()
        for name, values in net.state_dict(keep_vars=True).items():
            if name in entries:
                self.assertEqual(values.data_ptr(), base + 4 * entries[name].offset, name)
        self.train(worker, range(2))
        for parameter, view in worker._grads:
            self.assertIs(parameter.grad, view)
        before = {n: v.clone() for n, v in net.state_dict().items()}
        worker.close()
        self.assertTrue(all(torch.equal(v, before[n]) for n, v in net.state_dict().items()))
        loss_of(net, 3).backward()  # the model is its own again

    def test_gradients_that_are_not_there_are_zero(self) -> None:
        psd = self.psd("async-sgd", "learning_rate=1")
        used, spare = nn.Linear(2, 1, bias=False), nn.Linear(2, 1, bias=False)
        worker = self.trainer(psd, nn.Sequential(used, spare))
        before = spare.weight.clone()
        (used(torch.ones(1, 2)) + spare(torch.ones(1, 2))).backward()
        used.weight.grad = spare.weight.grad = None
        used(torch.ones(1, 2)).backward()
        was = used.weight.detach().clone()
        worker.step()
        self.assertTrue(torch.equal(spare.weight, before))
        torch.testing.assert_close(used.weight.detach(), was - 1)
        used.weight.grad, spare.weight.grad = torch.full((1, 2), 2.0), None  # by hand
        worker.step()
        torch.testing.assert_close(used.weight.detach(), was - 3)

    def test_sparse_gradients_become_dense(self) -> None:
        net = nn.Embedding(4, 2, sparse=True)
        worker = self.trainer(self.psd("async-sgd", "learning_rate=1"), net)
        for _ in range(2):
            was = net.weight.detach().clone()
            net.weight.grad = None
            net(torch.tensor([1])).sum().backward()
            worker.step()
            torch.testing.assert_close(net.weight.detach(), was - torch.tensor([[0.0], [1], [0], [0]]))

    def test_evaluators_see_the_center(self) -> None:
        psd = self.psd("async-sgd", "learning_rate=0.1")
        net, other = make_net(), make_net(seed=5)
        worker = self.trainer(psd, net)
        self.train(worker, range(3))
        result = psclient.torch.evaluate(
            other, psd.endpoint, lambda m: {"test_loss": float(loss_of(m.eval(), 0).detach()), "other": 1.0}
        )
        self.assertEqual(result["other"], 1)
        for name in ("first.weight", "scale", "norm.running_var"):
            self.assertTrue(torch.equal(net.state_dict()[name], other.state_dict()[name]), name)
        no_mapping: Any = repr
        with self.assertRaisesRegex(TypeError, "score returned a str; allowed is a mapping"):
            psclient.torch.evaluate(other, psd.endpoint, no_mapping)

    def test_an_evaluation_that_a_drain_ends_leaves_the_model_as_it_is(self) -> None:
        """It waited for the first worker: there is no center."""
        psd, net, begin = self.psd("async-sgd"), make_net(), psclient.Worker.begin
        before = copy.deepcopy(net)

        def drain_first(worker: psclient.Worker, *args: Any) -> None:
            psd.drain()
            begin(worker, *args)

        scored = mock.Mock()
        with mock.patch.object(psclient.Worker, "begin", drain_first), self.assertRaisesRegex(psclient.Drained, "no center"):
            psclient.torch.evaluate(net, psd.endpoint, scored, **PATIENT)
        scored.assert_not_called()
        self.assert_same(net, before)

    def test_a_checkpoint_opens_by_name(self) -> None:
        psd = self.psd("async-msgd", "learning_rate=0.1")
        net, other = make_net(), make_net(seed=5)
        worker = self.trainer(psd, net)
        self.train(worker, range(3))
        worker.pull()
        worker.close()
        psd.drain()
        psd.process.wait(HANG_S)
        path = max((psd.folder / "state" / "checkpoints").glob("center-*.safetensors"))  # the first was taken at once
        psclient.torch.load_checkpoint(other, path)
        for name, values in net.state_dict().items():
            if name != "norm.num_batches_tracked":
                self.assertTrue(torch.equal(values, other.state_dict()[name]), name)
        with self.assertRaisesRegex(ValueError, "differ in bias, first.bias, first.weight"):
            psclient.torch.load_checkpoint(nn.Linear(2, 2), path)
        net.last = nn.Linear(9, 3)
        with self.assertRaisesRegex(ValueError, r"'last.weight' has shape \(3, 8\); the model's has \(3, 9\)"):
            psclient.torch.load_checkpoint(net, path)

    def test_an_incomplete_checkpoint_is_named(self) -> None:
        """At every place where a copy may have ended; the model keeps its values."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path, net = pathlib.Path(folder.name) / "center", nn.Linear(2, 2, bias=False)
        head = json.dumps({"weight": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}).encode()
        whole = len(head).to_bytes(8, "little") + head + np.ones(4, np.float32).tobytes()
        before = net.weight.detach().clone()
        for n in 0, 4, 8, 9, len(whole) - 17, len(whole) - 16, len(whole) - 5, len(whole) - 1:
            path.write_bytes(whole[:n])
            with self.subTest(n), self.assertRaisesRegex(ValueError, f"{path}: .*incomplete"):
                psclient.torch.load_checkpoint(net, path)
            self.assertTrue(torch.equal(net.weight, before))
        path.write_bytes(whole)
        psclient.torch.load_checkpoint(net, path)
        self.assertTrue(torch.equal(net.weight, torch.ones(2, 2)))

    def test_a_damaged_checkpoint_is_named(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path, net = pathlib.Path(folder.name) / "center", nn.Linear(2, 2, bias=False)
        before = net.weight.detach().clone()
        right = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}

        def refuse(head: bytes, why: str) -> None:
            path.write_bytes(len(head).to_bytes(8, "little") + head + bytes(16))
            with self.subTest(head), self.assertRaisesRegex(ValueError, f"{path}: {why}"):
                psclient.torch.load_checkpoint(net, path)
            self.assertTrue(torch.equal(net.weight, before))

        refuse(b"[" * 100000, "not a safetensors file")
        for found in 5, {}, {**right, "shape": None}, {**right, "shape": [2.0, 2]}, {**right, "data_offsets": [0, 0.5]}:
            refuse(json.dumps({"weight": found}).encode(), "not a safetensors file: 'weight' is no tensor")
        for offsets in [-8, 8], [True, 17]:
            refuse(json.dumps({"weight": {**right, "data_offsets": offsets}}).encode(), "not a safetensors file: 'weight'")
        for offsets in [0, 4], [0], [0, 16, 32], [16, 0]:
            head = json.dumps({"weight": {**right, "data_offsets": offsets}}).encode()
            refuse(head, "'weight' has data_offsets .* 16 bytes apart")
        refuse(json.dumps({"weight": {**right, "data_offsets": [4, 20]}}).encode(), "the file ends within 'weight'")
        refuse(json.dumps({"weight": {**right, "dtype": "F16"}}).encode(), "'weight' is of type F16; allowed is F32")

    def test_a_module_may_be_named_psd(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path, net = pathlib.Path(folder.name) / "center", nn.Module()
        net.psd = nn.Linear(1, 1, bias=False)
        tensor, names = {"dtype": "F32", "shape": [1, 1], "data_offsets": [0, 4]}, ("psd.weight", "psd.average", "psd.state.v")
        head = dict.fromkeys(names, tensor)
        text = json.dumps(head).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + np.ones(1, np.float32).tobytes())
        psclient.torch.load_checkpoint(net, path)
        self.assertEqual(net.psd.weight.item(), 1)

    def exported(self) -> tuple[nn.Module, pathlib.Path]:
        """A model with tied parameters and a counter, trained, and the file of the last center."""
        psd = self.psd("async-msgd", "learning_rate=0.1")
        net: Any = make_net()
        net.again = net.last
        worker = self.trainer(psd, net)
        self.train(worker, range(3))
        worker.pull()
        worker.close()
        psd.drain()
        psd.process.wait(HANG_S)
        path = max((psd.folder / "state" / "checkpoints").glob("center-*.safetensors"))
        psclient.torch.export_checkpoint(net, path, psd.folder / "model.safetensors")
        return net, psd.folder / "model.safetensors"

    def test_an_exported_checkpoint_is_the_models_state_dict(self) -> None:
        net, path = self.exported()
        data = path.read_bytes()
        begin = 8 + int.from_bytes(data[:8], "little")
        head, at = json.loads(data[8:begin]), 0
        self.assertEqual(list(head), list(net.state_dict()))
        for name, values in net.state_dict().items():
            dtype, (first, end) = head[name]["dtype"], head[name]["data_offsets"]
            self.assertEqual((first, head[name]["shape"]), (at, list(values.shape)), name)
            self.assertEqual(dtype, "I64" if name == "norm.num_batches_tracked" else "F32")
            found = np.frombuffer(data[begin + first : begin + end], np.int64 if dtype == "I64" else np.float32)
            np.testing.assert_array_equal(found, values.reshape(-1).numpy(), name)
            at = end
        self.assertEqual(begin + at, len(data))

    @unittest.skipUnless(importlib.util.find_spec("safetensors"), "this Python has no safetensors")
    def test_safetensors_loads_what_was_exported_and_starts_a_job(self) -> None:
        """Strict both ways."""
        load_file = importlib.import_module("safetensors.torch").load_file
        net, path = self.exported()
        other: Any = make_net(seed=5)
        other.again = other.last
        other.load_state_dict(load_file(path))
        self.assert_same(other, net)
        third: Any = make_net(seed=6)
        third.again = third.last
        psd = self.psd("async-sgd")
        self.trainer(psd, other)
        self.trainer(psd, third)
        for part in "first", "last", "frozen":  # the counter is each worker's own
            self.assert_same(getattr(third, part), getattr(other, part))

    def test_what_cannot_be_exported_is_named(self) -> None:
        net, path = self.exported()
        center = max((path.parent / "state" / "checkpoints").glob("center-*.safetensors"))
        net.register_buffer("phase", torch.zeros(2, dtype=torch.complex64))
        with self.assertRaisesRegex(TypeError, "'phase' of the model's state_dict"):
            psclient.torch.export_checkpoint(net, center, path)
        self.assertFalse(path.with_name("model.safetensors.new").exists())

    def test_an_export_that_fails_leaves_nothing(self) -> None:
        net, path = self.exported()
        center = max((path.parent / "state" / "checkpoints").glob("center-*.safetensors"))
        path.with_name("folder").mkdir()
        with self.assertRaises(OSError):
            psclient.torch.export_checkpoint(net, center, path.with_name("folder"))
        self.assertFalse(path.with_name("folder.new").exists())

    def test_torchruns_rank_is_taken(self) -> None:
        psd = self.psd("async-sgd")
        with mock.patch.dict(os.environ, {"RANK": "6", "WORLD_SIZE": "8", "LOCAL_RANK": "2"}):
            worker = self.trainer(psd, make_net())
        self.assertEqual(worker.rank, 6)

    def test_a_rank_that_torchrun_gives_again_is_waited_for(self) -> None:
        psd = self.psd("async-sgd")
        before = psclient.Worker(psd.endpoint, rank=6)
        tried = threading.Event()

        def leave() -> None:
            tried.wait(HANG_S)
            before.close()

        leaves = threading.Thread(target=leave)
        leaves.start()
        self.addCleanup(leaves.join)
        self.addCleanup(tried.set)
        with mock.patch.dict(os.environ, {"RANK": "6"}), mock.patch("time.sleep", lambda _s: tried.set()):
            worker = self.trainer(psd, make_net())
        self.assertEqual(worker.rank, 6)
        with self.assertRaises(psclient.RankTaken):  # who names one himself is told
            psclient.torch.Trainer(make_net(), server=psd.endpoint, rank=6)

    def test_data_may_be_loaded_by_forked_processes(self) -> None:
        net = nn.Linear(6, 3)
        worker = self.trainer(self.psd("async-sgd", "learning_rate=0.1"), net)
        data = torch.utils.data.TensorDataset(torch.randn(64, 6), torch.randint(0, 3, (64,)))
        loader = torch.utils.data.DataLoader(data, 16, num_workers=2, multiprocessing_context="fork")
        for images, labels in worker.steps(loader):
            worker.zero_grad()
            functional.cross_entropy(net(images), labels).backward()
            worker.step(len(labels))
        self.assertEqual(worker.worker.clock, 4)

    def test_a_state_is_saved_when_psd_asks(self) -> None:
        psd = self.psd("async-sgd", "learning_rate=0.1", "checkpoint.every_s=1")
        path = psd.folder / "worker"
        worker = self.trainer(psd, make_net(), state=path)
        for t in worker.steps():
            self.train(worker, range(t, t + 1))
            if path.exists():
                break
        clock = worker.worker.clock
        worker.close()
        again = self.trainer(psd, make_net(), state=path)
        self.assertEqual(again.worker.clock, clock)
        before = path.read_bytes()
        again._saved = -1  # as if psd had asked once more
        self.train(again, range(1))
        self.assertEqual(path.with_name("worker.before").read_bytes(), before)

    def test_a_state_that_cannot_be_saved_ends_no_training(self) -> None:
        """The step is made before: a program that makes it again after an exception would make it twice."""
        psd = self.psd("async-sgd", "learning_rate=0.1")
        path = psd.folder / "gone" / "worker"
        with self.assertRaisesRegex(OSError, "gone' is not there"):
            psclient.torch.Trainer(make_net(), server=psd.endpoint, state=path)
        path.parent.mkdir()
        worker = self.trainer(psd, make_net(), state=path)
        path.parent.rmdir()
        worker._saved = -1  # as if psd had asked
        with self.assertLogs("psclient", "WARNING") as log:
            self.train(worker, range(1))
        self.assertIn("No such file or directory", log.output[0])
        with self.assertNoLogs("psclient", "WARNING"):
            self.train(worker, range(1, 2))
        path.parent.mkdir()
        worker._saved = -1
        full = mock.patch.object(worker.worker, "save", side_effect=psclient.OutOfMemory("no memory for the state"))
        with full, self.assertLogs("psclient", "WARNING") as log:
            self.train(worker, range(2, 3))
        self.assertIn("no memory for the state", log.output[0])
        worker._saved = -1
        self.train(worker, range(3, 4))
        self.assertEqual(worker.worker.clock, 4)
        self.assertTrue(path.exists())

    def test_numpys_scalars_come_back_as_plain_numbers(self) -> None:
        """As of a schedule that computes with NumPy."""
        psd = self.psd("downpour", "optimizer=external")
        path, net = psd.folder / "worker", make_net()
        optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad])
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 0.5 * (1 + np.cos(t / 10)))
        worker = self.trainer(psd, net, optimizer, state=path)
        self.train(worker, range(1))
        schedule.step()
        lr = optimizer.param_groups[0]["lr"]
        self.assertIsInstance(lr, np.float64)
        worker._saved = -1  # as if psd had asked
        self.train(worker, range(1, 2))
        worker.save(psd.folder / "mine", {"epoch": np.int64(3), "best": [(np.float32(0.5), "x"), {np.int8(1): np.bool_(True)}]})
        worker.close()
        again = make_net()
        other = torch.optim.AdamW([p for p in again.parameters() if p.requires_grad])
        with self.trainer(psd, again, other, state=path) as worker:
            self.assertEqual(worker.worker.clock, 2)
        self.assertEqual(other.param_groups[0]["lr"], lr)
        worker = self.trainer(psd, again, other)
        self.assertEqual(worker.resume(psd.folder / "mine"), {"epoch": 3, "best": [(0.5, "x"), {1: True}]})

    def test_what_no_resume_can_read_is_not_saved(self) -> None:
        psd = self.psd("async-sgd", "learning_rate=0.1")
        path = psd.folder / "mine"
        worker = self.trainer(psd, make_net())
        self.train(worker, range(1))
        fine: dict[str, Any] = {"scores": torch.arange(3), "seen": [{"x"}, b"y", None]}
        bad: list[Any] = [np.arange(3), [{"a": np.arange(3)}], collections.defaultdict(int), collections, lambda: 1]
        worker.save(path, fine)
        before = path.read_bytes()
        for value in bad:
            with self.subTest(value=value), self.assertRaisesRegex(TypeError, r"user\['bad'\].*torch.from_numpy"):
                worker.save(path, {**fine, "bad": value})
            self.assertEqual(path.read_bytes(), before)
        worker.close()
        user = self.trainer(psd, make_net()).resume(path)
        self.assertTrue(torch.equal(user["scores"], fine["scores"]))
        self.assertEqual(user["seen"], fine["seen"])

    def test_a_state_that_cannot_be_read_changes_nothing(self) -> None:
        psd = self.psd("async-sgd", "learning_rate=0.1")
        path, good, net = psd.folder / "worker", psd.folder / "good", make_net()
        worker = self.trainer(psd, net)
        self.train(worker, range(1))
        worker.save(good)
        out = io.BytesIO()
        torch.save({"user": {"epoch": np.float64(3)}}, out)
        for extra, why in (out.getvalue(), "scalar"), (b"", ""), (b"no state", ""):
            worker.worker.save(path, worker._x_array, extra)
            again = self.trainer(psd, make_net())
            before = copy.deepcopy(again.model)
            with self.assertRaisesRegex(psclient.DamagedState, f"(?s){path}.*Trainer.save.*{why}"):
                again.resume(path)
            self.assert_same(again.model, before)
            again.resume(good)
            self.assertEqual(again.worker.clock, 1)
            again.close()

    def test_a_save_elsewhere_is_not_what_psd_asked_for(self) -> None:
        psd = self.psd("async-sgd", "learning_rate=0.1")
        path = psd.folder / "worker"
        worker = self.trainer(psd, make_net(), state=path)
        self.train(worker, range(1))
        worker._saved = -1  # as if psd had asked
        worker.save(psd.folder / "mine")
        self.train(worker, range(1, 2))
        self.assertTrue(path.exists())

    def test_a_drain_leaves_the_last_state(self) -> None:
        """psd's last checkpoint is newer than any for which it has asked. A drain may be told by calls that make no step, too."""

        def step(worker: psclient.torch.Trainer) -> None:
            self.train(worker, range(1))

        for call in (step, psclient.torch.Trainer.wait, psclient.torch.Trainer.pull):
            with self.subTest(call=call.__name__):
                psd = self.psd("async-sgd", "learning_rate=0.1")
                path = psd.folder / "worker"
                worker = self.trainer(psd, make_net(), state=path)
                self.train(worker, range(2))
                psd.drain()
                while not worker.draining:
                    call(worker)
                clock = worker.worker.clock
                worker.close()
                psd.process.wait(HANG_S)
                psd.start("--resume")
                again = self.trainer(psd, make_net(), state=path)
                self.assertEqual(again.worker.clock, clock)

    def test_a_drain_before_the_state_is_resumed(self) -> None:
        """psd lets nobody in any more: the state stays as it is for the next run."""
        psd = self.psd("async-sgd", "learning_rate=0.1")
        path = psd.folder / "worker"
        path.write_bytes(b"state")
        first, begin = self.trainer(psd, make_net()), psclient.Worker.begin

        def drain_first(worker: psclient.Worker, *args: Any) -> None:
            psd.drain()
            self.train(first, range(10**9))  # until it is told
            begin(worker, *args)

        with mock.patch.object(psclient.Worker, "begin", drain_first):
            worker = self.trainer(psd, make_net(), state=path)
        self.assertTrue(worker.draining)
        self.assertEqual(list(worker.steps(range(3))), [])
        for call in worker.pull, worker.wait:
            with self.assertRaisesRegex(psclient.Drained, "was draining when this worker began"):
                call()
        self.assertEqual(path.read_bytes(), b"state")

    def test_a_state_that_another_process_replaces_is_a_warning(self) -> None:
        psd = self.psd("async-sgd", "learning_rate=0.1")
        path, other = psd.folder / "worker", psd.folder / "other"
        worker = self.trainer(psd, make_net(), state=path)
        for t in range(2):
            worker._saved = -1  # as if psd had asked
            with self.assertNoLogs("psclient", "WARNING"):
                self.train(worker, range(t, t + 1))
        other.write_bytes(path.read_bytes())
        os.utime(other, (1, 1))
        other.replace(path)
        worker._saved = -1
        with self.assertLogs("psclient", "WARNING") as log:
            self.train(worker, range(2, 3))
        self.assertIn("another process has saved", log.output[0])

    def test_the_state_that_belongs_to_the_center_is_resumed(self) -> None:
        """The newest, or that before it where psd, or this worker, ended while it saved."""
        psd = self.psd("async-sgd", "learning_rate=0.1")
        path, before = psd.folder / "worker", psd.folder / "worker.before"
        worker = self.trainer(psd, make_net())
        self.train(worker, range(2))
        worker.save(path)
        self.train(worker, range(1))
        worker.save(before)
        worker.close()
        for newest, clock in ((path, 3), (before, 3)):
            with self.trainer(psd, make_net(), state=path) as again:
                self.assertEqual(again.worker.clock, clock)
            newest.unlink()
        before.write_bytes(b"damaged")
        with self.assertRaises(psclient.DamagedState):
            self.trainer(psd, make_net(), state=path)


class Refused(Case):
    def test_models_that_cannot_be_taken_are_named(self) -> None:
        cases: list[tuple[type[Exception], str, Callable[[], nn.Module]]] = [
            (TypeError, "parameter 'scale' has type torch.bfloat16.*autocast", lambda: make_net().bfloat16()),
            (TypeError, "parameter 'weight' is on meta", lambda: nn.Linear(2, 2, device="meta")),
            (ValueError, "parameter '0.weight' has no shape yet", lambda: nn.Sequential(nn.LazyLinear(2))),
            (ValueError, "the model has no parameters", nn.ReLU),
        ]
        for error, sentence, make in cases:
            with self.subTest(sentence), self.assertRaisesRegex(error, sentence):
                psclient.torch.Trainer(make(), server="tcp://127.0.0.1:1")
        net = nn.Linear(2, 2)
        net.register_buffer("mask", torch.tensor([float("-inf")]))
        with self.assertRaisesRegex(psclient.NotFinite, "'mask' holds values that are not finite.*persistent=False"):
            psclient.torch.Trainer(net, server=self.psd("async-sgd").endpoint)

    def test_optimizers_that_cannot_step_are_named(self) -> None:
        net, external = make_net(), self.psd("downpour", "optimizer=external")
        trained = [p for p in net.parameters() if p.requires_grad]
        cases: list[tuple[type[Exception], str, Any, Psd]] = [
            (TypeError, "optimizer is a list; allowed is a torch.optim.Optimizer", trained, external),
            (ValueError, "'last.bias' is not in the optimizer", torch.optim.SGD(trained[:-1]), external),
            (ValueError, "is not the model's", torch.optim.SGD([*trained, torch.ones(2, requires_grad=True)]), external),
            (TypeError, "LBFGS", torch.optim.LBFGS(trained), external),
            (psclient.Unsupported, "async-sgd the server makes.*AdamW", torch.optim.AdamW(trained), self.psd("async-sgd")),
            (psclient.Unsupported, "psd's nesterov, so SGD.*optimizer=external", torch.optim.SGD(trained), self.psd("eamsgd")),
        ]
        for error, sentence, optimizer, psd in cases:
            with self.subTest(sentence), self.assertRaisesRegex(error, sentence):
                psclient.torch.Trainer(net, optimizer, server=psd.endpoint)
        with self.assertRaisesRegex(psclient.Unsupported, "own_step"):
            psclient.torch.Trainer(net, server=external.endpoint)
        no_module: Any = trained
        with self.assertRaisesRegex(TypeError, "model is a list; allowed is a torch.nn.Module"):
            psclient.torch.Trainer(no_module, server=external.endpoint)

    def test_a_model_that_changes_after_the_start_is_named(self) -> None:
        psd = self.psd("async-sgd")

        def set_parameter(net: Net) -> None:
            net.first.weight = nn.Parameter(torch.zeros(8, 6))

        def add_module(net: Net) -> None:
            net.head = nn.Linear(3, 3)

        def swap_data(net: Net) -> None:
            net.scale.data = torch.tensor(2.0)

        def swap_buffer(net: Net) -> None:
            net.norm.running_mean = torch.zeros(8)

        def freeze(net: Net) -> None:
            net.last.bias.requires_grad_(False)

        cases: list[tuple[str, Callable[[Net], None]]] = [
            ("parameter 'first.weight' was set after the start", set_parameter),
            ("parameter 'head.weight' was set after the start", add_module),
            ("parameter 'scale' is no longer in the worker's vector", swap_data),
            ("buffer 'norm.running_mean' was set after the start", swap_buffer),
            ("parameter 'last.bias' was trained when the job began", freeze),
        ]
        for sentence, change in cases:
            with self.subTest(sentence):
                net = make_net()
                worker = self.trainer(psd, net)
                self.train(worker, range(1))
                change(net)
                with self.assertRaisesRegex(RuntimeError, sentence):
                    self.train(worker, range(1))
                worker.close()

    def test_gradients_that_are_not_finite_are_named(self) -> None:
        psd = self.psd("async-sgd", "learning_rate=0.1")
        net = make_net()
        worker = self.trainer(psd, net)
        self.train(worker, range(1))
        good = net.last.weight.clone()
        worker.zero_grad()
        (loss_of(net, 0) * float("nan")).backward()
        with self.assertRaisesRegex(psclient.NotFinite, "the gradient of 'scale' is not finite.*pull"):
            worker.step()
        worker.pull()
        self.assertTrue(torch.equal(net.last.weight, good))
        self.train(worker, range(2))

    def test_a_model_that_differs_between_workers_is_named(self) -> None:
        psd = self.psd("async-sgd")
        self.trainer(psd, nn.Sequential(nn.Linear(3, 2)))
        with self.assertRaisesRegex(psclient.ManifestMismatch, r"'0\.weight'"):
            psclient.torch.Trainer(nn.Sequential(nn.Linear(4, 2)), server=psd.endpoint)

    def round_of_two(self) -> list[psclient.torch.Trainer]:
        psd = self.psd("sync-sgd", "learning_rate=0.1", "workers=2")
        workers = [self.trainer(psd, nn.Linear(6, 3), rank=rank) for rank in range(2)]
        for worker in workers:
            worker.zero_grad()
        return workers

    def once_it_waits(self, worker: psclient.torch.Trainer, act: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            end = time.monotonic() + HANG_S
            while not worker.worker._lock.locked() and time.monotonic() < end:
                time.sleep(0.001)
            act()

        thread = threading.Thread(target=run)
        thread.start()
        self.addCleanup(thread.join)
        return thread

    def test_ctrl_c_in_a_wait_leaves_a_model_that_works(self) -> None:
        worker, other = self.round_of_two()
        before = {name: values.clone() for name, values in worker.model.state_dict().items()}
        loss_of(worker.model, 0).backward()
        self.once_it_waits(worker, lambda: os.kill(os.getpid(), signal.SIGINT))
        with self.assertRaises(KeyboardInterrupt):
            worker.step()
        for name, values in worker.model.state_dict().items():
            self.assertTrue(torch.equal(values, before[name]), name)
        with self.assertRaisesRegex(psclient.InvalidArgument, "was interrupted by KeyboardInterrupt; open another Worker"):
            worker.step()
        worker.close()
        loss_of(worker.model, 1).backward()
        other.step()  # alone in the round

    def test_a_trainer_is_for_one_thread(self) -> None:
        worker, other = self.round_of_two()
        said: list[str] = []

        def act() -> None:
            try:
                worker.step()
            except psclient.InvalidArgument as refused:
                said.append(str(refused))
            other.step()

        thread = self.once_it_waits(worker, act)
        worker.step()
        thread.join(HANG_S)
        self.assertEqual(len(said), 1)
        self.assertRegex(said[0], "thread 'MainThread' is in Worker.step of this worker.*one thread at a time")

    def test_a_gradient_freed_during_an_exchange_is_kept(self) -> None:
        """With overlap an exchange is in progress between steps. The trainer holds what the library reads, also when the
        program drops model and gradients."""
        psd = self.psd("async-easgd", "alpha=0.5", "period=1", "learning_rate=0.1", "overlap=true")
        net: Any = make_net()
        worker = self.trainer(psd, net)
        self.train(worker, range(2))
        for parameter in net.parameters():
            parameter.grad = None
        worker.model = nn.Module()
        net = None
        gc.collect()
        worker.wait()
        worker.step()
        self.assertEqual(worker.worker.clock, 3)

    def test_layouts_other_than_contiguous_are_copied(self) -> None:
        """channels_last and expanded parameters become contiguous views, with the same values."""
        net: Any = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3))
        net.to(memory_format=torch.channels_last)
        net[0].bias = nn.Parameter(torch.ones(1).expand(4))
        before = {name: values.clone() for name, values in net.state_dict().items()}
        worker = self.trainer(self.psd("async-sgd", "learning_rate=1"), net)
        for name, values in net.state_dict().items():
            self.assertTrue(torch.equal(values, before[name]) and values.is_contiguous(), name)
        worker.zero_grad()
        net(torch.ones(1, 3, 8, 8).to(memory_format=torch.channels_last)).sum().backward()
        grads = {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}
        worker.step()
        for name, values in net.state_dict().items():
            torch.testing.assert_close(values, before[name] - grads[name])

    def test_an_optimizers_exception_is_steps(self) -> None:
        net = nn.Linear(2, 2)

        class Broken(torch.optim.SGD):
            def step(self, closure: Any = None) -> Any:
                raise ZeroDivisionError("as asked")

        worker = self.trainer(self.psd("downpour", "optimizer=external"), net, Broken(net.parameters()))
        net(torch.ones(1, 2)).sum().backward()
        with self.assertRaisesRegex(ZeroDivisionError, "as asked"):
            worker.step()


if __name__ == "__main__":
    unittest.main()
