"""The programs of examples/python run; what they learn is for docs/PYTHON.md to say."""

from __future__ import annotations

import gzip
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import unittest

import numpy as np

from psd_fixture import HANG_S, Psd, PsdCase

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "python"


def write_mnist(folder: pathlib.Path) -> None:
    """Noise in MNIST's format."""
    dice = np.random.default_rng(1)
    for name, n in ("train", 192), ("t10k", 32):
        with gzip.open(folder / f"{name}-images-idx3-ubyte.gz", "wb") as file:
            file.write(b"\0" * 16 + dice.integers(0, 256, n * 784, np.uint8).tobytes())
        with gzip.open(folder / f"{name}-labels-idx1-ubyte.gz", "wb") as file:
            file.write(b"\0" * 8 + dice.integers(0, 10, n, np.uint8).tobytes())


class Examples(PsdCase):
    def run_example(self, name: str, psd: Psd, *arguments: object) -> str:
        command = [sys.executable, str(EXAMPLES / name), psd.endpoint, *map(str, arguments)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=HANG_S)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_line_finds_the_line(self) -> None:
        out = self.run_example("line.py", self.psd("async-sgd", "learning_rate=0.1"))
        found = [float(n) for n in re.findall(r"-?[0-9.]+", out)]
        self.assertTrue(abs(found[0] - 2) < 0.05 and abs(found[1] + 1) < 0.05, out)

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "this Python has no matplotlib")
    def test_history_draws_the_run(self) -> None:
        """From psd itself, and from what psctl has printed."""
        psd = self.psd("async-sgd", "learning_rate=0.1")
        self.run_example("line.py", psd)
        printed = psd.folder / "history.json"
        printed.write_text(
            '{"history": [{"t": 1.5, "loss": null, "test_accuracy": null, "staleness": 0.5, "distance": null, '
            '"event": "why", "event_kind": "drain"}]}'
        )
        for source in psd.folder / "state" / "psd.sock", printed:
            picture = psd.folder / "run.svg"
            picture.unlink(missing_ok=True)
            command = [sys.executable, str(EXAMPLES / "history.py"), str(source), str(picture)]
            out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=HANG_S).stdout
            self.assertRegex(out, r"^[1-9][0-9]* records in ")
            self.assertIn("<svg", picture.read_text())

    @unittest.skipUnless(os.environ.get("WITH_TORCH"), "PyTorch's run with its own test")
    def test_mnist_runs(self) -> None:
        psd = self.psd("diloco", "optimizer=external", "period=2", "workers=1")
        write_mnist(psd.folder)
        self.assertIn("worker 0: 3 steps", self.run_example("mnist.py", psd, psd.folder, 1))

    @unittest.skipUnless(os.environ.get("WITH_TORCH"), "PyTorch's run with its own test")
    def test_gpt_runs(self) -> None:
        psd = self.psd("diloco", "optimizer=external", "period=2", "workers=1", "codec.message=int8")
        self.assertRegex(self.run_example("gpt.py", psd, 4), r"worker 0: the center's loss .* is [0-9.]+ nats; [0-9.]+ MB")


if __name__ == "__main__":
    unittest.main()
