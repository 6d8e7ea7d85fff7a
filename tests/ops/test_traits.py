"""Traits hold: against the schemas of onnx, and against what its node cases give.

The cases of onnx are inputs and outputs that nobody here has chosen. What a trait says of the
output is asked of the expected one; what it says of a change of the input is asked of
onnx.reference, which runs the case once more on changed inputs.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx.defs
import pytest
from onnx.reference import ReferenceEvaluator

from onnx_kvtool.contrib.table import CONTRIB_RULES
from onnx_kvtool.ops.schema import NEWEST, OpFacts, op_facts
from onnx_kvtool.ops.trait_table import TRAITS
from onnx_kvtool.ops.traits import OPAQUE, Trait, Traits, having, traits_of
from tests.conformance.corpus import Case, cases
from tests.grids import each

T = Trait

DISCRETE = {f"tensor({name})" for name in ("bool", "int2", "int4", "int8", "int16", "int32")}
DISCRETE |= {f"tensor(u{name})" for name in ("int2", "int4", "int8", "int16", "int32", "int64")}
DISCRETE |= {"tensor(int64)", "tensor(string)"}


# What the schemas say


@functools.cache
def history() -> dict[tuple[str, str], list[onnx.defs.OpSchema]]:
    """Return every version of every operator of onnx that says what it takes."""
    found: dict[tuple[str, str], list[onnx.defs.OpSchema]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        found.setdefault((schema.domain, schema.name), []).append(schema)
    return found


def facts_of(op_type: str) -> OpFacts:
    facts = op_facts(op_type, NEWEST)
    assert facts is not None, op_type
    return facts


def standard(*wanted: Trait) -> list[str]:
    """Return the operators of the default domain that onnx defines and that have some traits."""
    return sorted(op for op in having(*wanted) if ("", op) in history())


def test_every_operator_has_its_line_and_no_line_is_of_another() -> None:
    assert set(TRAITS) == {*history(), *CONTRIB_RULES}


def test_what_is_not_in_the_table_is_opaque() -> None:
    assert traits_of("NoSuchOperator") is OPAQUE
    assert traits_of("Reshape", "some.domain") is OPAQUE
    assert traits_of("Reshape", "ai.onnx") is traits_of("Reshape")


@each(("domain", "op_type"), TRAITS.keys())
def test_names_are_those_of_some_version(domain: str, op_type: str) -> None:
    traits, schemas = TRAITS[domain, op_type], history().get((domain, op_type), [])
    inputs = {formal.name for schema in schemas for formal in schema.inputs}
    attributes = {name for schema in schemas for name in schema.attributes}
    assert {*traits.sizes} <= inputs | attributes
    assert traits.positions is None or traits.positions in inputs
    assert traits.element_type is None or traits.element_type.attribute in attributes


@each("op_type", standard())
def test_the_element_type_is_that_of_an_attribute_where_the_schema_leaves_it_open(
    op_type: str,
) -> None:
    facts, source = facts_of(op_type), traits_of(op_type).element_type
    if not facts.outputs:
        return
    output = facts.outputs[0]
    given = [f.type_parameter for f in facts.inputs]
    is_open = output.type_parameter not in given and len(output.types) > 1 and not output.variadic
    if source is None:
        assert not is_open or op_type in TYPED_OTHERWISE, output.type_parameter
        return
    default = facts.attributes[source.attribute].default
    if isinstance(source.otherwise, int) and not hasattr(source.otherwise, "name"):
        assert default is None
    elif default is not None:
        assert source.otherwise is not None and source.otherwise.value == default
    else:
        assert op_type in ("ConstantOfShape", "Multinomial", "RandomNormal", "RandomUniform") or (
            facts.attributes[source.attribute].required or op_type == "Constant"
        )


TYPED_OTHERWISE = {
    "ConcatFromSequence": "of the sequence",
    "DequantizeLinear": "of its scale, or `output_dtype`",
    "If": "of its branches",
    "ImageDecoder": "always uint8",
    "Optional": "of its value, or of a type",
    "OptionalGetElement": "of what it holds",
    "QuantizeLinear": "of its zero point, or `output_dtype`",
    "SequenceAt": "of the sequence",
    "SequenceConstruct": "a sequence of what it is given",
    "SequenceEmpty": "of an attribute, as a sequence",
    "SplitToSequence": "a sequence of what is split",
}


@each("op_type", standard(T.BROADCASTS))
def test_broadcasting_is_documented(op_type: str) -> None:
    schema = onnx.defs.get_schema(op_type)
    assert "numpy-style) broadcasting" in schema.doc.lower() or op_type in (
        "BitShift",
        "StringConcat",
    )
    formals = schema.inputs
    assert len({formal.type_str for formal in formals}) == 1 or op_type in ("Pow", "Where")


MULTIDIRECTIONAL = "**multidirectional (i.e., numpy-style) broadcasting**"


def test_what_documents_broadcasting_of_all_inputs_broadcasts() -> None:
    documented = {
        name
        for (domain, name), schemas in history().items()
        if not domain and MULTIDIRECTIONAL in schemas[-1].doc.lower()
    }
    assert documented - having(T.BROADCASTS) == set()


@each("op_type", standard(T.BROADCASTS))
def test_the_output_of_what_broadcasts_has_the_type_of_an_input_or_is_decided(op_type: str) -> None:
    facts = facts_of(op_type)
    output = facts.outputs[0]
    is_same = any(output.type_parameter == f.type_parameter for f in facts.inputs)
    is_boolean = all(f.types == output.types == {"tensor(bool)"} for f in facts.inputs)
    assert (is_same or is_boolean) != (T.DECIDES in traits_of(op_type))


@each("op_type", standard(T.MOVES))
def test_what_moves_gives_the_type_of_what_it_moves(op_type: str) -> None:
    facts = facts_of(op_type)
    moved = facts.outputs[0].type_parameter
    assert moved in {f.type_parameter for f in facts.inputs}
    if op_type not in ("Where", "OneHot"):
        assert facts.inputs[0].type_parameter == moved


@each("op_type", standard(T.DECIDES))
def test_what_is_decided_is_no_float(op_type: str) -> None:
    assert facts_of(op_type).outputs[0].types <= DISCRETE


SCHEMA_SAYS: list[tuple[Trait, Callable[[onnx.defs.OpSchema], bool], set[str]]] = [
    (
        T.HAS_BODY,
        lambda s: any(a.type.name == "GRAPH" for a in s.attributes.values()),
        set(),
    ),
    (T.REDUCES, lambda s: "keepdims" in s.attributes, {"SplitToSequence"}),
    # Dropout draws only where it is told to train.
    (T.RANDOM, lambda s: "seed" in s.attributes, {"Dropout"}),
    # Windows of ConvTranspose and MaxUnpool move over the output.
    (T.WINDOWED, lambda s: "kernel_shape" in s.attributes, {"ConvTranspose", "MaxUnpool"}),
    (T.CONVOLVES, lambda s: "group" in s.attributes, {"ConvTranspose"}),
    (T.GIVES_SIZES, lambda s: s.name in ("Shape", "Size"), set()),
    (
        T.CASTS,
        lambda s: s.name.startswith("Cast") and s.outputs[0].type_str == "T2",
        set(),
    ),
]


@each(("trait", "says", "but"), SCHEMA_SAYS)
def test_traits_that_show_in_the_schema(
    trait: Trait, says: Callable[[onnx.defs.OpSchema], bool], but: set[str]
) -> None:
    seen = {name for (domain, name), s in history().items() if not domain and says(s[-1])}
    assert seen - but == set(standard(trait))


# What the cases give


@functools.cache
def cases_of() -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for case in cases():
        nodes = case.model.graph.node
        if len(nodes) == 1 and nodes[0].domain == "":
            found.setdefault(nodes[0].op_type, []).append(case)
    return found


def operands(case: Case) -> list[Any]:
    """Return the values of the inputs by the positions of the schema, None for absent ones."""
    return [case.feeds.get(name) if name else None for name in case.model.graph.node[0].input]


def same(a: Any, b: Any) -> bool:
    """Return whether two arrays hold the same bits; those of NaNs may differ."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind in "biuOSUT":
        return bool((a == b).all())
    return bool(((a == b) | ((a != a) & (b != b))).all())


