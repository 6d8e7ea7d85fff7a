"""Results that go on in several layouts."""

from __future__ import annotations

from tests.rewrite.raising.forms import CACHE, shared
from tests.rewrite.raising.lookalikes.case import Case

__all__ = ["CASES"]

CASES = {
    "the result leaves in both layouts": Case(
        shared(
            outputs="float[2,3,5,7] present, float[5,2,3,7] s, float[7,3,5,2] third",
            extra="third = Transpose <perm = [3, 1, 2, 0]> (present)",
        ),
        1,
    ),
    "the result leaves twice": Case(
        shared(
            outputs="float[2,3,5,7] present, float[2,3,5,7] twin",
            extra="twin = Identity (present)",
        ),
        1,
    ),
    "two transposes bring the result back": Case(
        shared(
            outputs="float[2,3,5,7] present, float[2,3,5,7] twin",
            extra="twin = Transpose <perm = [1, 2, 0, 3]> (s)",
        ),
        1,
    ),
    "the result goes on in the layout of the scatter": Case(
        shared(
            back="1, 2, 0, 3",
            outputs="float[2,3,5,7] present, float[5,2,3,7] more",
            extra="more = Add (s, s)",
        ),
        1,
    ),
    "the layouts of cache and update differ": Case(
        shared(
            perm="1, 3, 0, 2",
            inputs=f"{CACHE}, float[3,2,7,2] upd, int64[2] p",
        ).replace("perm = [1, 3, 0, 2]", "perm = [3, 1, 0, 2]"),
        None,
    ),
    "only the sequence is moved ahead": Case(
        shared(
            data="c = Transpose <perm = [2, 1, 0, 3]> (cache)",
            perm="2, 1, 0, 3",
            back="2, 1, 0, 3",
        ),
        1,
    ),
    "the result stays rearranged": Case(
        shared(back="3, 2, 1, 0", outputs="float[7,3,2,5] present"),
        1,
    ),
}
