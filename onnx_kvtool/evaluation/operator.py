"""One operator as a model of one node, with inputs and attributes as the user wrote them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import onnx.helper
import onnx_ir as ir

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.words import unknown_name
from onnx_kvtool.evaluation.spec import Given, about, attribute
from onnx_kvtool.ops.schema import NEWEST, Formal, OpFacts, op_facts, operators, tensor_type
from onnx_kvtool.ops.traits import dtype_name
from onnx_kvtool.runtime.engine.borrowed import element_type
from onnx_kvtool.runtime.sessions import Array

# The inputs of a single operator, named and typed by its schema.


Slot = tuple[str, Formal, Given | None]


def operand_values(
    facts: OpFacts, inputs: Sequence[tuple[str, Given]]
) -> list[tuple[str, Array | None]]:
    """Return the inputs of a node in the order of the schema, None for absent ones.

    A literal without an element type gets the only one that the schema allows; else that of inputs
    that must have the same type; else its natural one (see `natural_dtype`), or float32 if the
    schema allows no integers. Literals of the same type parameter share it.

    Args:
        facts: The operator.
        inputs: Names as in the schema; a variadic one once for each value, `name_0`, `name_1`, ...
            being the names that its values get.

    Raises:
        UsageError: If a name is unknown or given twice, a required input is missing, or a value
            does not fit.
    """
    slots = _slots(facts, inputs)
    bound = _bound_types(slots)
    values: list[tuple[str, Array | None]] = []
    for name, formal, given in slots:
        with about(f"input `{name}`"):
            dtype = bound.get(_parameter(name, formal))
            values.append((name, None if given is None else given.value(dtype)))
    while values and values[-1][1] is None:
        values.pop()
    return values


def _slots(facts: OpFacts, inputs: Sequence[tuple[str, Given]]) -> list[Slot]:
    """Return each formal input with its value."""
    known = [formal.name for formal in facts.inputs]
    by_name: dict[str, list[Given]] = {}
    for name, given in inputs:
        if name not in known:
            raise unknown_name(f"{facts.op_type} has no input `{name}`", name, known)
        by_name.setdefault(name, []).append(given)
    slots: list[Slot] = []
    missing = []
    for formal in facts.inputs:
        values = by_name.get(formal.name, [])
        if formal.variadic:
            slots += [(f"{formal.name}_{i}", formal, value) for i, value in enumerate(values)]
            continue
        if len(values) > 1:
            raise UsageError(f"the input `{formal.name}` of {facts.op_type} is given twice")
        found = values[0] if values and not values[0].is_absent else None
        if found is None and not formal.optional:
            missing.append(formal.name)
        slots.append((formal.name, formal, found))
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        raise UsageError(
            f"there is no value for {names} of {facts.op_type}",
            help=f"give each with `--input {missing[0]}=SPEC`",
        )
    return slots


def _bound_types(slots: Sequence[Slot]) -> dict[str, ir.DataType]:
    """Return the element type of each type parameter, by the schema and the values."""
    formals: dict[str, Formal] = {}
    sharing: dict[str, list[tuple[str, Given]]] = {}
    for name, formal, given in slots:
        parameter = _parameter(name, formal)
        formals[parameter] = formal
        if given is not None:
            sharing.setdefault(parameter, []).append((name, given))
    return {p: _bound_type(formals[p], values) for p, values in sharing.items()}


def _bound_type(formal: Formal, values: Sequence[tuple[str, Given]]) -> ir.DataType:
    allowed = [dtype for dtype in ir.DataType if tensor_type(dtype) in formal.types]
    if len(allowed) == 1:
        return allowed[0]
    for _, given in values:
        if given.dtype is not None:
            return given.dtype
    found: ir.DataType | None = None
    for name, given in values:
        dtype = None if given.array is None else given.array.dtype
        if dtype is not None and dtype.kind == "V" and element_type(dtype) is None:
            continue  # raw bytes take the type of the others
        with about(f"input `{name}`"):
            natural = given.natural()
        if given.array is not None:
            return natural
        if found is None or natural == ir.DataType.FLOAT:
            found = natural
    if found is None:
        raise UsageError(
            f"the element type of input `{values[0][0]}` is unknown",
            help="put one in front, as in `bfloat16:cache.npy`",
        )
    if found in allowed:
        return found
    if found == ir.DataType.INT64 and ir.DataType.FLOAT in allowed:
        return ir.DataType.FLOAT
    raise UsageError(
        f"input `{values[0][0]}` would be {dtype_name(found)}, "
        f"expected {' or '.join(dtype_name(dtype) for dtype in allowed)}",
        help="put the element type in front, as in `int32:[1, 2]`",
    )


def _parameter(name: str, formal: Formal) -> str:
    """Return the key that inputs of the same element type share."""
    if formal.variadic and not formal.homogeneous:
        return f"{formal.type_parameter} of {name}"
    return formal.type_parameter


class SingleOperator(NamedTuple):
    """A model of one node.

    Attributes:
        model: The model; its node is called like the operator.
        opset: The opset of the model.
        inputs: Its inputs, by name.
        outputs: Names of the outputs to fetch.
    """

    model: ir.Model
    opset: int
    inputs: dict[str, Array]
    outputs: tuple[str, ...]


def single_operator(
    op: str,
    opset: int | None,
    attributes: Sequence[tuple[str, str]],
    inputs: Sequence[tuple[str, Given]],
    fetch: Sequence[str],
) -> SingleOperator:
    """Return a model with one node of an operator of the default domain.

    Args:
        op: The operator.
        opset: Version of the default domain; None for the first one with the operator's newest
            version, which most runtimes support.
        attributes: Names with their values as text; see `attribute`.
        inputs: Names as in the schema with their values; that of a variadic input once for each of
            its values, which are called `name_0`, `name_1`, ...
        fetch: Outputs by their names in the schema; empty for those that are not optional (the
            first, if all are), and for all of a variadic one.

    Raises:
        UsageError: If the operator, an attribute, an input or an output is unknown, given twice,
            or required and missing; if a value does not fit the type; if the operator has bodies.
    """
    facts, opset = _facts(op, opset)
    carried: dict[str, ir.Attr] = {}
    for name, text in attributes:
        if name in carried:
            raise UsageError(f"the attribute `{name}` is given twice")
        carried[name] = attribute(facts, name, text)
    for name, declared in facts.attributes.items():
        if declared.required and name not in carried:
            if ir.AttributeType(declared.type) is ir.AttributeType.GRAPH:
                raise UsageError(
                    f"{op} has a body, which cannot be given on the command line",
                    help="evaluate a model that contains the node, with `--node NAME`",
                )
            raise UsageError(f"the attribute `{name}` of {op} is required and not given")
    values = operand_values(facts, inputs)
    arrays = {name: array for name, array in values if array is not None}
    fed = {
        name: ir.Value(
            name=name,
            type=ir.TensorType(element_type(array.dtype) or ir.DataType.UNDEFINED),
            shape=ir.Shape(array.shape),
        )
        for name, array in arrays.items()
    }
    outputs = _outputs(facts, fetch, {n: a.value for n, a in carried.items()}, arrays)
    node = ir.Node(
        "",
        op,
        [fed.get(name) for name, _ in values],
        carried.values(),
        outputs=[ir.Value(name=name) for name in outputs],
        name=op,
    )
    wanted = tuple(dict.fromkeys(fetch)) or tuple(name for name in outputs if name)
    made = {value.name: value for value in node.outputs}
    graph = ir.Graph(
        list(fed.values()),
        [made[name] for name in wanted],
        nodes=[node],
        opset_imports={"": opset},
        name="main_graph",
    )
    # The version that was released with the opset has every type that its operators take.
    version = onnx.helper.OP_SET_ID_VERSION_MAP["ai.onnx", opset]
    model = ir.Model(graph, ir_version=int(version))
    return SingleOperator(model, opset, arrays, wanted)


def _facts(op: str, opset: int | None) -> tuple[OpFacts, int]:
    """Return the version of the operator, and the opset of the model."""
    if "::" in op:
        raise UsageError(f"`{op}` is of another domain, expected an operator of the default domain")
    if opset is not None:
        if not 1 <= opset <= NEWEST:
            raise UsageError(f"`--opset` is {opset}, expected 1 to {NEWEST}")
        facts = op_facts(op, opset)
        if facts is not None and not facts.deprecated:
            return facts, opset
        first = next((other for other in range(1, NEWEST + 1) if op_facts(op, other)), None)
        if first is not None:
            known = f"it came with opset {first}" if opset < first else None
            raise UsageError(f"opset {opset} has no operator `{op}`", help=known)
    else:
        for candidate in range(NEWEST, 0, -1):
            facts = op_facts(op, candidate)
            if facts is not None and not facts.deprecated:
                return facts, facts.since_version
    raise unknown_name(f"`{op}` is no operator of the default domain", op, operators())


def _outputs(
    facts: OpFacts,
    fetch: Sequence[str],
    attributes: Mapping[str, object],
    values: Mapping[str, Array],
) -> list[str]:
    """Return the names of the node's outputs up to the last wanted one, "" for absent ones."""
    known: list[str] = []
    wanted = set(fetch)
    for formal in facts.outputs:
        if formal.variadic:
            count = _variadic_count(formal, fetch, attributes, values)
            known += [f"{formal.name}_{i}" for i in range(count)]
        else:
            known.append(formal.name)
    for name in fetch:
        if name not in known:
            raise unknown_name(f"{facts.op_type} has no output `{name}`", name, known)
    optional = {formal.name for formal in facts.outputs if formal.optional}
    # Some operators have optional outputs only (LSTM): the first is the main one.
    required = (set(known) - optional) or set(known[:1] if not fetch else ())
    names = [name if name in wanted | required else "" for name in known]
    while names and not names[-1]:
        names.pop()
    return names


def _variadic_count(
    formal: Formal,
    fetch: Sequence[str],
    attributes: Mapping[str, object],
    values: Mapping[str, Array],
) -> int:
    """Return the number of variadic outputs: the parts of Split, or as many as are fetched."""
    parts, split = attributes.get("num_outputs"), values.get("split")
    if isinstance(parts, int):
        return max(parts, 1)
    if isinstance(attributes.get("split"), (list, tuple)):
        return len(attributes["split"])  # type: ignore[arg-type]  # just tested
    if split is not None:
        return max(split.size, 1)
    prefix = f"{formal.name}_"
    tails = [name.removeprefix(prefix) for name in fetch if name.startswith(prefix)]
    return 1 + max((int(tail) for tail in tails if tail.isdecimal()), default=0)
