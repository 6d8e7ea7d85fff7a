"""The tools of a rule: new nodes, fresh names, replacements of outputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.errors import CodedError
from onnx_kvtool.core.walk import contents, read_values, subgraphs
from onnx_kvtool.ops.result_types import output_types
from onnx_kvtool.ops.schema import op_facts

# Fresh names for new nodes and values.


class Names:
    """Names that no value or node of a model has in any graph, sub-graph or function.

    One name space serves values and nodes of all scopes, so that a new name can neither collide
    in its own graph nor shadow one of an outer graph.
    """

    def __init__(self, model: ir.Model | None = None) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}
        if model is not None:
            for _, graph, nodes in contents(model):
                self._taken.update(graph.initializers)
                values = [*graph.inputs, *(value for node in nodes for value in node.outputs)]
                self._taken.update(value.name for value in values if value.name)
                self._taken.update(node.name for node in nodes if node.name)

    def fresh(self, hint: str) -> str:
        """Return `hint`, or `hint_<n>` with the first free n, and take it."""
        name = hint
        count = self._next.get(hint, 0)
        while name in self._taken:
            count += 1
            name = f"{hint}_{count}"
        self._next[hint] = count
        self._taken.add(name)
        return name


# The results of a rule: replacements and refusals.


class Refusal(CodedError):
    """Raised by a guard before any edit: why a node cannot be rewritten.

    Attributes:
        code: Stable identifier of the reason (`unknown-rank`, `element-type`).
    """


@dataclass(frozen=True, slots=True)
class Replacement:
    """The replacement of a node, computed by the emitter's nodes.

    A rule of one output returns the value itself where it has nothing to say beside it.

    Attributes:
        outputs: One value per output of the node; None for an output that nobody reads.
        via: The form that was chosen, where the rule has several.
        folds: Whether a constant may take the place of a node whose result is known.
    """

    outputs: tuple[ir.Value | None, ...]
    via: str | None = None
    folds: bool = True


# Building nodes for one opset, apart from the graph until `commit`.


AttributeValue = (
    int
    | float
    | str
    | Sequence[int]
    | Sequence[float]
    | Sequence[str]
    | ir.TensorProtocol
    | ir.Graph
)


class Held(Protocol):
    """What stands for a value, as a term of a formula does (`forms.Term`)."""

    @property
    def value(self) -> ir.Value:
        """The value."""


Operand = ir.Value | Held | float | Sequence[float] | np.ndarray | None
"""What a node reads; None for nothing, and numbers for a constant."""


@dataclass(slots=True)
class ScopedValues:
    """Built values that a graph and the graphs below it may reuse.

    Attributes:
        graph: The graph that computes the values of this scope.
        parent: ScopedValues of the enclosing graph; None for a root.
        names: Fresh names, common to all scopes of a model.
        shared: What was built, by what it means.
    """

    graph: ir.Graph
    parent: ScopedValues | None
    names: Names
    shared: dict[Hashable, ir.Value] = field(default_factory=dict)

    @property
    def root(self) -> ScopedValues:
        """The scope of the main graph (or of the function body being legalised)."""
        return self if self.parent is None else self.parent.root

    def find(self, key: Hashable) -> ir.Value | None:
        """Return the value that was built for `key` here or in an enclosing graph."""
        value = self.shared.get(key)
        return value if value is not None or self.parent is None else self.parent.find(key)


_E = TypeVar("_E", bound="Emitter")


class Emitter:
    """Nodes and constants that one rewrite adds; nothing is attached before `commit`.

    Args:
        scope: Where the nodes will stand.
        opset: Version of the default domain that the nodes are written for.
        prefix: First part of the names of new nodes and values.
        branches: Whether an If may give values of different shapes; not where the nodes go on to
            an opset below 11.
    """

    def __init__(
        self, scope: ScopedValues, opset: int, prefix: str, *, branches: bool = True
    ) -> None:
        self.scope = scope
        self.opset = opset
        self.prefix = prefix
        self.branches = branches
        self.nodes: list[ir.Node] = []
        self._constants: dict[Hashable, ir.Value] = {}
        self._shared: dict[Hashable, ir.Value] = {}
        self._shares = False

    @property
    def sharing(self: _E) -> _E:
        """This emitter, with an `op` that adds no node where an equal one is in reach."""
        other = copy.copy(self)
        other._shares = True
        return other

    def op(
        self,
        op_type: str,
        *inputs: Operand,
        attributes: Mapping[str, AttributeValue] | None = None,
        dtype: ir.DataType | None = None,
        hint: str | None = None,
        **more: AttributeValue,
    ) -> ir.Value:
        """Add a node with one output and return the output.

        Args:
            op_type: Operator of the default domain.
            inputs: Inputs in order; None for an absent one. Numbers are a constant of the type that
                the schema gives it beside the other inputs, and of int64 where it leaves that open.
            attributes: Attributes by name; those left out keep the schema's default.
            dtype: Element type of the output; None where schema and inputs, or a body, tell it.
            hint: Last part of the node's name; the operator when absent.
            more: More attributes.
        """
        given = {**(attributes or {}), **more}
        dtypes = None if dtype is None else (dtype,)
        operands = self._values(op_type, inputs) if self._shares else inputs

        def build() -> ir.Value:
            return self.multi(op_type, *operands, attributes=given, dtypes=dtypes, hint=hint)[0]

        if not self._shares:
            return build()
        return self.once((op_type, dtype, *operands, repr(sorted(given.items()))), build)

    def multi(
        self,
        op_type: str,
        *inputs: Operand,
        attributes: Mapping[str, AttributeValue] | None = None,
        count: int = 1,
        dtypes: Sequence[ir.DataType] | None = None,
        hint: str | None = None,
        **more: AttributeValue,
    ) -> tuple[ir.Value, ...]:
        """Add a node with `count` outputs, or one per entry of `dtypes`, and return the outputs."""
        # Every node is named: onnxruntime 1.18 to 1.21 refuse graphs with several unnamed nodes
        # that their Gather-to-Split fusion rewrites.
        called = self.scope.names.fresh(f"{self.prefix}/{hint or op_type}")
        given = {**(attributes or {}), **more}
        node = ir.Node(
            "",
            op_type,
            self._values(op_type, inputs),
            [_attribute(name, value) for name, value in given.items()],
            num_outputs=count if dtypes is None else len(dtypes),
            version=self.opset,
            name=called,
        )
        if dtypes is None:
            body = next((body for _, body in subgraphs(node)), None)
            types = (
                output_types(node, self.opset, lambda value: value.type)
                if body is None
                else [value.type for value in body.outputs[-count:]]
            )
            unknown = ir.DataType.UNDEFINED
            dtypes = [unknown if type_ is None else type_.dtype for type_ in types]
        for index, (output, dtype) in enumerate(zip(node.outputs, dtypes, strict=True)):
            output.name = self.scope.names.fresh(f"{called}_output_{index}")
            output.type = ir.TensorType(dtype)
        self.nodes.append(node)
        return tuple(node.outputs)

    def _values(self, op_type: str, operands: Sequence[Operand]) -> list[ir.Value | None]:
        """Return operands as values; an array keeps its type."""
        inputs = [getattr(x, "value", x) for x in operands]
        found: list[ir.Value | None] = []
        for index, given in enumerate(inputs):
            if given is None or isinstance(given, ir.Value):
                found.append(given)
                continue
            facts = op_facts(op_type, self.opset)
            formal = None if facts is None else facts.input(index)
            assert facts is not None and formal is not None
            kin = [
                x
                for i, x in enumerate(inputs)
                if isinstance(x, ir.Value)
                and (other := facts.input(i)) is not None
                and other.type_parameter == formal.type_parameter
            ]
            array = np.array(given)
            if not isinstance(given, np.ndarray):
                other_type = ir.DataType.BOOL if isinstance(given, bool) else ir.DataType.INT64
                dtype = next((x.dtype for x in kin if x.dtype), other_type)
                if array.size and array.dtype.kind == "f" and not dtype.is_floating_point():
                    text = f"the element type beside {given} in `{op_type}` is unknown"
                    raise Refusal("unknown-element-type", text)
                array = np.array(given, dtype.numpy())
            hint = "number" if array.dtype.kind != "i" else "const"
            is_list = array.ndim > 0 and not kin
            found.append(self.constant(array, formal.name if is_list else hint))
        return found

    def constant(self, array: np.ndarray | int | Sequence[int], hint: str = "const") -> ir.Value:
        """Return a constant of the root graph; equal constants are one initializer.

        Args:
            array: The value; integers become int64, and strings are of dtype object.
            hint: Last part of the name when the constant is new.
        """
        if not isinstance(array, np.ndarray):
            array = np.asarray(array, dtype=np.int64)
        if array.dtype != object:
            return self.tensor(ir.Tensor(array), hint)
        words = [str(word).encode() for word in array.ravel()]
        return self.tensor(ir.StringTensor(words, shape=ir.Shape(array.shape)), hint)

    def tensor(self, tensor: ir.TensorProtocol, hint: str) -> ir.Value:
        """Return a small tensor as a constant of the root graph; equal ones are one initializer."""
        words = tuple(tensor.string_data()) if isinstance(tensor, ir.StringTensor) else None
        key = (
            "constant",
            tensor.dtype,
            tuple(tensor.shape),
            tensor.tobytes() if words is None else words,
        )
        return self._initializer(key, lambda: tensor, f"kvtool/{hint}")

    def weight(self, key: Hashable, build: Callable[[], ir.TensorProtocol], hint: str) -> ir.Value:
        """Return a tensor as an initializer of the root graph; what it holds is not looked at.

        Args:
            key: What it is made of; tensors of one key are one initializer.
            build: Makes the tensor.
            hint: First part of the name when it is new.
        """
        weight = self._initializer(("weight", key), build, hint)
        if weight.const_value is not None:
            weight.const_value.name = weight.name
        return weight

    def _initializer(
        self, key: Hashable, build: Callable[[], ir.TensorProtocol], hint: str
    ) -> ir.Value:
        known = self._constants.get(key) or self.scope.root.shared.get(key)
        if known is None:
            tensor = build()
            known = ir.Value(
                name=self.scope.names.fresh(hint),
                type=ir.TensorType(tensor.dtype),
                shape=ir.Shape(tensor.shape.numpy()),
                const_value=tensor,
            )
        self._constants[key] = known
        return known

    def adopt(self, node: ir.Node, hint: str) -> None:
        """Add a node that was built elsewhere, under fresh names for itself and its outputs."""
        node.name = self.scope.names.fresh(f"{self.prefix}/{hint}")
        for output in node.outputs:
            if output.name:
                output.name = self.scope.names.fresh(f"{self.prefix}/{output.name}")
        self.nodes.append(node)

    def once(self, key: Hashable, build: Callable[[], ir.Value]) -> ir.Value:
        """Return what was built for `key`, or build it.

        `key` must say everything that the value depends on; dimensions count by their name.
        """
        known = self._shared.get(key)
        if known is None:
            known = self.scope.find(key)
            if known is not None and known.graph is None and known.const_value is not None:
                self._constants[key] = known  # which has no readers yet
        if known is None:
            known = self._shared[key] = build()
        return known

    def nested(
        self,
        build: Callable[[], Sequence[ir.Value]],
        inputs: Sequence[ir.Value] = (),
        hint: str = "branch",
    ) -> ir.Graph:
        """Return a body for If, Loop or Scan with the nodes that `build` emits.

        Constants still go to the root graph. What `build` shares with `once` is shared in the body
        only, since a node outside must not read it.

        Args:
            build: Emits the nodes and returns the outputs; one that the body does not compute
                itself passes through an Identity.
            inputs: Inputs of the body.
            hint: Last part of the body's name.
        """
        outer, shared = self.nodes, self._shared
        self.nodes, self._shared = [], dict(shared)
        try:
            outputs = [self._own(value) for value in build()]
        except BaseException:
            outer.extend(self.nodes)  # so that `discard` finds them
            raise
        finally:
            inner, self.nodes, self._shared = self.nodes, outer, shared
        name = self.scope.names.fresh(f"{self.prefix}/{hint}")
        return ir.Graph(inputs, outputs, nodes=inner, name=name)

    def _own(self, value: ir.Value) -> ir.Value:
        if any(value is output for node in self.nodes for output in node.outputs):
            return value
        return self.op("Identity", value)

    def fold(
        self, known: Callable[[ir.Value], np.ndarray | None], wanted: Collection[ir.Value | None]
    ) -> None:
        """Replace nodes with known values by constants.

        Args:
            known: Gives the elements of an integer or bool value, where all are known.
            wanted: Values that take the place of outputs, and whose nodes stay.
        """
        found: dict[ir.Value, np.ndarray] = {}
        for node, output in _single(self.nodes, set(wanted)):
            numbers = None if node.op_type == "Constant" else known(output)
            if numbers is not None and output.dtype is not None:
                found[output] = numbers.astype(output.dtype.numpy())
        folded = {}
        shared = set(self._shared.values())
        for output, array in found.items():
            readers = {use.node for use in output.uses()}
            if output in shared or any(reader.outputs[0] not in found for reader in readers):
                folded[output] = self.tensor(ir.Tensor(array), "folded")
                output.replace_all_uses_with(folded[output])
        self._shared = _replaced(self._shared, folded)
        for node in self.nodes:
            if node.outputs[0] in found:
                release(node)
        self.nodes = [node for node in self.nodes if node.outputs[0] not in found]

    def commit(self) -> list[ir.Node]:
        """Register constants that are read and shared values; return the nodes for the graph."""
        root = self.scope.root
        for key, value in self._constants.items():
            root.shared[key] = value  # what was folded may be an operand of shared values
            if value.uses() and value.graph is None:
                root.graph.register_initializer(value)
        self.scope.shared.update(self._shared)
        return self.nodes

    def share_instead(self, others: Mapping[ir.Value, ir.Value | None]) -> None:
        """Let what replaced some of the committed values be shared in their place."""
        for key in self._shared:
            self.scope.shared.pop(key, None)
        self._shared = _replaced(self._shared, others)
        self.scope.shared.update(self._shared)

    @classmethod
    def at(
        cls, node: ir.Node, scopes: Mapping[ir.Graph, ScopedValues], opset: int, prefix: str
    ) -> Emitter:
        """Return one for nodes beside another; `prefix` is for a node without a name."""
        graph = node.graph
        assert isinstance(graph, ir.Graph)
        return cls(scopes[graph], opset, node.name or prefix)

    def insert_before(self, node: ir.Node) -> list[ir.Node]:
        """Commit, and insert the nodes into the graph in front of another; return them."""
        graph = node.graph
        assert graph is not None
        graph.insert_before(node, nodes := self.commit())
        return nodes

    def discard(self) -> None:
        """Drop all emitted nodes, and detach them from the values that they read."""
        for node in self.nodes:
            release(node)
        self.nodes.clear()
        self._constants.clear()
        self._shared.clear()


def _replaced(
    shared: Mapping[Hashable, ir.Value], others: Mapping[ir.Value, ir.Value | None]
) -> dict[Hashable, ir.Value]:
    """Return shared values after others took the place of some, as operands too."""
    return {
        tuple(others.get(p, p) for p in key) if isinstance(key, tuple) else key: other
        for key, value in shared.items()
        if (other := others.get(value, value)) is not None
    }


def _single(
    nodes: Iterable[ir.Node], wanted: Collection[ir.Value | None]
) -> Iterator[tuple[ir.Node, ir.Value]]:
    """Yield each node of one output, in bodies as well, but for those whose output is wanted."""
    for node in nodes:
        for _, body in subgraphs(node):
            yield from _single(body, {*wanted, *body.outputs})
        if len(node.outputs) == 1 and node.outputs[0] not in wanted:
            yield node, node.outputs[0]


def _attribute(name: str, value: AttributeValue) -> ir.Attr:
    """Return an attribute; a list without elements is one of integers.

    `ir.convenience.convert_attribute` asks a list first whether it is a graph, a tensor or a type,
    which takes 0.2 ms.
    """
    if isinstance(value, list | tuple) and value:
        if all(isinstance(item, int) for item in value):
            return ir.AttrInt64s(name, value)
        if all(isinstance(item, float) for item in value):
            return ir.AttrFloat32s(name, value)
    if isinstance(value, ir.Tensor):
        return ir.AttrTensor(name, value)
    return ir.convenience.convert_attribute(name, value)


def release(node: ir.Node) -> list[ir.Value]:
    """Detach the inputs of a node and of the nodes in its bodies, and return them.

    A value that only nodes of no graph read has no readers then.
    """
    read = read_values(node)
    for index in range(len(node.inputs)):
        node.replace_input_with(index, None)
    for _, body in subgraphs(node):
        read += [value for value in body.outputs if value.producer() is None]
        for inner in body:
            read += release(inner)
    return read
