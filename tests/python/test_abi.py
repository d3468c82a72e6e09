"""psclient's structures, results and functions against the C headers, as the compiler and as a reader have them: what
the library's interface gains or moves cannot go unnoticed here.

usage: ABI=PROGRAM HEADERS=FOLDER VERSION=PSD'S python -m unittest test_abi"""

from __future__ import annotations

import ctypes
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

import psclient
from psclient import _errors, _native

CLIENT = pathlib.Path(os.environ["HEADERS"])
HEADERS = {name: (CLIENT / name).read_text() for name in ("psclient.h", "psclique.h")}
CODE = {name: re.sub(r"/\*.*?\*/", "", text, flags=re.S) for name, text in HEADERS.items()}
# Not for Python: what has another form there, or is MPI's.
LEFT_OUT = {
    "psc_options_init",  # psc_options_init_sized is the function behind it
    "psc_exchange", "psc_exchange_start",  # pushpull of the whole vector
    "psc_stop",  # another member's stop ends Worker.steps as a drain does
    "psc_clique_kind", "psc_reduce", "psc_reduce_start", "psc_allreduce_start", "psc_broadcast_start",
    "psc_barrier_start", "psc_clique_wait",
    "psc_collective_options_init", "psc_collective_run", "psc_collective_start", "psc_clique_test",
    "psc_clique_wait_for",
    "psc_threads_options_init", "psc_threads_open",  # threads of one interpreter do not compute at once
}  # fmt: skip


class Abi(unittest.TestCase):
    layout: dict[str, Any]

    @classmethod
    def setUpClass(cls) -> None:
        cls.layout = json.loads(subprocess.check_output([os.environ["ABI"]]))

    def test_structures_lie_as_the_compiler_has_them(self) -> None:
        self.assertEqual({s.__name__ for s in _native.STRUCTURES}, set(self.layout["structs"]))
        for structure in _native.STRUCTURES:
            with self.subTest(structure.__name__):
                want = self.layout["structs"][structure.__name__]
                found = []
                for name, *_ in structure._fields_:
                    field = getattr(structure, name)
                    found.append([name, field.offset, field.size])
                self.assertEqual(found, want["fields"])
                self.assertEqual(ctypes.sizeof(structure), want["size"])

    def test_no_field_of_the_headers_is_missing(self) -> None:
        code = "\n".join(CODE.values())
        for structure in _native.STRUCTURES:
            body = re.search(rf"struct {structure.__name__} \{{(.*?)\n\}};", code, re.S)
            assert body is not None
            names = []
            for declaration in body[1].split(";"):
                if "(*" in declaration:
                    names += re.findall(r"\(\*(\w+)\)", declaration)
                elif declaration.strip():
                    names += [re.findall(r"\w+", re.sub(r"\[.*?\]", "", part))[-1] for part in declaration.split(",")]
            self.assertEqual([name for name, *_ in structure._fields_], names)

    def test_results_and_constants_are_the_headers(self) -> None:
        constants = self.layout["constants"]
        results = re.search(r"enum psc_result \{(.*?)\};", CODE["psclient.h"], re.S)
        assert results is not None
        names = re.findall(r"\b(PSC_[A-Z]+)\b", results[1])
        self.assertEqual({"PSC_OK"} | {c.name for c in _errors.OF_RESULT.values()}, set(names))
        for result, error in _errors.OF_RESULT.items():
            self.assertEqual(constants[error.name], result)
            self.assertEqual((_native.lib.psc_result_name(result)).decode(), error.name)
        for role in psclient.Role:
            self.assertEqual(constants[f"PSC_{role.name}"], role.value)
        self.assertEqual(constants["PSC_NO_DECAY"], 1)
        self.assertEqual(constants["PSC_OBSERVER"], 1)
        self.assertEqual(constants["PSC_MAX_DIMS"], _native.MAX_DIMS)
        self.assertEqual(constants["PSC_MAX_STARTED"], _native.MAX_STARTED)

    def test_every_function_has_as_many_arguments(self) -> None:
        code = re.sub(r"#.*", "", "\n".join(CODE.values()))
        code = re.sub(r"struct psc_\w+ \{.*?\n\};", "", code, flags=re.S)
        declared = {
            name: 0 if arguments.strip() == "void" else arguments.count(",") + 1
            for name, arguments in re.findall(r"\b(psc_\w+)\(([^()]*)\);", code)
        }
        self.assertGreater(len(declared), 40)
        self.assertEqual(set(declared) - LEFT_OUT, set(_native.FUNCTIONS))
        for name, (_, arguments) in _native.FUNCTIONS.items():
            self.assertEqual(len(arguments), declared[name], name)

    def test_the_version_is_psds(self) -> None:
        project = (CLIENT / "python" / "pyproject.toml").read_text()
        self.assertIn(f'version = "{os.environ["VERSION"]}"', project)


def builds_wheels() -> bool:
    known = importlib.util.find_spec
    return known("setuptools") is not None and (known("setuptools.command.bdist_wheel") is not None or known("wheel") is not None)


@unittest.skipUnless(builds_wheels(), "this Python has no setuptools that builds wheels")
class Wheel(unittest.TestCase):
    def build(self, folder: pathlib.Path, library: str) -> subprocess.CompletedProcess[str]:
        """Builds the package as pip does, in its folder, for a pip that was started in another."""
        command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(folder / "out")]
        environment = {**os.environ, "PSCLIENT_LIBRARY": library, "PWD": str(folder)}
        return subprocess.run(
            command, cwd=folder / "python", env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def test_it_has_the_libraries_that_are_named_from_where_pip_was_started(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            shutil.copytree(CLIENT / "python", folder / "python", ignore=shutil.ignore_patterns("build", "*.egg-info"))
            (folder / "build" / "memory" / "cuda").mkdir(parents=True)
            (folder / "build" / "libpsclient.so.0").write_bytes(b"the library")
            done = self.build(folder, "build/libpsclient.so.0")
            self.assertEqual(done.returncode, 0, done.stdout)
            lib = folder / "out" / "psclient" / "lib"
            self.assertEqual([path.name for path in lib.iterdir()], ["libpsclient.so.0"])
            (folder / "build" / "memory" / "cuda" / "libpsclient-cuda.so").write_bytes(b"the module")
            done = self.build(folder, "build/libpsclient.so.0")
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertEqual((lib / "libpsclient.so.0").read_bytes(), b"the library")
            self.assertEqual((lib / "libpsclient-cuda.so").read_bytes(), b"the module")
            done = self.build(folder, "build/libpsclient.so.7")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("PSCLIENT_LIBRARY: there is no file 'build/libpsclient.so.7'", done.stdout)


if __name__ == "__main__":
    unittest.main()
