"""The daemon on an executor without this package: unpack it, then go on with `daemon`.

Spark brings the package to the executor's working directory as a zip, in which this file lies at
the top under the name of `package.DAEMON_MODULE`. Run from a zip the package would do, but numba
keeps compiled kernels by the path of their source, and that of the zip is new with every
application. So it is unpacked once per machine and version, to where kernels are found again.

Only the standard library is imported here: the rest is not there yet.
"""

import contextlib
import os
import sys
import tempfile
import zipfile
from pathlib import Path


def unpack(archive: Path) -> Path:
    """Unpack a package unless that was done before; return the directory to import it from."""
    base = _cache()
    target = base / archive.stem
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=base) as directory:
            unfinished = Path(directory, archive.stem)
            with zipfile.ZipFile(archive) as package:
                package.extractall(unfinished)
            # Another executor on this machine may be first, with the same files.
            with contextlib.suppress(OSError):
                unfinished.rename(target)
    return target


def _cache() -> Path:
    """Return a directory that is there the next time; the working directory if there is none."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    packages = cache / "siltstone" / "packages"
    try:
        packages.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path.cwd()
    return packages if os.access(packages, os.W_OK) else Path.cwd()


def main() -> None:
    """Run in the place of Spark's own daemon."""
    sys.path.insert(0, str(unpack(Path(__loader__.archive))))  # type: ignore[name-defined]

    from siltstone.spark import daemon  # noqa: PLC0415 - found only now

    daemon.run()


if __name__ == "__main__":
    main()
