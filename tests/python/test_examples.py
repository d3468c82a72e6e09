"""The programs of examples/python run; what they learn is for docs/PYTHON.md to say."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from typing import Any

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


def write_images(folder: pathlib.Path, classes: int) -> None:
    """Noise as JPEG: 8 images of a class to train with and 2 to test."""
    from PIL import Image

    dice = np.random.default_rng(1)
    for part, n in ("train", 8), ("val", 2):
        for c in range(classes):
            place = folder / part / f"class{c}"
            place.mkdir(parents=True)
            for i in range(n):
                Image.fromarray(dice.integers(0, 256, (40, 48, 3), np.uint8)).save(place / f"{i}.jpg")


def checkpoint(path: pathlib.Path) -> dict[str, Any]:
    """The tensors of a safetensors file."""
    data = path.read_bytes()
    n = 8 + int.from_bytes(data[:8], "little")
    head = json.loads(data[8:n])
    places = {name: [n + at for at in t["data_offsets"]] for name, t in head.items() if t.get("dtype") == "F32"}
    return {name: np.frombuffer(data[begin:end], np.float32) for name, (begin, end) in places.items()}


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

    @unittest.skipUnless(os.environ.get("WITH_TORCH"), "PyTorch's run with its own test")
    @unittest.skipUnless(importlib.util.find_spec("PIL"), "this Python has no Pillow")
    def test_resnet_is_pretrained_and_fine_tuned_by_two(self) -> None:
        """On classes 0 to 1, then from psd's checkpoint on classes 2 to 4, with frozen layers."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="psd-images-"))
        self.addCleanup(shutil.rmtree, folder)
        write_images(folder, classes=5)
        first = self.run_resnet(folder, "--classes", "0:2")
        start = max((first.folder / "state" / "checkpoints").glob("center-*.safetensors"))
        second = self.run_resnet(folder, "--classes", "2:5", "--start", start)
        before, after = checkpoint(start), checkpoint(max((second.folder / "state" / "checkpoints").glob("center-*")))
        self.assertEqual((len(before["fc.bias"]), len(after["fc.bias"])), (2, 3))
        for name in "conv1.weight", "layer2.1.bn2.running_mean", "layer2.1.conv2.weight":
            np.testing.assert_array_equal(before[name], after[name])
        for name in "layer3.0.conv1.weight", "layer4.1.bn2.running_mean":
            self.assertTrue((before[name] != after[name]).any(), name)

    def run_resnet(self, folder: pathlib.Path, *arguments: object) -> Psd:
        """Two workers; psd drains and takes a checkpoint when they have ended."""
        psd = self.psd("diloco", "optimizer=external", "period=2", "workers=2")
        command = [sys.executable, str(EXAMPLES / "resnet.py"), psd.endpoint, str(folder), *map(str, arguments)]
        command += ["--epochs", "1", "--batch", "4", "--size", "32"]
        workers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(2)]
        for worker in workers:
            self.addCleanup(worker.kill)
        found = [worker.communicate(timeout=HANG_S)[0] for worker in workers]
        for out in found:
            self.assertRegex(out, r"worker [01]: [1-9][0-9]* steps, the center's accuracy is [01]\.[0-9]{4}")
        psd.drain()
        psd.process.wait(HANG_S)
        return psd


if __name__ == "__main__":
    unittest.main()
