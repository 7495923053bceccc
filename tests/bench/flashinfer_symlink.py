"""A warm ``ensure_symlink``, upstream's 0.7.4 against racefix's, interleaved in one process.

python -m tests.bench.flashinfer_symlink
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support import upstream

RELEASE = "0.7.4"
BATCHES, CALLS = 60, 50
EXPECTED = 20


def seconds(function: Callable[..., Any], *arguments: Path) -> float:
    """Time a batch of calls; return the seconds of one."""
    began = time.perf_counter()
    for _ in range(CALLS):
        function(*arguments)
    return (time.perf_counter() - began) / CALLS


def main() -> int:
    """Print the ratio; 1 if racefix is less than 20 times faster."""
    sys.path.insert(0, str(upstream("flashinfer-python", RELEASE)))
    with tempfile.TemporaryDirectory() as directory:
        os.environ["FLASHINFER_WORKSPACE_BASE"] = directory
        import racefix

        racefix.apply()
        from flashinfer.jit import cubin_loader

        patched, original = cubin_loader.ensure_symlink, cubin_loader.ensure_symlink.__wrapped__
        target, link = Path(directory) / "artifact", Path(directory) / "include" / "link"
        target.mkdir()
        patched(link, target)
        times = [(seconds(original, link, target), seconds(patched, link, target)) for _ in range(BATCHES)]
    theirs, ours = (statistics.median(column) * 1e6 for column in zip(*times, strict=True))
    ratios = sorted(original / patched for original, patched in times)
    ratio, low, high = statistics.median(ratios), ratios[len(ratios) // 10], ratios[-len(ratios) // 10]
    print(f"warm ensure_symlink, flashinfer {RELEASE}, {BATCHES} interleaved batches of {CALLS} calls:")
    spread = f"10 % to 90 %: {low:.0f} to {high:.0f}"
    print(f"upstream {theirs:.1f} us, racefix {ours:.1f} us: {ratio:.0f} times faster ({spread})")
    return int(ratio < EXPECTED)


if __name__ == "__main__":
    sys.exit(main())
