"""psclient.Worker with a real psd: what Python's users expect of it."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import tempfile
import threading
import time
import unittest
import weakref
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

import psclient
from psd_fixture import HANG_S, PsdCase

MODEL = {"w": (3,), "b": (2,)}
PATIENT: dict[str, Any] = {"retry_ms": 60000, "heartbeat_ms": 10000}  # nothing is lost: nothing is sent again


def floats(*values: float) -> Any:
    return np.array(values, np.float32)


class Foreign:
    """An array of another package, which NumPy knows by DLPack alone."""

    def __init__(self, values: Any, device: int | None = None) -> None:
        self.values, self.device = values, device

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.values.__dlpack_device__() if self.device is None else (self.device, 0)


class Training(PsdCase):
    def join(self, psd: Any, x: Any, **options: Any) -> psclient.Worker:
        worker = psclient.Worker(psd.endpoint, **{**PATIENT, **options})
        self.addCleanup(worker.close)
        worker.begin(MODEL, x)
        return worker

    def test_a_step_moves_x_where_it_lies(self) -> None:
        psd = self.psd("async-sgd", "learning_rate=1")
        with psclient.Worker(psd.endpoint, rank=3, name="me", **PATIENT) as worker:
            x = worker.alloc(5)
            x[:] = range(1, 6)
            view = x[1:3]
            worker.begin([psclient.Tensor("w", (3,)), psclient.Tensor("b", (2,), decays=False)], x)
            worker.step(x, floats(1, 1, 1, 1, 1), n_samples=64)
            self.assertEqual(view.tolist(), [1, 2])
            answer = np.empty(2, np.float32)
            worker.pushpull("b", floats(0.5, 2), answer)
            self.assertEqual(answer.tolist(), [2.5, 2])
            self.assertEqual((worker.rank, worker.size, worker.clock), (3, 1, 1))
            info = worker.info
            self.assertEqual((info.method, info.optimizer, info.n_floats), ("async-sgd", "none", 5))
            self.assertEqual(info.learning_rate, 1)
            worker.report(loss=0.5, accuracy=0.75)
        self.assertTrue(worker.closed)
        del x
        gc.collect()
        self.assertEqual(view.tolist(), [1, 2])  # outlives the worker
        view[:] = 7
        with self.assertRaisesRegex(psclient.InvalidArgument, "Worker.pull: it is closed"):
            worker.pull(None, floats(0, 0, 0, 0, 0))

    def test_arrays_of_others_are_used_where_they_lie(self) -> None:
        psd = self.psd("async-sgd", "learning_rate=1")
        values = floats(1, 2, 3, 4, 5)
        x = Foreign(values)
        worker = self.join(psd, x)
        worker.step(x, Foreign(floats(1, 1, 1, 1, 1)))
        self.assertEqual(values.tolist(), [0, 1, 2, 3, 4])

    def test_what_does_not_fit_is_refused_by_name(self) -> None:
        psd = self.psd("async-sgd", "learning_rate=1")
        x = floats(1, 2, 3, 4, 5)
        worker = self.join(psd, x)
        frozen = floats(1, 2, 3, 4, 5)
        frozen.setflags(write=False)
        odd = np.frombuffer(b"\0" * 21, np.uint8)[1:].view(np.float32)
        cases: list[tuple[type[Exception], str, Callable[[], None]]] = [
            (TypeError, "g has type float64; psd needs float32: convert", lambda: worker.step(x, np.zeros(5))),
            (TypeError, "g is a list; allowed are NumPy", lambda: worker.step(x, [0.0] * 5)),
            (TypeError, "x is on a device .DLPack type 2.: copy", lambda: worker.step(Foreign(x, 2), x)),
            (ValueError, r"g, of shape \(5,\), is not contiguous", lambda: worker.step(x, np.zeros(10, "f4")[::2])),
            (ValueError, "g has 4 values.*allowed here are 5", lambda: worker.step(x, floats(1, 2, 3, 4))),
            (ValueError, "x is read-only, and the call writes it", lambda: worker.step(frozen, x)),
            (ValueError, "g is not aligned", lambda: worker.step(x, odd)),
            (TypeError, "x of 'w' has type float64", lambda: worker.pull("w", np.zeros(3))),
            (ValueError, "message of 'b' has 3 values.*allowed here are 2", lambda: worker.push("b", floats(1, 2, 3))),
            (psclient.InvalidArgument, "no tensor of the manifest is named 'c'", lambda: worker.push("c", x)),
            (psclient.InvalidArgument, "overlap", lambda: worker.pushpull(None, x, x)),
        ]
        for error, sentence, call in cases:
            with self.subTest(sentence), self.assertRaisesRegex(error, sentence):
                call()
        worker.step(x, floats(1, 1, 1, 1, 1))
        self.assertEqual(x.tolist(), [0, 1, 2, 3, 4])

    def test_a_drain_ends_the_loop(self) -> None:
        psd = self.psd("async-sgd")
        x = floats(1, 2, 3, 4, 5)
        worker = self.join(psd, x)
        seen = []
        for t in worker.steps():
            seen.append(t)
            worker.step(x, floats(0, 0, 0, 0, 0))
            if t == 2:
                psd.drain()
        self.assertEqual(seen, list(range(worker.clock)))
        self.assertTrue(worker.draining)
        self.assertEqual(list(worker.steps("abc")), [])
        worker.close()
        self.assertEqual(psd.process.wait(HANG_S), 0)
        with self.assertRaises(psclient.ServerGone):
            psclient.Worker(psd.endpoint, timeout_ms=200)

    def test_a_call_that_came_after_the_end_of_psd_is_an_error(self) -> None:
        """A worker that is told of a drain and stays. The step is not: its loop ends."""
        psd = self.psd("async-sgd", "limits.drain_s=1")
        x, out = floats(1, 2, 3, 4, 5), floats(7, 7, 7)
        worker = self.join(psd, x, heartbeat_ms=1000)  # it notices the end after a few
        psd.drain()
        self.assertEqual(psd.process.wait(HANG_S), 0)

        def start() -> None:
            worker.push_start("w", floats(1, 1, 1))
            worker.wait()

        calls: list[Callable[[], object]] = [
            lambda: worker.pull("w", out),
            lambda: worker.push("w", floats(1, 1, 1)),
            lambda: worker.pushpull("w", floats(1, 1, 1), out),
            lambda: worker.init("w", floats(1, 1, 1)),
            lambda: worker.pull_start("w", out).wait(),
            start,
            lambda: worker.set_method({"learning_rate": 0.5}),
            worker.workers_barrier,
        ]
        for i, call in enumerate(calls):
            with self.subTest(i), self.assertRaisesRegex(psclient.Drained, "has drained"):
                call()
        self.assertEqual(out.tolist(), [7, 7, 7])
        self.assertTrue(worker.draining)
        worker.step(x, floats(0, 0, 0, 0, 0))

    def test_so_it_is_for_every_member_of_a_clique(self) -> None:
        psd = self.psd("mpi-asgd", "limits.drain_s=1")
        ended = threading.Barrier(3)
        found: dict[int, list[str]] = {0: [], 1: []}

        def live(rank: int) -> None:
            x, out = floats(1, 2, 3, 4, 5), floats(7, 7, 7)
            with (
                psclient.Ring(f"psd:{psd.endpoint}", 2, rank=rank) as ring,
                psclient.Worker(psd.endpoint, clique=ring, **{**PATIENT, "heartbeat_ms": 1000}) as worker,
            ):
                worker.begin(MODEL, x)
                ended.wait(HANG_S)
                ended.wait(HANG_S)

                def start() -> None:
                    worker.push_start("w", floats(1, 1, 1))
                    worker.wait()

                calls: list[Callable[[], object]] = [
                    lambda: worker.pull("w", out),
                    lambda: worker.pull(None, x),
                    lambda: worker.pushpull("w", floats(1, 1, 1), out),
                    lambda: worker.pull_start("w", out).wait(),
                    start,
                    lambda: worker.set_method({"learning_rate": 0.5}),
                    worker.workers_barrier,
                ]
                for i, call in enumerate(calls):
                    try:
                        call()
                        found[rank].append(f"call {i} returned")
                    except psclient.Drained as why:
                        found[rank].append("" if "has drained" in str(why) else f"call {i}: {why}")

        threads = [threading.Thread(target=live, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        ended.wait(HANG_S)
        psd.drain()
        self.assertEqual(psd.process.wait(HANG_S), 0)
        ended.wait(HANG_S)
        for thread in threads:
            thread.join(HANG_S)
        self.assertEqual(found, {0: 7 * [""], 1: 7 * [""]})

    def test_a_worker_that_a_drain_kept_out_is_told_so(self) -> None:
        psd = self.psd("async-sgd")
        x, mine = floats(1, 2, 3, 4, 5), floats(9, 9, 9, 9, 9)
        first = self.join(psd, x)
        late = psclient.Worker(psd.endpoint, **PATIENT)
        self.addCleanup(late.close)
        psd.drain()
        for _ in first.steps():
            first.step(x, floats(0, 0, 0, 0, 0))
        late.begin(MODEL, mine)
        self.assertTrue(late.draining)
        for call in lambda: late.pull(None, mine), lambda: late.push_start(None, mine), late.wait, late.workers_barrier:
            with self.assertRaisesRegex(psclient.Drained, "was draining when this worker began"):
                call()
        self.assertEqual(mine.tolist(), [9, 9, 9, 9, 9])

    def test_items_are_looped_over_to_their_end(self) -> None:
        worker = self.join(self.psd("async-sgd"), floats(1, 2, 3, 4, 5))
        self.assertEqual(list(worker.steps("abc")), ["a", "b", "c"])

    def test_started_transfers_hold_their_arrays(self) -> None:
        psd = self.psd("async-sgd", "learning_rate=1")
        worker = self.join(psd, floats(1, 2, 3, 4, 5))
        message = floats(1, 1)
        there = weakref.ref(message)
        first = worker.push_start("b", message)
        out = np.empty(5, np.float32)
        second = worker.pull_start(None, out)
        del message
        gc.collect()
        self.assertIsNotNone(there())
        first.wait()
        second.wait()
        gc.collect()
        self.assertIsNone(there())
        self.assertEqual(out.tolist(), [1, 2, 3, 3, 4])
        dropped = floats(1, 1)
        there = weakref.ref(dropped)
        worker.push_start("b", dropped)
        del dropped
        gc.collect()
        self.assertIsNotNone(there())  # whoever forgets the Transfer
        worker.wait()
        gc.collect()
        self.assertIsNone(there())

    def test_a_refused_wait_holds_the_arrays(self) -> None:
        psd = self.psd("async-easgd")
        x = floats(1, 2, 3, 4, 5)
        worker = self.join(psd, x)
        os.kill(psd.process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, psd.process.pid, os.WSTOPPED)  # all its threads stand still
        self.addCleanup(os.kill, psd.process.pid, signal.SIGCONT)  # before it is closed
        out = np.empty(5, np.float32)
        there = weakref.ref(out)
        transfer = worker.pull_start(None, out)
        del out
        self.assertTrue(worker.step_begin(x, np.zeros(5, np.float32)))
        for call in worker.wait, transfer.wait:
            with self.assertRaisesRegex(psclient.InvalidArgument, "a step has begun"):
                call()
            gc.collect()
            self.assertIsNotNone(there())
        os.kill(psd.process.pid, signal.SIGCONT)
        worker.ready(0, 5)
        worker.step_end()
        worker.wait()
        gc.collect()
        self.assertIsNone(there())

    def test_a_refused_step_holds_the_arrays_of_the_one_before(self) -> None:
        with psclient.Worker(local=psclient.Local("sgd", learning_rate=1)) as worker:
            x, first, second = floats(1, 2), floats(1, 1), floats(5, 5)
            worker.begin({"a": (2,)}, x)
            there, other = weakref.ref(first), weakref.ref(second)
            worker.step_begin(x, first)
            del first
            with self.assertRaisesRegex(psclient.InvalidArgument, "a step has begun"):
                worker.step_begin(x, second)
            del second
            gc.collect()
            self.assertIsNotNone(there())
            worker.ready(0, 2)
            worker.step_end()
            self.assertEqual(x.tolist(), [0, 1])
            worker.step(x, floats(0, 0))
            gc.collect()
            self.assertEqual((there(), other()), (None, None))

    def test_what_a_state_was_loaded_into_is_held(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for again in False, True:
                with psclient.Worker(local=psclient.Local("sgd", learning_rate=1)) as worker:
                    x = floats(1, 2)
                    worker.begin({"a": (2,)}, x)
                    if not again:
                        worker.step(x, floats(1, 1))
                        worker.save(f"{folder}/state", x)
                        continue
                    loaded, point = floats(0, 0), floats(0, 0)
                    there = weakref.ref(loaded)
                    worker.load(f"{folder}/state", loaded)
                    del loaded
                    gc.collect()
                    self.assertIsNotNone(there())  # point reads it
                    worker.point(point)
                    self.assertEqual(point.tolist(), [0, 1])

    def test_a_step_in_parts_is_a_step(self) -> None:
        worker = self.join(self.psd("async-sgd", "learning_rate=1"), floats(0, 0, 0, 0, 0))
        x, g = floats(1, 2, 3, 4, 5), floats(1, 1, 1, 1, 1)
        worker.pull(None, x)
        there = weakref.ref(g)
        self.assertTrue(worker.step_begin(x, g, 64))
        worker.ready(3, 2)
        del g
        gc.collect()
        self.assertIsNotNone(there())  # the library still reads it
        cases: list[tuple[str, Callable[[], object]]] = [
            ("psc_ready: 2 floats from 2 on; of these 1 from 3 on were reported before", lambda: worker.ready(2, 2)),
            ("psc_ready: 3 floats from 4 on; the vector has 5", lambda: worker.ready(4, 3)),
            ("first is -1; allowed are whole numbers from 0 to", lambda: worker.ready(-1, 1)),
            ("3 floats from 0 on, of tensor 'w', were not reported", worker.step_end),
            ("a step has begun; allowed are psc_ready and psc_step_end", lambda: worker.pull(None, x)),
        ]
        for sentence, call in cases:
            with self.subTest(sentence), self.assertRaisesRegex(psclient.InvalidArgument, sentence):
                call()
        worker.ready(0, 3)
        worker.step_end()
        self.assertEqual((x.tolist(), worker.clock), ([-1] * 5, 1))
        with self.assertRaisesRegex(psclient.InvalidArgument, "call psc_step_begin first"):
            worker.step_end()

    def test_values_that_are_not_finite_name_their_tensor(self) -> None:
        psd = self.psd("async-sgd")
        x = floats(1, 2, 3, 4, 5)
        worker = self.join(psd, x)
        with self.assertRaisesRegex(psclient.NotFinite, "in tensor 'b', is not finite") as caught:
            worker.step(x, floats(0, 0, 0, 0, float("nan")))
        self.assertIsInstance(caught.exception, ArithmeticError)
        self.assertEqual(caught.exception.result, -5)
        worker.pull(None, x)
        worker.step(x, floats(0, 0, 0, 0, 0))
        self.assertEqual(x.tolist(), [1, 2, 3, 4, 5])

    def test_a_model_that_differs_is_named(self) -> None:
        psd = self.psd("async-sgd")
        self.join(psd, floats(1, 2, 3, 4, 5))
        with psclient.Worker(psd.endpoint) as other, self.assertRaisesRegex(psclient.ManifestMismatch, "'c'"):
            other.begin({"w": (3,), "c": (2,)}, floats(1, 2, 3, 4, 5))

    def test_the_average_is_refused_where_there_is_none(self) -> None:
        worker = self.join(self.psd("async-sgd"), floats(1, 2, 3, 4, 5))
        with self.assertRaisesRegex(psclient.InvalidArgument, "averaging: none"):
            worker.pull_average(None, floats(0, 0, 0, 0, 0))

    def test_a_saved_worker_goes_on(self) -> None:
        psd = self.psd("downpour", "period=4", "learning_rate=1")
        x = floats(1, 2, 3, 4, 5)
        worker = self.join(psd, x)
        worker.step(x, floats(1, 1, 1, 1, 1))
        path = psd.folder / "worker"
        worker.save(path, x, extra=b"the place in the data")
        worker.close()
        again = floats(0, 0, 0, 0, 0)
        worker = self.join(psd, again)
        self.assertEqual(again.tolist(), [1, 2, 3, 4, 5])  # the center
        self.assertEqual(worker.load(path, again), b"the place in the data")
        self.assertEqual((again.tolist(), worker.clock), ([0, 1, 2, 3, 4], 1))
        self.assertEqual(worker.saved_version(path), 0)
        path.write_bytes(b"no state")
        with self.assertRaises(psclient.DamagedState):
            worker.saved_version(path)
        with self.assertRaises(FileNotFoundError):
            worker.load(psd.folder / "none", again)

    def test_psd_may_go_and_come_back(self) -> None:
        psd = self.psd("async-sgd", "checkpoint.every_s=1")
        x = floats(1, 2, 3, 4, 5)
        worker = self.join(psd, x, retry_ms=200, heartbeat_ms=100)
        killed, before = False, 0
        for _ in worker.steps():
            worker.step(x, floats(1, 1, 1, 1, 1))
            if not killed and worker.save_version != 0 and (psd.folder / "state" / "checkpoints").exists():
                before = worker.info.reconnects  # a slow machine may be silent for four heartbeats
                psd.kill()
                psd.start("--resume")
                killed = True
            elif killed and worker.info.reconnects > before:
                break
        self.assertTrue(killed)

    def test_a_method_without_a_server(self) -> None:
        with psclient.Worker(local=psclient.Local("sgd", learning_rate=1)) as worker:
            x = floats(1, 2, 3, 4, 5)
            worker.begin(MODEL, x)
            worker.step(x, floats(1, 1, 1, 1, 1))
            self.assertEqual(x.tolist(), [0, 1, 2, 3, 4])
            with self.assertRaisesRegex(psclient.Unsupported, "no server to exchange with"):
                worker.push("w", floats(1, 2, 3))

    def test_options_are_refused_by_name(self) -> None:
        with self.assertRaisesRegex(ValueError, "rank 5000"):
            psclient.Worker("tcp://127.0.0.1:1", rank=5000)
        with self.assertRaisesRegex(psclient.InvalidArgument, "server is missing"):
            psclient.Worker()
        with self.assertRaisesRegex(psclient.ServerGone, "endpoint"):
            psclient.Worker("@/no/such/endpoint", timeout_ms=200)


class Values(unittest.TestCase):
    """What ctypes would cut, or end at a NUL, is refused by name. There is no server."""

    def alone(self) -> psclient.Worker:
        worker = psclient.Worker(local=psclient.Local("sgd", learning_rate=1))
        self.addCleanup(worker.close)
        return worker

    def refuse(self, *cases: tuple[type[Exception], str, Callable[[], object]]) -> None:
        for error, sentence, call in cases:
            with self.subTest(sentence), self.assertRaisesRegex(error, sentence):
                call()

    def test_options(self) -> None:
        def worker(**options: Any) -> Callable[[], object]:
            return lambda: psclient.Worker(**{"server": "tcp://127.0.0.1:1", "timeout_ms": 100, **options})

        self.refuse(
            (ValueError, "rank is 1099511627776; allowed are whole numbers from -2147483648 to", worker(rank=2**40)),
            (TypeError, "rank is a str, '1'; allowed are whole numbers", worker(rank="1")),
            (ValueError, "timeout_ms is -1; allowed are whole numbers from 0", worker(timeout_ms=-1)),
            (TypeError, "server is a int; allowed are a str or a path", worker(server=5)),
            (ValueError, "name is 'a.x00b'; allowed are texts without NUL", worker(name="a\0b")),
            (TypeError, "clique is a str; allowed is a Ring", worker(clique="ring")),
            (TypeError, "local is a dict; allowed is a Local", worker(local={"method": "sgd"})),
            (
                ValueError,
                "milestones has 17 values; allowed are at most 16",
                worker(local=psclient.Local("sgd", milestones=(1,) * 17)),
            ),
            (TypeError, "learning_rate is a str, 'fast'", worker(local=psclient.Local("sgd", learning_rate="fast"))),  # type: ignore[arg-type]
            (ValueError, "members is -1", lambda: psclient.Ring("file:/tmp/none", -1)),
        )

    def test_tensors(self) -> None:
        worker, x = self.alone(), floats(1)
        given: list[tuple[type[Exception], str, Any]] = [
            (ValueError, "a size of tensor 'a' is -1; allowed are whole numbers from 1", {"a": (-1,)}),
            (TypeError, "a size of tensor 'a' is a float, 2.5", {"a": (2.5,)}),
            (TypeError, "the shape of tensor 'a' is a int; allowed is a tuple", {"a": 3}),
            (TypeError, "the name of a tensor is a bytes, b'a'; allowed is a str", {b"a": (1,)}),
            (ValueError, "the name of a tensor is 'a.x00b'; allowed are texts without NUL", {"a\0b": (1,)}),
            (TypeError, "tensors has a tuple; allowed are a mapping of names to shapes, and a sequence", [("a", (1,))]),
            (ValueError, "the role of 'a' is 7", [psclient.Tensor("a", (1,), role=7)]),  # type: ignore[arg-type]
            (ValueError, "tensor 'a' has 0 dimensions", {"a": ()}),
        ]
        self.refuse(*((error, sentence, lambda t=t: worker.begin(t, x)) for error, sentence, t in given))
        shape: Any = (np.int64(1),)
        worker.begin({"a": shape}, x)

    def test_arguments(self) -> None:
        worker, x = self.alone(), floats(1, 2)
        worker.begin({"a": (2,)}, x)
        bad: Any = None
        self.refuse(
            (ValueError, "n_samples is -1; allowed are whole numbers from 0", lambda: worker.step(x, x, -1)),
            (TypeError, "n_samples is a float, 1.5", lambda: worker.step(x, floats(1, 1), 1.5)),  # type: ignore[arg-type]
            (ValueError, "n_floats is -1; allowed are whole numbers from 1", lambda: worker.alloc(-1)),
            (ValueError, "path is '/tmp/a.x00b'", lambda: worker.save("/tmp/a\0b", x)),
            (TypeError, "extra is a str; allowed is bytes", lambda: worker.save("/tmp/none", x, "text")),  # type: ignore[arg-type]
            (TypeError, "loss is a str, 'low'; allowed are numbers", lambda: worker.report(loss="low")),  # type: ignore[arg-type]
            (TypeError, "x is a NoneType", lambda: worker.step(bad, x)),
        )

    def test_a_ring_goes_on_without_a_member_that_is_lost(self) -> None:
        found: dict[int, Any] = {}

        def live(rank: int, folder: str) -> None:
            with psclient.Ring(f"file:{folder}/ring", 3, rank=rank, on_loss="shrink") as ring:
                done, state = 0, floats(0)
                try:
                    while rank != 1 or done == 0:
                        x = floats(rank + 1)
                        ring.allreduce(x)
                        done, state = done + 1, x
                except psclient.CliqueError as lost:
                    found[rank] = ["rank 1" in str(lost)]
                if rank == 1:
                    return
                shrunk = ring.shrink(step=done)  # another may have had the sum when this one had not
                if shrunk.behind > 0:
                    ring.broadcast(state, shrunk.source)
                x = floats(ring.rank + 1)
                ring.allreduce(x)
                found[rank] += [shrunk.lost, ring.rank, ring.size, state.tolist() == [6 * shrunk.step], x.tolist()]

        with tempfile.TemporaryDirectory() as folder:
            threads = [threading.Thread(target=live, args=(rank, folder)) for rank in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(found, {0: [True, 1, 0, 2, True, [3]], 2: [True, 1, 1, 2, True, [3]]})

    def test_a_worker_goes_on_by_itself_when_its_ring_shrinks(self) -> None:
        found: dict[int, Any] = {}

        def live(rank: int, folder: str) -> None:
            x = floats(0, 0)
            ring = psclient.Ring(f"file:{folder}/ring", 3, rank=rank, on_loss="shrink")
            with ring, psclient.Worker(local=psclient.Local("d-sync", learning_rate=1), clique=ring) as worker:
                worker.begin({"a": (2,)}, x)
                worker.step(x, floats(rank, 3))
                if rank != 1:
                    worker.step(x, floats(rank, 3))
                    found[rank] = [x.tolist(), worker.clock, ring.size]

        with tempfile.TemporaryDirectory() as folder:
            threads = [threading.Thread(target=live, args=(rank, folder)) for rank in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        # The means of 0, 1, 2 and of 0, 2.
        self.assertEqual(found, {0: [[-2, -6], 2, 2], 2: [[-2, -6], 2, 2]})

    def test_shrink_is_for_rings_that_have_lost_a_member(self) -> None:
        with tempfile.TemporaryDirectory() as folder:

            def never() -> psclient.Ring:
                return psclient.Ring(f"file:{folder}/a", 1, on_loss="never")

            self.refuse((ValueError, "on_loss is 'never'; allowed are end and shrink", never))
            with psclient.Ring(f"file:{folder}/b", 1, on_loss="shrink") as ring:
                self.refuse(
                    (ValueError, "no call has failed", lambda: ring.shrink(0)),
                    (ValueError, "step is -1; allowed are whole numbers from 0", lambda: ring.shrink(-1)),
                )

    def test_a_ring_in_use_is_not_closed(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            rings: dict[int, psclient.Ring] = {}

            def open_and_wait(rank: int) -> None:
                rings[rank] = psclient.Ring(f"file:{folder}/ring", 2, rank=rank)
                if rank == 1:
                    rings[rank].barrier()

            other = threading.Thread(target=open_and_wait, args=(1,))
            other.start()
            open_and_wait(0)
            end = time.monotonic() + HANG_S
            while (1 not in rings or not rings[1]._lock.locked()) and time.monotonic() < end:
                time.sleep(0.001)
            self.refuse((ValueError, "Ring.close: another thread is in a call of this ring", rings[1].close))
            rings[0].barrier()
            other.join(HANG_S)
            for ring in rings.values():
                ring.close()

    def test_ctrl_c_while_a_ring_opens_leaves_no_member(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            found: list[str] = []

            def interrupt_and_join() -> None:
                end = time.monotonic() + HANG_S
                while not os.listdir(folder) and time.monotonic() < end:
                    time.sleep(0.001)
                os.kill(os.getpid(), signal.SIGINT)
                with psclient.Ring(f"file:{folder}/ring", 2, rank=1, step_ms=20000) as ring:
                    try:
                        ring.barrier()
                    except psclient.CliqueError as lost:
                        found.append(str(lost))

            other = threading.Thread(target=interrupt_and_join)
            other.start()
            with self.assertRaises(KeyboardInterrupt):
                psclient.Ring(f"file:{folder}/ring", 2, rank=0)
            other.join(HANG_S)
            self.assertEqual(len(found), 1)
            self.assertRegex(found[0], "rank 0 is gone")

    def test_a_ring_that_is_dropped_is_closed(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            others: list[psclient.Ring] = []
            other = threading.Thread(target=lambda: others.append(psclient.Ring(f"file:{folder}/ring", 2, rank=1)))
            other.start()
            ring = psclient.Ring(f"file:{folder}/ring", 2, rank=0)
            other.join(HANG_S)
            with self.assertWarnsRegex(ResourceWarning, "Ring rank 0 of 2> was not closed"):
                del ring
                gc.collect()
            with others[0] as left, self.assertRaises(psclient.CliqueError):
                left.barrier()

    def test_a_ring_and_its_worker_may_be_dropped_in_a_circle(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            ring = psclient.Ring(f"file:{folder}/ring", 1)
            worker = psclient.Worker(local=psclient.Local("d-sync", learning_rate=1), clique=ring)
            ring.circle = [worker, ring]  # type: ignore[attr-defined]
            calls = ("psc_close", "psc_clique_close")
            closed: list[str] = []

            def watch(call: str) -> Any:
                real = getattr(psclient._native.lib, call)

                def close(handle: Any) -> None:
                    closed.append(call)
                    real(handle)

                return mock.patch.object(psclient._native.lib, call, close)

            with watch(calls[0]), watch(calls[1]), self.assertWarns(ResourceWarning):
                del ring, worker
                gc.collect()
            self.assertEqual(tuple(closed), calls)

    def test_a_closed_ring_is_refused_and_closes_its_workers(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            ring = psclient.Ring(f"file:{folder}/ring", 1)
            worker = psclient.Worker(local=psclient.Local("d-sync", learning_rate=1), clique=ring)
            x = floats(1, 2)
            worker.begin({"a": (2,)}, x)
            worker.step(x, floats(1, 1))
            ring.close()
            self.assertEqual(x.tolist(), [0, 1])
            self.refuse(
                (ValueError, "Worker.step: its Ring was closed; open another Worker", lambda: worker.step(x, x)),
                (ValueError, "Ring.allreduce: it is closed; open another Ring", lambda: ring.allreduce(x)),
                (ValueError, "Ring.broadcast: it is closed", lambda: ring.broadcast(x)),
                (ValueError, "Ring.barrier: it is closed", ring.barrier),
                (ValueError, "Ring.shrink: it is closed", lambda: ring.shrink(0)),
                (
                    ValueError,
                    "clique is a Ring that is closed",
                    lambda: psclient.Worker(local=psclient.Local("d-sync"), clique=ring),
                ),
            )
            self.assertEqual((ring.rank, ring.size), (-1, 0))
            ring.close()


class OwnStep(PsdCase):
    def test_an_exception_of_the_own_step_is_steps(self) -> None:
        psd = self.psd("downpour", "optimizer=external", "period=2", "learning_rate=0.25")
        calls: list[tuple[int, float]] = []
        x = floats(1, 2, 3, 4, 5)

        def own_step(x_at: int, g_at: int, learning_rate: float) -> None:
            calls.append((x_at, learning_rate))
            if len(calls) == 2:
                raise ZeroDivisionError("as asked")
            (ctypes.c_float * 5).from_address(x_at)[0] -= 1

        with psclient.Worker(psd.endpoint, own_step=own_step) as worker:
            worker.begin(MODEL, x)
            worker.step(x, x)
            self.assertEqual(x[0], 0)
            self.assertEqual(calls, [(x.ctypes.data, 0.25)])
            with self.assertRaisesRegex(ZeroDivisionError, "as asked"):
                worker.step(x, x)
            worker.step(x, x)
            self.assertEqual(len(calls), 3)

    def test_no_handlers_exception_is_lost(self) -> None:
        """Wherever a signal comes: in the loop, in an exchange, at the door of the own step."""
        psd = self.psd("async-easgd", "optimizer=external", "alpha=0.1", "period=1")
        raised = caught = 0

        class Now(Exception):
            pass

        def handler(*_: object) -> None:
            nonlocal raised
            raised += 1
            raise Now

        x = np.ones(300000, np.float32)
        before = signal.signal(signal.SIGALRM, handler)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        gc.disable()  # Python itself drops what a handler raises while a collected object's __del__ runs
        self.addCleanup(gc.enable)
        while raised < 100:
            with psclient.Worker(psd.endpoint, own_step=lambda *_: None) as worker:
                worker.begin({"w": (300000,)}, x)
                while raised < 100 and not worker.closed:  # in a wait it ends the session
                    due = raised + 1
                    try:
                        signal.setitimer(signal.ITIMER_REAL, 0.0001 + raised * 0.00002)
                        while raised < due:
                            worker.step(x, x)
                    except Now:
                        caught += 1
            gc.collect()
        self.assertEqual(caught, raised)

    def test_it_cannot_call_its_worker(self) -> None:
        psd = self.psd("downpour", "optimizer=external")
        x = floats(1, 2, 3, 4, 5)
        with psclient.Worker(psd.endpoint, own_step=lambda *_: worker.pull(None, x)) as worker:
            worker.begin(MODEL, x)
            with self.assertRaisesRegex(psclient.InvalidArgument, "is in Worker.step .*cannot be called from there"):
                worker.step(x, x)

    def test_a_job_that_wants_one_says_so(self) -> None:
        psd = self.psd("downpour", "optimizer=external")
        with psclient.Worker(psd.endpoint) as worker, self.assertRaisesRegex(psclient.Unsupported, "own_step"):
            worker.begin(MODEL, floats(1, 2, 3, 4, 5))


class Waiting(PsdCase):
    """Worker a waits in a round for b, which does not step yet."""

    def setUp(self) -> None:
        self.server = self.psd("sync-easgd", "period=1")
        self.b, self.b_x = self.join(1)
        self.a, self.x = self.join(0)

    def join(self, rank: int) -> tuple[psclient.Worker, Any]:
        worker = psclient.Worker(self.server.endpoint, rank=rank, **PATIENT)
        self.addCleanup(worker.close)
        x = worker.alloc(5)
        x[:] = 1
        worker.begin(MODEL, x)
        return worker, x

    def once_a_waits(self, act: Callable[[], None]) -> threading.Thread:
        """act, in a thread, when a's call is under way."""

        def run() -> None:
            end = time.monotonic() + HANG_S
            while not self.a._lock.locked() and time.monotonic() < end:
                time.sleep(0.001)
            act()

        thread = threading.Thread(target=run)
        thread.start()
        self.addCleanup(thread.join)
        return thread

    def interrupt(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    def b_steps(self) -> None:
        self.b.step(self.b_x, np.zeros(5, np.float32))

    def test_ctrl_c_ends_the_wait_and_the_session(self) -> None:
        self.once_a_waits(self.interrupt)
        with self.assertRaises(KeyboardInterrupt):
            self.a.step(self.x, np.zeros(5, np.float32))
        self.assertTrue(self.a.closed)
        self.assertEqual(self.x.tolist(), [1] * 5)
        with self.assertRaisesRegex(psclient.InvalidArgument, "Worker.step was interrupted by KeyboardInterrupt"):
            self.a.step(self.x, self.x)
        self.b_steps()  # alone in the round

    def test_ctrl_c_while_what_was_started_is_on_its_way(self) -> None:
        answer = np.empty(5, np.float32)
        transfer = self.a.pushpull_start(None, self.x, answer)
        self.once_a_waits(self.interrupt)
        with self.assertRaises(KeyboardInterrupt):
            transfer.wait()
        self.assertTrue(self.a.closed)
        self.b_steps()

    def test_a_handler_that_returns_ends_nothing(self) -> None:
        handled = threading.Event()
        before = signal.signal(signal.SIGUSR1, lambda *_: handled.set())
        self.addCleanup(signal.signal, signal.SIGUSR1, before)

        def act() -> None:
            os.kill(os.getpid(), signal.SIGUSR1)
            if handled.wait(HANG_S):  # in the middle of the wait
                self.b_steps()

        self.once_a_waits(act)
        self.a.step(self.x, np.zeros(5, np.float32))
        self.assertTrue(handled.is_set())
        self.assertFalse(self.a.closed)

    def test_any_handlers_exception_is_the_calls(self) -> None:
        def handler(*_: object) -> None:
            raise SystemExit(4)

        before = signal.signal(signal.SIGTERM, handler)
        self.addCleanup(signal.signal, signal.SIGTERM, before)
        self.once_a_waits(lambda: os.kill(os.getpid(), signal.SIGTERM))
        with self.assertRaises(SystemExit):
            self.a.step(self.x, np.zeros(5, np.float32))
        self.assertTrue(self.a.closed)

    def test_another_thread_is_refused_by_name(self) -> None:
        step = threading.Thread(target=lambda: self.a.step(self.x, np.zeros(5, np.float32)), name="trainer")
        said: list[str] = []

        def act() -> None:
            try:
                self.a.pull(None, np.empty(5, np.float32))
            except psclient.InvalidArgument as refused:
                said.append(str(refused))
            self.b_steps()

        other = self.once_a_waits(act)
        step.start()
        step.join(HANG_S)
        other.join(HANG_S)
        self.assertEqual(len(said), 1)
        self.assertRegex(said[0], "Worker.pull: thread 'trainer' is in Worker.step of this worker, and this is '")

    def test_a_child_of_fork_is_refused(self) -> None:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                self.a.pull(None, np.empty(5, np.float32))
            except psclient.InvalidArgument as refused:
                status = 0 if "a forked child opens its own" in str(refused) else 2
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.once_a_waits(self.b_steps)
        self.a.step(self.x, np.zeros(5, np.float32))


class Alone(unittest.TestCase):
    def test_ctrl_c_while_nobody_answers(self) -> None:
        with self.assertRaises(KeyboardInterrupt):
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            psclient.Worker("ipc:///tmp/psd-python-nobody", timeout_ms=1000 * HANG_S)

    def test_the_library_is_named_where_it_is_missing(self) -> None:
        from psclient import _native

        before = os.environ["PSCLIENT_LIBRARY"]
        self.addCleanup(os.environ.__setitem__, "PSCLIENT_LIBRARY", before)
        os.environ["PSCLIENT_LIBRARY"] = "/no/such/library"
        with self.assertRaisesRegex(ImportError, "PSCLIENT_LIBRARY"):
            _native.load()


if __name__ == "__main__":
    unittest.main()
