"""Checks of types against schemas and declarations, and operators run by onnx.reference."""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnx_kvtool.core.words import counted
from onnx_kvtool.ops.schema import OpFacts, tensor_type
from onnx_kvtool.runtime.errors import KernelError, RuntimeUnavailable
from onnx_kvtool.runtime.kernels.axes import count_axis, read_integers
from onnx_kvtool.runtime.kernels.elementwise.binary import widened
from onnx_kvtool.runtime.kernels.kernel import Array, Dtype, Value, Values

Attributes = Mapping[str, ir.Attr]
"""The attributes of a node, or the values of the parameters of a function, by name."""

# Element types of a node's inputs, checked against its schema.


@functools.cache
def element_type(dtype: Dtype) -> ir.DataType | None:
    """Return the element type of arrays of `dtype`; None if ONNX has none."""
    if dtype.kind in "OUS":
        return ir.DataType.STRING
    try:
        return ir.DataType.from_numpy(dtype)
    except TypeError:
        return None


TypeCheck = Callable[[Values], None]
"""Checks the types of inputs, except those of sequences.

Raises KernelError if a required input or one of several is absent; if there are more inputs than
the operator takes; if an input has a type that the schema does not list, or another type than an
input that has the same type parameter.
"""


def type_check(facts: OpFacts) -> TypeCheck:
    """Return the check of one version of an operator, the same one for all of its nodes."""
    return _TYPE_CHECKS.setdefault(id(facts), _type_check(facts))


def _type_check(facts: OpFacts) -> TypeCheck:
    """Return a check that looks at each combination of types once."""
    passed: set[tuple[object, ...]] = set()

    def check(inputs: Values) -> None:
        try:
            key: tuple[object, ...] = tuple(map(_DTYPE, inputs))
        except AttributeError:  # absent, or a sequence
            key = tuple([getattr(value, "dtype", None) or type(value) for value in inputs])
        if key in passed:
            return
        _check_presence(facts, inputs)
        bound: dict[str, tuple[str, str]] = {}
        for index, value in enumerate(inputs):
            formal = facts.input(index)
            if formal is None or not isinstance(value, np.ndarray):
                continue
            element = element_type(value.dtype)
            name = str(value.dtype) if element is None else tensor_type(element)
            label = f"{formal.name}[{index}]" if formal.variadic else formal.name
            if name not in formal.types:
                # An optional may be passed as its value.
                if f"optional({name})" in formal.types:
                    continue
                raise KernelError(
                    f"`{label}` is {name}, which version {facts.since_version} of "
                    f"`{facts.op_type}` does not take"
                )
            if formal.variadic and not formal.homogeneous:
                continue
            other, expected = bound.setdefault(formal.type_parameter, (label, name))
            if name != expected:
                raise KernelError(f"`{label}` is {name}, expected {expected} as `{other}`")
        passed.add(key)

    return check


def _check_presence(facts: OpFacts, inputs: Values) -> None:
    for index, formal in enumerate(facts.inputs):
        # An empty optional looks like an absent input.
        if formal.optional or formal.variadic or any(t.startswith("opt") for t in formal.types):
            continue
        if index >= len(inputs) or inputs[index] is None:
            raise KernelError(f"`{formal.name}` is absent, and `{facts.op_type}` needs it")
    last = facts.inputs[-1] if facts.inputs else None
    if last is not None and last.homogeneous and last.variadic:
        for index in range(len(facts.inputs) - 1, len(inputs)):
            if inputs[index] is None:
                raise KernelError(f"`{last.name}[{index}]` is absent")
    if len(inputs) > facts.max_inputs:
        raise KernelError(
            f"there are {counted(len(inputs), 'input')}, expected at most {facts.max_inputs}"
        )


_DTYPE = operator.attrgetter("dtype")

_TYPE_CHECKS: dict[int, TypeCheck] = {}
"""By the identity of the facts, which each check keeps alive."""


# Values, checked against their declarations.


