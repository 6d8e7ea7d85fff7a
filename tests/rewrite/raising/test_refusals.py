"""What is no TensorScatter stays as it is, and the missing fact is named."""

from __future__ import annotations

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from onnx_kvtool.commands.raise_ import raise_

_HEAD = """
    zero = Constant <value_int = 0> () one = Constant <value_int = 1> ()
    last = Constant <value_ints = [-1]> () first = Constant <value_ints = [0]> ()
    second = Constant <value_ints = [1]> () size = Constant <value_int = 7> ()
    shape = Shape <start = 1, end = 2> (update) length = Squeeze (shape)
    rows = Range (zero, length, one)
"""
_INPUTS = "float[B,7,5] cache, float[B,L,5] update, int64 start, int64[B] starts, int64[L] free"
_WRITE = """
    index = Unsqueeze (positions, last)
    c = Transpose <perm = [1, 0, 2]> (cache) u = Transpose <perm = [1, 0, 2]> (update)
    written = ScatterND (c, index, u) present = Transpose <perm = [1, 0, 2]> (written)
"""
_PER_BATCH = """
    column = Unsqueeze (starts, second) line = Unsqueeze (rows, first)
    positions = Add (column, line)
"""
_ELEMENTS = """
    spread = Unsqueeze (positions, last) whole = Shape (update) index = Expand (spread, whole)
    present = ScatterElements <axis = 1> (cache, index, update)
"""
_COMBINED = _ELEMENTS.replace("axis = 1", "axis = 1, reduction = ")

CASES: dict[str, tuple[str, str, str, str | None]] = {
    # name: (inputs, nodes, reason code, assumption)
    "positions from an input": (
        _INPUTS,
        f"positions = Identity (free) {_WRITE}",
        "free-positions",
        "contiguous:free",
    ),
    "positions that count down": (
        _INPUTS,
        f"positions = Sub (start, rows) {_WRITE}",
        "not-counting",
        None,
    ),
    "every second position": (
        _INPUTS,
        f"""two = Constant <value_int = 2> () far = Mul (rows, two) positions = Add (far, start)
        {_WRITE}""",
        "not-counting",
        None,
    ),
    "one position for all rows": (
        _INPUTS,
        f"none = Mul (rows, zero) positions = Add (none, start) {_WRITE}",
        "duplicate-rows",
        None,
    ),
    "the last position, counted from the end": (
        "float[B,7,5] cache, float[B,1,5] update",
        f"positions = Identity (last) {_WRITE}",
        "negative-start",
        None,
    ),
    "positions that wrap at another size": (
        _INPUTS,
        f"""six = Constant <value_int = 6> () far = Add (rows, start) positions = Mod (far, six)
        {_WRITE}""",
        "other-modulus",
        None,
    ),
    "rows that were rolled before": (
        _INPUTS,
        f"""far = Constant <value_ints = [9223372036854775807]> ()
        tail = Slice (cache, second, far, second) head = Slice (cache, first, second, second)
        rolled = Concat <axis = 1> (tail, head)
        positions = Add (rows, start) {_WRITE.replace("(cache)", "(rolled)")}""",
        "rows-move",
        None,
    ),
    "a cache that is a constant of the model": (
        _INPUTS,
        f"""sizes = Constant <value_ints = [4, 7, 5]> ()
        made = Constant <value = float[1,7,5] {{{", ".join(["0"] * 35)}}}> ()
        positions = Add (rows, start) {_WRITE.replace("(cache)", "(made)")}""",
        "cache-is-initializer",
        None,
    ),
    "a cache whose sequence comes first": (
        "float[7,B,5] cache, float[L,B,5] update, int64 start",
        """all = Shape <start = 0, end = 1> (update) count = Squeeze (all)
        numbers = Range (zero, count, one) positions = Add (numbers, start)
        index = Unsqueeze (positions, last) present = ScatterND (cache, index, update)""",
        "batch-not-first",
        None,
    ),
    "sums in place of the rows": (
        _INPUTS,
        _PER_BATCH + _COMBINED.replace("reduction = ", 'reduction = "add"'),
        "reduction",
        None,
    ),
    "a batch of another name": (
        "float[B,7,5] cache, float[U,L,5] update, int64[U] starts",
        _PER_BATCH + _ELEMENTS,
        "sizes-unrelated",
        "same-dim:B=U",
    ),
    "a part of the features": (
        "float[B,7,5] cache, float[B,L,3] update, int64[B] starts",
        _PER_BATCH + _ELEMENTS,
        "part-of-axis",
        None,
    ),
    "a start per feature": (
        "float[B,7,5] cache, float[B,L,5] update, int64[5] starts",
        """column = Unsqueeze (starts, first) line = Unsqueeze (rows, second)
        positions = Add (column, line) whole = Shape (update) index = Expand (positions, whole)
        present = ScatterElements <axis = 1> (cache, index, update)""",
        "start-not-per-batch",
        None,
    ),
    "a mask whose position may be outside": (
        "float[B,7,5] cache, float[B,1,5] update, int64[B] starts",
        """all = Range (zero, size, one) column = Unsqueeze (starts, second)
        hit = Equal (column, all) mask = Unsqueeze (hit, last)
        present = Where (mask, update, cache)""",
        "position-in-range",
        "in-range:starts",
    ),
    "slices with a gap between them": (
        "float[B,7,5] cache, float[B,L,5] update, int64[1] start",
        """far = Constant <value_ints = [9223372036854775807]> () next = Add (start, second)
        before = Slice (cache, first, start, second) after = Slice (cache, next, far, second)
        present = Concat <axis = 1> (before, update, after)""",
        "rows-move",
        None,
    ),
}

