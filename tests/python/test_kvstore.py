"""psclient.KVStore with a real psd: MXNet's calls."""

from __future__ import annotations

import threading
import unittest
from collections.abc import Callable
from typing import Any

import numpy as np

import psclient
from psd_fixture import HANG_S, PsdCase


def floats(*values: float) -> Any:
    return np.array(values, np.float32)


class Store(PsdCase):
    def store(self, psd: Any, **options: Any) -> psclient.KVStore:
        store = psclient.KVStore(psd.endpoint, **{"retry_ms": 60000, "heartbeat_ms": 10000, **options})
        self.addCleanup(store.close)
        return store

    def test_push_and_pull_move_named_values(self) -> None:
        kv = self.store(self.psd("async-sgd", "learning_rate=1"))
        kv.init("price", np.array([[9, 8], [7, 6]], np.float32))
        kv.init([3, "hits"], [floats(1), floats(0, 0, 0)])
        kv.push("hits", floats(0, -1, 0))
        kv.push("hits", [floats(1, 0, 0), floats(1, 0, 0)])  # of two devices: summed
        self.assertEqual(kv.pull("hits").tolist(), [-2, 1, 0])
        out = np.empty((2, 2), np.float32)
        self.assertIs(kv.pull("price", out), out)
        self.assertEqual(out.tolist(), [[9, 8], [7, 6]])
        self.assertEqual([v.tolist() for v in kv.pull([3, "hits"])], [[1], [-2, 1, 0]])
        self.assertEqual(kv.pushpull(3, floats(0.5)).tolist(), [0.5])
        self.assertEqual((kv.rank, kv.num_workers, kv.type), (0, 1, "async-sgd"))

    def test_values_without_dimensions_are_summed(self) -> None:
        kv = self.store(self.psd("async-sgd", "learning_rate=1"))
        kv.init("bias", np.array(5, np.float32))
        parts = [np.array(1, np.float32), np.array(2, np.float32)]
        kv.push("bias", parts)
        self.assertEqual(kv.pushpull("bias", parts).tolist(), [-1])

    def test_init_takes_the_value_as_it_is(self) -> None:
        with self.store(self.psd("async-sgd")) as store:
            buffer = floats(1, 2)
            store.init("a", buffer)
            buffer[:] = 5
            store.init("b", buffer)
            buffer[:] = 0
            self.assertEqual((store.pull("a").tolist(), store.pull("b").tolist()), ([1, 2], [5, 5]))

    def test_workers_agree_whatever_the_order_of_init(self) -> None:
        psd = self.psd("async-sgd", "learning_rate=1")
        a, b = self.store(psd), self.store(psd)
        a.init(["x", "y"], [floats(1), floats(2)])
        b.init(["y", "x"], [floats(0), floats(0)])
        a.push("x", floats(-1))
        self.assertEqual((b.pull("x").tolist(), b.pull("y").tolist()), ([2], [2]))

    def test_what_it_cannot_do_is_refused_by_name(self) -> None:
        kv = self.store(self.psd("async-sgd"))
        with self.assertRaisesRegex(psclient.InvalidArgument, "call init first"):
            kv.pull("w")
        kv.init("w", floats(1))
        for key, sentence in ("w", "'w' is already initialised"), ("v", None):
            if sentence:
                with self.assertRaisesRegex(psclient.InvalidArgument, sentence):
                    kv.init(key, floats(1))
        with self.assertRaisesRegex(TypeError, "the value of 'v' has type float64"):
            kv.init("v", np.zeros(1))
        kv.push("w", floats(0))
        with self.assertRaisesRegex(psclient.InvalidArgument, "key 'v' comes after the first push"):
            kv.init("v", floats(1))
        with self.assertRaisesRegex(psclient.InvalidArgument, "key 'v' was not initialised; initialised are w"):
            kv.push("v", floats(1))
        with self.assertRaisesRegex(TypeError, "message of 'w' has type float64"):
            kv.push("w", np.zeros(1))
        with self.assertRaisesRegex(ValueError, "message of 'w', of shape .*, is not contiguous|message of 'w' has 2 values"):
            kv.push("w", floats(1, 2, 3, 4)[::2])
        with self.assertRaisesRegex(psclient.NotFinite, "'w'"):
            kv.push("w", floats(float("nan")))
        optimizer: Any = object()
        with self.assertRaisesRegex(TypeError, "is a object; allowed is the name of a rule"):
            kv.set_optimizer(optimizer)
        wrong: list[tuple[str, dict[str, object], str]] = [
            ("sgdd", {}, "sgdd"),
            ("sgd", {"speed": 1}, "speed"),
            ("sgd", {"learning_rate": -1}, "learning_rate"),
            ("sgd", {"limits.silence_s": 1}, "limits.silence_s"),
        ]
        for name, parameters, sentence in wrong:
            with self.assertRaisesRegex(psclient.Refused, sentence):
                kv.set_optimizer(name, **parameters)
        with self.assertRaisesRegex(psclient.InvalidArgument, "one line for each key"):
            kv.set_optimizer("sgd\nmomentum=1")
        with self.assertRaisesRegex(psclient.InvalidArgument, "2 keys need a list"):
            kv.push(["w", "v"], [floats(1)])

    def test_set_optimizer_changes_the_rule_for_all_workers(self) -> None:
        """The values of rank 0 count, whatever another worker says."""
        psd = self.psd("async-sgd", "learning_rate=1")
        stores = [self.store(psd, rank=rank, workers=2) for rank in range(2)]
        for kv in stores:
            kv.init("w", floats(0))
        self.assertEqual(stores[0].pushpull("w", floats(-1)).tolist(), [1])
        stores[1].pull("w")
        other = threading.Thread(target=stores[1].set_optimizer, args=("adam",))
        other.start()
        stores[0].set_optimizer("momentum", learning_rate=0.5, momentum=0.5, workers="any")
        other.join(HANG_S)
        found = [float(stores[1].pushpull("w", floats(-1))[0]), float(stores[0].pushpull("w", floats(-1))[0])]
        self.assertEqual(found, [1.5, 2.25])  # v = 0.5, then 0.25 + 0.5
        self.assertEqual(stores[1]._worker.info.learning_rate, 0.5)

    def test_a_store_whose_psd_has_ended_returns_no_values(self) -> None:
        psd = self.psd("async-sgd", "limits.drain_s=1")
        kv = self.store(psd, heartbeat_ms=1000)  # it notices the end after a few
        kv.init("w", floats(1, 2))
        kv.pull("w")
        psd.drain()
        self.assertEqual(psd.process.wait(HANG_S), 0)
        out = floats(7, 7)
        calls: list[Callable[[], object]] = [
            lambda: kv.pull("w"),
            lambda: kv.pull("w", out),
            lambda: kv.push("w", floats(1, 1)),
            lambda: kv.pushpull("w", floats(1, 1)),
            lambda: kv.set_optimizer("adam"),
        ]
        for i, call in enumerate(calls):
            with self.subTest(i), self.assertRaisesRegex(psclient.Drained, "has drained"):
                call()
        self.assertEqual(out.tolist(), [7, 7])

    def test_a_barrier_waits_for_all(self) -> None:
        psd = self.psd("async-sgd", "learning_rate=1")
        stores = [self.store(psd, workers=2) for _ in range(2)]
        for store in stores:
            store.init("w", floats(0))
        pulled: list[float] = []

        def other() -> None:
            stores[1].push("w", floats(-1))
            stores[1].barrier()
            stores[1].barrier()

        thread = threading.Thread(target=other)
        thread.start()
        stores[0].barrier()
        pulled.append(float(stores[0].pull("w")[0]))
        stores[0].barrier()
        thread.join(HANG_S)
        self.assertEqual(pulled, [1])

    def test_a_barrier_works_again_after_a_worker_was_lost(self) -> None:
        psd = self.psd("async-sgd")
        stores = [self.store(psd, workers=2) for _ in range(2)]
        for store in stores:
            store.init("w", floats(0))
        self.both(stores)
        stores[1].close()
        with self.assertRaises(psclient.CliqueError):
            stores[0].barrier()
        stores[1] = self.store(psd, workers=2)
        stores[1].init("w", floats(0))
        self.both(stores)

    def both(self, stores: list[psclient.KVStore]) -> None:
        other = threading.Thread(target=stores[1].barrier)
        other.start()
        self.addCleanup(other.join)
        stores[0].barrier()
        other.join(HANG_S)


if __name__ == "__main__":
    unittest.main()