def elements(value: Any) -> list[Any]:
    return list(np.asarray(value).ravel().tolist())


def same_elements(case: Case) -> bool:
    return same(np.ravel(operands(case)[0]), np.ravel(case.expected[0]))


def every_element_once(case: Case) -> bool:
    return sorted(elements(operands(case)[0])) == sorted(elements(case.expected[0]))


def some_elements(case: Case) -> bool:
    return set(elements(case.expected[0])) <= set(elements(operands(case)[0]))


def all_elements(case: Case) -> bool:
    given, got = operands(case)[0], case.expected[0]
    return got.size == 0 or set(elements(got)) == set(elements(given))


def elements_of_inputs(case: Case) -> bool:
    given = {0, ""}
    for value in operands(case):
        given |= set() if value is None else set(elements(value))
    return set(elements(case.expected[0])) <= given


def shape_of_input(case: Case) -> bool:
    return bool(case.expected[0].shape == np.shape(operands(case)[0]))


def rank_of_input(case: Case) -> bool:
    return bool(case.expected[0].ndim == np.ndim(operands(case)[0]))


def shape_of_all(case: Case) -> bool:
    shapes = [np.shape(value) for value in operands(case) if value is not None]
    return bool(case.expected[0].shape == np.broadcast_shapes(*shapes))


