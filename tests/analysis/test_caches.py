"""The cache table: what is one, what updates it, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx.parser
import onnx_ir as ir
import pytest

from onnx_kvtool.analysis.caches import find_caches
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.model_io.model import read
from onnx_kvtool.shapes.annotations import annotate
from tests.grids import each

ROOT = Path(__file__).resolve().parent.parent.parent


def graph(text: str, opset: int = 24, functions: str = "") -> ir.Model:
    """Return the model of a graph in ONNX text."""
    header = f'<ir_version: 10, opset_import: ["": {opset}, "com.microsoft": 1, "local": 1]>\n'
    return ir.from_proto(onnx.parser.parse_model(header + text + functions))


def table(model: ir.Model) -> list[dict[str, Any]]:
    annotate(model, lambda node: True)
    return [cache.to_json() for cache in find_caches(model)]


CACHE = {"past": "past", "present": "present", "update": "new", "dtype": "float32"}
IN_PLACE = {"possible": True, "reason": None}
GROWS = "the present is longer than the past by the new rows"


def no(reason: str) -> dict[str, Any]:
    return {"possible": False, "reason": reason}


CASES = [
    pytest.param(
        """
        main (float[B,3,7,5] past, float[B,3,L,5] new, int64[B] start) => (float[B,3,7,5] present) {
            [ts] present = TensorScatter (past, new, start)
        }
        """,
        [
            {
                **CACHE,
                "kind": "tensor_scatter",
                "graph": "main",
                "node": "ts",
                "write_indices": "start",
                "shape": ["B", 3, 7, 5],
                "axis": 2,
                "mode": "linear",
                "growing": False,
                "capacity": 7,
                "bytes_per_token": 3 * 5 * 4,
                "total_bytes": None,
                "in_place": IN_PLACE,
            }
        ],
        id="a TensorScatter with the default axis",
    ),
    pytest.param(
        """
        main (float16[2,7,5] past, float16[2,4,5] new) => (float16[2,7,5] present) {
            present = TensorScatter <axis = 1, mode = "circular"> (past, new)
        }
        """,
        [
            {
                "node": "#0",
                "dtype": "float16",
                "write_indices": None,
                "axis": 1,
                "mode": "circular",
                "bytes_per_token": 10,
                "total_bytes": 2 * 7 * 5 * 2,
            }
        ],
        id="an unnamed TensorScatter without write_indices, every size a number",
    ),
    pytest.param(
        """
        main (float4e2m1[2,7,5] past, float4e2m1[2,1,5] new) => (float4e2m1[2,7,5] present) {
            present = TensorScatter <axis = 1> (past, new)
        }
        """,
        [{"dtype": "float4e2m1", "bytes_per_token": 2.5, "total_bytes": 35}],
        id="a row of 4-bit elements ends in the middle of a byte",
    ),
    pytest.param(
        """
        main (string[2,7,5] past, string[2,1,5] new) => (string[2,7,5] present) {
            present = TensorScatter <axis = 1> (past, new)
        }
        """,
        [{"dtype": "string", "capacity": 7, "bytes_per_token": None, "total_bytes": None}],
        id="nobody knows the bytes of strings",
    ),
    pytest.param(
        """
        main (float[B,3,7,5] past, float[B,3,L,5] new, int64[B] start) => (float[B,3,7,5] present) {
            present = TensorScatter <axis = 0, mode = "round"> (past, new, start)
        }
        """,
        [
            {
                "kind": "tensor_scatter",
                "axis": None,
                "mode": None,
                "capacity": None,
                "in_place": no("the `TensorScatter` is not valid"),
            }
        ],
        id="a TensorScatter that its schema forbids is still a cache",
    ),
    pytest.param(
        """
        main (float[2,3,7,5] past, float[2,3,1,5] new) => (float[2,3,7,5] present) {
            present = TensorScatter <axis = 4> (past, new)
        }
        """,
        [{"axis": None, "mode": "linear", "in_place": no("the `TensorScatter` is not valid")}],
        id="an axis that the cache does not have",
    ),
    pytest.param(
        """
        main (float[B,7,3,5] past, float[B,3,L,5] new, int64[B] start) => (float[B,7,3,5] present) {
            turned = Transpose <perm = [0, 2, 1, 3]> (past)
            written = TensorScatter (turned, new, start)
            [back] present = Transpose <perm = [0, 2, 1, 3]> (written)
        }
        """,
        [
            {
                **CACHE,
                "axis": 1,
                "shape": ["B", 7, 3, 5],
                "bytes_per_token": 60,
                "in_place": no("the past goes through a `Transpose` node before the update"),
            }
        ],
        id="a cache under transposes has its axis where the input has it",
    ),
    pytest.param(
        """
        main (float[1,7,5] past, float[1,5] new, int64[1] start) => (float[1,7,5] present)
        <int64[1] axes = {0}> {
            flat = Squeeze (past, axes)
            index = Unsqueeze (start, axes)
            written = ScatterND (flat, index, new)
            present = Unsqueeze (written, axes)
        }
        """,
        [
            {
                "kind": "scatter_nd",
                "axis": 1,
                "mode": "linear",
                "write_indices": "start",
                "shape": [1, 7, 5],
                "bytes_per_token": 20,
            }
        ],
        id="a batch of one is squeezed away and put back",
    ),
    pytest.param(
        """
        main (float16[B,7,5] past, float[B,L,5] new, int64[B] start) => (float16[B,7,5] present) {
            wide = Cast <to = 1> (past)
            written = TensorScatter <axis = 1> (wide, new, start)
            [narrow] present = Cast <to = 10> (written)
        }
        """,
        [
            {
                "dtype": "float16",
                "bytes_per_token": 10,
                "in_place": no("the past is cast by a `Cast` node before the update"),
            }
        ],
        id="the type is that of the input",
    ),
    pytest.param(
        """
        main (float[B,3,7,5] past, float[B,3,L,5] new, int64[B] start) => (float[B,3,7,5] present) {
            same = Identity (past)
            written = TensorScatter (same, new, start)
            size = Shape (past)
            present = Identity (written)
        }
        """,
        [{**CACHE, "in_place": IN_PLACE}],
        id="copies and questions for the shape do no harm",
    ),
    pytest.param(
        """
        main (float[B,3,7,5] past, float[B,3,L,5] new, int64[B] start)
            => (float[B,3,7,5] present, float[B,3,7,5] noise) {
            present = TensorScatter (past, new, start)
            noise = RandomNormalLike (past)
        }
        """,
        [{**CACHE, "in_place": IN_PLACE}],
        id="a node that takes nothing but type and shape does no harm",
    ),
    pytest.param(
        """
        main (float[B,3,7,5] past, float[B,3,L,5] new, int64[B] start, int64[B,3,7,5] order)
            => (float[B,3,7,5] present) {
            [pick] sorted = GatherElements <axis = 2> (past, order)
            present = TensorScatter (sorted, new, start)
        }
        """,
        [
            {
                **CACHE,
                "axis": 2,
                "in_place": no(
                    "the past has its rows moved or cut by `GatherElements` node `pick` before the "
                    "update"
                ),
            }
        ],
        id="rows that are picked one by one are those of the past",
    ),
    pytest.param(
        """
        main (float[B,3,7,5] past, float[B,3,L,5] new, int64[B] start)
            => (float[B,3,7,5] present, float[B,3,7,5] other) {
            present = TensorScatter (past, new, start)
            [reader] other = Neg (past)
        }
        """,
        [{"in_place": no("the past `past` is also read by `Neg` node `reader`")}],
        id="another node reads the past",
    ),
    pytest.param(
        """
        main (float[B,3,7,5] past, float[B,3,L,5] new, int64[1] start)
            => (float[B,3,7,5] present, float[B,3,7,5] other) {
            [reader] other = Neg (past)
            batch = Shape <start = 0, end = 1> (other)
            starts = Expand (start, batch)
            present = TensorScatter (past, new, starts)
        }
        """,
        [{"in_place": IN_PLACE}],
        id="another node reads the past before it is known where to write",
    ),
    pytest.param(
        """
        main (float[B,3,7,5] past, float[B,3,L,5] new, int64[B] start, bool yes)
            => (float[B,3,7,5] present, float[B,3,7,5] other) {
            present = TensorScatter (past, new, start)
            other = If (yes) <
                then_branch = g1 () => (float[B,3,7,5] a) { [inside] a = Neg (past) },
                else_branch = g2 () => (float[B,3,7,5] b) { b = Identity (new) }
            >
        }
        """,
        [{"in_place": no("the past `past` is also read by `Neg` node `inside`")}],
        id="a node in a body reads the past",
    ),
    pytest.param(
        """
        main (float[B,3,7,5] past, float[B,3,L,5] new, int64[B] start)
            => (float[B,3,7,5] present, float[B,3,7,5] copy) {
            present = TensorScatter (past, new, start)
            copy = Identity (past)
        }
        """,
        [{"in_place": no("the past `past` is an output itself")}],
        id="the past is an output",
    ),
    pytest.param(
        """
        main (float[B,3,7,5] past, float[B,3,L,5] new, int64[B] start)
            => (float[B,3,7,5] one, float[B,3,7,5] two) {
            [first] one = TensorScatter (past, new, start)
            [second] two = TensorScatter (past, new, start)
        }
        """,
        [
            {
                "present": "one",
                "in_place": no("the past `past` is also read by `TensorScatter` node `second`"),
            },
            {
                "present": "two",
                "in_place": no("the past `past` is also read by `TensorScatter` node `first`"),
            },
        ],
        id="one past is updated twice",
    ),
    pytest.param(
        """
        main (float[B,3,7,5] past, float[B,3,L,5] new, int64[B] start, int64[B] then)
            => (float[B,3,7,5] present) {
            [first] between = TensorScatter (past, new, start)
            [second] present = TensorScatter (between, new, then)
        }
        """,
        [
            {
                "node": "first",
                "past": "past",
                "present": "present",
                "in_place": no(
                    "the present is also updated by `TensorScatter` node `second` before it is the "
                    "output `present`"
                ),
            },
            {
                "node": "second",
                "past": "past",
                "present": "present",
                "write_indices": "then",
                "in_place": no(
                    "the past is also updated by `TensorScatter` node `first` before the update"
                ),
            },
        ],
        id="two updates in turn are two rows of one cache",
    ),
    pytest.param(
        """
        main (float[B,3,7,5] past, float[B,3,L,5] new, int64[B] start) => (float[B,3,7,5] read) {
            present = TensorScatter (past, new, start)
            read = Neg (present)
        }
        """,
        [{"present": "present", "in_place": no("the present `present` is not a graph output")}],
        id="the present stays inside",
    ),
    pytest.param(
        """
        main (float[B,3,L,5] new, int64[B] start, float[B,3,7,5] x) => (float[B,3,7,5] present) {
            [zeros] past = Mul (x, x)
            present = TensorScatter (past, new, start)
        }
        """,
        [
            {
                "past": "past",
                "in_place": no(
                    "the past `past` is computed by `Mul` node `zeros`, not a graph input"
                ),
            }
        ],
        id="the past is computed",
    ),
    pytest.param(
        """
        main (float[2,3,L,5] new, int64[2] start) => (float[2,3,7,5] read)
        <float[2,3,7,5] state> {
            present = TensorScatter (state, new, start)
            read = Neg (present)
        }
        """,
        None,
        id="an initializer is a state that the model keeps inside",
    ),
    pytest.param(
        """
        main (float[B,3,7,5] past, float[B,3,L,5] new, int64[B] start) => (float[B,3,8,5] present) {
            present = TensorScatter (past, new, start)
        }
        """,
        [{"in_place": no("the declared shapes differ: (B, 3, 7, 5) and (B, 3, 8, 5)")}],
        id="the file declares another shape for the present",
    ),
    pytest.param(
        """
        main (float[2,3,rows,5] past, float[2,3,L,5] new, int64[2] start)
            => (float[present_d0,3,present_d2,5] present) {
            present = TensorScatter (past, new, start)
        }
        """,
        [{"in_place": {"possible": True, "reason": None}}],
        id="the file has other names for the sizes of the present",
    ),
    pytest.param(
        """
        main (float[B,4,L,5] q, float[B,2,L,5] k, float[B,2,L,3] v,
              float[B,2,P,5] past_k, float[B,2,P,3] past_v)
            => (float[B,4,L,3] y, float[B,2,T,5] present_k, float[B,2,T,3] present_v) {
            [attend] y, present_k, present_v = Attention (q, k, v, , past_k, past_v)
        }
        """,
        [
            {
                "kind": "attention",
                "node": "attend",
                "past": "past_k",
                "present": "present_k",
                "update": "k",
                "write_indices": None,
                "axis": 2,
                "mode": None,
                "growing": True,
                "capacity": "P",
                "bytes_per_token": 2 * 5 * 4,
                "in_place": no(GROWS),
            },
            {"past": "past_v", "present": "present_v", "update": "v", "bytes_per_token": 24},
        ],
        id="Attention keeps keys and values of different width",
    ),
    pytest.param(
        """
        main (float[B,2,P,5] past, float[B,2,L,5] new) => (float[B,2,T,5] present) {
            present = Concat <axis = -2> (past, new)
        }
        """,
        [{**CACHE, "kind": "concat", "axis": 2, "growing": True, "in_place": no(GROWS)}],
        id="a Concat that grows",
    ),
    pytest.param(
        """
        main (float[B,2,7,5] past, float[B,2,1,5] new) => (float[B,2,7,5] present)
        <int64[1] one = {1}, int64[1] end = {9}, int64[1] axis = {2}> {
            kept = Slice (past, one, end, axis)
            present = Concat <axis = 2> (kept, new)
        }
        """,
        [
            {
                "kind": "concat",
                "growing": False,
                "capacity": 7,
                "mode": None,
                "in_place": no("`Concat` makes a new tensor of the rows of both"),
            }
        ],
        id="a Concat that drops the oldest row",
    ),
    pytest.param(
        """
        main (float[B,2,7,5] past, float[B,2,1,5] new, int64[1] start) => (float[B,2,7,5] present)
        <int64[1] zero = {0}, int64[1] one = {1}, int64[1] end = {9}, int64[1] axis = {2}> {
            before = Slice (past, zero, start, axis)
            next = Add (start, one)
            after = Slice (past, next, end, axis)
            present = Concat <axis = 2> (before, new, after)
        }
        """,
        [{**CACHE, "kind": "concat", "growing": False, "axis": 2, "capacity": 7}],
        id="a Concat of slices around the new row",
    ),
    pytest.param(
        """
        main (float[B,3,7,5] past, float[B,3,1,5] new, int64[B] start) => (float[B,3,7,5] present)
        <int64[7] places = {0, 1, 2, 3, 4, 5, 6}, int64[1] one = {1}, int64[2] ends = {1, 3}> {
            column = Unsqueeze (start, one)
            hit = Equal (column, places)
            mask = Unsqueeze (hit, ends)
            present = Where (mask, new, past)
        }
        """,
        [
            {
                **CACHE,
                "kind": "where",
                "axis": 2,
                "mode": "linear",
                "write_indices": "start",
                "in_place": IN_PLACE,
            }
        ],
        id="a Where over a one-hot mask",
    ),
    pytest.param(
        """
        main (float[B,3,7,5] past, float[B,3,L,5] new, int64[B,3,L,5] index)
            => (float[B,3,7,5] present) {
            present = ScatterElements <axis = 2> (past, index, new)
        }
        """,
        [
            {
                **CACHE,
                "kind": "scatter_elements",
                "axis": 2,
                "mode": None,
                "write_indices": None,
                "in_place": IN_PLACE,
            }
        ],
        id="an index that is an input proves no order",
    ),
    pytest.param(
        """
        main (float[2,3,7,5] past, float[2,3,1,5] new, int64[3] start) => (float[2,3,7,5] present)
        <int64[4] full = {2, 3, 1, 5}, int64[3] around = {0, 2, 3}> {
            grid = Unsqueeze (start, around)
            index = Expand (grid, full)
            present = ScatterElements <axis = 2> (past, index, new)
        }
        """,
        [{"axis": 2, "mode": None, "write_indices": None, "bytes_per_token": 60}],
        id="a start for each head is no start of a cache",
    ),
    pytest.param(
        """
        main (float[B,L,H] query, float[B,3,P,5] past_k, float[B,3,P,5] past_v, int32[B] lengths,
              int32 total) => (float[B,L,H] y, float[B,3,T,5] present_k, float[B,3,T,5] present_v) {
            y, present_k, present_v = com.microsoft.GroupQueryAttention
                <num_heads = 6, kv_num_heads = 3> (query, , , past_k, past_v, lengths, total)
        }
        """,
        [
            {
                "kind": "group_query_attention",
                "past": "past_k",
                "present": "present_k",
                "update": None,
                "axis": 2,
                "growing": False,
                "capacity": "P",
                "bytes_per_token": 60,
                "in_place": IN_PLACE,
            },
            {"past": "past_v", "present": "present_v"},
        ],
        id="GroupQueryAttention shares one buffer by itself",
    ),
    pytest.param(
        """
        main (float[B,L,60] query, float[B,3,P,D] past_k, uint8[B,3,P,E] past_v, int32[B] lengths,
              int32 total)
            => (float[B,L,30] y, float[B,3,T,D] present_k, uint8[B,3,T,E] present_v) {
            y, present_k, present_v = com.microsoft.GroupQueryAttention
                <num_heads = 6, kv_num_heads = 3> (query, , , past_k, past_v, lengths, total)
        }
        """,
        [
            {"shape": ["B", 3, "P", 5], "bytes_per_token": 60},
            {"shape": ["B", 3, "P", "E"], "bytes_per_token": None},
        ],
        id="the packed query gives the head size, but not that of a quantized cache",
    ),
    pytest.param(
        """
        main (float[B,L,15] q, float[B,L,15] k, float[B,L,15] v, float[B,3,P,5] past_k,
              float[B,3,P,5] past_v)
            => (float[B,L,15] y, float[B,3,T,5] present_k, float[B,3,T,5] present_v) {
            y, present_k, present_v = com.microsoft.MultiHeadAttention <num_heads = 3>
                (q, k, v, , , , past_k, past_v)
        }
        """,
        [
            {"kind": "attention", "past": "past_k", "update": "k", "in_place": no(GROWS)},
            {"kind": "attention", "past": "past_v", "update": "v", "present": "present_v"},
        ],
        id="MultiHeadAttention grows without the length of the past",
    ),
    pytest.param(
        """
        main (float[B,L,15] q, float[B,L,15] k, float[B,L,15] v, float[B,3,7,5] past_k,
              float[B,3,7,5] past_v, int32 length)
            => (float[B,L,15] y, float[B,3,7,5] present_k, float[B,3,7,5] present_v) {
            y, present_k, present_v = com.microsoft.MultiHeadAttention <num_heads = 3>
                (q, k, v, , , , past_k, past_v, length)
        }
        """,
        [
            {"write_indices": "length", "growing": False, "in_place": IN_PLACE},
            {"write_indices": "length", "growing": False, "in_place": IN_PLACE},
        ],
        id="MultiHeadAttention with the length of the past shares one buffer",
    ),
    pytest.param(
        """
        main (float[B,L,15] x, float[15,45] w, float[2,B,3,P,5] past)
            => (float[B,L,15] y, float[2,B,3,T,5] present) {
            y, present = com.microsoft.Attention <num_heads = 3> (x, w, , , past)
        }
        """,
        [{"kind": "attention", "axis": 3, "capacity": "P", "bytes_per_token": 2 * 3 * 5 * 4}],
        id="keys and values in one tensor",
    ),
    pytest.param(
        """
        main (float[B,4,L,5] q, float[B,2,L,5] k, float[B,2,L,5] v)
            => (float[B,4,L,5] y, float[B,2,L,5] present_k, float[B,2,L,5] present_v) {
            y, present_k, present_v = Attention (q, k, v)
        }
        """,
        [
            {"past": None, "present": "present_k", "in_place": no("there is no past")},
            {"past": None, "present": "present_v", "shape": ["B", 2, "L", 5]},
        ],
        id="a prefill starts from nothing",
    ),
    pytest.param(
        """
        main (bool with_past, float[B,2,P,5] past, float[B,2,L,5] new) => (float[B,2,T,5] present) {
            present = If (with_past) <
                then_branch = g1 () => (float[B,2,T,5] a) { a = Concat <axis = 2> (past, new) },
                else_branch = g2 () => (float[B,2,T,5] b) { b = Identity (new) }
            >
        }
        """,
        [
            {
                **CACHE,
                "kind": "concat",
                "graph": "main/#0.then_branch",
                "in_place": no(
                    "the update is in a body of an `If` node, which may run more or less than once"
                ),
            }
        ],
        id="a merged decoder updates the cache in a branch",
    ),
    pytest.param(
        """
        main (int64 steps, bool go, float[2,3,7,5] past, float[2,3,1,5] new, int64[2] start)
            => (float[2,3,7,5] present) {
            [loop] present = Loop (steps, go, past) <
                body = g (int64 i, bool c, float[2,3,7,5] state) => (bool d, float[2,3,7,5] next) {
                    d = Identity (c)
                    next = TensorScatter (state, new, start)
                }
            >
        }
        """,
        [
            {
                **CACHE,
                "graph": "main/loop.body",
                "in_place": no(
                    "the update is in a body of `Loop` node `loop`, "
                    "which may run more or less than once"
                ),
            }
        ],
        id="a loop carries the cache from step to step",
    ),
]


@pytest.mark.long
@each(("text", "expected"), CASES)
def test_table(text: str, expected: list[dict[str, Any]] | None) -> None:
    if expected is None:
        text = text.replace("<float[2,3,7,5] state>", _zeros("state", 2 * 3 * 7 * 5))
        reason = "the past `state` is an initializer, not a graph input"
        expected = [{"past": "state", "present": "present", "in_place": no(reason)}]
    rows = table(graph(text))
    assert [{key: row[key] for key in want} for row, want in zip(rows, expected, strict=True)] == (
        expected
    )


def _zeros(name: str, count: int) -> str:
    return f"<float[2,3,7,5] {name} = {{{', '.join(['0'] * count)}}}>"


NONE = [
    pytest.param(
        """
        main (float[B,3,7,5] x, int64[B] start, int64[B,L] ids) => (int64[B,7] mask) {
            shape = Shape <start = 0, end = 1> (start)
            row = Constant <value_ints = [7]> ()
            full = Concat <axis = 0> (shape, row)
            empty = ConstantOfShape (full)
            written = TensorScatter <axis = 1> (empty, ids, start)
            mask = Neg (written)
        }
        """,
        id="a mask that TensorScatter builds from nothing",
    ),
    pytest.param(
        """
        main (float[B,3] x, float[B,4] y) => (float[B,7] z) { z = Concat <axis = 1> (x, y) }
        """,
        id="features side by side",
    ),
    pytest.param(
        """
        main (float[B,3,32,32] image, float[B,4,32,32] more) => (float[B,7,32,32] z) {
            z = Concat <axis = 1> (image, more)
        }
        """,
        id="channels of an image, of a number that the model fixes",
    ),
    pytest.param(
        """
        main (int64[B,L] ids, int64[B,1] next) => (int64[B,M] z) {
            z = Concat <axis = 1> (ids, next)
        }
        """,
        id="token ids that grow",
    ),
    pytest.param(
        """
        main (float[B,3,7,5] x, bool[B,1,7,1] keep) => (float[B,3,7,5] z) <float zero = {0.0}> {
            z = Where (keep, x, zero)
        }
        """,
        id="an input that is masked with a constant",
    ),
    pytest.param(
        """
        main (float[B,3,7,5] x, float[B,3,1,5] new, int64[B,3,1,5] index) => (float[B,3,7,5] z) {
            z = ScatterElements <axis = 2, reduction = "add"> (x, index, new)
        }
        """,
        id="a sum is no write",
    ),
    pytest.param(
        """
        main (float[B,L,5] embeds, float[N,5] image, int64[N,2] places) => (float[B,L,5] z) {
            filled = ScatterND (embeds, places, image)
            z = Neg (filled)
        }
        """,
        id="an input that is filled and used up",
    ),
    pytest.param(
        """
        main (float[B,3,7,5] x) => (float[B,3,7,5] z) { y = Add (x, x)
            z = Add (x, y) }
        """,
        id="a sum of an input",
    ),
]


@each("text", NONE)
def test_what_is_no_cache(text: str) -> None:
    assert table(graph(text)) == []


LAYERS = """
    main (float[B,3,7,5] past_k, float[B,3,7,5] past_v, float[B,3,L,5] new, int64[B] start)
        => (float[B,3,7,5] present_k, float[B,3,7,5] present_v) {
        [key] present_k = local.write (past_k, new, start)
        [value] present_v = local.write (past_v, new, start)
    }
