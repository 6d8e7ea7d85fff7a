"""Judge every pair, and print those that `verify` gets wrong.

`python -m tests.verification_pairs [--seed N] [--item TABLE] [--match TEXT] [--all]`
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.verification_pairs.judging import agreement, verdicts, witness
from tests.verification_pairs.tables import DIFFERENT, EQUAL


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of weights and inputs")
    parser.add_argument("--item", default="", help="one table: HIDDEN, INTEGERS, ...")
    parser.add_argument("--match", default="", help="a part of the names of pairs")
    parser.add_argument("--all", action="store_true", help="print every pair")
    arguments = parser.parse_args()
    for table, pairs in {**DIFFERENT, **EQUAL}.items():
        if arguments.item not in ("", table):
            continue
        counts: Counter[str] = Counter()
        for pair in pairs:
            if arguments.match not in pair.name:
                continue
            is_equal = table in EQUAL
            unsound = (agreement if is_equal else witness)(pair, arguments.seed)
            found = verdicts(pair, arguments.seed)
            counts.update(found.values())
            wanted = "equal" if is_equal else "different"
            if arguments.all or unsound or {*found.values()} != {wanted}:
                sys.stdout.write(f"{table}: {pair}: {unsound or found}\n")
        sys.stdout.write(f"{table}: {dict(counts)}\n")


if __name__ == "__main__":
    main()