def sizes(case: Case) -> bool:
    attributes = {a.name: a.i for a in case.model.graph.node[0].attribute}
    shape = np.shape(operands(case)[0])
    if case.model.graph.node[0].op_type == "Size":
        return bool(case.expected[0] == np.prod(shape))
    part = shape[attributes.get("start", 0) : attributes.get("end", len(shape))]
    return elements(case.expected[0]) == list(part)


SHOWN: list[tuple[Trait, Callable[[Case], bool]]] = [
    (T.SAME, same_elements),
    (T.VIEW, same_elements),
    (T.REARRANGES, every_element_once),
    (T.PART, some_elements),
    (T.REPEATS, all_elements),
    (T.MOVES, elements_of_inputs),
    (T.KEEPS_SHAPE, shape_of_input),
    (T.KEEPS_AXES, rank_of_input),
    (T.BROADCASTS, shape_of_all),
    (T.GIVES_SIZES, sizes),
]


def of_tensors(case: Case) -> bool:
    given = operands(case)
    return bool(given) and all(isinstance(v, np.ndarray | None) for v in (*given, *case.expected))


def is_reduced(case: Case) -> bool:
    """Return whether a scatter computes with what was there."""
    attributes = case.model.graph.node[0].attribute
    return any(a.name == "reduction" and a.s != b"none" for a in attributes)


def is_whole(case: Case) -> bool:
    return all(value is not None for value in operands(case))


def fitting(op_type: str) -> list[Case]:
    return [c for c in cases_of().get(op_type, ()) if of_tensors(c) and not is_reduced(c)]


@pytest.mark.long
@pytest.mark.parametrize(("trait", "holds"), SHOWN, ids=lambda v: getattr(v, "name", ""))
def test_the_cases_of_onnx_show_it(trait: Trait, holds: Callable[[Case], bool]) -> None:
    shown = {op: fitting(op) for op in standard(trait) if fitting(op)}
    assert shown
    wrong = [case.name for found in shown.values() for case in found if not holds(case)]
    assert wrong == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("trait", "holds", "but"),
    [
        pytest.param(T.VIEW, same_elements, {"OptionalGetElement"}, id="VIEW"),
        pytest.param(
            T.REARRANGES,
            every_element_once,
            # It turns rows round within an axis; the cases of ScatterND write all there is.
            {"OptionalGetElement", "ReverseSequence", "ScatterND"},
            id="REARRANGES",
        ),
        pytest.param(
            T.KEEPS_SHAPE,
            shape_of_input,
            # The heads of values, the filters of a convolution are as many as those of the input.
            {"LinearAttention", "OptionalGetElement", "QLinearConv", *having(T.BROADCASTS)},
            id="KEEPS_SHAPE",
        ),
    ],
)
def test_what_always_shows_it_has_the_trait(
    trait: Trait, holds: Callable[[Case], bool], but: set[str]
) -> None:
    always = {op for op in cases_of() if (found := fitting(op)) and all(map(holds, found))}
    assert always - having(trait) - but == set()


# What changed inputs give


def run(case: Case, values: Sequence[Any]) -> Any:
    """Return the first output of a case on other inputs, by onnx.reference."""
    names = case.model.graph.node[0].input
    feeds = {name: value for name, value in zip(names, values, strict=True) if name}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return ReferenceEvaluator(case.model).run(None, feeds)[0]


