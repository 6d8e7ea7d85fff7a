"""KV208, KV209: what could be one Attention, or a cache of a fixed capacity."""

from __future__ import annotations

from pathlib import Path

import onnx.parser
import onnx_ir as ir
import pytest
from onnx import compose, helper

import onnx_kvtool as kv
from benchmarks.growing_decoders import Size, growing_decoder
from onnx_kvtool.lint.rule import RULES
from onnx_kvtool.shapes.forward import Forward, GraphContext
from tests.grids import each, rest
from tests.lint.cases import Case, cases, check_case, lint
from tests.rewrite.raising.attention.decoys import DECOYS, Decoy

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"

ATTENTION = """
    <ir_version: 8, opset_import: ["": 18]>
    m (float[B, 6, L, 7] q, float[B, 6, S, 7] k, float[B, 6, S, 13] v) => (float[B, 6, L, 13] y) {
        t = Transpose <perm = [0, 1, 3, 2]> (k)
        s = MatMul (q, t)
        [softmax] p = Softmax <axis = -1> (s)
        y = MatMul (p, v)
    }
"""

MASKED = (
    ATTENTION.replace("(float[B, 6, L, 7] q,", "(float[L, S] m, float[B, 6, L, 7] q,")
    .replace("(s)\n", "(hidden)\n")
    .replace("s = MatMul (q, t)", "s = MatMul (q, t) hidden = Add (s, m)")
)

BRANCH = """
    <ir_version: 8, opset_import: ["": 18]>
    m (bool c, float[B, 6, L, 7] q, float[B, 6, S, 7] k, float[B, 6, S, 7] v)
        => (float[B, 6, L, 7] y) {
        y = If (c) <
            then_branch = yes () => (float[B, 6, L, 7] a) {
                t = Transpose <perm = [0, 1, 3, 2]> (k)
                s = MatMul (q, t)
                [softmax] p = Softmax <axis = -1> (s)
                a = MatMul (p, v)
            },
            else_branch = no () => (float[B, 6, L, 7] b) { b = Identity (q) }
        >
    }
"""

CALLED = """
    <ir_version: 8, opset_import: ["": 18, "own": 1]>
    m (float[B, 6, L, 7] q, float[B, 6, S, 7] k, float[B, 6, S, 7] v) => (float[B, 6, L, 7] y) {
        y = own.attend (q, k, v)
    }
    <domain: "own", opset_import: ["": 18]>
    attend (q, k, v) => (y) {
        t = Transpose <perm = [0, 1, 3, 2]> (k)
        s = MatMul (q, t)
        p = Softmax <axis = -1> (s)
        y = MatMul (p, v)
    }
"""


@pytest.mark.long
@cases(
    [
        Case(
            "names what it reads",
            ATTENTION,
            at=["softmax"],
            says="computes from `q`, `k` and `v` in many nodes what one Attention does",
        ),
        Case("in a branch", BRANCH, at=["softmax"]),
        Case("sizes of a function are those of its calls", CALLED),
        Case("a runtime with Attention", ATTENTION, at=["softmax"], targets=["onnxruntime"]),
        Case("a runtime without", ATTENTION, targets=["onnxruntime@1.17.3"]),
        Case("no mask to be wrong about", ATTENTION, at=["softmax"], targets=["onnxruntime@1.27"]),
        Case("a mask", MASKED, at=["softmax"], targets=["onnxruntime@1.28"]),
        Case("a runtime that is wrong about masks", MASKED, targets=["onnxruntime@1.27"]),
        Case(
            "a contradiction elsewhere",
            ATTENTION.replace("y = MatMul", "z = Reshape (q, k) y = MatMul"),
            at=["softmax"],
        ),
        Case(
            "many are one finding",
            lambda: growing_decoder(Size(3, 32, 4, 2, 64), "pytorch"),
            at=["layers.0.weights/Softmax"],
            says="(2 more candidates)",
        ),
    ]
)
def test_decomposed_attention(case: Case) -> None:
    check_case("KV208", case)


def found(model: ir.Model, code: str) -> int:
    return len(lint(model, [RULES[code]]))


