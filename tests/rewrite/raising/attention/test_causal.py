"""A mask is left out where it shows the keys up to the query, and for nothing that is nearly so."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.core.choices import AttentionChoice
from onnx_kvtool.core.walk import nodes
from onnx_kvtool.runtime.engine.evaluator import Evaluator
from tests.grids import part
from tests.rewrite.raising.growing_steps import ROWS, differences

_NUMBERS = """int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64 three = {3},
int64 eleven = {11},
int64[1] row = {1}, int64[2] out = {0, 1}, int64[2] mid = {1, 2}, int64[3] joined = {0, 0, 14},
float nothing = {0}, float least = {-3.4028234e38}, float little = {-5.0}, float lowest = {-inf}"""

_BOTH = """
    l = Shape <start = 2, end = 3> (new_q) l0 = Squeeze (l)
    p = Shape <start = 2, end = 3> (past_k) p0 = Squeeze (p)
    n0 = Add (p0, l0)
    columns = Range (zero, n0, one)
    count = Range (p0, n0, one)
    rows = Unsqueeze (count, row)
"""
"""Columns, (S), and the position of each query, (L, 1)."""

_ENDED = """
    turned = Transpose <perm = [0, 1, 3, 2]> (keys)
    scores = MatMul (new_q, turned)
    masked = Add (scores, mask)
    weights = Softmax <axis = -1> (masked)
    attended = MatMul (weights, values)
    heads = Transpose <perm = [0, 2, 1, 3]> (attended)
    y = Reshape (heads, joined)
"""
_WHERE = "mask = Where (seen, nothing, least)"

SEEN = {
    "the keys up to the query": ("seen = LessOrEqual (columns, rows)", "causal"),
    "those not behind it": ("late = Greater (columns, rows) seen = Not (late)", "causal"),
    "those before the next query": ("m = Add (rows, one) seen = Less (columns, m)", "causal"),
    "all": ("seen = LessOrEqual (zero, columns)", "none"),
    "those before the query, and the first": (
        "up = Less (columns, rows) f = Less (columns, one) seen = Or (up, f)",
        "kept",
    ),
    "one key more": ("m = Add (rows, one) seen = LessOrEqual (columns, m)", "kept"),
    "a window": (
        """up = LessOrEqual (columns, rows) f = Sub (rows, three)
           near = Less (f, columns) seen = And (up, near)""",
        "kept",
    ),
    "a prefix as well": (
        "up = LessOrEqual (columns, rows) f = Less (columns, three) seen = Or (up, f)",
        "kept",
    ),
    "every second key": (
        """up = LessOrEqual (columns, rows) h = Mod (columns, two) e = Equal (h, zero)
           seen = And (up, e)""",
        "kept",
    ),
    "queries counted from 0": (
        """c = Range (zero, l0, one) r = Unsqueeze (c, row)
           seen = LessOrEqual (columns, r)""",
        "kept",
    ),
    "the past alone, and the first": (
        "up = Less (columns, p0) f = Less (columns, one) seen = Or (up, f)",
        "kept",
    ),
    "two rows for each query": ("d = Add (rows, rows) seen = LessOrEqual (columns, d)", "kept"),
    "the keys from the query on": ("seen = LessOrEqual (rows, columns)", "kept"),
    "what a mask of tokens shows, too": (
        """up = LessOrEqual (columns, rows) b = Cast <to = 9> (attention_mask)
           u = Unsqueeze (b, mid) seen = And (up, u)""",
        "kept",
    ),
    "up to a position that is fed": (
        """m = Gather (attention_mask, zero) t = Gather (m, zero) o = Add (rows, t)
           seen = LessOrEqual (columns, o)""",
        "kept",
    ),
}
"""What a mask shows, and what becomes of it."""

ADDED = {
    "the lowest number": (_WHERE, "causal"),
    "minus infinity": ("mask = Where (seen, nothing, lowest)", "causal"),
    "the other way round": ("not = Not (seen) mask = Where (not, least, nothing)", "causal"),
    "a number that shows through": ("mask = Where (seen, nothing, little)", "kept"),
    "a number for those that are seen": ("mask = Where (seen, little, least)", "kept"),
    "two masks": ("once = Where (seen, nothing, least) mask = Add (once, nothing)", "kept"),
}
"""How it is added, and what becomes of the mask of a causal model."""


def _growing(seen: str, added: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
    layer (float[B,2,S,7] new_q, float[B,2,S,7] new_k, float[B,2,S,7] new_v,
           int64[B,N] attention_mask, float[B,2,P,7] past_k, float[B,2,P,7] past_v)
      => (float[B,S,14] y, float[B,2,N,7] keys, float[B,2,N,7] values)
    <{_NUMBERS}> {{
      k = Neg (new_k) v = Neg (new_v)
      keys = Concat <axis = 2> (past_k, k) values = Concat <axis = 2> (past_v, v)
      {_BOTH} {seen} {added} {_ENDED}
    }}""")
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == "N":  # the parser reads no sums
                dim.dim_param = "P + S"
    return model


