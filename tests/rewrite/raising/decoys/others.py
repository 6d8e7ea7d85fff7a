"""Values that are no cache with the batch first."""

from __future__ import annotations

from tests.rewrite.raising.brute_force import Draws
from tests.rewrite.raising.decoys.decoy import Decoy
from tests.rewrite.raising.forms import graph

__all__ = ["DECOYS"]

DECOYS = {
    "slots of a flat cache": Decoy(
        graph(
            "float[6,5,7] pages, float[2,7] upd, int64[2] slots",
            """
            flat = Constant <value = int64[2] {-1, 7}> ()
            paged = Constant <value = int64[3] {6, 5, 7}> ()
            last = Constant <value = int64[1] {-1}> ()
            rows = Reshape (pages, flat)
            index = Unsqueeze (slots, last)
            s = ScatterND (rows, index, upd)
            present = Reshape (s, paged)
            """,
            "float[6,5,7] present",
        ),
        Draws({"slots": range(30)}),
    ),
    "one slot of a flat cache": Decoy(
        graph(
            "float[6,5,7] pages, float[1,7] upd, int64[1] slots",
            """
            flat = Constant <value = int64[2] {-1, 7}> ()
            paged = Constant <value = int64[3] {6, 5, 7}> ()
            last = Constant <value = int64[1] {-1}> ()
            rows = Reshape (pages, flat)
            index = Unsqueeze (slots, last)
            s = ScatterND (rows, index, upd)
            present = Reshape (s, paged)
            """,
            "float[6,5,7] present",
        ),
        Draws({"slots": range(30)}),
    ),
    "a shape vector": Decoy(
        graph(
            "float[2,3,5,7] x, int64[1] n",
            """
            shape = Shape (x)
            two = Constant <value = int64[1] {2}> ()
            new = ScatterElements <axis = 0> (shape, two, n)
            zero = Constant <value = float {0}> ()
            present = Expand (zero, new)
            """,
            "float[a,b,c,d] present",
        ),
        Draws({"n": (1, 2, 3)}),
    ),
    "rows of a vector": Decoy(
        graph(
            "int64[5] x, int64[2] upd, int64[1] p",
            """
            rows = Constant <value = int64[2] {0, 1}> ()
            last = Constant <value = int64[1] {-1}> ()
            pos = Add (rows, p)
            index = Unsqueeze (pos, last)
            present = ScatterND (x, index, upd)
            """,
            "int64[5] present",
        )
    ),
    "the cache is a constant": Decoy(
        graph(
            "float[1,2] upd, int64[1] p",
            """
            cache = Constant <value = float[1,3] {1.0, 2.0, 3.0}> ()
            two = Constant <value = int64[1,2] {0, 1}> ()
            index = Add (two, p)
            present = ScatterElements <axis = 1> (cache, index, upd)
            """,
            "float[1,3] present",
        )
    ),
    "the batch is written along": Decoy(
        graph(
            "float[5,3,7] cache, float[2,3,7] upd, int64[1] p",
            """
            rows = Constant <value = int64[2] {0, 1}> ()
            last = Constant <value = int64[1] {-1}> ()
            pos = Add (rows, p)
            index = Unsqueeze (pos, last)
            present = ScatterND (cache, index, upd)
            """,
            "float[5,3,7] present",
        )
    ),
}
