"""Write a decoder of real size: `python -m benchmarks.real_models llama-1b-bf16 DIR`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.real_models.configuration import CONFIGURATIONS, tiny
from benchmarks.real_models.writer import write


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the model that the command line names and print its path."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_models", description=__doc__)
    parser.add_argument(
        "name", choices=CONFIGURATIONS, metavar="NAME", help=", ".join(CONFIGURATIONS)
    )
    parser.add_argument("directory", type=Path, help="is made; gets model.onnx and its data")
    parser.add_argument("--layers", type=int, help="so many layers instead, of the true dimensions")
    parser.add_argument("--capacity", type=int, help="so many rows of each cache instead")
    parser.add_argument("--batch", type=int, help="declare this batch size instead of `batch`")
    parser.add_argument("--std", type=float, help="standard deviation of the weights instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sparse", action="store_true", help="matrices of zeros that take no disk")
    parser.add_argument("--tiny", action="store_true", help="the same kind, a few hundred KB")
    chosen = parser.parse_args(arguments)
    configuration = CONFIGURATIONS[chosen.name]
    if chosen.tiny:
        configuration = tiny(configuration)
    for field in ("layers", "capacity", "batch", "std"):
        if getattr(chosen, field) is not None:
            configuration = replace(configuration, **{field: getattr(chosen, field)})
    print(write(configuration, chosen.directory, sparse=chosen.sparse, seed=chosen.seed))


if __name__ == "__main__":
    main()
