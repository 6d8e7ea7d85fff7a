"""Positions that are no start plus the number of the row."""

from __future__ import annotations

from tests.rewrite.raising.brute_force import Draws
from tests.rewrite.raising.decoys.decoy import Decoy
from tests.rewrite.raising.forms import CACHE, START, UPDATE, elements, graph, shared, tuples

__all__ = ["DECOYS"]

DECOYS = {
    # Positions that do not count up by one.
    "every second row": Decoy(
        elements("two = Add (rows, rows)\n pos = Add (starts, two)"),
    ),
    "rows in reverse": Decoy(elements("back = Neg (rows)\n pos = Add (starts, back)")),
    "rows in reverse, by tuples": Decoy(tuples(rows="pos = Sub (starts, rows)")),
    "stride 2 between transposes": Decoy(shared("two = Add (rows, rows)\n pos = Add (start, two)")),
    "a step of its own for each row": Decoy(
        elements(
            "outer = Constant <value = int64[2] {0, 3}> ()\n steps = Unsqueeze (x, outer)\n"
            "pos = Add (starts, steps)",
            inputs=f"{CACHE}, {UPDATE}, {START}, int64[1,2] x",
        ),
        granted=("in-range", "finite"),
    ),
    "a start per head": Decoy(
        elements(
            "heads = Constant <value = int64[1,3,1,1] {0, 1, 2}> ()\n"
            "mid = Add (starts, heads)\n pos = Add (mid, rows)"
        )
    ),
    "a start per head from an input": Decoy(
        elements(
            "outer = Constant <value = int64[3] {0, 2, 3}> ()\n"
            "heads = Unsqueeze (h, outer)\n pos = Add (heads, rows)",
            inputs=f"{CACHE}, {UPDATE}, {START}, int64[3] h",
        )
    ),
    "a start per feature": Decoy(
        elements(
            "outer = Constant <value = int64[3] {0, 1, 2}> ()\n"
            "features = Unsqueeze (f, outer)\n pos = Add (features, rows)",
            inputs=f"{CACHE}, {UPDATE}, {START}, int64[7] f",
        ),
        Draws({"f": range(4)}),
    ),
    "a start that depends on sequence and head": Decoy(
        elements(
            "outer = Constant <value = int64[2] {2, 3}> ()\n"
            "both = Unsqueeze (h, outer)\n pos = Add (both, rows)",
            inputs=f"{CACHE}, {UPDATE}, {START}, int64[2,3] h",
        )
    ),
    "all rows at one position": Decoy(
        elements("still = Sub (rows, rows)\n pos = Add (starts, still)"), is_defined=False
    ),
    "all rows at one position, by tuples": Decoy(
        tuples(rows="still = Sub (rows, rows)\n pos = Add (starts, still)"), is_defined=False
    ),
    "rows count by a table that is almost a range": Decoy(
        elements("table = Constant <value = int64[1,1,2,1] {0, 2}> ()\n pos = Add (starts, table)")
    ),
    "rows are divided": Decoy(
        elements(
            "two = Constant <value = int64 {2}> ()\n half = Div (rows, two)\n"
            "pos = Add (starts, half)"
        ),
        is_defined=False,
    ),
    # Data-dependent positions.
    "positions of the largest scores": Decoy(
        elements(
            "k = Constant <value = int64[1] {2}> ()\n best, at = TopK <axis = 2> (scores, k)\n"
            "still = Sub (starts, starts)\n pos = Add (at, still)",
            inputs=f"{CACHE}, {UPDATE}, {START}, float[2,1,5,1] scores",
        )
    ),
    "positions from NonZero": Decoy(
        graph(
            f"{CACHE}, float[2,3,n,7] upd, bool[5] free",
            """
            found = NonZero (free)
            index = Transpose <perm = [1, 0]> (found)
            c = Transpose <perm = [2, 0, 1, 3]> (cache)
            u = Transpose <perm = [2, 0, 1, 3]> (upd)
            s = ScatterND (c, index, u)
            present = Transpose <perm = [1, 2, 0, 3]> (s)
            """,
        ),
        Draws(sizes={"n": (1, 2, 3)}, count=120),
    ),
    "the smallest entry of each feature is replaced": Decoy(
        graph(
            f"{CACHE}, float[2,3,1,7] upd",
            """
            index = ArgMin <axis = 2, keepdims = 1> (cache)
            present = ScatterElements <axis = 2> (cache, index, upd)
            """,
        )
    ),
    "positions that are sorted data": Decoy(
        elements(
            "k = Constant <value = int64[1] {2}> ()\n "
            "low, at = TopK <axis = 2, largest = 0> (x, k)\n"
            "pos = Identity (low)",
            inputs=f"{CACHE}, {UPDATE}, {START}, int64[2,1,5,1] x",
        ),
        Draws({"x": range(5)}),
    ),
    # Starts below zero.
    "the last row is always replaced": Decoy(
        elements(
            "end = Constant <value = int64[1,1,1,1] {-1}> ()\n pos = Identity (end)",
            inputs=f"{CACHE}, float[2,3,1,7] upd, {START}",
            index="2, 3, 1, 7",
        )
    ),
    "the last two rows are always replaced": Decoy(
        shared("end = Constant <value = int64[2] {-2, -1}> ()\n pos = Identity (end)")
    ),
}
