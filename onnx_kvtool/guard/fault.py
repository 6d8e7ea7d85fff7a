"""What guards share: a fault, the nodes and small constants of a message, and hidden nodes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx
import onnx.checker
import onnx.shape_inference
from numpy.typing import NDArray
from onnx import numpy_helper

from onnx_kvtool.core.domains import DEFAULT_DOMAINS
from onnx_kvtool.model_io.verbatim import Holder, bodies, every_node
from onnx_kvtool.ops.schema import op_history
from onnx_kvtool.ops.traits import Trait, having, traits_of


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that kvtool works around.

    When the library no longer has it, and no release that has it is supported, it goes, and what
    works around it with it.

    Attributes:
        what: What the library does, a clause that follows its name.
        instead: What kvtool does about it, a clause that follows `kvtool`.
        library: The distribution that has it.
        seen: The releases that showed it; it may be older, and may still be there.
        issue: The upstream issue, `owner/repository#number`; None where none is known.
    """

    what: str
    instead: str
    library: Literal["onnx", "onnx-ir", "onnxruntime"] = "onnx"
    seen: str = "1.23.2"
    issue: str | None = None


_A = onnx.AttributeProto
HOLDERS = having(Trait.HAS_BODY)
"""Operators with bodies that onnx's inference looks into."""

SMALL_BYTES = 1024
"""More than any list of sizes, axes or indices that inference reads; less than a weight."""

_T = onnx.TensorProto
INTEGERS = frozenset({_T.INT32, _T.INT64})
"""Element types of sizes."""
FLOATS = frozenset({_T.FLOAT, _T.DOUBLE})
"""Element types of the scales that sizes are multiplied with."""

Test = Callable[[NDArray[np.float64]], bool]

Sizing = tuple[tuple[int, ...], tuple[str, ...]]
"""What gives a node its sizes: positions of inputs, and names of attributes."""

Sizes = Mapping[str, Sizing]
"""Sizing of operators of the default domain."""


@functools.cache
def sizing(op_type: str) -> Sizing:
    """Return what gives an operator of the default domain its sizes, in any of its versions."""
    names = traits_of(op_type).sizes
    places = {
        place
        for facts in op_history(op_type)
        for place, formal in enumerate(facts.inputs)
        if formal.name in names
    }
    return tuple(sorted(places)), names


class Contents:
    """The nodes of a model message, collected once for all guards.

    Names and domains may change afterwards; nodes must not be added or removed.

    Args:
        message: The model.
        within: The operators whose bodies belong to it; None for all.
    """

    def __init__(self, message: onnx.ModelProto, within: Set[str] | None = HOLDERS) -> None:
        self.message = message
        self.holders: list[Holder] = [message.graph]
        self.holders += message.functions
        self.nodes: list[onnx.NodeProto] = []
        self._types: list[str] = []
        for holder in self.holders:  # which grows
            for node in holder.node:
                op_type = node.op_type
                self.nodes.append(node)
                self._types.append(op_type)
                if within is None or op_type in within:
                    self.holders += bodies(node)
        self.operators = frozenset(self._types)

    def of(self, *op_types: str) -> list[onnx.NodeProto]:
        """Return the nodes of some operators, of any domain, those of a body behind its graph's."""
        wanted = self.operators.intersection(op_types)
        if not wanted:
            return []
        return [n for n, kind in zip(self.nodes, self._types, strict=True) if kind in wanted]

    def standard(self, *op_types: str) -> list[onnx.NodeProto]:
        """Return the nodes of some operators of ONNX, as `of` does."""
        return [node for node in self.of(*op_types) if node.domain in DEFAULT_DOMAINS]

    def constants(self, test: Test, types: Set[int] = INTEGERS | FLOATS) -> set[str]:
        """Return the names of constants up to 1 KiB, of any graph, whose elements pass a test."""
        found = set()
        for node in self.of("Constant"):
            if any(_attribute_has(attribute, test, types) for attribute in node.attribute):
                found.update(node.output)
        for holder in self.holders:
            if isinstance(holder, onnx.GraphProto):
                found.update(t.name for t in holder.initializer if _tensor_has(t, test, types))
        return found


Infer = Callable[[Contents], onnx.ModelProto]
"""What infers the types of a message; it leaves the contents as they were."""

INFERENCE_ERRORS = (
    onnx.checker.ValidationError,
    onnx.shape_inference.InferenceError,
    RuntimeError,
    ValueError,
)
"""What onnx's inference raises."""


def is_told(node: onnx.NodeProto, sizes: Sizing, names: Set[str], test: Test) -> bool:
    """Return whether a constant that gives a node a size passes a test.

    Args:
        node: The node.
        sizes: What gives the node its sizes.
        names: The result of `Contents.constants` for the test.
        test: The test, for the attributes of the node.
    """
    places, attributes = sizes
    inputs = node.input
    if any(place < len(inputs) and inputs[place] in names for place in places):
        return True
    return any(a.name in attributes and _attribute_has(a, test) for a in node.attribute)


def _attribute_has(
    attribute: onnx.AttributeProto, test: Test, types: Set[int] = INTEGERS | FLOATS
) -> bool:
    if attribute.type == _A.TENSOR:
        return _tensor_has(attribute.t, test, types)
    numbers: list[float] = []
    if _T.INT64 in types:
        numbers += (attribute.i, *attribute.ints)
    if _T.FLOAT in types:
        numbers += (attribute.f, *attribute.floats)
    return test(np.array(numbers, np.float64))


def _tensor_has(tensor: onnx.TensorProto, test: Test, types: Set[int]) -> bool:
    """Return whether a tensor may pass a test; large tensors and strings contain no sizes."""
    if tensor.data_type not in types or tensor.ByteSize() > SMALL_BYTES:
        return False
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return False
    try:
        with np.errstate(all="ignore"):  # of numbers that are none
            return test(numpy_helper.to_array(tensor).astype(np.float64))
    except (TypeError, ValueError):  # its data does not fit its type, which inference finds as well
        return True


_HIDDEN = "kvtool.hidden"
"""Domain of a node that inference knows nothing about."""


def infer_hiding(contents: Contents, infer: Infer, hidden: list[onnx.NodeProto]) -> onnx.ModelProto:
    """Return the result of inference with some nodes hidden from it."""
    holders = (contents.message, *contents.message.functions)
    domains = [node.domain for node in hidden]
    for node in hidden:
        node.domain = _HIDDEN
    for holder in holders:
        holder.opset_import.add(domain=_HIDDEN, version=1)
    try:
        result = infer(contents)
    finally:
        for node, domain in zip(hidden, domains, strict=True):
            _set_domain(node, domain)
        for holder in holders:
            del holder.opset_import[-1]
    for node in every_node(result, HOLDERS):
        if node.domain == _HIDDEN:
            _set_domain(node, "")
    for holder in (result, *result.functions):
        left = [entry for entry in holder.opset_import if entry.domain != _HIDDEN]
        del holder.opset_import[:]
        holder.opset_import.extend(left)
    return result


def _set_domain(node: onnx.NodeProto, domain: str) -> None:
    """Set a domain; an empty one is left out, which makes other bytes."""
    if domain:
        node.domain = domain
    else:
        node.ClearField("domain")
