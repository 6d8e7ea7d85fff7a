"""Each update form that exporters emit, written in ONNX text, becomes one TensorScatter."""

from __future__ import annotations

from dataclasses import dataclass

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from onnx_kvtool.commands.raise_ import raise_

_CONSTANTS = """
    zero = Constant <value_int = 0> ()
    one = Constant <value_int = 1> ()
    last = Constant <value_ints = [-1]> ()
    first = Constant <value_ints = [0]> ()
    second = Constant <value_ints = [1]> ()
"""
_LENGTH = "shape = Shape <start = 2, end = 3> (update)"
_ROWS = f"""
    {_LENGTH}
    length = Squeeze (shape)
    rows = Range (zero, length, one)
"""
_CACHE = "float[B,3,7,5] cache, float[B,3,L,5] update"


@dataclass(frozen=True, slots=True)
class Form:
    """One update.

    Attributes:
        inputs: The cache, the update, and what says where it goes.
        nodes: What writes `present`.
        result: Type of `present`.
        axis, mode, write_indices: The TensorScatter that is expected; for a `write_indices` that is
            not an input: None for none at all, `new` for a value that is made.
        ops: All operators of the result, in order.
        assume: What has to be granted.
        opset: Version of the default domain.
    """

    inputs: str
    nodes: str
    result: str = "float[B,3,7,5]"
    axis: int = 2
    mode: str = "linear"
    write_indices: str | None = "new"
    ops: tuple[str, ...] = ("Reshape", "Shape", "Expand", "TensorScatter")
    assume: tuple[str, ...] = ()
    opset: int = 18


_TRANSPOSED = """
    c = Transpose <perm = [2, 0, 1, 3]> (cache)
    u = Transpose <perm = [2, 0, 1, 3]> (update)
    written = ScatterND (c, index, u)
    present = Transpose <perm = [1, 2, 0, 3]> (written)
"""
_PER_BATCH = """
    column = Unsqueeze (starts, second)
    line = Unsqueeze (rows, first)
    positions = Add (column, line)
"""
_ELEMENTS = """
    places = Constant <value_ints = [1, 3]> ()
    spread = Unsqueeze (positions, places)
    whole = Shape (update)
    index = Expand (spread, whole)
    present = ScatterElements <axis = 2> (cache, index, update)
"""
_MASK = """
    size = Constant <value_int = 7> ()
    all = Range (zero, size, one)
    column = Unsqueeze (starts, second)
    hit = Equal (column, all)
    places = Constant <value_ints = [1, 3]> ()
    mask = Unsqueeze (hit, places)
"""
_ONE_TOKEN = "float[B,3,7,5] cache, float[B,3,1,5] update, int64[B] starts"

