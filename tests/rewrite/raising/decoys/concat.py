"""Concat of parts of a cache."""

from __future__ import annotations

from tests.rewrite.raising.brute_force import Draws
from tests.rewrite.raising.decoys.decoy import INSIDE, Decoy
from tests.rewrite.raising.forms import CACHE, UPDATE, concat, graph

__all__ = ["DECOYS"]

DECOYS = {
    "the rest begins too early": Decoy(
        concat(resume="resumed = Add (p, first)", outputs="float[2,3,T,7] present"), INSIDE
    ),
    "the rest begins too late": Decoy(concat(length=3, outputs="float[2,3,T,7] present"), INSIDE),
    "the rest begins at a position of its own": Decoy(
        concat(
            resume="resumed = Identity (q)",
            inputs=f"{CACHE}, {UPDATE}, int64[1] p, int64[1] q",
            outputs="float[2,3,T,7] present",
        ),
        Draws({"p": range(4), "q": range(5)}),
    ),
    "the rest is cut in steps that a caller says": Decoy(
        concat(
            inputs=f"{CACHE}, {UPDATE}, int64[1] p, int64[1] q",
            outputs="float[2,3,T,7] present",
        ).replace("resumed, limit, axes)", "resumed, limit, axes, q)"),
        Draws({"p": range(4), "q": (1, 2)}),
    ),
    "the rest is that of another cache": Decoy(
        concat(tail="other", inputs=f"{CACHE}, float[2,3,5,7] other, {UPDATE}, int64[1] p"), INSIDE
    ),
    "the rest comes first": Decoy(concat(parts="tail, upd, head"), INSIDE),
    "the new rows come last": Decoy(concat(parts="head, tail, upd"), INSIDE),
    "the first row is dropped": Decoy(
        concat(
            begin="first",
            end="p",
            resume="one = Add (p, length)\n resumed = Sub (one, first)",
        ),
        Draws({"p": (1, 2, 3)}),
    ),
    "the last row is dropped": Decoy(
        concat(limit=4, length=1),
        Draws({"p": range(3)}),
    ),
    "a window shifts": Decoy(
        graph(
            f"{CACHE}, {UPDATE}",
            """
            two = Constant <value = int64[1] {2}> ()
            limit = Constant <value = int64[1] {9223372036854775807}> ()
            axes = Constant <value = int64[1] {2}> ()
            rest = Slice (cache, two, limit, axes)
            present = Concat <axis = 2> (rest, upd)
            """,
        )
    ),
    "a cache grows": Decoy(
        graph(
            "float[2,3,P,7] cache, float[2,3,2,7] upd",
            "present = Concat <axis = 2> (cache, upd)",
            "float[2,3,T,7] present",
        )
    ),
    "a cache grows and is cut": Decoy(
        graph(
            f"{CACHE}, {UPDATE}",
            """
            start = Constant <value = int64[1] {-5}> ()
            limit = Constant <value = int64[1] {9223372036854775807}> ()
            axes = Constant <value = int64[1] {2}> ()
            all = Concat <axis = 2> (cache, upd)
            present = Slice (all, start, limit, axes)
            """,
        )
    ),
    "a full window is rolled before its last row is replaced": Decoy(
        graph(
            f"{CACHE}, float[2,3,1,7] upd",
            """
            none = Constant <value = int64[1] {0}> ()
            first = Constant <value = int64[1] {1}> ()
            limit = Constant <value = int64[1] {9223372036854775807}> ()
            axes = Constant <value = int64[1] {2}> ()
            rest = Slice (cache, first, limit, axes)
            oldest = Slice (cache, none, first, axes)
            rolled = Concat <axis = 2> (rest, oldest)
            c = Transpose <perm = [2, 0, 1, 3]> (rolled)
            u = Transpose <perm = [2, 0, 1, 3]> (upd)
            index = Constant <value = int64[1,1] {-1}> ()
            s = ScatterND (c, index, u)
            present = Transpose <perm = [1, 2, 0, 3]> (s)
            """,
        )
    ),
    "a full window is rolled before row 4 is replaced": Decoy(
        graph(
            f"{CACHE}, float[2,3,1,7] upd",
            """
            none = Constant <value = int64[1] {0}> ()
            first = Constant <value = int64[1] {1}> ()
            limit = Constant <value = int64[1] {9223372036854775807}> ()
            axes = Constant <value = int64[1] {2}> ()
            rest = Slice (cache, first, limit, axes)
            oldest = Slice (cache, none, first, axes)
            rolled = Concat <axis = 2> (rest, oldest)
            c = Transpose <perm = [2, 0, 1, 3]> (rolled)
            u = Transpose <perm = [2, 0, 1, 3]> (upd)
            index = Constant <value = int64[1,1] {4}> ()
            s = ScatterND (c, index, u)
            present = Transpose <perm = [1, 2, 0, 3]> (s)
            """,
        )
    ),
    "the window of old transformers": Decoy(
        graph(
            f"{CACHE}, float[2,3,1,7] upd, int64[1] p",
            """
            turns = Constant <value = int64[5] {1, 2, 3, 4, 5}> ()
            one = Constant <value = int64 {1}> ()
            four = Constant <value = int64 {4}> ()
            five = Constant <value = int64 {5}> ()
            none = Constant <value = int64 {0}> ()
            last = Constant <value = int64[1] {-1}> ()
            full = Greater (p, four)
            shift = Cast <to = 7> (full)
            turned = Add (turns, shift)
            less = Sub (turned, one)
            order = Mod (less, five)
            by_row = Unsqueeze (order, last)
            c = Transpose <perm = [2, 0, 1, 3]> (cache)
            rolled = GatherND (c, by_row)
            clipped = Clip (p, none, four)
            index = Unsqueeze (clipped, last)
            u = Transpose <perm = [2, 0, 1, 3]> (upd)
            s = ScatterND (rolled, index, u)
            present = Transpose <perm = [1, 2, 0, 3]> (s)
            """,
        )
    ),
}
