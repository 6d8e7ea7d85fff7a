"""Whether two models are the same but for names and the values of their weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import onnx

from onnx_kvtool.core.domains import canonical_domain
from onnx_kvtool.runtime.verification.subject import Subject

__all__ = ["Likeness", "alike", "likeness"]

_A = onnx.AttributeProto


@dataclass(slots=True)
class Likeness:
    """How the parts of two models that are alike correspond.

    Attributes:
        values: Name in A and name in B of each node output of the main graph, in order.
        weights: Name in A and name in B of each initializer of the main graph.
        tensors: The tensors in attributes and in sub-graphs, A's and B's, with what to call them.
    """

    values: list[tuple[str, str]] = field(default_factory=list)
    weights: list[tuple[str, str]] = field(default_factory=list)
    tensors: list[tuple[str, onnx.TensorProto, onnx.TensorProto]] = field(default_factory=list)


def likeness(a: Subject, b: Subject) -> Likeness | None:
    """Return how `a` and `b` correspond if they do the same operations; None if they do not.

    They do if they have the same operators in the same order, connected in the same way, with the
    same attributes, opsets and functions, and weights of the same types and shapes. Names, the
    values of tensors, declared types and remarks do not matter. Such models give the same bits, so
    that the least difference in a weight shows.
    """
    if a.operators != b.operators:  # which spares most pairs the rest
        return None
    return alike(*(onnx.ModelProto.FromString(subject.model) for subject in (a, b)))


def alike(a: onnx.ModelProto, b: onnx.ModelProto) -> Likeness | None:
    """Return how two messages correspond; see `likeness`."""
    pairing = _Pairing(Likeness())
    try:
        pairing.models(a, b)
    except _Unlike:
        return None
    return pairing.found


class _Unlike(Exception):
    """The two models do different operations."""


class _Pairing:
    """Walks two models in step."""

    def __init__(self, found: Likeness) -> None:
        self.found = found

    def models(self, a: onnx.ModelProto, b: onnx.ModelProto) -> None:
        _same(_imports(a.opset_import), _imports(b.opset_import))
        functions = [
            {(f.domain, f.name, f.overload): f for f in model.functions} for model in (a, b)
        ]
        _same(functions[0].keys(), functions[1].keys())
        for key, function in functions[0].items():
            self._functions(function, functions[1][key])
        self._graphs(a.graph, b.graph, {"": ""}, is_main=True)

    def _functions(self, a: onnx.FunctionProto, b: onnx.FunctionProto) -> None:
        _same(_imports(a.opset_import), _imports(b.opset_import))
        _same(list(a.attribute), list(b.attribute))
        _same(len(a.attribute_proto), len(b.attribute_proto))
        names = {"": ""}
        _bind(a.input, b.input, names)
        for one, other in zip(a.attribute_proto, b.attribute_proto, strict=True):
            self._attributes(one, other, names, f"function `{a.name}`")
        self._nodes(a.node, b.node, names)
        _same([names.get(name) for name in a.output], list(b.output))

    def _graphs(
        self, a: onnx.GraphProto, b: onnx.GraphProto, names: dict[str, str], *, is_main: bool
    ) -> None:
        """Pair two graphs; `names` maps A's names to B's, those of enclosing graphs included."""
        _bind([v.name for v in a.input], [v.name for v in b.input], names)
        self._initializers(a, b, names, is_main=is_main)
        if a.sparse_initializer or b.sparse_initializer:
            raise _Unlike
        outputs = self._nodes(a.node, b.node, names)
        if is_main:
            self.found.values += outputs
        _same([names.get(v.name) for v in a.output], [v.name for v in b.output])

    def _initializers(
        self, a: onnx.GraphProto, b: onnx.GraphProto, names: dict[str, str], *, is_main: bool
    ) -> None:
        """Pair initializers by their uses, since a name may have changed."""
        own_a = {tensor.name: tensor for tensor in a.initializer}
        own_b = {tensor.name: tensor for tensor in b.initializer}
        for one, other in zip(a.node, b.node, strict=False):
            for name, counterpart in zip(one.input, other.input, strict=False):
                if name in own_a and counterpart in own_b:
                    names.setdefault(name, counterpart)
        for name, tensor in own_a.items():
            # One that only a body or an output names.
            counterpart = own_b.get(names.setdefault(name, name))
            if counterpart is None:
                raise _Unlike
            _same(
                (tensor.data_type, list(tensor.dims)),
                (counterpart.data_type, list(counterpart.dims)),
            )
            if is_main:
                self.found.weights.append((name, counterpart.name))
            else:
                self.found.tensors.append((f"initializer `{name}`", tensor, counterpart))
        _same(len(own_a), len(own_b))

    def _nodes(
        self,
        a: Sequence[onnx.NodeProto],
        b: Sequence[onnx.NodeProto],
        names: dict[str, str],
    ) -> list[tuple[str, str]]:
        _same(len(a), len(b))
        outputs: list[tuple[str, str]] = []
        for one, other in zip(a, b, strict=True):
            _same(_operator(one), _operator(other))
            _same([names.get(name) for name in one.input], list(other.input))
            attributes = {attribute.name: attribute for attribute in other.attribute}
            _same({attribute.name for attribute in one.attribute}, attributes.keys())
            for attribute in one.attribute:
                label = f"attribute `{attribute.name}` of node `{one.name or one.output[0]}`"
                self._attributes(attribute, attributes[attribute.name], names, label)
            _bind(one.output, other.output, names)
            outputs += [(x, y) for x, y in zip(one.output, other.output, strict=True) if x]
        return outputs

    def _attributes(
        self,
        a: onnx.AttributeProto,
        b: onnx.AttributeProto,
        names: dict[str, str],
        label: str,
    ) -> None:
        _same((a.type, a.ref_attr_name), (b.type, b.ref_attr_name))
        if a.type == _A.GRAPH and not a.ref_attr_name:
            self._graphs(a.g, b.g, dict(names), is_main=False)
        elif a.type == _A.GRAPHS:
            _same(len(a.graphs), len(b.graphs))
            for one, other in zip(a.graphs, b.graphs, strict=True):
                self._graphs(one, other, dict(names), is_main=False)
        elif a.type == _A.TENSOR and not a.ref_attr_name:
            _same((a.t.data_type, list(a.t.dims)), (b.t.data_type, list(b.t.dims)))
            self.found.tensors.append((label, a.t, b.t))
        else:
            _same(_bytes(a), _bytes(b))


def _bind(a: Iterable[str], b: Iterable[str], names: dict[str, str]) -> None:
    """Let each name of `a` stand for the one of `b` at the same position."""
    one, other = list(a), list(b)
    _same(len(one), len(other))
    for name, counterpart in zip(one, other, strict=True):
        _same(bool(name), bool(counterpart))
        names[name] = counterpart


def _same(a: object, b: object) -> None:
    if a != b:
        raise _Unlike


def _operator(node: onnx.NodeProto) -> tuple[str, str, str]:
    return canonical_domain(node.domain), node.op_type, node.overload


def _imports(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    return {canonical_domain(entry.domain): entry.version for entry in imports}


def _bytes(attribute: onnx.AttributeProto) -> bytes:
    bare = onnx.AttributeProto()
    bare.CopyFrom(attribute)
    bare.ClearField("doc_string")
    data: bytes = bare.SerializeToString(deterministic=True)
    return data
