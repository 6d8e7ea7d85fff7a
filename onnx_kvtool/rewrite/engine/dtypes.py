"""Exact detours through another element type, for operators that do not support one."""

from __future__ import annotations

from collections.abc import Container, Mapping

import onnx_ir as ir

from onnx_kvtool.core.tables import Table
from onnx_kvtool.emit.emitter import Emitter, Refusal, Replacement
from onnx_kvtool.emit.forms import again, cast, dtype_of
from onnx_kvtool.ops.legality import fit
from onnx_kvtool.ops.schema import op_facts, tensor_type
from onnx_kvtool.ops.traits import Trait, having
from onnx_kvtool.rewrite.engine.rule import LoweringContext

_D = ir.DataType

CARRIERS: Mapping[ir.DataType, ir.DataType] = {
    # All 256 patterns of the 8-bit floats survive the way through float16, but for the payloads
    # of float8e5m2's NaNs.
    **dict.fromkeys((_D.FLOAT8E4M3FN, _D.FLOAT8E4M3FNUZ, _D.FLOAT8E5M2), _D.FLOAT16),
    **dict.fromkeys((_D.FLOAT8E5M2FNUZ, _D.FLOAT4E2M1), _D.FLOAT16),
    _D.FLOAT8E8M0: _D.FLOAT,
    **dict.fromkeys((_D.INT4, _D.INT2), _D.INT8),
    **dict.fromkeys((_D.UINT4, _D.UINT2), _D.UINT8),
}
"""The type that stands for a missing one where values are moved and computed with."""

# The powers of two of float8e8m0 reach from 2**-127, a subnormal number of float32, to 2**127. A
# Cast there and back goes through float64, where all are normal numbers.
_CARRIERS = {**CARRIERS, _D.FLOAT8E8M0: _D.DOUBLE}


_Carriers = Mapping[ir.DataType, tuple[ir.DataType, ...]]
"""For an element type those that may stand in for it, the best first."""

_SMALL_INTEGERS: _Carriers = dict.fromkeys(
    (_D.INT8, _D.UINT8, _D.INT16, _D.UINT16), (_D.INT32, _D.FLOAT)
)

_MOVED: _Carriers = {dtype: (carrier,) for dtype, carrier in _CARRIERS.items()} | {
    # float32 holds every bfloat16, NaN payloads included (65536 of 65536 in onnxruntime 1.31).
    _D.BFLOAT16: (_D.FLOAT,),
    _D.FLOAT16: (_D.FLOAT,),  # which every opset moves, but not every release
    _D.BOOL: (_D.UINT8, _D.INT32),
    **_SMALL_INTEGERS,
}

# Order is kept by every type that holds all values. 64-bit integers have none below Max-12.
_ORDERED: _Carriers = {
    _D.BFLOAT16: (_D.FLOAT,),
    _D.FLOAT16: (_D.FLOAT,),
    **_SMALL_INTEGERS,
    _D.INT32: (_D.INT64, _D.DOUBLE),
    _D.UINT32: (_D.INT64, _D.DOUBLE),
}

# No sum, difference, quotient or product of two 16-bit integers leaves int64, and Cast keeps the
# low bits of a result that leaves the type, which is where the narrow operator wraps.
_WRAPPED: _Carriers = {
    _D.INT8: (_D.INT32,),
    _D.UINT8: (_D.INT32,),
    _D.INT16: (_D.INT64,),
    _D.UINT16: (_D.INT64,),
}

# Arithmetic in float32 is at least as exact as in bfloat16, which runtimes widen anyway.
_WIDENED: _Carriers = {_D.BFLOAT16: (_D.FLOAT,)}

# A scale is a factor of a product that is rounded to an integer. And with `stash_type` 1, its
# default, Range-27 counts narrow floats in float32; the function body of its schema adds up step by
# step, which the text does not.
_NARROW_FLOATS: _Carriers = {_D.FLOAT16: (_D.FLOAT,), **_WIDENED}


_OWN = frozenset({"CenterCropPad", "Concat", "OneHot", *having(Trait.SAME), *having(Trait.UPDATES)})
"""Movers that take every type which Cast takes, or whose lowering sees to types itself, and OneHot
with its `T3`."""

