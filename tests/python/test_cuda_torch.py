"""psclient.torch with memory: cuda on CUDA's stand-in, with the module that nvcc built: the vectors are in memory that the
host cannot touch, and streams are as late as CUDA allows."""

from __future__ import annotations

import os
import unittest
from typing import Any
from unittest import mock

import torch
from torch import nn

import psclient
import psclient.torch
from late_gpu import LateGpu
from place_fixture import EXTERNAL, PlaceCase, Steps, adamw, in_threads
from psclient import _place
from standin import UP, Runtime, standin_gpu
from test_torch import loss_of, make_net


class OnTheDevice(Steps.Tests):
    memory = "cuda"
    SITES = (
        ("_call", "stream"),
        ("_call", "current"),
        ("_own_step", "current"),
        ("_own_step", "stream"),
    )

    def place(self) -> _place.HostPlace:
        return _place.DevicePlace(standin_gpu())

    def losing(self, site: tuple[str, str]) -> Any:
        gpu = standin_gpu(site)
        return gpu, lambda: _place.DevicePlace(gpu)

    def test_backward_is_pytorchs(self) -> None:
        """No part of the gradient leaves before the step ends."""
        with self.there():
            net = make_net()
            worker = self.trainer(self.psd("async-sgd", "learning_rate=0.1"), net)
        self.assertFalse(worker.worker.early)
        with mock.patch.object(worker.worker, "step_begin", side_effect=AssertionError):
            worker.backward(net(torch.ones(4, 6)).sum(), 4)
            worker.step()

    def test_reported_gradients_have_the_same_bits(self) -> None:
        """As where the library would sum them."""
        nets = []
        for reports in False, True:
            with self.there():
                net = make_net()
                worker = self.trainer(self.psd("async-msgd", "learning_rate=0.1"), net)
            with mock.patch.object(psclient.Worker, "early", reports):
                for t in range(4):
                    worker.zero_grad()
                    worker.backward(loss_of(net, t), 16)
                    worker.step(16)
            worker.close()
            nets.append(net)
        self.assert_same(nets[0], nets[1])

    def test_a_mean_elsewhere_on_the_device_is_the_gradient(self) -> None:
        """As the members' of a clique would be."""
        place = self.place()
        with psclient.Worker(local=psclient.Local("sgd")) as worker:
            place.make(worker, 3)
        runtime = Runtime()
        mean, values, stream = runtime.malloc(3), runtime.pinned(3), runtime.stream()
        values[:] = (1, 2, 3)
        runtime.copy(mean, values.ctypes.data, 3, UP, stream)
        runtime.wait(stream)
        place.g[:] = 7
        with place.call(g=True), place.own_step(mean) as is_mean:
            self.assertTrue(is_mean)
            self.assertEqual(place.g.tolist(), [1, 2, 3])
        with place.call(g=True), place.own_step(place.g_array.address) as is_mean:
            self.assertFalse(is_mean)
            self.assertEqual(place.g.tolist(), [1, 2, 3])

    def test_a_failure_of_the_device_is_told(self) -> None:
        with self.there():
            net = make_net()
            worker = self.trainer(self.psd("async-sgd", "learning_rate=0.1"), net)
        self.step(worker, 0)
        with mock.patch.dict(os.environ, {"STANDIN_FAULT": "device"}):
            with self.assertRaisesRegex(psclient.DeviceError, "CUDA: an illegal memory access"):
                self.step(worker, 1)
            with self.assertRaises(psclient.DeviceError):
                worker.pull()


class Choice(PlaceCase):
    """Which place a Trainer takes of those that the model's device has."""

    def begin(self, memory: str | None, **options: Any) -> psclient.torch.Trainer:
        gpu, late = standin_gpu(), LateGpu()
        all_places = (_place.DevicePlace(gpu), _place.PinnedPlace(late))
        chosen = [place for place in all_places if memory in (None, place.memory)]
        with mock.patch.object(psclient.torch, "places_of", lambda _device, _memory: chosen):
            net = make_net()
            worker = self.trainer(self.psd("downpour", EXTERNAL), net, adamw(net), **options)
        self.step(worker, 0)
        return worker

    def test_the_device_is_first(self) -> None:
        self.assertEqual(self.begin(None).memory, "cuda")

    def test_pinned_memory_where_libpsclient_has_no_device(self) -> None:
        with mock.patch.dict(os.environ, {"STANDIN_DEVICES": "0"}), self.assertLogs("psclient", "INFO") as said:
            self.assertEqual(self.begin(None).memory, "pinned")
        self.assertRegex("\n".join(said.output), "not lie in memory 'cuda', but in 'pinned': .*no CUDA device")

    def test_whoever_wants_the_device_is_told(self) -> None:
        with (
            mock.patch.dict(os.environ, {"STANDIN_DEVICES": "0"}),
            self.assertRaisesRegex(psclient.Unsupported, "memory 'cuda': no CUDA device"),
        ):
            self.begin("cuda")

    def test_a_clique_of_one_is_none(self) -> None:
        psd = self.psd("async-sgd")
        with psclient.Ring(f"psd:{psd.endpoint}", 1) as ring:
            self.assertEqual(self.begin(None, clique=ring).memory, "cuda")

    def test_members_of_a_ring_have_pinned_memory(self) -> None:
        """It sums vectors of the host."""
        psd = self.psd("d-sync", EXTERNAL)
        nets, memories = [make_net(), make_net()], ["", ""]

        def member(rank: int) -> None:
            with psclient.Ring(f"psd:{psd.endpoint}", 2, rank=rank) as ring:
                worker = self.trainer(psd, nets[rank], adamw(nets[rank]), clique=ring)
                memories[rank] = worker.memory
                self.step(worker, rank)
                worker.close()

        with mock.patch.object(
            psclient.torch,
            "places_of",
            lambda _device, _memory: [_place.DevicePlace(standin_gpu()), _place.PinnedPlace(LateGpu())],
        ):
            in_threads(member)
        self.assertEqual(memories, ["pinned", "pinned"])
        self.assert_same(nets[0].first, nets[1].first)

    def test_the_reason_is_the_first_where_nothing_serves(self) -> None:
        with self.assertRaisesRegex(psclient.Unsupported, "own_step"), self.there(lambda: _place.DevicePlace(standin_gpu())):
            psclient.torch.Trainer(nn.Linear(2, 2), server=self.psd("downpour", EXTERNAL).endpoint)


if __name__ == "__main__":
    unittest.main()