FORMS = {
    "one start for all, between transposes": Form(
        f"{_CACHE}, int64 start",
        f"{_ROWS} positions = Add (rows, start) index = Unsqueeze (positions, last) {_TRANSPOSED}",
    ),
    "the first element of a position input, between transposes": Form(
        f"{_CACHE}, int64[L] positions",
        f"{_ROWS} start = Gather (positions, zero) added = Add (rows, start)"
        f"index = Unsqueeze (added, last) {_TRANSPOSED}",
        ops=("Gather", "Shape", "Expand", "TensorScatter"),
    ),
    "free positions that are assumed to count up": Form(
        f"{_CACHE}, int64[L] positions",
        f"index = Unsqueeze (positions, last) {_TRANSPOSED}",
        assume=("contiguous:positions",),
        ops=("Gather", "Shape", "Expand", "TensorScatter"),
    ),
    "a free position of a single row": Form(
        "float[B,3,7,5] cache, float[B,3,1,5] update, int64[1] positions",
        f"index = Unsqueeze (positions, last) {_TRANSPOSED}",
        ops=("Shape", "Expand", "TensorScatter"),
    ),
    "one start for all as ScatterElements": Form(
        f"{_CACHE}, int64 start",
        f"""{_ROWS} positions = Add (rows, start)
        places = Constant <value_ints = [0, 1, 3]> ()
        spread = Unsqueeze (positions, places)
        whole = Shape (update)
        index = Expand (spread, whole)
        present = ScatterElements <axis = -2> (cache, index, update)""",
    ),
    "a start per sequence as ScatterElements": Form(
        f"{_CACHE}, int64[B] starts",
        f"{_ROWS} {_PER_BATCH} {_ELEMENTS}",
        write_indices="starts",
        ops=("TensorScatter",),
    ),
    "a start per sequence as int32": Form(
        f"{_CACHE}, int32[B] starts32",
        f"starts = Cast <to = 7> (starts32) {_ROWS} {_PER_BATCH} {_ELEMENTS}",
        ops=("Cast", "TensorScatter"),
    ),
    "a start per sequence in tuples with the batch": Form(
        "float[B,7,3,5] cache, float[B,L,3,5] update, int64[B] starts",
        f"""{_ROWS.replace("start = 2, end = 3", "start = 1, end = 2")} {_PER_BATCH}
        batches = Shape <start = 0, end = 1> (cache)
        batch = Squeeze (batches)
        sequences = Range (zero, batch, one)
        sequence = Unsqueeze (sequences, second)
        grid = Shape (positions)
        b = Expand (sequence, grid)
        b1 = Unsqueeze (b, last)
        p1 = Unsqueeze (positions, last)
        index = Concat <axis = -1> (b1, p1)
        present = ScatterND (cache, index, update)""",
        result="float[B,7,3,5]",
        axis=1,
        write_indices="starts",
        ops=("TensorScatter",),
    ),
    "one row per sequence, which the update has no axis for": Form(
        "float[B,7,5] cache, float[B,5] update, int64[B] starts",
        """batches = Shape <start = 0, end = 1> (cache)
        batch = Squeeze (batches)
        sequences = Range (zero, batch, one)
        b = Unsqueeze (sequences, last)
        p = Unsqueeze (starts, last)
        index = Concat <axis = -1> (b, p)
        present = ScatterND (cache, index, update)""",
        result="float[B,7,5]",
        axis=1,
        write_indices="starts",
        ops=("Unsqueeze", "TensorScatter"),
    ),
    "a slice of a range between transposes that swap": Form(
        f"{_CACHE}, int64[1] start",
        f"""{_LENGTH} end = Add (start, shape)
        size = Constant <value_int = 7> ()
        all = Range (zero, size, one)
        positions = Slice (all, start, end, first)
        index = Unsqueeze (positions, last)
        c = Transpose <perm = [2, 1, 0, 3]> (cache)
        u = Transpose <perm = [2, 1, 0, 3]> (update)
        written = ScatterND (c, index, u)
        present = Transpose <perm = [2, 1, 0, 3]> (written)""",
        ops=("Shape", "Expand", "TensorScatter"),
    ),
    "the batch squeezed away": Form(
        "float[B,7,5] cache, float[B,L,5] update, int64[B] starts",
        f"""{_ROWS.replace("start = 2, end = 3", "start = 1, end = 2")}
        start = Squeeze (starts, first)
        positions = Add (rows, start)
        index = Unsqueeze (positions, last)
        c = Squeeze (cache, first)
        u = Squeeze (update, first)
        written = ScatterND (c, index, u)
        present = Unsqueeze (written, first)""",
        result="float[B,7,5]",
        axis=1,
        write_indices="starts",
        ops=("TensorScatter",),
    ),
    "positions that wrap": Form(
        f"{_CACHE}, int64[B] starts",
        f"""{_ROWS} {_PER_BATCH.replace("positions", "far")}
        size = Constant <value_int = 7> ()
        positions = Mod (far, size) {_ELEMENTS}""",
        mode="circular",
        write_indices="starts",
        ops=("TensorScatter",),
    ),
    "a constant start": Form(
        _CACHE,
        f"""{_ROWS} two = Constant <value_int = 2> () positions = Add (rows, two)
        index = Unsqueeze (positions, last) {_TRANSPOSED}""",
        ops=("Shape", "Expand", "TensorScatter"),
    ),
    "the first rows": Form(
        _CACHE,
        f"{_ROWS} index = Unsqueeze (rows, last) {_TRANSPOSED}",
        write_indices=None,
        ops=("TensorScatter",),
    ),
    "Where over a mask of one position": Form(
        _ONE_TOKEN,
        f"{_MASK} present = Where (mask, update, cache)",
        write_indices="starts",
        ops=("TensorScatter",),
        assume=("in-range:starts",),
    ),
    "Where over the opposite mask": Form(
        _ONE_TOKEN,
        f"{_MASK} other = Not (mask) present = Where (other, cache, update)",
        write_indices="starts",
        ops=("TensorScatter",),
        assume=("in-range",),
    ),
    "a sum of masked products": Form(
        _ONE_TOKEN,
        f"""{_MASK} chosen = Cast <to = 1> (mask) unit = Constant <value_float = 1.0> ()
        kept = Sub (unit, chosen) old = Mul (cache, kept) new = Mul (chosen, update)
        present = Add (new, old)""",
        write_indices="starts",
        ops=("TensorScatter",),
        assume=("in-range", "finite:cache", "finite:update"),
    ),
    "Concat of two slices around the rows": Form(
        f"{_CACHE}, int64[1] start",
        f"""{_LENGTH} end = Add (start, shape)
        axis = Constant <value_ints = [2]> ()
        far = Constant <value_ints = [9223372036854775807]> ()
        before = Slice (cache, first, start, axis)
        after = Slice (cache, end, far, axis)
        present = Concat <axis = 2> (before, update, after)""",
        ops=("Shape", "Expand", "TensorScatter"),
    ),
    "Concat of the rows and the rest of the cache": Form(
        _CACHE,
        f"""{_LENGTH} axis = Constant <value_ints = [2]> ()
        far = Constant <value_ints = [9223372036854775807]> ()
        after = Slice (cache, shape, far, axis)
        present = Concat <axis = 2> (update, after)""",
        write_indices=None,
        ops=("TensorScatter",),
    ),
    "Concat of the cache but for its end and the rows": Form(
        _CACHE,
        f"""{_LENGTH} axis = Constant <value_ints = [2]> ()
        size = Shape <start = 2, end = 3> (cache)
        end = Sub (size, shape) before = Slice (cache, first, end, axis)
        present = Concat <axis = 2> (before, update)""",
        write_indices="new",
        ops=("Shape", "Mul", "Add", "Shape", "Expand", "TensorScatter"),
    ),
    "Concat of rows at an end that is counted from it": Form(
        _CACHE.replace("L", "2"),
        """minus = Constant <value_ints = [-2]> () axis = Constant <value_ints = [2]> ()
        before = Slice (cache, first, minus, axis)
        present = Concat <axis = 2> (before, update)""",
        write_indices="new",
        ops=("Shape", "Expand", "TensorScatter"),
    ),
    "axes as attributes at opset 11": Form(
        f"{_CACHE}, int64[B] starts",
        """shape = Shape (update) two = Constant <value = int64 {2}> ()
        zero = Constant <value = int64 {0}> () one = Constant <value = int64 {1}> ()
        length = Gather (shape, two) rows = Range (zero, length, one)
        column = Unsqueeze <axes = [1]> (starts) line = Unsqueeze <axes = [0]> (rows)
        positions = Add (column, line) spread = Unsqueeze <axes = [1, 3]> (positions)
        index = Expand (spread, shape)
        present = ScatterElements <axis = 2> (cache, index, update)""",
        write_indices="starts",
        ops=("TensorScatter",),
        opset=11,
    ),
}


