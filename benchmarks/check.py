"""`kvtool check` in whole processes: time and memory beside what else there is.

Run it from the checkout:  python -m benchmarks.check [--rounds N]

- 20,000 nodes: `kvtool check` beside a process that loads and saves the model with onnx_ir, taking
  turns; the ratio of the medians must stay at or below 2.
- 3 GB of weights in a sparse file: the peak memory, which must stay below 300 MB; the file is not
  read (its blocks stay unallocated and its access time is unchanged).
- 200 small models: `kvtool check --jobs 2` beside a shell loop that runs `onnx.checker` on one
  model after the other.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

import onnx

from benchmarks.decoders import decoder
from benchmarks.large_models import _FLOOR, _run

_GIB = 1 << 30
_CHECKER = "import sys, onnx.checker; onnx.checker.check_model(sys.argv[1], full_check=True)"


def _check(*arguments: str) -> tuple[float, float]:
    command = [sys.executable, "-m", "onnx_kvtool", "check", "--isolated", "--exit-zero"]
    return _run(*command, *arguments)


def _many_nodes(directory: Path, rounds: int) -> bool:
    model = directory / "nodes.onnx"
    message = decoder(64, filler=298)
    onnx.save(message, model)
    checked, floor = [], []
    for _ in range(rounds):
        floor.append(_run(sys.executable, "-c", _FLOOR, str(model)))
        checked.append(_check(str(model)))
    ratio = statistics.median(t for t, _ in checked) / statistics.median(t for t, _ in floor)
    print(
        f"{len(message.graph.node)} nodes: check {statistics.median(t for t, _ in checked):.2f} s, "
        f"load and save {statistics.median(t for t, _ in floor):.2f} s, ratio {ratio:.2f} "
        f"(limit 2); {max(m for _, m in checked):.0f} MB"
    )
    return ratio <= 2


def _large_weights(directory: Path) -> bool:
    model, data = directory / "weights.onnx", directory / "weights.data"
    onnx.save(decoder(16, data_file=data, weight_bytes=3 * _GIB), model)
    before = os.stat(data)
    seconds, memory = _check(str(model))
    after = os.stat(data)
    untouched = (before.st_blocks, before.st_atime_ns) == (after.st_blocks, after.st_atime_ns)
    print(
        f"3 GB of weights: check {seconds:.2f} s, {memory:.0f} MB (limit 300); "
        f"data file {'untouched' if untouched else 'TOUCHED'}"
    )
    return memory < 300 and untouched


def _many_models(directory: Path) -> bool:
    models = directory / "models"
    models.mkdir()
    for number in range(200):
        onnx.save(decoder(1 + number % 3), models / f"{number:03}.onnx")
    checked = min(_check(str(models), "--jobs", "2")[0] for _ in range(2))
    loop = f'for m in {models}/*.onnx; do {sys.executable} -c "{_CHECKER}" "$m"; done'
    checker, _ = _run("sh", "-c", loop)
    print(
        f"200 models: check --jobs 2 {checked:.2f} s, a loop over onnx.checker {checker:.2f} s, "
        f"ratio {checked / checker:.2f} (limit 1)"
    )
    return checked <= checker


def main() -> None:
    """Print the three results; exit 1 when one is beyond its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        results = [
            _many_nodes(directory, arguments.rounds),
            _large_weights(directory),
            _many_models(directory),
        ]
    raise SystemExit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