_WAYS: Mapping[str, tuple[str, _Carriers]] = Table(
    "element type detour",
    [
        (op, (parameter, carriers))
        for names, parameter, carriers in (
            (" ".join(sorted(having(Trait.MOVES) - _OWN)), "T", _MOVED),
            ("Unique", "T", _MOVED),
            ("OneHot", "T3", _MOVED),
            ("IsInf IsNaN", "T1", _ORDERED),
            ("Clip Max MaxPool Min ReduceMax ReduceMin Relu", "T", _ORDERED),
            ("Add Div Mul Sub", "T", _WRAPPED),
            ("QLinearMatMul", "TS", _NARROW_FLOATS),
            ("Range", "T", _NARROW_FLOATS),
            ("Acos Acosh Asin Asinh Atan Atanh AveragePool Conv ConvTranspose", "T", _WIDENED),
            ("Cos Cosh Einsum Elu GlobalAveragePool GlobalMaxPool HardSigmoid", "T", _WIDENED),
            ("InstanceNormalization LpNormalization Round Selu Sin Sinh", "T", _WIDENED),
            ("CumSum LeakyRelu PRelu Softplus Softsign Tan ThresholdedRelu", "T", _WIDENED),
            ("Pow", "T1", _WIDENED),
        )
        for op in names.split()
    ],
)
"""For an operator the type parameter whose values are cast (all others stay), and through what."""


def exact_carrier(dtype: ir.DataType, op_type: str, opset: int) -> ir.DataType | None:
    """Return a type that carries values of `dtype` through `op_type` at `opset` unchanged.

    Returns:
        None when the first input of the operator takes the type as it is.

    Raises:
        Refusal: If neither the operator nor an exact Cast takes the type at `opset`.
    """
    if takes(op_type, 0, dtype, opset):
        return None
    carrier = _CARRIERS.get(dtype)
    if carrier is not None and _casts(dtype, opset):
        return carrier
    raise Refusal(
        "element-type",
        f"`{op_type}` does not take {dtype.name} at opset {opset}"
        + (", nor does Cast" if carrier is not None else ""),
        help="choose a higher opset, or change the type of the cache",
    )


def takes(op_type: str, index: int, dtype: ir.DataType, opset: int) -> bool:
    """Return whether an operator supports an element type at its input `index` at `opset`."""
    facts = op_facts(op_type, opset)
    formal = facts.input(index) if facts else None
    return formal is not None and tensor_type(dtype) in formal.types


def _casts(dtype: ir.DataType, opset: int) -> bool:
    return takes("Cast", 0, dtype, opset)


def detoured_parameter(op_type: str) -> str | None:
    """Return the type parameter of an operator that may take a detour; None without one."""
    return _WAYS[op_type][0] if op_type in _WAYS else None


def carrier_of(
    op_type: str,
    dtype: ir.DataType | None,
    opset: int,
    index: int,
    among: Container[str] | None = None,
) -> ir.DataType | None:
    """Return the type that values of `dtype` take through an operator with a `detoured_parameter`.

    Input `index` must take it, and it must be `among` the names of types that the release has
    kernels for, if any are given. None for an unknown type, where Cast does not take it at `opset`,
    and where no carrier suits.
    """
    if dtype is None or not _casts(dtype, opset):
        return None
    for carrier in _WAYS[op_type][1].get(dtype, ()):
        if takes(op_type, index, carrier, opset) and (
            among is None or carrier.name.lower() in among
        ):
            return carrier
    return None


def detour_element_type(
    context: LoweringContext, node: ir.Node, em: Emitter, among: Container[str] | None = None
) -> Replacement | None:
    """Cast the inputs to a type that the operator takes, and its outputs back; None if none helps.

    The table above says which types may carry which for an operator: the result is equal to the
    last bit where data is moved, compared or computed in integers, and computed in a wider float
    where it is arithmetic.

    `among` names the types that the release has kernels for, where the release lacks one.
    """
    source = context.opset_of(node)
    facts, fitted = op_facts(node.op_type, source), fit(node, source, em.opset)
    parameter = detoured_parameter(node.op_type)
    if facts is None or parameter is None or fitted.as_attribute:
        return None
    if any(problem.code != "element-type" for problem in fitted.problems):
        return None
    of_outputs = next(i for i, f in enumerate(facts.inputs) if f.type_parameter == parameter)
    inputs: list[ir.Value | None] = []
    for index, value in enumerate(node.inputs):
        formal = facts.input(index)
        if value is None or formal is None or formal.type_parameter != parameter:
            inputs.append(value)
            continue
        carrier = carrier_of(node.op_type, value.dtype, em.opset, index, among)
        if carrier is None:
            return None
        inputs.append(cast(em, value, carrier))
    dtypes: list[ir.DataType] = []
    for index, value in enumerate(node.outputs):
        formal = facts.output(index)
        dtype = dtype_of(value)
        if formal is not None and formal.type_parameter == parameter and value.name:
            carrier = carrier_of(node.op_type, value.dtype, em.opset, of_outputs, among)
            if carrier is None:
                return None
            dtype = carrier
        dtypes.append(dtype)
    added = {name: default for name, default in fitted.add.items() if default is not None}
    results: list[ir.Value | None] = []
    same = again(em, node, inputs, without=fitted.drop, attributes=added)
    for old, new, dtype in zip(node.outputs, same.outputs, dtypes, strict=True):
        if new is not None:
            new.type = ir.TensorType(dtype)
        results.append(new and cast(em, new, dtype_of(old)))
    return Replacement(tuple(results))