"""
WRITE = """
    <domain: "local", opset_import: ["": 24, "local": 1]>
    write (cache, rows, at) => (written) {
        same = Identity (cache)
        [scatter] inner = local.inner (same, rows, at)
        written = Identity (inner)
    }
    <domain: "local", opset_import: ["": 24]>
    inner (cache, rows, at) => (written) { [ts] written = TensorScatter (cache, rows, at) }
"""


def test_a_function_updates_one_cache_for_each_call() -> None:
    caches = find_caches(graph(LAYERS, functions=WRITE))
    assert [(c.past, c.present, c.location.graph, c.location.node) for c in caches] == [
        ("past_k", "present_k", "local::inner", "ts"),
        ("past_v", "present_v", "local::inner", "ts"),
    ]
    assert [[call.name for call in c.calls] for c in caches] == [
        ["key", "scatter"],
        ["value", "scatter"],
    ]
    assert [c.axis for c in caches] == [2, 2]  # counted from the back; the ends have the rank
    assert all(c.in_place.possible for c in caches)


def test_a_reader_in_another_function_is_seen() -> None:
    text = LAYERS.replace("float[B,3,7,5] present_v)", "float[B,3,7,5] y)").replace(
        "[value] present_v = local.write (past_v, new, start)", "y = local.read (past_k)"
    )
    read_it = """
        <domain: "local", opset_import: ["": 24]>
        read (x) => (y) { [reader] y = Neg (x) }
    """
    (cache,) = find_caches(graph(text, functions=WRITE + read_it))
    assert cache.in_place.reason == "the past `past_k` is also read by `Neg` node `reader`"


def test_an_axis_that_only_the_call_shows_to_be_wrong() -> None:
    wrong = WRITE.replace("TensorScatter (", "TensorScatter <axis = -4> (")
    caches = find_caches(graph(LAYERS, functions=wrong))
    assert [c.in_place.reason for c in caches] == ["the `TensorScatter` is not valid"] * 2


def test_functions_that_unfold_without_end_are_refused(monkeypatch) -> None:
    monkeypatch.setattr("onnx_kvtool.analysis.caches.routes._MOST_NODES", 1000)
    calls = "".join(
        f"""
        <domain: "local", opset_import: ["": 24, "local": 1]>
        f{i} (x) => (y) {{ a = local.f{i + 1} (x)
            y = local.f{i + 1} (a) }}
        """
        for i in range(22)
    )
    leaf = '<domain: "local", opset_import: ["": 24]>\n f22 (x) => (y) { y = Add (x, x) }'
    text = "main (float[2] x) => (float[2] z) { y = local.f0 (x)\n z = Neg (y) }"
    without_updates = leaf.replace("Add", "Mul")
    assert find_caches(graph(text, functions=calls + without_updates)) == ()
    with pytest.raises(KvtoolError, match="unfold to more than 1,000 nodes"):
        find_caches(graph(text, functions=calls + leaf))


REAL = [
    pytest.param(
        "native/llama_static", 4, {"tensor_scatter"}, "linear", "write_indices", id="native"
    ),
    pytest.param(
        "native/BROKEN_gemma_static_raw_noopt",
        4,
        {"tensor_scatter"},
        "linear",
        "write_indices",
        id="a model that the checker rejects",
    ),
    pytest.param(
        "native/mobius_block_bias_int64_2d", 0, set(), None, None, id="a mask is no cache"
    ),
    pytest.param(
        "genai/genai_llama_fp32_cpu",
        4,
        {"group_query_attention"},
        None,
        None,
        id="contrib operators",
    ),
    pytest.param("concat/gpt2_dynamic__ts_op17", 4, {"concat"}, None, None, id="growing caches"),
    pytest.param(
        "torch_static/hf/llama_static__dynamo_op18",
        4,
        {"scatter_nd"},
        "linear",
        "cache_position",
        id="a start for all sequences, between transposes",
    ),
    pytest.param(
        "torch_static/hf/llama_static__ts_op17",
        4,
        {"scatter_elements"},
        "linear",
        "cache_position",
        id="the scatters on shape vectors are not counted",
    ),
    pytest.param(
        "torch_static/hand/perbatch_index_put_bhsd_sharedB__dynamo_op18",
        1,
        {"scatter_nd"},
        "linear",
        "pos",
        id="tuples of batch and position",
    ),
    pytest.param(
        "torch_static/hand/circular_scatter_sharedB__dynamo_op18",
        1,
        {"scatter_elements"},
        "circular",
        "pos",
        id="positions that wrap",
    ),
    pytest.param(
        "torch_static/hand/index_copy_bhsd__dynamo_op18",
        1,
        {"scatter_nd"},
        None,
        "pos",
        id="free positions",
    ),
    pytest.param(
        "torch_static/hand/onehot_where_sharedB__dynamo_op18",
        1,
        {"where"},
        "linear",
        "pos",
        id="one-hot Where",
    ),
    pytest.param(
        "torch_static/hand/onehot_mul__dynamo_op18", 1, {"where"}, "linear", "pos", id="one-hot sum"
    ),
    pytest.param(
        "torch_static/hand/sliding_hf_old__dynamo_op18",
        1,
        {"scatter_nd"},
        None,
        None,
        id="rows that are moved first",
    ),
    pytest.param(
        "torch_static/hand/shift_cat__dynamo_op18", 1, {"concat"}, None, None, id="rows that shift"
    ),
    pytest.param(
        "torch_static/hand/slice_cat__dynamo_op18",
        1,
        {"concat"},
        None,
        None,
        id="slices around rows",
    ),
]


@pytest.mark.parametrize(("name", "count", "kinds", "mode", "write_indices"), REAL)
def test_real_models(name, count, kinds, mode, write_indices) -> None:
    rows = table(read(ROOT / "fixtures" / "models" / f"{name}.onnx"))
    assert len(rows) == count
    assert {row["kind"] for row in rows} == kinds
    for row in rows:
        assert (row["mode"], row["write_indices"]) == (mode, write_indices)


def test_the_hybrid_model_has_two_kinds_and_two_widths() -> None:
    rows = table(read(ROOT / "fixtures/models/native/gemma4_hybrid_static.onnx"))
    assert [(row["kind"], row["bytes_per_token"], row["capacity"]) for row in rows] == [
        ("attention", 128, "past_sequence_len"),
        ("attention", 128, "past_sequence_len"),
        ("tensor_scatter", 256, 32),
        ("tensor_scatter", 256, 32),
    ]


def test_a_registered_buffer_is_a_cache_inside_of_the_model() -> None:
    (row,) = table(read(ROOT / "fixtures/models/torch_static/hand/buffered__dynamo_op18.onnx"))
    assert (row["kind"], row["past"], row["axis"], row["capacity"]) == (
        "scatter_nd",
        "val_8",
        0,
        16,
    )
    assert row["total_bytes"] == 2 * 2 * 16 * 8 * 4
    assert row["in_place"]["reason"] == "the past `val_8` is an initializer, not a graph input"


def test_slots_in_a_flat_cache_have_no_axis() -> None:
    (row,) = table(read(ROOT / "fixtures/models/torch_static/hand/flat_slots__ts_op17.onnx"))
    assert (row["axis"], row["mode"], row["capacity"], row["bytes_per_token"]) == (None,) * 4
    assert "goes through `Reshape`" in row["in_place"]["reason"]
