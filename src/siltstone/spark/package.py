"""This package as a zip, for executors where it is not installed."""

import hashlib
import zipfile
from pathlib import Path
from typing import Final

import siltstone

DAEMON_MODULE: Final = "siltstone_executor_daemon"
"""The name of `executor_daemon` in the zip."""

_ROOT: Final = Path(siltstone.__file__).parent
_DAEMON_SOURCE: Final = Path(__file__).with_name("executor_daemon.py")
_UNPACKING_SOURCE: Final = Path(__file__).with_name("unpacking_package.py")
_DIGEST_LETTERS: Final = 16


def build_package(directory: Path) -> Path:
    """Write the zip into a directory; its name tells the version and what is in the sources.

    The kernels that numba has compiled for this machine come along: an executor with the same kind
    of processor need not compile them, any other does so once.
    """
    sources = sorted(p for p in _ROOT.rglob("*") if p.suffix in {".py", ".properties"})
    kernels = sorted(p for p in _ROOT.rglob("__pycache__/*") if p.suffix in {".nbi", ".nbc"})
    digest = hashlib.sha256()
    path = directory / "package.zip"
    with zipfile.ZipFile(path, "w") as package:
        for source in sources:
            data = source.read_bytes()
            name = str(source.relative_to(_ROOT.parent))
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
            package.writestr(name, data)
        for kernel in kernels:
            package.write(kernel, kernel.relative_to(_ROOT.parent))
        package.write(_DAEMON_SOURCE, f"{DAEMON_MODULE}.py")
    name = f"siltstone-{siltstone.__version__}-{digest.hexdigest()[:_DIGEST_LETTERS]}.zip"
    return path.rename(directory / name)


def build_unpacking_package(directory: Path) -> Path:
    """Write a zip from which the package is imported as if it were installed.

    For sessions that were started without `DAEMON_MODULE`: see `unpacking_package`.
    """
    package = build_package(directory)
    path = directory / f"unpacking-{package.name}"
    with zipfile.ZipFile(path, "w") as outer:
        outer.write(_UNPACKING_SOURCE, "siltstone/__init__.py")
        outer.write(_DAEMON_SOURCE, f"{DAEMON_MODULE}.py")
        outer.write(package, package.name)
    return path
