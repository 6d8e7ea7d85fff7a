"""Replace bfloat16 by another element type in the whole model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.walk import contents, function_path
from onnx_kvtool.core.words import counted
from onnx_kvtool.model_io.stored import ConvertedTensor
from onnx_kvtool.model_io.verbatim import SparseInitializer
from onnx_kvtool.ops.contrib import contrib_facts
from onnx_kvtool.ops.legality import examine
from onnx_kvtool.ops.schema import is_standard
from onnx_kvtool.ops.traits import ELEMENT_TYPE_ATTRIBUTES, dtype_name

_D = ir.DataType
_A = ir.AttributeType

REPLACED = _D.BFLOAT16
"""The type that is replaced: decoders are stored in it, and opset 13 introduced it."""

_EAGER = 64
"""Elements; a tensor of more is converted when it is read, and known to be that of the source."""

_LARGEST = float(np.finfo(np.float16).max)
_NOTHING = float(np.finfo(np.float16).smallest_subnormal) / 2
"""Numbers up to this one are rounded to 0 in float16."""

_HELP = f"`--element-type float32` replaces {dtype_name(REPLACED)}"


def naming_the_flag(refused: list[Diagnostic]) -> list[Diagnostic]:
    """Return refusals, those for the lack of bfloat16 with the flag that changes it."""
    lacking = f"{REPLACED.name} {dtype_name(REPLACED)}".lower().split()
    return [
        replace(found, help="; ".join(filter(None, (found.help, _HELP))))
        if found.code == "element-type" and any(n in found.message.lower() for n in lacking)
        else found
        for found in refused
    ]


class TypeChange:
    """One change of one model, and what was done.

    Large constants are converted when they are read.

    Attributes:
        refused: Why it cannot be; the model is then no longer fit for anything but the report.
    """

    def __init__(self, model: ir.Model) -> None:
        self.refused: list[Diagnostic] = []
        self.notes: list[str] = []
        self._model, self._to = model, REPLACED
        self._local = {key[:2] for key in model.functions}
        self._typed = _typed_parameters(model)
        self._changed: set[ir.Value] = set()
        self._count: Counter[str] = Counter()
        self._vanished = 0

    def run(self, to: ir.DataType) -> None:
        """Replace bfloat16 by `to` everywhere in the model, in place.

        Inputs, outputs and declared values, constants, tensors and types in attributes, and
        attributes that name an element type (`to`, `dtype`, `stash_type`, ...), in bodies and
        functions too. The values of constants stay, but what is computed is no longer rounded to
        bfloat16: the result agrees with the source as far as that rounds. float32 holds every
        bfloat16; float16 does not, and a constant beyond its range is refused, as is a single
        number that it takes for 0.

        Refuses BitCast, which reads bits, unknown operators, operators without
        the type, and sparse constants.
        """
        self._to = to
        ports = (*self._model.graph.inputs, *self._model.graph.outputs)
        borders = sum(_mentions(v.type) for v in dict.fromkeys(ports))
        for path, graph, nodes in contents(self._model):
            for value in (*graph.inputs, *graph.outputs):
                self._value(value)
            for name, value in graph.initializers.items():
                self._value(value)
                if value.const_value is not None:
                    place = Location(path, value=name)
                    value.const_value = self._tensor(value.const_value, place, name)
            for index, node in enumerate(nodes):
                self._node(node, Location.of(path, node, index))
        for function in self._model.functions.values():
            path = function_path(*function.identifier())
            typed = self._typed[function.identifier()]
            for name, attribute in tuple(function.attributes.items()):
                place = Location(path, value=name)
                if (changed := self._attribute(attribute, name in typed, place)) is not None:
                    function.attributes[name] = changed
        old, new = dtype_name(REPLACED), dtype_name(self._to)
        parts = [counted(borders, "input or output", "inputs and outputs")] if borders else []
        parts += [counted(n, kind, f"{kind}s") for kind, n in self._count.items()]
        said = f"{old} became {new} in {', '.join(parts)}"
        self.notes.append(said if parts else f"the model has no {old}, so that no type is changed")
        if self._vanished:
            values = counted(self._vanished, "value", "values")
            self.notes.append(f"{values} of constants too small for {new} became 0")

    def _value(self, value: ir.Value) -> None:
        if _mentions(value.type):
            value.type = _retyped(value.type, self._to)
            self._changed.add(value)

    def _node(self, node: ir.Node, place: Location) -> None:
        for output in node.outputs:
            self._value(output)
        named = [v for v in (*node.inputs, *node.outputs) if v is not None and v.name]
        is_touched = any(v in self._changed or v.type is None for v in named)
        typed = self._typed.get(node.op_identifier(), ELEMENT_TYPE_ATTRIBUTES)
        before = self._count.total()
        for name, attribute in tuple(node.attributes.data.items()):
            if (changed := self._attribute(attribute, name in typed, place)) is not None:
                node.attributes[name] = changed
        if node.op_type == "BitCast" and not node.domain:
            if is_touched or self._count.total() > before:
                text = f"BitCast reads the bits of {dtype_name(REPLACED)}, or makes them"
                self._refuse("element-type", place, text)
        elif not is_standard(node) and (node.domain, node.op_type) not in self._local:
            opset = self._model.opset_imports.get(node.domain, 1)
            for problem in examine(node, opset, contrib_facts(node.domain, node.op_type)):
                if problem.code == "unknown-operator" and is_touched:
                    text = f"nobody knows whether `{node.domain}::{node.op_type}` takes "
                    self._refuse("unknown-operator", place, text + dtype_name(self._to))
                elif problem.code == "element-type":
                    self._refuse(problem.code, place, problem.text)

    def _attribute(self, attribute: ir.Attr, is_typed: bool, place: Location) -> ir.Attr | None:
        """Return what takes the place of an attribute; None where it stays."""
        if attribute.is_ref() or attribute.value is None:
            return None
        name, kind, value = attribute.name, attribute.type, attribute.value
        if kind is _A.INT and is_typed and value == REPLACED.value:
            self._count["attribute"] += 1
            return ir.AttrInt64(name, self._to.value)
        if kind is _A.TENSOR and value.dtype == REPLACED:
            return ir.Attr(name, kind, self._tensor(value, place, place.node or name))
        if kind is _A.TENSORS and any(t.dtype == REPLACED for t in value):
            held = tuple(self._tensor(t, place, place.node or name) for t in value)
            return ir.Attr(name, kind, held)
        if kind is _A.TYPE_PROTO and _mentions(value.type):
            return ir.Attr(name, kind, ir.TypeAndShape(_retyped(value.type, self._to), value.shape))
        if kind in (_A.SPARSE_TENSOR, _A.SPARSE_TENSORS, _A.TYPE_PROTOS):
            self._refuse("attribute", place, f"the types in attribute `{name}` are not looked at")
        return None

    def _tensor(self, tensor: ir.TensorProtocol, place: Location, name: str) -> ir.TensorProtocol:
        if tensor.dtype != REPLACED:
            return tensor
        if isinstance(tensor, SparseInitializer):
            self._refuse("sparse-constant", place, f"`{name}` is a sparse constant")
            return tensor
        self._count["constant"] += 1
        converted = ConvertedTensor(tensor, self._to)
        if self._to == _D.FLOAT16 and not self._is_held(converted, place, name):
            return tensor
        if isinstance(tensor, ir.ExternalTensor) or tensor.size > _EAGER:
            return converted
        return ir.Tensor(converted.numpy(), dtype=self._to, name=tensor.name)

    def _is_held(self, tensor: ConvertedTensor, place: Location, name: str) -> bool:
        """Return whether float16 holds a constant; one that it does not is refused."""
        vanished, largest = 0, 0.0
        for wide in ConvertedTensor(tensor.source, _D.FLOAT).chunks():
            size = np.abs(wide[np.isfinite(wide)])
            if size.size:
                largest = max(largest, float(size.max()))
                vanished += int(np.count_nonzero((size > 0) & (size <= _NOTHING)))
        kind = dtype_name(self._to)
        if largest > _LARGEST:
            text = f"`{name}` has {largest:.4g}, and the largest number of {kind} is {_LARGEST:g}"
            self._refuse("float16-overflow", place, text)
            return False
        if vanished and tensor.size == 1:
            text = f"`{name}` is {float(tensor.source.numpy().reshape(-1)[0]):.4g}"
            self._refuse("float16-underflow", place, f"{text}, which {kind} takes for 0")
            return False
        self._vanished += vanished
        return True

    def _refuse(self, code: str, place: Location, text: str) -> None:
        help = "use `--element-type float32`" if code.startswith("float16") else None
        self.refused.append(Diagnostic(code, "error", place, text, help))


def _mentions(type_: ir.TypeProtocol | None) -> bool:
    """Return whether a type is of bfloat16, however deep."""
    while isinstance(type_, (ir.SequenceType, ir.OptionalType)):
        type_ = type_.elem_type
    return type_ is not None and type_.dtype == REPLACED


def _retyped(type_: ir.TypeProtocol | None, to: ir.DataType) -> ir.TypeProtocol:
    denotation = None if type_ is None else type_.denotation
    match type_:
        case ir.SequenceType():
            return ir.SequenceType(_retyped(type_.elem_type, to), denotation=denotation)
        case ir.OptionalType():
            return ir.OptionalType(_retyped(type_.elem_type, to), denotation=denotation)
        case ir.SparseTensorType():
            return ir.SparseTensorType(to, denotation=denotation)
    return ir.TensorType(to, denotation=denotation)


def _typed_parameters(model: ir.Model) -> Mapping[ir.OperatorIdentifier, frozenset[str]]:
    """Return of each function the attributes that give an element type to a node of its body."""
    typed: dict[ir.OperatorIdentifier, frozenset[str]] = dict.fromkeys(model.functions, frozenset())
    is_changed = True
    while is_changed:  # once for each level of calls
        is_changed = False
        for key, function in model.functions.items():
            found = frozenset(_references(function, typed))
            is_changed |= found != typed[key]
            typed[key] = found
    return typed


def _references(
    function: ir.Function, typed: Mapping[ir.OperatorIdentifier, frozenset[str]]
) -> Iterator[str]:
    for node in function.all_nodes():
        names = typed.get(node.op_identifier(), ELEMENT_TYPE_ATTRIBUTES)
        for attribute in node.attributes.values():
            if attribute.is_ref() and attribute.name in names:
                yield attribute.ref_attr_name or ""
