"""Reading a node through its schema: inputs by name, attributes with their defaults bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from onnx_kvtool.core.errors import CodedError
from onnx_kvtool.core.words import counted
from onnx_kvtool.ops.schema import AttributeValue, Formal, OpFacts, op_facts

if TYPE_CHECKING:
    import onnx_ir as ir


_V = TypeVar("_V", int, float, str)


class MalformedNode(CodedError):
    """A node that its own schema does not allow, so that its meaning is undefined.

    Attributes:
        code: Stable identifier, used as the reason code of a refusal.
    """


class NodeView:
    """One node, read through the schema of its operator.

    Args:
        node: The node; it is not changed.
        opset: Version of its domain, for a node that has none of its own.
        facts: What is known of the operator; None for that of the default domain at `opset`.

    Raises:
        MalformedNode: If no such operator exists at `opset`; if the node has fewer inputs or
            outputs than the operator requires, or more than it has; if a required input is absent,
            or one among the many that an operator such as Concat takes.
    """

    def __init__(self, node: ir.Node, opset: int, facts: OpFacts | None = None) -> None:
        opset = opset if node.version is None else node.version
        facts = facts or op_facts(node.op_type, opset)
        if facts is None:
            raise MalformedNode(
                "unknown-operator",
                f"the default domain has no operator `{node.op_type}` at opset {opset}",
                help="check the opset import of the model",
            )
        if len(node.inputs) > facts.max_inputs:
            raise MalformedNode(
                "too-many-inputs",
                f"`{node.op_type}` takes {_at_most(facts.max_inputs)} at opset {opset}, "
                f"got {len(node.inputs)}",
            )
        for formal in absent_inputs(node, facts):
            raise MalformedNode(
                "missing-input",
                f"`{node.op_type}` requires its input `{formal.name}`, which is absent",
            )
        _check_variadic(node, facts)
        if not facts.min_outputs <= len(node.outputs) <= facts.max_outputs:
            raise MalformedNode(
                "output-count",
                f"`{node.op_type}` has {_outputs(facts)} at opset {opset}, got {len(node.outputs)}",
            )
        self.node = node
        self.opset = opset
        self.facts: OpFacts = facts

    def find(self, name: str) -> ir.Value | None:
        """Return the input called `name`; None if it is absent, here or in the schema."""
        places = (i for i, formal in enumerate(self.facts.inputs) if formal.name == name)
        return given_input(self.node, next(places, len(self.node.inputs)))

    def input(self, name: str) -> ir.Value | None:
        """Return the input called `name` in the schema; None when it is absent or empty."""
        if all(formal.name != name for formal in self.facts.inputs):
            raise KeyError(f"{self.node.op_type} has no input {name}")
        return self.find(name)

    def required(self, name: str) -> ir.Value:
        """Return the input called `name`, which the schema requires."""
        value = self.input(name)
        if value is None:
            raise KeyError(f"input {name} of {self.node.op_type} is not required by its schema")
        return value

    def operands(self, *names: str) -> tuple[ir.Value, ...]:
        """Return several inputs that the schema requires."""
        return tuple(map(self.required, names))

    def attribute(self, name: str, older: AttributeValue = None) -> AttributeValue:
        """Return the attribute `name`, or the schema's default; None when it has neither.

        Args:
            name: Its name.
            older: What to return where the version of the operator lacks the attribute; None to
                demand one that has it.

        Raises:
            MalformedNode: If the attribute is of another type than the schema's, or refers to a
                parameter of a function that was not bound.
        """
        if older is not None and name not in self.facts.attributes:
            return older
        declared = self.facts.attributes[name]
        given = self.node.attributes.get(name)
        if given is None:
            return declared.default
        if given.is_ref():
            raise MalformedNode(
                "unbound-attribute",
                f"attribute `{name}` refers to the function parameter `{given.ref_attr_name}`, "
                "which has no value here",
            )
        if given.type.value != declared.type:
            raise MalformedNode(
                "attribute-type",
                f"attribute `{name}` is of type {given.type.name}, "
                f"expected type number {declared.type}",
            )
        value = given.value
        return tuple(value) if isinstance(value, (list, tuple)) else value

    def integer(self, name: str, older: int | None = None) -> int:
        """Return the integer attribute `name`, which has a default or is required."""
        return self._of_type(name, int, "an integer", older)

    def number(self, name: str, default: int = 0) -> int:
        """Return an integer attribute; `default` where the operator or the node has none."""
        value = self.attribute(name) if name in self.facts.attributes else None
        return value if isinstance(value, int) else default

    def real(self, name: str) -> float:
        """Return the real attribute `name`, which has a default or is required."""
        return self._of_type(name, float, "a real number")

    def real_or_none(self, name: str) -> float | None:
        """Return the real attribute `name`; None where the node has none."""
        value = self.attribute(name)
        return value if isinstance(value, float) else None

    def integers(self, name: str) -> list[int]:
        """Return a list of integers; an empty one where neither node nor version has it."""
        value = self.attribute(name, ())
        return [n for n in value if isinstance(n, int)] if isinstance(value, tuple) else []

    def string(self, name: str, older: str | None = None) -> str:
        """Return the string attribute `name`, which has a default or is required."""
        return self._of_type(name, str, "a string", older)

    def _of_type(self, name: str, kind: type[_V], expected: str, older: _V | None = None) -> _V:
        value = self.attribute(name, older)
        if not isinstance(value, kind):
            raise MalformedNode(
                "attribute-type", f"attribute `{name}` is {value!r}, expected {expected}"
            )
        return value


def given_input(node: ir.Node, index: int) -> ir.Value | None:
    """Return an input of a node of any operator; None if it is absent, even if it is required."""
    return node.inputs[index] if index < len(node.inputs) else None


def absent_inputs(node: ir.Node, facts: OpFacts) -> Iterator[Formal]:
    """Yield the inputs that a node lacks and its operator requires, apart from variadic ones."""
    for index, formal in enumerate(facts.inputs):
        if not formal.optional and not formal.variadic and given_input(node, index) is None:
            yield formal


def given_dtype(node: ir.Node, index: int = 0) -> ir.DataType | None:
    """Return the element type of an input of a node of any operator; None if it is unknown."""
    value = given_input(node, index)
    return None if value is None else value.dtype


def given_integer(node: ir.Node, name: str, default: int | None = None) -> int | None:
    """Return an integer attribute of a node of any operator, or `default` if it has none.

    None for one of another type, and for one that refers to a parameter of a function.
    """
    given = node.attributes.get(name)
    if given is None:
        return default
    value = None if given.is_ref() else given.value
    return value if isinstance(value, int) else None


def given_integers(node: ir.Node, name: str) -> tuple[int, ...] | None:
    """Return a list of integers that a node has as attribute; None for none and any other."""
    given = node.attributes.get(name)
    value = None if given is None or given.is_ref() else given.value
    if not isinstance(value, (list, tuple)) or not all(isinstance(n, int) for n in value):
        return None
    return tuple(value)


def counted_axis(axis: int, rank: int, name: str = "axis") -> int:
    """Return an axis counted from the front; the last one may be written -1.

    Raises:
        MalformedNode: If there is no such axis, as is every one for rank 0.
    """
    if not -rank <= axis < rank:
        expected = f"{-rank} to {rank - 1}" if rank else "none for rank 0"
        raise MalformedNode("axis-out-of-range", f"`{name}` is {axis}, expected {expected}")
    return axis % rank


def counted_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return different axes counted from the front, in their order.

    Raises:
        MalformedNode: As `counted_axis`, and if two of them are one axis.
    """
    counted = tuple(counted_axis(axis, rank, "axes") for axis in axes)
    if len(set(counted)) < len(counted):
        raise MalformedNode("repeated-axis", f"`axes` is {list(axes)}, which names an axis twice")
    return counted


def _outputs(facts: OpFacts) -> str:
    least, most = facts.min_outputs, facts.max_outputs
    return counted(most, "output") if least == most else f"{least} to {counted(most, 'output')}"


def _at_most(number: int) -> str:
    return f"at most {counted(number, 'input')}" if number else "no inputs"


def _check_variadic(node: ir.Node, facts: OpFacts) -> None:
    last = facts.inputs[-1] if facts.inputs else None
    # Inputs of different types, such as those of Loop, may all be absent, or be empty optionals;
    # inputs of one type must not.
    if last is None or not last.variadic or not last.homogeneous:
        return
    if len(node.inputs) < facts.min_inputs:
        raise MalformedNode(
            "missing-input",
            f"`{node.op_type}` takes at least {counted(facts.min_inputs, 'input')}, got "
            f"{len(node.inputs)}",
        )
    if None in node.inputs[len(facts.inputs) - 1 :]:
        raise MalformedNode(
            "missing-input",
            f"`{node.op_type}` takes several values as `{last.name}`, and one is absent",
        )
