"""Which value a TensorScatter takes its rows from: none that is computed without need."""

from __future__ import annotations

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from onnx_kvtool.commands.raise_ import raise_
from onnx_kvtool.rewrite.raise_report import RaiseReport

_WRITE = """
    axes = Constant <value_ints = [1, 2]> () column = Unsqueeze (start, axes)
    shape = Shape (rows) index = Expand (column, shape)
    present = ScatterElements <axis = 1> (cache, index, rows)
"""
_INPUTS = "float[B,7,5] cache, float[B,1,5] update, int64[B] start"


def _raised(inputs: str, nodes: str, *assume: str) -> tuple[ir.Model, RaiseReport]:
    text = f"""<ir_version: 8, opset_import: ["": 18]>
    decoder ({inputs}) => (float[B,7,5] present) {{ {nodes} {_WRITE} }}"""
    model, report = raise_(ir.from_proto(onnx.parser.parse_model(text)), assume=assume)
    assert report.verification.status == "equal", report.verification.detail
    return model, report


NOTHING_CHANGED = {
    "an Identity": "rows = Identity (update)",
    "an Expand to the shape it has": "s = Shape (update) rows = Expand (update, s)",
    "an Expand to ones": "one = Constant <value_ints = [1]> () rows = Expand (update, one)",
    "a Reshape to the shape it has": "s = Shape (update) rows = Reshape (update, s)",
    "a Reshape that keeps all but one axis": """
        s = Constant <value_ints = [-1, 1, 5]> () rows = Reshape (update, s)""",
    "an axis that comes and goes": """
        a = Constant <value_ints = [1]> () wide = Unsqueeze (update, a) rows = Squeeze (wide, a)""",
    "an axis that goes and comes": """
        a = Constant <value_ints = [1]> () thin = Squeeze (update, a) rows = Unsqueeze (thin, a)""",
    "two transposes": """
        t = Transpose <perm = [1, 0, 2]> (update) rows = Transpose <perm = [1, 0, 2]> (t)""",
    "all of these": """
        a = Constant <value_ints = [1]> () thin = Squeeze (update, a) wide = Unsqueeze (thin, a)
        same = Identity (wide) s = Shape (same) spread = Expand (same, s)
        t = Transpose <perm = [1, 0, 2]> (spread) rows = Transpose <perm = [1, 0, 2]> (t)""",
}


@pytest.mark.parametrize("nodes", NOTHING_CHANGED.values(), ids=NOTHING_CHANGED)
def test_what_changes_nothing_on_the_way_to_the_scatter_goes(nodes: str) -> None:
    model, report = _raised(_INPUTS, nodes)
    assert [done.update for done in report.raised] == ["update"]
    assert [node.op_type for node in model.graph] == ["TensorScatter"]


def test_an_expand_that_repeats_one_row_of_the_batch_stays() -> None:
    model, report = _raised(
        "float[B,7,5] cache, float[1,1,5] update, int64[B] start",
        """n = Shape <end = 1> (cache) rest = Constant <value_ints = [1, 5]> ()
        s = Concat <axis = 0> (n, rest) rows = Expand (update, s)""",
    )
    assert [done.update for done in report.raised] == ["rows"]
    assert "Expand" in [node.op_type for node in model.graph]


_TWO_NAMES = (
    "float[B,7,5] cache, float[U,1,5] update, int64[B] start",
    """n = Shape <end = 1> (cache) rest = Constant <value_ints = [1, 5]> ()
    s = Concat <axis = 0> (n, rest) spread = Expand (update, s) rows = Reshape (spread, s)""",
)


def test_an_expand_between_sizes_of_two_names_stays_and_what_follows_it_goes() -> None:
    model, report = _raised(*_TWO_NAMES)
    assert [(done.update, done.assumed) for done in report.raised] == [("spread", ())]
    assert "Reshape" not in [node.op_type for node in model.graph]


def test_an_expand_between_sizes_that_are_granted_to_be_one_goes() -> None:
    model, report = _raised(*_TWO_NAMES, "same-dim:B=U")
    (done,) = report.raised
    assert (done.update, done.assumed) == ("update", ("same-dim:B=U",))
    assert [node.op_type for node in model.graph] == ["TensorScatter"]


@pytest.mark.long
def test_a_granted_size_that_saves_nothing_is_no_part_of_the_proof() -> None:
    _, report = _raised(
        "float[B,7,5] cache, float[1,1,5] update, int64[B] start, float[U] other",
        _TWO_NAMES[1],
        "same-dim:B=U",
    )
    assert [(done.update, done.assumed) for done in report.raised] == [("spread", ())]
