"""Rows that cover a part of the cache, and sequences that change places."""

from __future__ import annotations

from tests.rewrite.raising.brute_force import Draws
from tests.rewrite.raising.decoys.decoy import Decoy
from tests.rewrite.raising.forms import CACHE, START, elements, graph, tuples

__all__ = ["DECOYS"]

DECOYS = {
    # Parts of an axis.
    "only two of three heads": Decoy(
        elements(inputs=f"{CACHE}, float[2,2,2,7] upd, {START}", index="2, 2, 2, 7")
    ),
    "only six of seven features": Decoy(
        elements(inputs=f"{CACHE}, float[2,3,2,6] upd, {START}", index="2, 3, 2, 6")
    ),
    "only one of two sequences": Decoy(
        elements(inputs=f"{CACHE}, float[1,3,2,7] upd, int64[1] w", index="1, 3, 2, 7")
    ),
    "a part of the heads, of free size": Decoy(
        elements(
            inputs=f"{CACHE}, float[2,h,2,7] upd, {START}",
        ).replace("index = Expand (pos, shape)", "sh = Shape (upd)\n index = Expand (pos, sh)"),
        Draws(sizes={"h": (1, 2, 3)}),
    ),
    "a part of the features, of free size": Decoy(
        elements(
            inputs=f"float[2,3,5,d] cache, float[2,3,2,e] upd, {START}",
            outputs="float[2,3,5,d] present",
        ).replace("index = Expand (pos, shape)", "sh = Shape (upd)\n index = Expand (pos, sh)"),
        Draws(sizes={"d": (4, 5), "e": (3, 4)}),
    ),
    "a part of the sequences, of free size": Decoy(
        elements(
            inputs="float[n,3,5,7] cache, float[m,3,2,7] upd, int64[m] w",
            outputs="float[n,3,5,7] present",
        ).replace("index = Expand (pos, shape)", "sh = Shape (upd)\n index = Expand (pos, sh)"),
        Draws(sizes={"n": (2, 3), "m": (1, 2)}),
    ),
    "one of two sequences, by tuples": Decoy(
        tuples(
            inputs="float[3,5,3,7] cache, float[2,2,3,7] upd, int64[2] w",
            outputs="float[3,5,3,7] present",
        )
    ),
    "two of three heads, by full tuples": Decoy(
        graph(
            f"{CACHE}, float[2,2,2,7] upd, {START}",
            """
            b = Constant <value = int64[2,1,1,1] {0, 1}> ()
            h = Constant <value = int64[1,2,1,1] {0, 1}> ()
            rows = Constant <value = int64[1,1,2,1] {0, 1}> ()
            axes = Constant <value = int64[3] {1, 2, 3}> ()
            shape = Constant <value = int64[4] {2, 2, 2, 1}> ()
            starts = Unsqueeze (w, axes)
            pos = Add (starts, rows)
            be = Expand (b, shape)
            he = Expand (h, shape)
            pe = Expand (pos, shape)
            index = Concat <axis = -1> (be, he, pe)
            present = ScatterND (cache, index, upd)
            """,
        )
    ),
    # Sequences and heads that change places.
    "the sequences are swapped": Decoy(tuples(batch="1, 0")),
    "both updates go to one sequence": Decoy(tuples(batch="1, 1")),
    "sequence and position change places": Decoy(
        tuples(
            order="px, bx",
            inputs="float[5,2,3,7] cache, float[2,2,3,7] upd, int64[2] w",
            outputs="float[5,2,3,7] present",
        )
    ),
    "the diagonal": Decoy(
        tuples(
            order="px, px",
            inputs="float[5,5,3,7] cache, float[2,2,3,7] upd, int64[2] w",
            outputs="float[5,5,3,7] present",
        ),
    ),
    "the sequence is data": Decoy(
        tuples(
            "ve = Expand (v, shape)\n vx = Unsqueeze (ve, last)",
            order="vx, px",
            inputs="float[2,5,3,7] cache, float[2,2,3,7] upd, int64[2] w, int64[2,1] v",
        ),
        Draws({"v": range(2), "w": range(4)}),
    ),
}
