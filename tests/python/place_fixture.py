"""What a Trainer does at a place of a GPU, against the same on the host: the same bits. The places compute with PyTorch on
the CPU, so nothing else can differ."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import nn

import psclient
import psclient.torch
from psclient import _place
from psd_fixture import HANG_S
from test_torch import Case, loss_of, make_net

Make = Callable[[nn.Module], "torch.optim.Optimizer | None"]


def trained(net: nn.Module) -> list[nn.Parameter]:
    return [p for p in net.parameters() if p.requires_grad]


def adamw(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(trained(net), lr=0.01, weight_decay=0.1)


def momentum(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(trained(net), lr=0.05, momentum=0.9, nesterov=True)


def none(net: nn.Module) -> None:
    return None


EXTERNAL = "optimizer=external"
# The method with its settings, and the optimizer.
ROWS: list[tuple[tuple[str, ...], Make]] = [
    (("async-easgd", EXTERNAL, "alpha=0.25", "period=2"), adamw),
    (("async-easgd", EXTERNAL, "alpha=0.25", "period=2", "overlap=true"), momentum),
    (("eamsgd", "alpha=0.25", "period=2", "learning_rate=0.05"), none),
    (("eamsgd", "alpha=0.25", "period=1", "learning_rate=0.05", "overlap=true"), none),
    (("sync-easgd", "alpha=0.25", "period=1", "workers=1", "codec.message=int8", "codec.answer=bf16"), none),
    (("async-sgd", "learning_rate=0.1"), none),
    (("async-msgd", "learning_rate=0.1", "weight_decay=0.01", "overlap=true"), none),
    (("downpour", EXTERNAL, "period=3"), adamw),
    (("diloco", EXTERNAL, "period=2", "workers=1"), adamw),
    (("diloco", EXTERNAL, "period=4", "workers=1", "overlap=3", "mix=0.5"), momentum),
    (("admm", "workers=1", "learning_rate=0.05"), none),
]
STEPS = 7


def in_threads(member: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=member, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)


class PlaceCase(Case):
    def place(self) -> _place.HostPlace:
        raise NotImplementedError

    @contextlib.contextmanager
    def there(self, make: Callable[[], _place.HostPlace] | None = None) -> Iterator[None]:
        """Trainers that begin within it have their vectors at the place."""
        with mock.patch.object(psclient.torch, "places_of", lambda _device, _memory: [(make or self.place)()]):
            yield

    def step(self, worker: psclient.torch.Trainer, t: int) -> None:
        """Accumulates two batches, one in mixed precision; every third step leaves a parameter without a gradient."""
        net = worker.model
        if t % 2:
            worker.zero_grad()
        else:
            net.zero_grad()
        (loss_of(net, t) / 2).backward()
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(net, 100 + t) / 2
        loss.backward()
        if t % 3 == 2:
            net.get_parameter("scale").grad = None
        worker.step(16)

    def result(self, worker: psclient.torch.Trainer) -> dict[str, torch.Tensor]:
        """The model, then the center."""
        worker.wait()
        out = {name: values.clone() for name, values in worker.model.state_dict().items()}
        worker.pull()
        return out | {f"center's {name}": values.clone() for name, values in worker.model.state_dict().items()}

    def run_row(self, settings: tuple[str, ...], make: Make, steps: int = STEPS) -> dict[str, torch.Tensor]:
        psd = self.psd(*settings)
        net = make_net()
        with self.trainer(psd, net, make(net)) as worker:
            for t in range(steps):
                self.step(worker, t)
            result = self.result(worker)
        psd.kill()
        return result

    def assert_equal(self, found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
        for name, values in wanted.items():
            self.assertTrue(torch.equal(found[name], values), name)


class Steps:
    """The tests of each place, beside a PlaceCase."""

    class Tests(PlaceCase):
        memory = ""

        def test_steps_are_those_of_the_host(self) -> None:
            for settings, make in ROWS:
                with self.subTest(settings):
                    wanted = self.run_row(settings, make)
                    with self.there():
                        found = self.run_row(settings, make)
                    self.assert_equal(found, wanted)
                    start = make_net().state_dict()
                    self.assertFalse(torch.equal(found["first.weight"], start["first.weight"]))

        def test_the_model_is_the_places_and_remains_after_the_end(self) -> None:
            with self.there():
                net = make_net()
                worker = self.trainer(self.psd("async-sgd", "learning_rate=0.1"), net)
            self.assertEqual(worker.memory, self.memory)
            base = worker._place.x.data_ptr()
            for entry in worker._entries:
                self.assertEqual(entry.tensor.data_ptr(), base + 4 * entry.offset)
            self.step(worker, 0)
            before = {n: v.clone() for n, v in net.state_dict().items()}
            worker.close()
            self.assert_equal(dict(net.state_dict()), before)
            loss_of(net, 3).backward()

        def test_a_state_moves_between_the_places(self) -> None:
            """Saved on the GPU and resumed on the host, and the other way round, is as if nothing had been."""
            settings = ("downpour", EXTERNAL, "period=100")
            wanted = self.run_row(settings, adamw)
            for first_there in (False, True):
                psd = self.psd(*settings)
                path = psd.folder / "worker"
                for is_there, steps in ((first_there, range(3)), (not first_there, range(3, STEPS))):
                    net = make_net(seed=1 if steps.start == 0 else 2)
                    with self.there() if is_there else contextlib.nullcontext():
                        worker = self.trainer(psd, net, adamw(net))
                    if steps.start != 0:
                        self.assertEqual(worker.resume(path), {"epoch": 3})
                        self.assertEqual(worker.worker.clock, 3)
                    for t in steps:
                        self.step(worker, t)
                    if steps.start == 0:
                        worker.save(path, {"epoch": 3})
                        worker.close()
                result = self.result(worker)
                worker.close()
                counter = "norm.num_batches_tracked"
                for name in net.state_dict():
                    if name != counter:
                        self.assertTrue(torch.equal(result[name], wanted[name]), (first_there, name))

        def test_gradients_that_are_not_finite_are_named_and_the_center_goes_on(self) -> None:
            psd = self.psd("async-sgd", "learning_rate=0.1")
            net = make_net()
            with self.there():
                worker = self.trainer(psd, net)
            self.step(worker, 0)
            good = net.last.weight.clone()
            worker.zero_grad()
            (loss_of(net, 0) * float("nan")).backward()
            with self.assertRaisesRegex(psclient.NotFinite, "the gradient of 'scale' is not finite.*pull"):
                worker.step()
            worker.pull()
            self.assertTrue(torch.equal(net.last.weight, good))
            self.step(worker, 1)

        def test_an_optimizers_exception_is_steps(self) -> None:
            class Broken(torch.optim.SGD):
                def step(self, closure: Any = None) -> Any:
                    raise ZeroDivisionError("as asked")

            net = nn.Linear(2, 2)
            with self.there():
                worker = self.trainer(self.psd("downpour", EXTERNAL), net, Broken(net.parameters()))
            net(torch.ones(1, 2)).sum().backward()
            before = net.weight.detach().clone()
            with self.assertRaisesRegex(ZeroDivisionError, "as asked"):
                worker.step()
            self.assertTrue(torch.equal(net.weight, before))

        def test_evaluators_and_checkpoints_have_the_center(self) -> None:
            psd = self.psd("async-sgd", "learning_rate=0.1")
            net, other = make_net(), make_net(seed=5)
            with self.there():
                worker = self.trainer(psd, net)
            for t in range(3):
                self.step(worker, t)
            psclient.torch.evaluate(other, psd.endpoint, lambda m: {"test_loss": float(loss_of(m.eval(), 0).detach())})
            for name in ("first.weight", "scale", "norm.running_var"):
                self.assertTrue(torch.equal(net.state_dict()[name], other.state_dict()[name]), name)
            self.result(worker)
            worker.close()
            psd.drain()
            psd.process.wait(HANG_S)
            path = max((psd.folder / "state" / "checkpoints").glob("center-*.safetensors"))
            psclient.torch.load_checkpoint(make_net(seed=6), path)
            another = make_net(seed=7)
            psclient.torch.load_checkpoint(another, path)
            self.assertTrue(torch.equal(another.first.weight, net.first.weight))

        def losing(self, site: tuple[str, str]) -> Any:
            """A gpu that loses the waits of a site, and its place."""
            raise NotImplementedError

        SITES: tuple[tuple[str, str], ...] = ()
        SITE_ROW = (("async-easgd", EXTERNAL, "alpha=0.25", "period=2"), adamw)

        def test_each_wait_is_needed(self) -> None:
            """Without it the result is another, or a value is not finite."""
            settings, make = self.SITE_ROW
            wanted = self.run_row(settings, make, 3)
            for site in self.SITES:
                with self.subTest(site):
                    gpu, place = self.losing(site)
                    with self.there(place), self.assertRaises((AssertionError, psclient.NotFinite)):
                        self.assert_equal(self.run_row(settings, make, 3), wanted)
                    self.assertTrue(gpu.was_lost)
