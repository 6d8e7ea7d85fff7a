"""Judge random graphs, and print what is wrong: `python -m tests.fuzz --count 1000 --seed 7`."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

import onnx

from tests.fuzz.graphs import draw
from tests.fuzz.judge import judge, unknown


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="graphs")
    parser.add_argument("--seed", type=int, default=0, help="of the first graph")
    parser.add_argument("--only", default="", help="operators, with commas between them")
    parser.add_argument("--show", action="store_true", help="print the graphs that fail")
    parser.add_argument("--known", action="store_true", help="print what is known as well")
    arguments = parser.parse_args()
    only = frozenset(filter(None, arguments.only.split(",")))
    counts: Counter[str] = Counter()
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        drawn = draw(seed, only)
        for problem in judge(drawn, counts):
            is_known = not unknown(problem, drawn)
            counts["known" if is_known else "wrong"] += 1
            if is_known and not arguments.known:
                continue
            sys.stdout.write(f"seed {seed} ({', '.join(drawn.ops)}): {problem}\n")
            if arguments.show:
                sys.stdout.write(f"{onnx.printer.to_text(drawn.model)}\n")
    listed = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    sys.stdout.write(f"{listed}\n")


if __name__ == "__main__":
    main()
