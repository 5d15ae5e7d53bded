"""Builds the native kernels. Everything else about the package stands in pyproject.toml.

Without a compiler, or when compiling fails, the package is installed without them. Read from the environment:

MTPLX_NATIVE   0: build none; 1: fail if they cannot be built
MTPLX_MARCH    the processor to build for, as the compiler's -march has it; this machine's own if not given
CXX, CXXFLAGS, LDFLAGS   the compiler, and flags for it after ours
"""

import importlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

NATIVE = Path("mtplx", "kernels", "native")
WANTED = os.environ.get("MTPLX_NATIVE", "")
BUILDS = sys.platform == "linux" and WANTED != "0"

# What runs when the extension is loaded, which is before it is known whether the processor has the instructions that
# the other files are compiled for.
PORTABLE = ("module.cpp", "nb_combined.cpp", "parallel.cpp", "threads.cpp")

FLAGS = [
    *("-std=c++20", "-O3", "-DNDEBUG", "-Wall", "-fPIC", "-pthread", "-fvisibility=hidden"),
    "-Wno-psabi",  # vectors wider than the processor's never leave the extension
    "-fno-strict-aliasing",  # nanobind asks for it
    *("-ffp-contract=fast", "-fno-math-errno"),  # but no -ffast-math: a row's bits may not depend on what is inlined
    *("-DNB_DOMAIN=mlx", "-DNB_COMPACT_ASSERTIONS"),  # the domain makes our arrays and MLX's the same type
]


class BuildNative(build_ext):
    """Compiles what has changed, side by side, and links it against the MLX of the build's environment.

    Nothing remembers where that environment is, which may be gone after the build: the process that loads the kernels
    has loaded its own libmlx by then.
    """

    def build_extension(self, extension: Extension) -> None:
        library = Path(self.get_ext_fullpath(extension.name))
        library.unlink(missing_ok=True)  # from an earlier build, which must not pass for this one
        library.parent.mkdir(parents=True, exist_ok=True)
        nanobind, mlx = _package_folder("nanobind"), _package_folder("mlx", holding="include/mlx/mlx.h")
        sources = [nanobind / "src/nb_combined.cpp", *map(Path, extension.sources)]
        sources.sort(key=lambda source: source.name not in PORTABLE)  # inline functions are taken from the first
        headers = [nanobind / "include", nanobind / "ext/robin_map/include", mlx / "include"]
        includes = [f"-isystem{folder}" for folder in (*headers, sysconfig.get_path("include"))]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(lambda source: self._compile(source, includes), sources))
        flags = ["-shared", "-pthread", f"-L{mlx / 'lib'}", "-lmlx", *shlex.split(os.environ.get("LDFLAGS", ""))]
        _run([*self._compiler, "-o", str(library), *objects, *flags])

    def copy_extensions_to_source(self) -> None:
        Path(NATIVE.parent, f"_native{sysconfig.get_config_var('EXT_SUFFIX')}").unlink(missing_ok=True)  # as above
        super().copy_extensions_to_source()

    def _compile(self, source: Path, includes: list[str]) -> str:
        target = Path(self.build_temp, source.with_suffix(".o").name)
        target.parent.mkdir(parents=True, exist_ok=True)
        own = [] if source.name in PORTABLE else self._machine_flags
        own = [*own, *shlex.split(os.environ.get("CXXFLAGS", ""))]
        command = [*self._compiler, *FLAGS, *includes, *own, "-MD", "-c", str(source), "-o", str(target)]
        record = target.with_suffix(".command")
        if not (record.exists() and record.read_text() == shlex.join(command) and _is_current(target)):
            record.unlink(missing_ok=True)
            _run(command)
            record.write_text(shlex.join(command))
        return str(target)

    @cached_property
    def _compiler(self) -> list[str]:
        # Python may have been built elsewhere, by a compiler that is not here.
        candidates = (os.environ.get("CXX"), sysconfig.get_config_var("CXX"), "c++", "g++", "clang++")
        for command in filter(None, candidates):
            if shutil.which(shlex.split(command)[0]):
                return shlex.split(command)
        raise CompileError("there is no C++ compiler here")

    @cached_property
    def _machine_flags(self) -> list[str]:
        flags = [f"-march={os.environ.get('MTPLX_MARCH') or 'native'}"]
        if platform.machine() == "x86_64":
            wide = [*flags, "-mprefer-vector-width=512"]
            probe = [*self._compiler, *wide, "-Werror", "-fsyntax-only", "-x", "c++", os.devnull]
            return wide if subprocess.run(probe, capture_output=True, check=False).returncode == 0 else flags
        return flags


def _package_folder(name: str, holding: str = "") -> Path:
    """The folder of a package that the build needs, and in it the file that tells it from a mere part of it."""
    try:
        return next(path for path in map(Path, importlib.import_module(name).__path__) if (path / holding).exists())
    except (ImportError, StopIteration):
        raise CompileError(f"the package {name} is not here, or not all of it") from None


def _is_current(target: Path) -> bool:
    """Whether an object file is newer than all that the compiler noted it was made from."""
    if not target.exists():
        return False
    made_from = re.split(r"[\s\\]+", target.with_suffix(".d").read_text().partition(": ")[2])
    changed = target.stat().st_mtime
    return all(os.path.exists(path) and os.path.getmtime(path) < changed for path in made_from if path)


def _run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise CompileError(f"{shlex.join(command)}\n{result.stderr}")
    sys.stderr.write(result.stderr)


setup(
    cmdclass={"build_ext": BuildNative},
    ext_modules=[
        Extension(
            "mtplx.kernels._native",
            sources=sorted(map(str, NATIVE.glob("*.cpp"))),
            depends=sorted(map(str, NATIVE.glob("*.h"))),
            optional=WANTED != "1",
        )
    ]
    if BUILDS
    else [],
)
