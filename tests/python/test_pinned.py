"""psclient.torch with a model whose vectors go through pinned memory, on a GPU that does everything as late as it may."""

from __future__ import annotations

import dataclasses
import functools
import unittest
from typing import Any

import torch
from torch import nn

import psclient
import psclient.torch
from late_gpu import LateGpu
from place_fixture import PlaceCase, Steps, in_threads, trained
from psclient import _place
from psclient._model import entries_of
from test_torch import Case, Wide, loss_of


class Pinned(Steps.Tests):
    memory = "pinned"
    SITES = (
        ("_down", "stream"),
        ("_down", "host"),
        ("_up", "current"),
    )  # the wait of _up's stream is for work that reads x late, which this GPU has none of

    def place(self) -> _place.HostPlace:
        return _place.PinnedPlace(LateGpu())

    def losing(self, site: tuple[str, str]) -> Any:
        gpu = LateGpu(site)
        return gpu, lambda: _place.PinnedPlace(gpu)


class Early(PlaceCase):
    """Trainer.backward: gradients reach the host, and leave it, while backward runs."""

    def place(self) -> _place.HostPlace:
        return _place.PinnedPlace(LateGpu())

    def steps(self, worker: psclient.torch.Trainer, rank: int, reports: bool) -> None:
        for t in range(3):
            net: Any = worker.model
            net.use_spare = t % 2 == 0
            worker.zero_grad()
            loss_of(net, 10 * t + rank).backward()
            loss = loss_of(net, 100 + 10 * t + rank)
            if reports:
                worker.backward(loss, 16 + rank)
                worker.step()
            else:
                loss.backward()
                worker.step(16 + rank)
        worker.wait()

    def wide(self) -> Wide:
        torch.manual_seed(1)
        return Wide()

    def alone(self, reports: bool) -> nn.Module:
        worker = self.trainer(self.psd("async-sgd", "learning_rate=0.01", "chunk_floats=16384"), self.wide())
        self.assertTrue(worker.worker.early)
        self.steps(worker, 0, reports)
        worker.close()
        return worker.model

    def test_a_worker_alone_has_the_same_bits(self) -> None:
        wanted = self.alone(False)
        for reports in (False, True):
            with self.there():
                self.assert_same(self.alone(reports), wanted)

    def test_each_wait_for_a_part_is_needed(self) -> None:
        wanted = self.alone(False)
        for site in ("send", "stream"), ("finish", "host"), ("tell", "host"):
            with self.subTest(site):
                gpu = LateGpu(site)
                place = functools.partial(_place.PinnedPlace, gpu)
                with self.there(place), self.assertRaises((AssertionError, psclient.NotFinite)):
                    self.assert_same(self.alone(True), wanted)
                self.assertTrue(gpu.was_lost)

    def clique(self, settings: tuple[str, ...], reports: bool) -> list[nn.Module]:
        psd = self.psd(*settings)
        nets = [self.wide(), self.wide()]
        failures: list[BaseException] = []

        def member(rank: int) -> None:
            try:
                optimizer = torch.optim.AdamW(trained(nets[rank]), lr=0.001)
                with psclient.Ring(f"psd:{psd.endpoint}", 2, rank=rank) as ring:
                    worker = self.trainer(psd, nets[rank], optimizer, clique=ring)
                    with worker:
                        self.steps(worker, rank, reports)
            except BaseException as why:
                failures.append(why)

        in_threads(member)
        if failures:
            raise failures[0]
        return list(nets)

    def test_members_of_a_clique_have_the_same_bits(self) -> None:
        """The optimizer steps with the members' mean, which the host computes."""
        for settings in (
            ("d-sync", "optimizer=external", "clique.bucket_floats=1"),
            ("async-easgd", "optimizer=external", "alpha=0.25", "period=2"),
        ):
            wanted = self.clique(settings, False)
            for reports in (False, True):
                with self.subTest((settings[0], reports)), self.there():
                    for found in self.clique(settings, reports):
                        self.assert_same(found, wanted[0])


class Sums(Case):
    def test_a_gpus_values_are_summed_on_the_host(self) -> None:
        psd = self.psd("async-sgd")
        for site in (None, *(("through_the_host", who) for who in ("stream", "host", "current"))):
            gpus = [LateGpu(site), LateGpu(site)]
            values = [gpu.zeros(1000) for gpu in gpus]
            torch.manual_seed(1)
            for vector in values:
                vector.normal_()
            wanted = values[0] + values[1]

            summed: list[int] = []
            name = "-".join(site or ("right",))

            def member(rank: int, gpus: Any = gpus, values: Any = values, name: str = name, summed: list[int] = summed) -> None:
                with psclient.Ring(f"psd:{psd.endpoint}", 2, rank=rank, name=name) as ring:
                    work = functools.partial(ring.allreduce, codec=None)
                    _place.through_the_host(gpus[rank], gpus[rank].stream(), values[rank].view(10, 100), work)
                summed.append(rank)

            in_threads(member)
            self.assertEqual(sorted(summed), [0, 1])
            same = all(torch.equal(vector, wanted) for vector in values)
            self.assertEqual(same, site is None, site)


class Models(unittest.TestCase):
    def test_a_model_on_several_devices_is_refused_by_name(self) -> None:
        """One of the devices is "meta", which is there without a GPU."""
        entries = entries_of(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
        self.assertEqual(_place.device_of(entries), torch.device("cpu"))
        for name, what in ("1.weight", "parameter"), ("1.running_mean", "buffer"):
            mixed = [dataclasses.replace(e, tensor=e.tensor.to("meta")) if e.name == name else e for e in entries]
            sentence = f"{what} '{name}' is on meta, and parameter '0.weight' on cpu: .*one device.*to.'cpu'"
            with self.assertRaisesRegex(TypeError, sentence):
                _place.device_of(mixed)

    def test_memory_that_the_model_cannot_have_is_refused(self) -> None:
        for memory in "cuda", "pinned", "shared":
            with self.assertRaisesRegex(ValueError, f"memory is '{memory}', and the model is on cpu; allowed there: host"):
                psclient.torch.Trainer(nn.Linear(2, 2), server="tcp://127.0.0.1:1", memory=memory)
        with self.assertRaisesRegex(TypeError, "Trainer has no stream"):
            psclient.torch.Trainer(nn.Linear(2, 2), server="tcp://127.0.0.1:1", stream=1)


if __name__ == "__main__":
    unittest.main()
