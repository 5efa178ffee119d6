"""The machine a measurement was made on."""

import platform
from pathlib import Path

from mein.processes import cores


def hardware() -> dict[str, str | int]:
    """Processor, cores that this process may use, system and Python."""
    return {
        "processor": _processor(),
        "cores": cores(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _processor() -> str:
    """The model name, which `platform.processor` does not know on Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
