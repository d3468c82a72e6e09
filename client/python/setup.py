"""In addition to pyproject.toml: with PSCLIENT_LIBRARY=PATH a wheel includes that libpsclient.

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

LIBRARY = os.environ.get("PSCLIENT_LIBRARY")


class BuildWithLibrary(build_py):
    """Copies the library into the package."""

    def run(self) -> None:
        super().run()
        if LIBRARY:
            folder = os.path.join(self.build_lib, "psclient", "lib")
            os.makedirs(folder, exist_ok=True)
            shutil.copyfile(os.path.realpath(LIBRARY), os.path.join(folder, "libpsclient.so.0"))


class WheelOfItsMachine(bdist_wheel):
    """Tags a wheel that includes a library for any Python 3 on this platform."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = not LIBRARY

    def get_tag(self) -> "tuple[str, str, str]":
        _, _, platform = super().get_tag()
        return "py3", "none", platform if LIBRARY else "any"


setup(cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": WheelOfItsMachine})