def declared_mismatch(declared: ir.Value, value: Value) -> str | None:
    """Return how a value contradicts its declaration, got and expected; None if it does not.

    Element type, rank and fixed sizes are compared. A value that is absent, not declared, or
    declared as something else than a tensor never contradicts.
    """
    if not isinstance(declared.type, ir.TensorType) or value is None:
        return None
    if not isinstance(value, np.ndarray):
        return f"`{declared.name}` is a {type(value).__name__}, expected an array"
    got, expected = element_type(value.dtype), declared.type.dtype
    if expected not in (got, ir.DataType.UNDEFINED):
        name = str(value.dtype) if got is None else tensor_type(got)
        return f"`{declared.name}` is {name}, expected {tensor_type(expected)}"
    if declared.shape is None:
        return None
    shape = ", ".join(str(dim) for dim in declared.shape)
    if len(declared.shape) != value.ndim:
        return (
            f"`{declared.name}` has rank {value.ndim}, expected {len(declared.shape)}: "
            f"shape {value.shape} for ({shape})"
        )
    dims = zip(declared.shape, value.shape, strict=True)
    if all(not isinstance(dim, int) or dim == size for dim, size in dims):
        return None
    return f"`{declared.name}` has shape {value.shape}, expected ({shape})"


# Operands that onnx.reference accepts although the text of an operator does not allow them.


_Check = Callable[[Sequence[Any], Mapping[str, Any]], None]


