"""What the numbers depend on besides the code: the commit, the machine, and the versions."""

import importlib.metadata
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

REPO_PATH: Final = Path(__file__).resolve().parents[1]

_PACKAGES: Final = ("numpy", "numba", "llvmlite", "crc32c", "cramjam")


def find_commit() -> dict[str, Any]:
    """Name the commit, and whether the tree has more than it; empty outside of a clone."""
    git = ["git", "-C", str(REPO_PATH)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
        status = subprocess.run(
            [*git, "status", "--porcelain", "--", "src"], capture_output=True, text=True
        )
    except FileNotFoundError:
        return {}
    if head.returncode:
        return {}
    return {"id": head.stdout.strip(), "is_src_changed": bool(status.stdout.strip())}


def describe_machine(data_path: Path) -> dict[str, Any]:
    """Describe what the numbers depend on but the code does not."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _cpu_model(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "file_system": _file_system(data_path),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _file_system(path: Path) -> str:
    """Name the type of file system that a path lies on: tmpfs and a disk do not compare."""
    best = ("", "unknown")
    resolved = path.resolve()
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mounted, kind, *_ = line.split()
        if resolved.is_relative_to(mounted) and len(mounted) >= len(best[0]):
            best = (mounted, kind)
    return best[1]


def describe_versions() -> dict[str, str]:
    """Name the versions of all that does the work on our side."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        found[package] = importlib.metadata.version(package)
    return found


def java_version() -> str:
    """Name the Java that a Kafka of ours would run on."""
    java = shutil.which("java")
    if java is None:
        return "none"
    finished = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)
    return finished.stderr.splitlines()[0]