def commutes(case: Case) -> bool | None:
    """Return whether the elements of inputs and output may be put in another order alike.

    None where there is nothing to put in another order, or the case is drawn at random.
    """
    values, shape = operands(case), case.expected[0].shape
    size = int(np.prod(shape))
    is_training = any(np.size(v) == 1 and np.dtype(v.dtype) == bool for v in values[2:3])
    if size < 3 or (case.model.graph.node[0].op_type == "Dropout" and is_training):
        return None
    order = np.random.default_rng(7).permutation(size)
    spread = [v if np.size(v) <= 1 else np.broadcast_to(v, shape) for v in values]
    moved = [v if np.size(v) <= 1 else v.reshape(-1)[order].reshape(shape) for v in spread]
    before, after = run(case, spread), run(case, moved)
    if same(before, np.asarray(before).reshape(-1)[order].reshape(shape)):
        return None  # all alike
    return close(np.asarray(before).reshape(-1)[order].reshape(shape), np.asarray(after))


def close(a: Any, b: Any) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind != "f":
        return same(a, b)
    return bool(np.allclose(a, b, rtol=1e-6, atol=0, equal_nan=True))


def spreads(case: Case) -> bool:
    """Return whether all inputs can be spread to the shape of the output."""
    shape = case.expected[0].shape
    try:
        whole = np.broadcast_shapes(shape, *(np.shape(v) for v in operands(case)))
    except ValueError:
        return False
    return whole == shape


@functools.cache
def judged(op_type: str) -> dict[str, bool]:
    found = {c.name: commutes(c) for c in fitting(op_type) if is_whole(c) and spreads(c)}
    return {name: holds for name, holds in found.items() if holds is not None}


def ordered() -> Iterator[str]:
    """Yield the operators that have cases and may be elementwise."""
    for op_type in sorted(cases_of()):
        traits = traits_of(op_type)
        if not traits.any(T.KEEPS_SHAPE, T.BROADCASTS) or T.RANDOM in traits:
            continue
        if op_type != "ReverseSequence":  # its lengths belong to an axis, and cannot be spread
            yield op_type


@pytest.mark.long
def test_elementwise_is_what_commutes_with_another_order() -> None:
    missing, wrong, lacking = [], [], []
    for op_type in ordered():
        found = judged(op_type)
        if T.ELEMENTWISE in traits_of(op_type):
            wrong += [name for name, holds in found.items() if not holds]
            missing += [] if found or op_type in NOTHING_TO_ORDER else [op_type]
        elif found and all(found.values()) and op_type not in ONE_SCALE:
            lacking.append(op_type)
    assert (missing, wrong, lacking) == ([], [], [])


NOTHING_TO_ORDER = {"CastLike"}
"""Its second input is empty in all cases; what it does to the first one is Cast."""
ONE_SCALE = {"DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear", "Identity"}
"""With one scale they are elementwise as well; a scale for each part of an axis has its place."""


def negated(case: Case) -> bool | None:
    """Return whether the output is negated where all that is moved is; None for other types."""
    facts = op_facts(case.model.graph.node[0].op_type, case.opset)
    assert facts is not None
    moved, values = facts.outputs[0].type_parameter, operands(case)
    if case.expected[0].dtype.kind not in "if" or case.expected[0].size == 0:
        return None
    turned = [
        -v if (formal := facts.input(i)) and formal.type_parameter == moved else v
        for i, v in enumerate(values)
    ]
    return same(run(case, turned), -np.asarray(run(case, values)))


@pytest.mark.long
def test_where_an_element_goes_does_not_depend_on_it() -> None:
    # onnx.reference has none for Scatter, which is ScatterElements under its first name.
    moved = [case for op in standard(T.MOVES) if op != "Scatter" for case in fitting(op)]
    assert moved
    assert [case.name for case in moved if is_whole(case) and negated(case) is False] == []


@pytest.mark.long
@pytest.mark.parametrize("op_type", ["EyeLike", "Shape", "Size"])
def test_what_reads_the_shape_alone_does_not_see_the_elements(op_type: str) -> None:
    assert op_type in having(T.READS_SHAPE)
    for case in fitting(op_type):
        (value,) = operands(case)
        assert same(run(case, [value]), run(case, [np.zeros_like(value)]))


def test_what_is_implied_is_there() -> None:
    assert Traits.of(T.SAME).kinds == {
        T.SAME, T.VIEW, T.REARRANGES, T.MOVES, T.KEEPS_SHAPE, T.KEEPS_AXES
    }  # fmt: skip
    assert T.KEEPS_SHAPE in Traits.of(T.ELEMENTWISE)
    assert T.KEEPS_SHAPE not in Traits.of(T.BROADCASTS)
