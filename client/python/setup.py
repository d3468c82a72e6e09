"""In addition to pyproject.toml: with PSCLIENT_LIBRARY=PATH a wheel includes that libpsclient, and its module for GPUs.

    PSCLIENT_LIBRARY=build/client/libpsclient.so.0 pip wheel --no-deps client/python

Without it the wheel is pure Python and uses the system's library."""

import os
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel  # since 70.1
except ImportError:
    from wheel.bdist_wheel import bdist_wheel


def named_library() -> "str | None":
    """$PSCLIENT_LIBRARY. pip builds in this folder: a relative path is one from where pip was started."""
    named = os.environ.get("PSCLIENT_LIBRARY")
    if not named:
        return None
    folders = [os.environ.get("PWD", ""), os.getcwd()]
    for path in (os.path.join(folder, named) for folder in folders):
        if os.path.isfile(path):
            return os.path.realpath(path)
    raise SystemExit(f"PSCLIENT_LIBRARY: there is no file '{named}' in {' or '.join(folders)}: name a libpsclient.so.0")


def files_of(library: str) -> "dict[str, str]":
    """The library and, where CUDA was found when it was built, its module for memory="cuda": name in the wheel, path."""
    out = {"libpsclient.so.0": library}
    for folder in ("memory/cuda", ".", "psd"):  # in a build folder; where it is installed
        module = os.path.join(os.path.dirname(library), folder, "libpsclient-cuda.so")
        if os.path.isfile(module):
            out.setdefault("libpsclient-cuda.so", module)
    return out


LIBRARY = named_library()


class BuildWithLibrary(build_py):
    """Copies the libraries into the package."""

    def run(self) -> None:
        super().run()
        if LIBRARY:
            folder = os.path.join(self.build_lib, "psclient", "lib")
            os.makedirs(folder, exist_ok=True)
            for name, path in files_of(LIBRARY).items():
                shutil.copyfile(path, os.path.join(folder, name))


class WheelOfItsMachine(bdist_wheel):
    """Tags a wheel that includes a library for any Python 3 on this platform."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = not LIBRARY

    def get_tag(self) -> "tuple[str, str, str]":
        _, _, platform = super().get_tag()
        return "py3", "none", platform if LIBRARY else "any"


setup(cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": WheelOfItsMachine})
