"""Attention made up at random is equal as one node, wherever it becomes one."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import event, given, note
from hypothesis import strategies as st

from tests.grids import part, search
from tests.rewrite.raising.attention.decomposed import (
    Form,
    Layout,
    MaskForm,
    build,
    feeds,
    fused,
    run,
)

_FOUR = ["B1LS", "BHLS", "1HLS", "11LS", "B11S", "BH1S", "1H11", "LS", "S", "1S", "L1"]
_FOUR += ["B1L1", "BHL1", "1"]
_SHAPES = {
    "four": _FOUR,
    "einsum": _FOUR,
    "five": ["B1LS", "B11S", "11LS", "111S", "LS", "S", "L1"],
    "joined": ["NLS", "N1S", "1LS", "LS", "S", "L1"],
    "three": ["NLS", "N1S", "1LS", "LS", "S", "NL1"],
    "two": ["LS", "1S", "S", "L1"],
}


@st.composite
def forms(draw: Any) -> Form:
    """Draw a form; small sizes, so that some are equal or 1."""

    def one(*choices: Any) -> Any:
        return draw(st.sampled_from(choices))

    layout = one("four", "four", "four", "five", "joined", "three", "two", "einsum")
    masks = draw(
        st.lists(
            st.builds(
                MaskForm,
                st.sampled_from(["add", "add", "add-scaled", "sub", "where", "where-inverted"]),
                st.sampled_from(_SHAPES[layout]),
                st.sampled_from(["inf", "lowest"]),
            ),
            max_size=3,
        )
    )
    scales = one((), ("scores",), ("q", "k"), ("divided",), ("q", "scores"))
    many = layout not in ("two", "three")
    return Form(
        layout=layout,
        group=one(1, 2, 3) if many else 1,
        kv=one(1, 2, 3) if many else 1,
        stored=layout in ("four", "einsum") and one(False, False, True),
        turned=layout == "four" and one(False, True),
        scales=scales if layout != "einsum" else (),
        softcap=one(0.0, 0.0, 2.5),
        masks=tuple(masks),
        guard=one(False, True),
        precise=False,
        back=one(True, False),
        dtype=one("float32", "float32", "float64"),
        symbolic=one(False, True),
        sizes=draw(st.tuples(*[st.sampled_from([1, 2, 3, 5])] * 5)),
    )


@search(240)
@given(form=forms(), seed=st.integers(0, 99), dead=st.booleans())
def test_whatever_becomes_one_is_equal(form: Form, seed: int, dead: bool) -> None:
    source = build(form)
    result = fused(source)
    for refusal in result.outcome.refused:
        event(refusal.code)
        note(refusal.message)
    event(f"fused {len(result.outcome.attention)}")
    if not result.outcome.attention:
        return
    note(str(result.outcome.attention[0].proof))
    inputs = feeds(form, seed, dead=dead)
    with np.errstate(all="ignore"):
        wanted, got = run(ir.from_proto(source), inputs), run(result.model, inputs)
    assert wanted.shape == got.shape
    nothing = np.isnan(wanted)
    assert form.guard is False or not nothing.any()
    assert (got[nothing] == 0).all()
    np.testing.assert_allclose(got[~nothing], wanted[~nothing], rtol=1e-5, atol=1e-5)


@part(2)
@pytest.mark.parametrize("layout", ["four", "einsum", "joined", "five"])
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1), (2, 2, 2, 2, 2), (1, 5, 5, 3, 3)], ids=str)
def test_sizes_that_are_one_or_equal_do_no_harm(
    layout: Layout, sizes: tuple[int, int, int, int, int]
) -> None:
    for symbolic in (True, False):
        form = Form(
            layout=layout,
            kv=2,
            masks=(MaskForm("where", "LS"),),
            guard=True,
            sizes=sizes,
            symbolic=symbolic,
        )
        assert fused(build(form)).outcome.attention, form
