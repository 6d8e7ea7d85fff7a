"""The inputs of a single operator, named and typed by its schema."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.words import unknown_name
from onnx_kvtool.evaluation.spec import Given
from onnx_kvtool.ops.schema import Formal, OpFacts, tensor_type
from onnx_kvtool.ops.traits import dtype_name
from onnx_kvtool.runtime.sessions import Array

__all__ = ["operand_values"]


Slot = tuple[str, Formal, Given | None]


def operand_values(
    facts: OpFacts, inputs: Sequence[tuple[str, Given]]
) -> list[tuple[str, Array | None]]:
    """Return the inputs of a node in the order of the schema, None for one left out.

    A literal without an element type gets the only one that the schema allows; else that of the
    other inputs which must have the same; else its natural one (see `natural_dtype`) together with
    the literals that share it, or float32 where the schema takes no integers.

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
        if given is None:
            values.append((name, None))
            continue
        try:
            values.append((name, given.value(bound.get(_parameter(name, formal)))))
        except UsageError as error:
            raise UsageError(f"input `{name}`: {error.message}", help=error.help) from error
    while values and values[-1][1] is None:
        values.pop()
    return values


def _slots(facts: OpFacts, inputs: Sequence[tuple[str, Given]]) -> list[Slot]:
    """Pair the formal inputs with what is given for them."""
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
            f"{facts.op_type} has no value for {names}",
            help=f"give each with `--input {missing[0]}=SPEC`",
        )
    return slots


def _bound_types(slots: Sequence[Slot]) -> dict[str, ir.DataType]:
    """Return the element type of each type parameter, as far as schema and values settle it."""
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
    naturals = []
    for name, given in values:
        if given.array is not None and given.array.dtype.kind == "V" and not _is_named(given):
            continue  # raw bytes take the type of the others
        try:
            naturals.append(given.natural())
        except UsageError as error:
            raise UsageError(f"input `{name}`: {error.message}", help=error.help) from error
        if given.array is not None:
            return naturals[-1]
    found = (
        ir.DataType.FLOAT if ir.DataType.FLOAT in naturals else naturals[0] if naturals else None
    )
    if found is None:
        raise UsageError(
            f"the element type of input `{values[0][0]}` is not known",
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


def _is_named(given: Given) -> bool:
    """Return whether the content of a file has an element type of its own."""
    try:
        given.natural()
    except UsageError:
        return False
    return True


def _parameter(name: str, formal: Formal) -> str:
    """Return what inputs of the same element type have in common."""
    if formal.variadic and not formal.homogeneous:
        return f"{formal.type_parameter} of {name}"
    return formal.type_parameter