@pytest.mark.long
@part(2)
@pytest.mark.parametrize("choice", ["auto", "full"])
@pytest.mark.parametrize(
    ("seen", "added", "mask"),
    [
        *(pytest.param(s, _WHERE, m, id=f"shows {name}") for name, (s, m) in SEEN.items()),
        *(
            pytest.param(SEEN["the keys up to the query"][0], a, m, id=f"adds {name}")
            for name, (a, m) in ADDED.items()
        ),
    ],
)
def test_over_a_cache_that_grew(seen: str, added: str, mask: str, choice: AttentionChoice) -> None:
    source = _growing(seen, added)
    model, report = kv.raise_(source, capacity=ROWS, attention=choice, verify=False)

    assert [done.mask for done in report.attention] == [mask]
    assert [done.form for done in report.attention] == ["sliced" if choice == "auto" else "full"]
    chosen = [text for text in report.attention[0].proof if text.startswith("`auto` reads")]
    assert len(chosen) == (choice == "auto")
    result = ir.to_proto(model)
    onnx.checker.check_model(result, full_check=True)
    ops = [node.op_type for _, _, node in nodes(model)]
    assert ("Where" in ops) == (mask == "kept")
    assert choice == "auto" or "Slice" not in ops
    for batch in (1, 2):
        assert not differences(source, result, ROWS, batch, tolerance=2e-5)


@dataclass(frozen=True)
class Written:
    """Attention over a cache that a TensorScatter has just written.

    Attributes:
        ahead: What is added to the number of a query.
        mask: What becomes of the mask.
        start: Where the rows of keys go.
        of_values: Where those of values go.
        rows: How many rows are new, for S queries.
        mode: The mode of the scatter.
        axis: The axis along which it writes.
    """

    ahead: str
    mask: str
    start: str = "(start)"
    of_values: str = "(start)"
    rows: str = "S"
    mode: str = "linear"
    axis: int = 2


WRITTEN = {
    "from where they are written": Written("begin = Unsqueeze (start, mid2)", "causal"),
    "from another start": Written("begin = Unsqueeze (other, mid2)", "kept"),
    "one further": Written("o = Add (start, one) begin = Unsqueeze (o, mid2)", "kept"),
    "from where the first sequence is": Written(
        "f = Gather (start, zero) begin = Add (f, zero)", "kept"
    ),
    "values go elsewhere": Written("begin = Unsqueeze (start, mid2)", "kept", of_values="(other)"),
    "in a circle": Written("begin = Unsqueeze (start, mid2)", "kept", mode="circular"),
    "fewer rows than queries": Written("begin = Unsqueeze (start, mid2)", "kept", rows="1"),
    "along another axis": Written("begin = Unsqueeze (start, mid2)", "kept", axis=1),
    "from the first row": Written("begin = Add (zero, zero)", "causal", "()", "()"),
    "from the first row, written elsewhere": Written("begin = Add (zero, zero)", "kept"),
}


@pytest.mark.long
@part(2)
@pytest.mark.parametrize("case", WRITTEN.values(), ids=WRITTEN)
@pytest.mark.parametrize("count", ["S", "1"])
@pytest.mark.parametrize("choice", ["auto", "sliced"])
def test_over_a_cache_that_is_fixed(case: Written, count: str, choice: AttentionChoice) -> None:
    def scatter(past: str, new: str, start: str) -> str:
        inputs = ", ".join(filter(None, (past, new, start.strip("()"))))
        return f'TensorScatter <axis = {case.axis}, mode = "{case.mode}"> ({inputs})'

    if count == "1" and case.rows == "1" and case.mask == "kept" and case.mode == "linear":
        pytest.skip("one row for one query is what the first case has")
    fresh = "1" if "1" in (case.rows, count) else "S"
    new = f"B,{fresh},11,7" if case.axis == 1 else f"B,2,{fresh},7"
    source = onnx.parser.parse_model(f"""<ir_version: 11, opset_import: ["" : 24]>
    layer (float[B,2,{count},7] new_q, float[{new}] new_k, float[{new}] new_v,
           int64[B] start, int64[B] other, float[B,2,11,7] past_k, float[B,2,11,7] past_v)
      => (float[B,{count},14] y, float[B,2,11,7] keys, float[B,2,11,7] values)
    <{_NUMBERS}, int64[3] mid2 = {{1, 2, 3}}> {{
      keys = {scatter("past_k", "new_k", case.start)}
      values = {scatter("past_v", "new_v", case.of_values)}
      l = Shape <start = 2, end = 3> (new_q) l0 = Squeeze (l)
      columns = Range (zero, eleven, one) each = Range (zero, l0, one)
      numbers = Unsqueeze (each, row)
      {case.ahead} rows = Add (numbers, begin)
      seen = LessOrEqual (columns, rows) {_WHERE} {_ENDED}
    }}""")
    raised, report = kv.raise_(source, attention=choice, verify=False)

    ops = [node.op_type for _, _, node in nodes(raised)]
    if choice == "sliced" and case.mask == "kept":
        assert [one.code for one in report.refused] == ["not-sliced"]
        assert "Attention" not in ops
        return
    form = "sliced" if choice == "sliced" else "full"
    assert [(done.form, done.mask) for done in report.attention] == [(form, case.mask)]
    assert ops.count("Slice") == (2 if choice == "sliced" else 0)
    if case.axis == 1:
        return  # no cache has room for that
    onnx.checker.check_model(ir.to_proto(raised), full_check=True)
    rng = np.random.default_rng(3)
    sizes = {"B": 3, "S": 4}
    feeds = {
        value.name: rng.standard_normal(
            [sizes.get(d.dim_param, d.dim_value) for d in value.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for value in source.graph.input
    }
    feeds |= {"start": np.array([0, 5, 7]), "other": np.array([3, 1, 6])}
    before, after = (
        Evaluator(model).run(feeds).values["y"] for model in (ir.from_proto(source), raised)
    )
    np.testing.assert_allclose(after, before, rtol=2e-5, atol=2e-5)