SILENT = {
    "a cache that is shifted": """far = Constant <value_ints = [9223372036854775807]> ()
        tail = Slice (cache, second, far, second) present = Concat <axis = 1> (tail, update)""",
    "a cache that loses its last rows": """minus = Constant <value_ints = [-3]> ()
        head = Slice (cache, first, minus, second) present = Concat <axis = 1> (head, update)""",
    "a cache that is rolled": """far = Constant <value_ints = [9223372036854775807]> ()
        tail = Slice (cache, second, far, second) head = Slice (cache, first, second, second)
        present = Concat <axis = 1> (tail, head)""",
    "a cache that is put together again": """far = Constant <value_ints = [9223372036854775807]> ()
        tail = Slice (cache, second, far, second) head = Slice (cache, first, second, second)
        present = Concat <axis = 1> (head, tail)""",
    "an attention mask": """all = Range (zero, size, one) later = Less (all, start)
        mask = Unsqueeze (later, last) present = Where (mask, cache, cache)""",
    "a shape that is changed": """sizes = Shape (cache)
        changed = ScatterElements (sizes, second, second)
        present = Reshape (cache, changed)""",
    "the choices of a router in zeros": """two = Constant <value_ints = [2]> ()
        scores = Neg (update)
        best, experts = TopK <axis = 2> (scores, two)
        sizes = Shape (scores) zeros = ConstantOfShape (sizes)
        present = ScatterElements <axis = 2> (zeros, experts, best)""",
    "scores with the best ones left out": """scores = Neg (update)
        best, experts = TopK <axis = 2> (scores, second) never = Neg (best)
        present = ScatterElements <axis = 2> (scores, experts, never)""",
    "zeros that are written twice": """sizes = Shape (update) zeros = ConstantOfShape (sizes)
        best, experts = TopK <axis = 2> (update, second)
        some = ScatterElements <axis = 2> (zeros, experts, best)
        present = ScatterElements <axis = 2> (some, experts, best)""",
}


def _model(inputs: str, nodes: str) -> ir.Model:
    text = f"""<ir_version: 8, opset_import: ["": 18]>
    decoder ({inputs}) => (float[b,s,d] present) {{ {_HEAD} {nodes} }}"""
    model = onnx.parser.parse_model(text)
    onnx.checker.check_model(model)
    return ir.from_proto(model)


@pytest.mark.parametrize(("inputs", "nodes", "code", "assumption"), CASES.values(), ids=CASES)
def test_a_refusal_says_what_is_missing_and_what_would_supply_it(
    inputs: str, nodes: str, code: str, assumption: str | None
) -> None:
    source = _model(inputs, nodes)
    raised, report = raise_(source)
    (refusal,) = report.refused
    assert (refusal.code, refusal.assumption) == (code, assumption), refusal.message
    assert report.raised == []
    assert (report.target_opset, raised.opset_imports[""]) == (18, 18)
    assert ir.to_proto(raised) == ir.to_proto(source)


@pytest.mark.parametrize("nodes", SILENT.values(), ids=SILENT)
def test_what_is_no_candidate_is_not_spoken_of(nodes: str) -> None:
    _, report = raise_(_model(_INPUTS, nodes))
    assert (report.raised, report.refused) == ([], [])