@each("decoy", DECOYS)
def test_what_raise_leaves_is_not_mentioned(decoy: Decoy) -> None:
    model = ir.from_proto(onnx.parser.parse_model(decoy.text))
    types = [(value, value.type) for node in model.graph for value in node.outputs]
    assert found(model, "KV208") == (decoy.becomes == "one")
    assert all(value.type is type_ for value, type_ in types)


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    ["encoders/bert", *rest("growing/bart__dynamo_op18", "growing/t5_decoder_merged__optimum")],
)
def test_it_is_silent_of_what_raise_has_fused(name: str) -> None:
    path = FIXTURES / f"{name}.onnx"
    raised, report = kv.raise_(path, capacity=64, partial=True, verify=False)
    assert found(kv.load(path), "KV208") == 1 <= len(report.attention)
    assert found(raised, "KV208") == 0


def _in_branch(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model that runs `model` as either branch of an If, as optimum merges decoders."""
    outer = onnx.ModelProto()
    outer.CopyFrom(model)
    branches = []
    for prefix in ("yes.", "no."):
        branch = compose.add_prefix_graph(model.graph, prefix, rename_inputs=False)
        del branch.input[:]
        branches.append(branch)
    condition = helper.make_tensor_value_info("condition", onnx.TensorProto.BOOL, [])
    outer.graph.input.append(condition)
    outer.graph.ClearField("initializer")
    outer.graph.ClearField("value_info")
    results = [value.name for value in model.graph.output]
    choice = helper.make_node(
        "If", ["condition"], results, then_branch=branches[0], else_branch=branches[1]
    )
    outer.graph.ClearField("node")
    outer.graph.node.append(choice)
    return outer


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[ir.Node]:
    """Return the nodes that inference goes through from now on."""
    nodes: list[ir.Node] = []
    node = Forward.node

    def counted(run: Forward, at: ir.Node, index: int, context: GraphContext) -> None:
        nodes.append(at)
        node(run, at, index, context)

    monkeypatch.setattr(Forward, "node", counted)
    return nodes


@pytest.mark.long
def test_what_the_check_inferred_is_not_inferred_again(passed: list[ir.Node]) -> None:
    model = kv.load(FIXTURES / "models/concat/gpt2_dynamic__ts_op17.onnx")
    assert found(model, "KV208") == 1
    assert len(passed) == len(set(passed)) == len(model.graph)


@pytest.mark.long
@pytest.mark.parametrize("place", ["the main graph", "a branch"])
def test_one_layer_is_gone_through(place: str, passed: list[ir.Node]) -> None:
    """However many there are, and whatever another branch holds."""
    counts = set()
    for layers in (2, 8):
        proto = growing_decoder(Size(layers, 32, 4, 2, 64), "optimum")
        model = ir.from_proto(proto if place == "the main graph" else _in_branch(proto))
        assert found(model, "KV208") == 1
        assert len(passed) == len(set(passed))
        counts.add(len(passed))
        passed.clear()
    assert len(counts) == 1


GROWING = """
    <ir_version: 10, opset_import: ["": 18]>
    m (float[B, 3, P, 5] past_key, float16[B, 3, P, 7] past_value, float[B, 3, S, 5] k,
       float16[B, 3, S, 7] v)
        => (float[B, 3, T, 5] present_key, float16[B, 3, T, 7] present_value) {
        [keys] present_key = Concat <axis = 2> (past_key, k)
        [values] present_value = Concat <axis = 2> (past_value, v)
    }
"""


CUT = """
    <ir_version: 10, opset_import: ["": 18]>
    m (float[B, 3, P, 5] past, float[B, 3, S, 5] k, int64[1] p) => (float[B, 3, T, 5] present) {
        from = Constant <value_ints = [-7]> () two = Constant <value_ints = [2]> ()
        far = Constant <value_ints = [9223372036854775807]> () zero = Constant <value_ints = [0]> ()
        JOINED
    }
"""

ROLLED = """
    <ir_version: 10, opset_import: ["": 18]>
    m (float[B, 3, 8, 5] past, float[B, 3, 1, 5] k) => (float[B, 3, 8, 5] present) {
        one = Constant <value_ints = [1]> () two = Constant <value_ints = [2]> ()
        zero = Constant <value_ints = [0]> () far = Constant <value_ints = [2147483647]> ()
        tail = Slice (past, one, far, two) head = Slice (past, zero, one, two)
        rolled = Concat <axis = 2> (tail, head)
        rows = Constant <value = int64[1, 1, 1, 1] {7}> () size = Shape (k)
        places = Expand (rows, size)
        [rows] present = ScatterElements <axis = 2> (rolled, places, k)
    }
"""

GATHERED = """
    <ir_version: 8, opset_import: ["": 18]>
    m (float[B, 3, 8, 5] past, float[B, 3, 1, 5] k, int64[1] p, int64[beams] beams)
        => (float[B, 3, 8, 5] present) {
        last = Constant <value_ints = [7]> () size = Constant <value_ints = [8]> ()
        one = Constant <value_ints = [1]> ()
        slots = Constant <value_ints = [0, 1, 2, 3, 4, 5, 6, 7]> ()
        is_full = Greater (p, last) by = Cast <to = 7> (is_full)
        moved_up = Add (slots, by) order = Mod (moved_up, size) place = Min (p, last)
        rolled = GATHER
        rows = Constant <value = int64[1, 1, 1, 1] {0}> () row = Add (rows, place)
        shape = Shape (k) places = Expand (row, shape)
        [rows] present = ScatterElements <axis = 2> (rolled, places, k)
    }
"""


@cases(
    [
        Case(
            "cut before and behind",
            CUT.replace(
                "JOINED",
                "kept = Slice (past, from, far, two) [rows] all = Concat <axis = 2> (kept, k)"
                " present = Slice (all, from, far, two)",
            ),
            at=["rows"],
            says="a step moves all rows of 1 window, 60 B for each row of one sequence",
        ),
        Case(
            "cut behind alone",
            CUT.replace(
                "JOINED",
                "[rows] all = Concat <axis = 2> (past, k) present = Slice (all, from, far, two)",
            ),
            at=["rows"],
            says="a step moves all rows of 1 window",
        ),
        Case(
            "rolled, and written at the end",
            ROLLED,
            at=["rows"],
            says="a step moves all rows of 1 window, 60 B for each row of one sequence",
        ),
        Case(
            "gathered, and written at the end",
            GATHERED.replace("GATHER", "Gather <axis = 2> (past, order)"),
            at=["rows"],
            says="a step moves all rows of 1 window",
        ),
        Case(
            "gathered as tuples from rows that come first",
            GATHERED.replace(
                "rolled = GATHER",
                "first = Transpose <perm = [2, 0, 1, 3]> (past) tuples = Unsqueeze (order, one)"
                " moved = GatherND (first, tuples)"
                " rolled = Transpose <perm = [1, 2, 0, 3]> (moved)",
            ),
            at=["rows"],
            says="a step moves all rows of 1 window",
        ),
        Case(
            "sequences in another order, as a search of beams puts them",
            GATHERED.replace("GATHER", "Gather <axis = 0> (past, beams)"),
        ),
        Case(
            "heads in another order",
            GATHERED.replace("GATHER", "Gather <axis = 1> (past, beams)"),
        ),
        Case(
            "rows thrown away that were never good",
            CUT.replace(
                "JOINED",
                "kept = Slice (past, zero, p, two) present = Concat <axis = 2> (kept, k)",
            ),
        ),
    ]
)
def test_rolling_window(case: Case) -> None:
    check_case("KV209", case)


def test_a_window_names_the_assumption() -> None:
    model = ir.from_proto(onnx.parser.parse_model(ROLLED.replace("[rows] ", "")))
    (found,) = lint(model, [RULES["KV209"]])
    assert found.help is not None
    assert found.help.startswith("run `kvtool raise --assume rotated-rows`")


@cases(
    [
        Case(
            "once for all, with what a step copies",
            GROWING,
            at=["keys"],
            says="a step copies all rows of 2 caches, 102 B for each token so far of one sequence",
        ),
        Case(
            "heads of an unknown number",
            GROWING.replace("B, 3", "B, H"),
            at=["keys"],
            says="a step copies all rows of 2 caches",
        ),
        Case(
            "rows that are no output of the model",
            GROWING.replace("present_key = Concat", "key = Concat")
            .replace("present_value = Concat", "value = Concat")
            .replace(
                "(past_value, v)",
                "(past_value, v) present_key = Neg (key) present_value = Neg (value)",
            ),
        ),
    ]
)
def test_growing_cache(case: Case) -> None:
    check_case("KV209", case)
