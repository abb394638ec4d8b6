"""`siltstone` on a machine that does not have it, when it is imported from the zip Spark brought.

This file is the `__init__` of the package in that zip, and the package itself lies in it as another
zip. That one is unpacked, and what is imported from here on comes from there: numba keeps compiled
kernels by the path of their source, and that of a zip is new with every application.

Only the standard library is imported here, and `executor_daemon` under its name in the zip.
"""

import tempfile
from pathlib import Path

from siltstone_executor_daemon import unpack  # type: ignore[import-not-found]

_name = Path(__loader__.archive).name.removeprefix("unpacking-")  # type: ignore[name-defined]
with tempfile.TemporaryDirectory() as _directory:
    _archive = Path(_directory, _name)
    _archive.write_bytes(__loader__.get_data(_name))  # type: ignore[name-defined]
    _package = Path(unpack(_archive), "siltstone")
__path__ = [str(_package)]
__file__ = str(_package / "__init__.py")
exec(compile(Path(__file__).read_text(), __file__, "exec"))