def _reverse_sequence(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> None:
    data, lengths = inputs
    batch, time = attributes["batch_axis"], attributes["time_axis"]
    if sorted((batch, time)) != [0, 1]:
        raise KernelError(
            f"`batch_axis` is {batch} and `time_axis` {time}, expected 0 and 1, or 1 and 0"
        )
    if data.ndim < 2:
        raise KernelError(f"`input` has shape {data.shape}, expected two dimensions or more")
    given = read_integers(lengths, "sequence_lens")
    if len(given) != data.shape[batch]:
        raise KernelError(
            f"`sequence_lens` has {len(given)} elements, expected {data.shape[batch]}, the size of "
            f"axis {batch} of `input`"
        )
    for position, length in enumerate(given):
        if not 0 <= length <= data.shape[time]:
            raise KernelError(
                f"`sequence_lens[{position}]` is {length}, expected 0 to {data.shape[time]}, the "
                f"size of axis {time} of `input`"
            )


def _split_to_sequence(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> None:
    """Sizes of 0 are legal in a list: the text says both "positive" and ">= 0"."""
    data: Array = inputs[0]
    axis = count_axis(attributes["axis"], data.ndim, of="input")
    split: Array | None = inputs[1] if len(inputs) > 1 else None
    if split is None:
        return
    sizes = read_integers(split, "split", or_scalar=True)
    if split.ndim == 0:
        if sizes[0] < 1:
            raise KernelError(f"`split` is {sizes[0]}, expected 1 or more")
        return
    for position, size in enumerate(sizes):
        if size < 0:
            raise KernelError(f"`split[{position}]` is {size}, expected 0 or more")
    if sum(sizes) != data.shape[axis]:
        raise KernelError(
            f"`split` {sizes} adds up to {sum(sizes)}, expected {data.shape[axis]}, the size of "
            f"axis {axis} of `input`"
        )


def _depth_to_space(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> None:
    mode = attributes.get("mode", "DCR")  # which came with opset 11
    if mode not in ("DCR", "CRD"):
        raise KernelError(f"`mode` is `{mode}`, expected `DCR` or `CRD`")


LEGALITY: dict[str, _Check] = {
    "DepthToSpace": _depth_to_space,
    "ReverseSequence": _reverse_sequence,
    "SplitToSequence": _split_to_sequence,
}
"""By operator, what raises `KernelError` for operands that its text does not allow. Their types are
those of the schema, and attributes have their defaults."""


# Operators without our own kernel: one node, run by onnx.reference.


_WIDENED = {"GridSample": 1}
"""The input with places, which is computed in float32 if it has 16 bits."""


class BorrowedNode:
    """One node that onnx.reference computes.

    Args:
        node: The node; it has no bodies.
        attributes: Its attributes, without references to function parameters.
        opsets: The opset imports of its scope.
        new_ops: Classes of the caller that compute operators; see `ReferenceEvaluator`.

    Raises:
        RuntimeUnavailable: If onnx.reference does not know the operator.
    """

    def __init__(
        self,
        node: ir.Node,
        attributes: Attributes,
        opsets: Mapping[str, int],
        new_ops: Sequence[type] = (),
    ) -> None:
        proto = onnx.NodeProto(op_type=node.op_type, domain=node.domain, name=node.name or "")
        proto.input.extend(f"i{k}" if v is not None else "" for k, v in enumerate(node.inputs))
        proto.output.extend(f"o{k}" if v.name else "" for k, v in enumerate(node.outputs))
        proto.attribute.extend(ir.to_proto(attribute) for attribute in attributes.values())
        self._node = proto
        self._wide = None if node.domain else _WIDENED.get(node.op_type)
        self._opsets = dict(opsets)
        self._new_ops = list(new_ops)
        self._evaluators: dict[tuple[object, ...], Any] = {}
        from onnx.reference.op_run import RuntimeContextError  # costs a tenth of a second

        try:
            self._evaluator((), None)
        except RuntimeContextError:
            pass  # a function body that depends on the types of the inputs, which a run has
        # The evaluator is plain Python: for an unknown operator, it raises whatever its code runs
        # into (NotImplementedError, KeyError, TypeError, ...).
        except Exception as error:
            raise RuntimeUnavailable(
                "there is no kernel for the operator, and onnx.reference cannot load it: "
                f"{_first_line(error)}",
                help="run the model with `--runtime onnxruntime`",
            ) from error

    def __call__(self, inputs: Values) -> list[Value]:
        """Compute the node.

        Raises:
            KernelError: If onnx.reference fails on these inputs.
        """
        key = tuple(getattr(value, "dtype", type(value)) for value in inputs)
        feeds = {
            name: _borrowed(widened(value) if place == self._wide else value)
            for place, (name, value) in enumerate(zip(self._node.input, inputs, strict=True))
            if name
        }
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                evaluator = self._evaluators.get(key) or self._evaluator(key, feeds)
                results = evaluator.run(None, feeds)
        except Exception as error:  # as above
            raise KernelError(f"onnx.reference fails: {_first_line(error)}") from error
        found = dict(zip(evaluator.output_names, results, strict=True))
        return [_returned(found[name]) if name else None for name in self._node.output]

    def _evaluator(self, key: tuple[object, ...], feeds: dict[str, Any] | None) -> Any:
        """Return an evaluator for the types of `feeds`, or for unknown types."""
        outputs = [onnx.ValueInfoProto(name=name) for name in self._node.output if name]
        graph = onnx.GraphProto(name="node", node=[self._node], output=outputs)
        for name in dict.fromkeys(self._node.input):
            if name:
                graph.input.append(_typed(name, (feeds or {}).get(name)))
        model = onnx.ModelProto(ir_version=onnx.IR_VERSION, graph=graph)
        for domain, version in self._opsets.items():
            model.opset_import.append(onnx.OperatorSetIdProto(domain=domain, version=version))
        # Not from `onnx.reference`, where users may have replaced it by ours.
        from onnx.reference.reference_evaluator import ReferenceEvaluator

        evaluator: Any = ReferenceEvaluator(model, new_ops=self._new_ops)
        if feeds is not None:
            self._evaluators[key] = evaluator
        return evaluator


def _typed(name: str, value: Any) -> onnx.ValueInfoProto:
    info = onnx.ValueInfoProto(name=name)
    if isinstance(value, np.ndarray):
        element = element_type(value.dtype)
        info.type.tensor_type.elem_type = 0 if element is None else element.value
        # A shape without dimensions would be that of a scalar.
        for size in value.shape:
            info.type.tensor_type.shape.dim.add(dim_value=size)
    return info


def _borrowed(value: Value) -> Any:
    """Return a value for onnx.reference: strings as an array of numpy's string type."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        return value.astype(np.str_)
    return value


def _returned(value: Any) -> Value:
    if isinstance(value, (list, tuple)):
        return [_returned(item) for item in value]
    if value is None:
        return None
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind == "U" else array


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    line = text.splitlines()[0].rstrip(".") if text else ""
    return f"{type(error).__name__}: {line}" if line else type(error).__name__
