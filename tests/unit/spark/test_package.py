"""The package as Spark brings it to a machine that does not have it."""

import os
import subprocess
from pathlib import Path

from siltstone.spark.package import build_unpacking_package
from tests.spark.cluster import write_bare_python

_SAY_WHERE = """
import siltstone
from siltstone.log import filenames
print(siltstone.__version__, siltstone.__file__, filenames.__file__, sep="\\n")
"""


def test_what_is_imported_from_the_zip_comes_from_where_it_was_unpacked(tmp_path: Path) -> None:
    package = build_unpacking_package(tmp_path)
    command = [str(write_bare_python(tmp_path)), "-c", _SAY_WHERE]
    environment = {
        **os.environ,
        "PYTHONPATH": str(package),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }

    answers = [
        subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    ]

    (unpacked,) = (tmp_path / "cache" / "siltstone" / "packages").iterdir()
    root = unpacked / "siltstone"
    assert answers[0][1:] == [str(root / "__init__.py"), str(root / "log" / "filenames.py")]
    assert answers[0] == answers[1]
