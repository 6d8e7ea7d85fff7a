"""What is known of a model's inputs before values are drawn for them."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from onnx_kvtool.runtime.errors import CannotDraw
from onnx_kvtool.runtime.inputs.flow import Flow, Place
from onnx_kvtool.runtime.inputs.pairs import CachePair, Caches, find_caches
from onnx_kvtool.runtime.inputs.roles import Role, Uses, uses_of
from onnx_kvtool.runtime.inputs.seen_windows import windows_of
from onnx_kvtool.runtime.inputs.windows import Windows

__all__ = ["COUNTER", "InputPlan", "InputSpec", "plan"]

Dim = int | str

COUNTER = r"^past_length(_\d+)?$"
"""The name of the input that `raise` adds: the tokens before a step."""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One graph input that has to be fed.

    Attributes:
        name: Its name.
        dtype: Its element type.
        shape: Its dimensions: numbers, names or expressions as in the file. One without a name is
            called `<input>[<axis>]`.
        role: What its values mean.
        uses: Where its values go, as far as that limits them.
    """

    name: str
    dtype: ir.DataType
    shape: tuple[Dim, ...]
    role: Role
    uses: Uses


@dataclass(frozen=True, slots=True)
class InputPlan:
    """What is known of a model's inputs and of the caches among them.

    Attributes:
        inputs: Every input that is not an initializer, in order.
        pairs: The caches that go round: an input and the output that replaces it in the next step.
        windows: What a model without caches says of the sizes of its inputs.
        unpadded: Names of inputs that are 1 throughout, because no row is padding.
    """

    inputs: tuple[InputSpec, ...]
    pairs: tuple[CachePair, ...]
    windows: Windows = field(default_factory=Windows)
    unpadded: frozenset[str] = frozenset()

    @property
    def has_caches(self) -> bool:
        """Whether some input is a cache, or says where one is written."""
        return bool(self.pairs or self.with_role("past_cache", "write_indices", "update"))

    @property
    def is_counted(self) -> bool:
        """Whether caches are filled as far as the ones of a mask count, sequence by sequence.

        So does GroupQueryAttention, which takes no padding but behind the tokens of a sequence.
        """
        return any(pair.operator == "group_query_attention" for pair in self.pairs)

    def pair_of(self, past: str) -> CachePair | None:
        """Return the cache whose past is the input `past`; None when it is no cache."""
        return next((pair for pair in self.pairs if pair.past == past), None)

    def with_role(self, *roles: Role) -> list[InputSpec]:
        """Return the inputs that have one of `roles`, in order."""
        return [spec for spec in self.inputs if spec.role in roles]

    def counting(self, positions: Collection[str]) -> InputPlan:
        """Return the plan in which these inputs, whatever they reach, are positions that count up.

        A cache stays one, and names that no input has are passed over.
        """
        inputs = tuple(
            replace(spec, role="position_ids")
            if spec.name in positions and spec.role != "past_cache"
            else spec
            for spec in self.inputs
        )
        return replace(self, inputs=inputs)


def plan(model: ir.Model) -> InputPlan:
    """Find from the graph of `model` what its inputs mean; weights are not read.

    Meanings come from the operators that the values reach (through copies, reshapes, casts, added
    constants, sub-graphs and model-local functions), then, for what reaches no telling operator,
    from the names that exporters use.

    Raises:
        CannotDraw: If an input is not a tensor, or its element type or rank is not known.
    """
    flow = Flow(model)
    inputs = [value for value in model.graph.inputs if value.name not in model.graph.initializers]
    caches = find_caches(model, inputs)
    return InputPlan(
        inputs=tuple(_spec(value, flow, caches) for value in inputs),
        pairs=caches.pairs,
        windows=Windows() if caches.pairs else windows_of(model, inputs),
    )


def _spec(value: ir.Value, flow: Flow, caches: Caches) -> InputSpec:
    name = value.name or ""
    if value.type is not None and not isinstance(value.type, ir.TensorType):
        raise CannotDraw(f"input `{name}` is not a tensor but of type {value.type}")
    if (dtype := _dtype(value)) is None:
        raise CannotDraw(f"the element type of input `{name}` is not known")
    if value.shape is None:
        raise CannotDraw(f"the rank of input `{name}` is not known")
    shape = tuple(
        dim if isinstance(dim, int) else dim.value or f"{name}[{axis}]"
        for axis, dim in enumerate(value.shape)
    )
    uses = uses_of(flow, Place(value), caches)
    named = _role_by_name(name, dtype)
    role = uses.role or named
    if named == "position_ids" and role in ("token_ids", "write_indices"):
        role = named  # positions, too, are looked up in tables, and starts are the first of them
    if named == "past_length" and len(shape) < 2:
        role = named  # a start is what becomes of it
    if any(pair.past == name for pair in caches.pairs):
        role = "past_cache"
    return InputSpec(name, dtype, shape, role, uses)


def _dtype(value: ir.Value) -> ir.DataType | None:
    if not isinstance(value.type, ir.TensorType) or value.dtype == ir.DataType.UNDEFINED:
        return None
    return value.dtype


_NAMES: tuple[tuple[Role, str], ...] = (
    ("past_length", COUNTER),
    ("write_indices", r"write_ind"),
    ("nonpad_kv_seqlen", r"nonpad"),
    ("attention_mask", r"mask"),
    ("position_ids", r"(^|[_.])pos(ition)?s?([_.]ids?)?$"),
    ("token_ids", r"(^|[_.])(input|token)[_.]?ids?$"),
)
"""Names that exporters give to inputs, tried in order on the lower-case name."""


def _role_by_name(name: str, dtype: ir.DataType) -> Role:
    """Return the role that the name suggests; a wrong one only makes values less like real ones."""
    if dtype.is_integer() or dtype == ir.DataType.BOOL:
        for role, pattern in _NAMES:
            if re.search(pattern, name.lower()):
                return role
    return "free"
