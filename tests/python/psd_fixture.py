"""A psd of a test's own. PSD is the daemon's path."""

from __future__ import annotations

import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
import unittest

HANG_S = 600  # ends what hangs, and judges no machine


class Psd:
    """Runs until close; `endpoint` is what Worker wants."""

    def __init__(self, method: str, *settings: str) -> None:
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="psd-python-"))
        self.endpoint = f"@{self.folder}/endpoint"
        self._command = [os.environ["PSD"], "--method", method, "--state-dir", str(self.folder / "state")]
        self._command += ["--endpoint-file", str(self.folder / "endpoint")]
        for setting in settings:
            self._command += ["--set", setting]
        self._log = open(self.folder / "log", "w")  # noqa: SIM115 # till close
        self.start()

    def start(self, *more: str) -> None:
        (self.folder / "endpoint").unlink(missing_ok=True)
        self.process = subprocess.Popen([*self._command, *more], stderr=self._log)
        end = time.monotonic() + HANG_S
        while not (self.folder / "endpoint").exists():
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"psd did not start: {(self.folder / 'log').read_text()}")
            time.sleep(0.005)

    def received_bytes(self) -> int:
        """Of the workers' vectors, by any transport, by now."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.folder / "state" / "psd.sock"))
            connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            with connection.makefile() as answer:
                lines = [line.split() for line in answer if line.startswith("psd_received_bytes_total")]
        return sum(int(n) for _, n in lines)

    def drain(self) -> None:
        """Asks for a good end; workers are told at once."""
        self.process.terminate()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(HANG_S)

    def close(self) -> None:
        self.kill()
        self._log.close()
        shutil.rmtree(self.folder)


class PsdCase(unittest.TestCase):
    def psd(self, method: str, *settings: str) -> Psd:
        psd = Psd(method, "schedule={kind: constant, warmup_steps: 0}", *settings)
        self.addCleanup(psd.close)
        return psd
