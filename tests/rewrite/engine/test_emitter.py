"""Numbers among the inputs of a new node."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from onnx_kvtool.emit.emitter import Emitter, Names, Operand, Refusal, ScopedValues
from onnx_kvtool.emit.forms import Term
from tests.grids import each

_D = ir.DataType


def emitter() -> Emitter:
    scope = ScopedValues(ir.Graph([], [], nodes=[]), None, Names())
    return Emitter(scope, 21, "new")


def value(dtype: ir.DataType) -> ir.Value:
    return ir.Value(name="x", type=ir.TensorType(dtype), shape=ir.Shape([2, 3]))


CASES: list[tuple[str, str, list[Operand], int, np.ndarray, str]] = [
    ("the type of what it is added to", "Add", [value(_D.FLOAT16), 3], 1,
     np.array(3, np.float16), "kvtool/number"),
    ("the type of what stands behind", "Sub", [1, value(_D.INT32)], 0,
     np.array(1, np.int32), "kvtool/const"),
    ("a list beside a value", "Less", [value(_D.DOUBLE), [0.5]], 1,
     np.array([0.5], np.float64), "kvtool/number"),
    ("a shape, whatever is reshaped", "Reshape", [value(_D.BOOL), [0, -1]], 1,
     np.array([0, -1], np.int64), "kvtool/shape"),
    ("a shape of no axes", "Reshape", [value(_D.FLOAT), []], 1,
     np.array([], np.int64), "kvtool/shape"),
    ("an array, which has a type", "Gather", [np.ones(5, np.float32), value(_D.INT64)], 0,
     np.ones(5, np.float32), "kvtool/data"),
    ("a truth value", "Loop", [2, True, value(_D.FLOAT)], 1,
     np.array(True), "kvtool/number"),
]  # fmt: skip


@each(
    ("op_type", "inputs", "at", "expected", "name"),
    [pytest.param(*case, id=title) for title, *case in CASES],
)
def test_a_number_has_the_type_that_the_schema_asks_for(
    op_type: str, inputs: list[Operand], at: int, expected: np.ndarray, name: str
) -> None:
    em = emitter()
    em.op(op_type, *inputs, dtype=_D.FLOAT)
    found = em.nodes[0].inputs[at]
    assert found is not None and found.const_value is not None
    array = found.const_value.numpy()
    assert (array.dtype, array.shape, array.tolist()) == (
        expected.dtype, expected.shape, expected.tolist()
    )  # fmt: skip
    assert found.name == name


def test_a_fraction_beside_an_unknown_type_is_refused() -> None:
    with pytest.raises(Refusal, match="beside") as raised:
        emitter().op("Mul", value(_D.UNDEFINED), 0.5)
    assert raised.value.code == "unknown-element-type"


def test_a_sharing_emitter_adds_no_node_twice() -> None:
    em, x, y = emitter(), value(_D.FLOAT), value(_D.FLOAT)
    first = em.sharing.op("Concat", x, y, axis=0)
    assert em.sharing.op("Concat", x, y, axis=0, hint="again") is first
    others = [
        em.sharing.op("Concat", x, y, axis=1),
        em.sharing.op("Concat", y, x, axis=0),
        em.op("Concat", x, y, axis=0),
    ]
    assert len({first, *others}) == len(em.nodes) == 4


def test_what_is_shared_is_found_when_an_input_became_a_constant() -> None:
    em, x = emitter(), value(_D.INT64)
    em.op("Add", x, 1)
    for _ in range(2):
        five = em.sharing.op("Add", em.constant(2), 3)
        em.sharing.op("Mul", x, five)
        em.fold({five: np.array(5)}.get, ())
    assert [node.op_type for node in em.nodes] == ["Add", "Mul"]


def test_layers_share_what_reads_a_folded_constant() -> None:
    """The constant that only the folded node read is no initializer, and known all the same."""
    scope, x = emitter().scope, value(_D.INT64)
    nodes: list[ir.Node] = []
    for layer in ("a", "b"):
        em = Emitter(scope, 21, layer)
        five = em.sharing.op("Add", em.constant(2), 3)
        product = em.sharing.op("Mul", x, five)
        em.fold({five: np.array(5)}.get, (product,))
        nodes += em.commit()
    assert [node.op_type for node in nodes] == ["Mul"]
    (constant,) = scope.graph.initializers.values()
    assert constant.const_value is not None
    assert constant.const_value.numpy() == 5


FORMULAS: list[tuple[str, Callable[[Term, Term], Term], list[str]]] = [
    ("the order of the operands", lambda a, b: b - a, ["Sub(b, a)"]),
    ("a number in front", lambda a, b: 2 - a, ["Sub(2.0, a)"]),
    ("a list in front", lambda a, b: [2] / a, ["Div([2.0], a)"]),
    ("an array in front", lambda a, b: np.ones(1, np.float32) * a, ["Mul([1.0], a)"]),
    ("a value behind", lambda a, b: a + b.value, ["Add(a, b)"]),
    ("the left one of two terms first", lambda a, b: abs(a) % (a - b),
     ["Abs(a)", "Sub(a, b)", "Mod(Abs, Sub)"]),
    ("conditions", lambda a, b: ~(a < b) & (a > 0) | (b < 0),
     ["Less(a, b)", "Not(Less)", "Greater(a, 0.0)", "And(Not, Greater)", "Less(b, 0.0)",
      "Or(And, Less)"]),
    ("a choice", lambda a, b: (a > b).where(a, 0), ["Greater(a, b)", "Where(Greater, a, 0.0)"]),
    ("a form", lambda a, b: a.reduce("ReduceSum", [1]).cast(_D.INT64),
     ["ReduceSum(a, [1])", "Cast(ReduceSum)"]),
]  # fmt: skip


@each(
    ("formula", "expected"),
    [pytest.param(*case, id=title) for title, *case in FORMULAS],
)
def test_a_formula_adds_a_node_for_each_operator(
    formula: Callable[[Term, Term], Term], expected: list[str]
) -> None:
    em = emitter()
    a, b = (Term(em, value(_D.FLOAT)) for _ in range(2))
    a.value.name, b.value.name = "a", "b"
    result = formula(a, b)
    assert result.value is em.nodes[-1].outputs[0]

    def told(given: ir.Value | None) -> str:
        assert given is not None
        producer = given.producer()
        if producer is not None:
            return producer.op_type
        constant = given.const_value
        return str(given.name if constant is None else constant.numpy().tolist())

    found = [f"{node.op_type}({', '.join(map(told, node.inputs))})" for node in em.nodes]
    assert found == expected
