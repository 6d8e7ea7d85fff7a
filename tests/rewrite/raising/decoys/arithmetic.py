"""Arithmetic that wraps or rounds, and constants that the caller may replace."""

from __future__ import annotations

from tests.rewrite.raising.brute_force import Draws
from tests.rewrite.raising.decoys.decoy import Decoy
from tests.rewrite.raising.forms import elements

__all__ = ["DECOYS"]

DECOYS = {
    # Arithmetic that wraps or rounds.
    "positions wrap at 256 in 8 bits": Decoy(
        elements(
            "small = Cast <to = 2> (starts)\n srows = Cast <to = 2> (rows)\n"
            "sum = Add (small, srows)\n pos = Cast <to = 7> (sum)",
            inputs="float[2,3,300,7] cache, float[2,3,2,7] upd, int64[2] w",
            outputs="float[2,3,300,7] present",
        ),
        Draws({"w": (0, 200, 254, 255, 256, 290)}, count=12),
    ),
    "positions wrap in 32 bits before they wrap in the cache": Decoy(
        elements(
            "small = Cast <to = 6> (starts)\n srows = Cast <to = 6> (rows)\n"
            "scapacity = Cast <to = 6> (capacity)\n sum = Add (small, srows)\n"
            "wrapped = Mod (sum, scapacity)\n pos = Cast <to = 7> (wrapped)"
        ),
        Draws({"w": (0, 3, 4, 2**31 - 1, 2**31 - 2, 2**32 + 3)}),
    ),
    "positions are rounded to float16": Decoy(
        elements(
            "small = Cast <to = 10> (starts)\n srows = Cast <to = 10> (rows)\n"
            "sum = Add (small, srows)\n pos = Cast <to = 7> (sum)",
            inputs="float[1,1,4096,1] cache, float[1,1,2,1] upd, int64[1] w",
            outputs="float[1,1,4096,1] present",
            index="1, 1, 2, 1",
        ),
        Draws({"w": (0, 2047, 2049, 3001, 4000)}, count=12),
    ),
    # Constants that the caller may replace.
    "the table of rows is an input with a default": Decoy(
        """<ir_version: 10, opset_import: ["": 18]>
        decoder (float[2,3,5,7] cache, float[2,3,2,7] upd, int64[2] w, int64[1,1,2,1] rows)
        => (float[2,3,5,7] present) <int64[1,1,2,1] rows = {0, 1}> {
            ones = Constant <value = int64[3] {1, 2, 3}> ()
            shape = Constant <value = int64[4] {2, 3, 2, 7}> ()
            starts = Unsqueeze (w, ones)
            pos = Add (starts, rows)
            index = Expand (pos, shape)
            present = ScatterElements <axis = 2> (cache, index, upd)
        }""",
        Draws({"rows": ([[[[0], [1]]]], [[[[1], [0]]]], [[[[0], [2]]]]), "w": range(4)}),
        granted=("in-range", "finite"),
    ),
    "the modulus is an input with a default": Decoy(
        """<ir_version: 10, opset_import: ["": 18]>
        decoder (float[2,3,5,7] cache, float[2,3,2,7] upd, int64[2] w, int64[1] capacity)
        => (float[2,3,5,7] present) <int64[1] capacity = {5}> {
            ones = Constant <value = int64[3] {1, 2, 3}> ()
            rows = Constant <value = int64[1,1,2,1] {0, 1}> ()
            shape = Constant <value = int64[4] {2, 3, 2, 7}> ()
            starts = Unsqueeze (w, ones)
            sum = Add (starts, rows)
            pos = Mod (sum, capacity)
            index = Expand (pos, shape)
            present = ScatterElements <axis = 2> (cache, index, upd)
        }""",
        Draws({"capacity": ([5], [4], [3]), "w": range(9)}),
    ),
    "more rows than the capacity": Decoy(
        elements(
            "sum = Add (starts, rows)\n pos = Mod (sum, two)",
            inputs="float[2,3,2,7] cache, float[2,3,3,7] upd, int64[2] w",
            outputs="float[2,3,2,7] present",
            index="2, 3, 3, 7",
        )
        .replace("int64[1,1,2,1] {0, 1}", "int64[1,1,3,1] {0, 1, 2}")
        .replace("sum = ", "two = Constant <value = int64 {2}> ()\n sum = "),
        is_defined=False,
    ),
}