def parsed(form: Form) -> ir.Model:
    """Return the model of a form."""
    constants = _CONSTANTS if form.opset >= 13 else ""
    text = f"""<ir_version: 8, opset_import: ["": {form.opset}]>
    decoder ({form.inputs}) => ({form.result} present) {{ {constants} {form.nodes} }}"""
    model = onnx.parser.parse_model(text)
    onnx.checker.check_model(model)
    return ir.from_proto(model)


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_proven_update_becomes_one_tensor_scatter_and_nothing_else_stays(form: Form) -> None:
    source = parsed(form)
    names = {value.name for value in source.graph.inputs}
    raised, report = raise_(source, assume=form.assume, verify=True)

    (done,) = report.raised
    assert report.refused == []
    assert (done.axis, done.mode, done.past) == (form.axis, form.mode, "cache")
    assert done.present == "present"
    starts = done.write_indices
    assert (starts if starts in names or starts is None else "new") == form.write_indices
    assert done.assumed == form.assume
    unused = ("Constant",)
    assert tuple(n.op_type for n in raised.graph if n.op_type not in unused) == form.ops
    assert report.verification.status == "equal", report.verification.detail
    assert "present" in report.verification.bit_equal
    onnx.checker.check_model(ir.to_proto(raised), full_check=True)


@pytest.mark.parametrize(
    "form",
    [pytest.param(form, id=name) for name, form in FORMS.items() if form.assume],
)
def test_without_its_assumptions_it_is_refused_and_the_first_one_is_named(form: Form) -> None:
    source = parsed(form)
    granted: list[str] = []
    for _ in range(4):
        raised, report = raise_(source, assume=granted, verify=False)
        if report.raised:
            break
        (refusal,) = report.refused
        assert refusal.assumption is not None
        assert ir.to_proto(raised) == ir.to_proto(source)
        granted.append(refusal.assumption)
    assert [text.split(":")[0] for text in granted] == [t.split(":")[0] for t in form.assume]


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "double", "int8", "uint64", "bool"])
def test_every_element_type_is_raised(dtype: str) -> None:
    form = FORMS["a start per sequence as ScatterElements"]
    source = parsed(
        Form(form.inputs.replace("float", dtype), form.nodes, f"{dtype}[B,3,7,5]", opset=18)
    )
    _, report = raise_(source, verify=True)
    assert [done.write_indices for done in report.raised] == ["starts"]
    assert report.verification.status == "equal", report.verification.detail
