"""What is known of a model's inputs before values are drawn for them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np
import onnx_ir as ir

from onnx_kvtool.model_io.external_data import array
from onnx_kvtool.ops.traits import SIZE_TYPES
from onnx_kvtool.runtime.errors import CannotDraw
from onnx_kvtool.runtime.sessions import Array, Arrays
from onnx_kvtool.symbolic.dimensions import names_in
from onnx_kvtool.verification.inputs.cases import Case, Kind
from onnx_kvtool.verification.inputs.corners import corner_cases
from onnx_kvtool.verification.inputs.interface import CachePair, Caches, find_caches
from onnx_kvtool.verification.inputs.points import Directions, Points, points_of
from onnx_kvtool.verification.inputs.roles import Flow, Place, Role, Uses, Write, uses_of
from onnx_kvtool.verification.inputs.window_sizes import Windows, windows_of

Dim = int | str

COUNTER = r"^past_length(_\d+)?$"
"""The name of the input that `raise` adds: the tokens before a step."""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One graph input that has to be fed.

    Attributes:
        name: Name.
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

    @property
    def is_circular(self) -> bool:
        """Whether its values become starts, all of them in circular caches."""
        return bool(self.uses.writes) and all(w.mode == "circular" for w in self.uses.writes)


@dataclass(frozen=True)
class InputPlan:
    """What is known of a model's inputs and of the caches among them.

    Attributes:
        inputs: Every input that is not an initializer, in order.
        pairs: The caches that go round: an input and the output that replaces it in the next step.
        windows: What a model without caches says of the sizes of its inputs.
        points: Values and lengths where the model changes its way.
        defaults: Other values for inputs that have a default, by name.
        unpadded: Names of inputs that are 1 throughout, because no row is padding.
        directions: Where two models say different things.
    """

    inputs: tuple[InputSpec, ...]
    pairs: tuple[CachePair, ...]
    windows: Windows
    points: Points
    defaults: Arrays
    unpadded: frozenset[str] = frozenset()
    directions: Directions = field(default_factory=Directions)

    @cached_property
    def _by_past(self) -> dict[str, CachePair]:
        return {pair.past: pair for pair in self.pairs}

    @cached_property
    def shapes(self) -> dict[str, tuple[Dim, ...]]:
        """The dimensions of each input, by its name."""
        return {spec.name: spec.shape for spec in self.inputs}

    def rows(self, pair: CachePair) -> Dim | None:
        """Return the dimension of a cache that counts its rows; None if it is unknown."""
        return None if pair.axis is None else self.shapes[pair.past][pair.axis]

    @cached_property
    def has_caches(self) -> bool:
        """Whether some input is a cache, or says where one is written."""
        return bool(self.pairs or self.with_role("past_cache", "write_indices", "update"))

    @cached_property
    def kinds(self) -> Mapping[str, Kind]:
        """What each name in the shapes of the inputs counts, in order of appearance.

        The place of a name in an input whose role is known says most, then the name itself, then
        its place in other inputs.
        """
        votes: dict[str, list[tuple[int, Kind]]] = {}
        for spec in self.inputs:
            for axis, dim in enumerate(spec.shape):
                for name in names_in(dim):
                    vote = votes.setdefault(name, [])
                    if named := _by_name(name):
                        vote.append((2, named))
                    if name == dim:
                        vote.append(_by_place(self, spec, axis))
        # `max` takes the first of equals, which keeps the answer independent of later inputs.
        return {
            name: max(given, key=lambda vote: vote[0], default=(0, "length"))[1]
            for name, given in votes.items()
        }

    @cached_property
    def covering_mask(self) -> InputSpec | None:
        """The input that says of each sequence which of all rows hold a token; None without.

        It is the only mask of integers or booleans in (batch, rows) whose rows are those that
        caches hold and the new ones.
        """
        found = [
            spec
            for spec in self.with_role("attention_mask")
            if len(spec.shape) == 2
            and (spec.dtype.is_integer() or spec.dtype == ir.DataType.BOOL)
            and isinstance(dim := spec.shape[-1], str)
            and (
                self.kinds.get(dim) == "total"
                or {"past", "length"} <= {self.kinds[n] for n in names_in(dim)}
            )
        ]
        return found[0] if len(found) == 1 else None

    @cached_property
    def capacities(self) -> list[int]:
        """The sizes of the caches that have a fixed one, where these are numbers."""
        fixed = (pair for pair in self.pairs if pair.kind == "fixed" and pair.window is None)
        sizes = *(write.capacity for write in self.writes), *map(self.rows, fixed)
        return [size for size in sizes if isinstance(size, int)]

    @property
    def writes(self) -> list[Write]:
        """The scatters whose starts come from an input, in the order of the inputs."""
        return [write for spec in self.inputs for write in spec.uses.writes]

    @property
    def is_drawn_freely(self) -> bool:
        """Whether some input holds numbers that no role limits."""
        return any(spec.role == "free" and spec.dtype != ir.DataType.BOOL for spec in self.inputs)

    def shortfall(self, inputs: Arrays) -> int:
        """Return how many times as many elements some input had to have for all points.

        1 where there were enough, of a model with caches, and of one with large inputs.
        """
        if self.has_caches or sum(array.size for array in inputs.values()) > _MOST_INPUTS:
            return 1
        sizes = [inputs[spec.name].size for spec in self.inputs if spec.role == "free"]
        asked = 20 * (len(self.points.numbers) + int(self.points.special) + 1)
        return max([1, *(-(-asked // max(size, 1)) for size in sizes)])

    @property
    def is_counted(self) -> bool:
        """Whether caches are filled as far as the ones of a mask count, sequence by sequence.

        So does an operator that counts tokens: it takes padding only behind those of a sequence.
        """
        return any(pair.operator == "group_query_attention" for pair in self.pairs)

    @property
    def window(self) -> int | None:
        """Keys of the smallest window that drops the rows before it; None without."""
        return min((pair.window for pair in self.pairs if pair.window is not None), default=None)

    def pair_of(self, past: str) -> CachePair | None:
        """Return the cache whose past is the input `past`; None when it is no cache."""
        return self._by_past.get(past)

    def with_role(self, *roles: Role) -> list[InputSpec]:
        """Return the inputs that have one of `roles`, in order."""
        return [spec for spec in self.inputs if spec.role in roles]

    def compared(self, other: InputPlan | None, directions: Directions) -> InputPlan:
        """Return the plan of a comparison with a model that has the plan `other`, if it has one.

        The points of both models count.
        """
        points = self.points if other is None else self.points.joined(other.points)
        shared = () if other is None else other.defaults
        return replace(
            self,
            points=points.directed(directions),
            directions=directions,
            defaults={name: value for name, value in self.defaults.items() if name in shared},
        )

    def below_zero(self) -> InputPlan | None:
        """Return the plan where starts may come out below zero, and then count from the end.

        None if the model adds nothing negative to what becomes a start.
        """
        if all(write.offset >= 0 for write in self.writes):
            return None
        inputs = []
        for spec in self.inputs:
            writes = (replace(write, offset=max(write.offset, 0)) for write in spec.uses.writes)
            inputs.append(replace(spec, uses=replace(spec.uses, writes=tuple(writes))))
        return replace(self, inputs=tuple(inputs))

    def corners(self, other: InputPlan) -> tuple[Case, ...]:
        """Return the cases that may show a difference from a model of another plan."""
        mine, theirs = (
            {spec.name: spec.uses.is_narrowed for spec in of.inputs if spec.is_circular}
            for of in (self, other)
        )
        is_float = any(s.role == "free" and s.dtype.is_floating_point() for s in self.inputs)
        return tuple(
            corner_cases(
                self.points.corners,
                other.points.corners,
                has_floats=not self.has_caches and is_float,
                is_narrowed=any(mine[name] != theirs[name] for name in mine.keys() & theirs),
            )
        )

    def counting(self, positions: Collection[str]) -> InputPlan:
        """Return the plan with these inputs as positions that count up.

        A cache stays one, and names that no input has are passed over.
        """
        inputs = tuple(
            replace(spec, role="position_ids")
            if spec.name in positions and spec.role != "past_cache"
            else spec
            for spec in self.inputs
        )
        return replace(self, inputs=inputs)


_COUNTED: tuple[tuple[Kind, str], ...] = (
    ("capacity", r"max|capacity"),
    ("total", r"total|full|kv"),
    ("past", r"past|cache|prefix"),
    ("batch", r"batch|^b$|^bs$|^n$"),
    ("total", r"^(?!enc).*mask.*(seq|len|tokens)"),
    ("length", r"seq|len|tokens|^l$|^t$"),
)


@lru_cache(maxsize=256)
def _by_name(name: str) -> Kind | None:
    # Exporters that invent names put the input's in front (`cache_d0`), which says nothing.
    if re.search(r"_d(im_)?\d+$|\[\d+\]$", name):
        return None
    return next((kind for kind, pattern in _COUNTED if re.search(pattern, name.lower())), None)


def _by_place(plan: InputPlan, spec: InputSpec, axis: int) -> tuple[int, Kind]:
    """Return how much the axis `axis` of an input tells, and what it counts there."""
    rank = len(spec.shape)
    is_last = axis == rank - 1
    match spec.role:
        case "past_cache":
            pair = plan.pair_of(spec.name)
            if axis and pair is not None and axis == pair.axis:
                return 3, "capacity" if pair.kind == "fixed" else "past"
            return 3, "size" if axis else "batch"
        case "update":
            if axis and axis == spec.uses.update_axis:
                return 3, "length"
            return (1, "length") if axis else (3, "batch")
        case "write_indices" | "nonpad_kv_seqlen":
            return (3, "batch") if rank == 1 else (0, "lone")
        case "token_ids" if rank == 1:
            return 3, "length"
        case "token_ids" | "position_ids" if rank > 1:
            return 3, "length" if is_last else "batch" if axis == rank - 2 else "size"
        case "attention_mask":
            if is_last:
                return 1, "total"
            return (3, "batch") if axis == 0 else (1, "length" if axis == rank - 2 else "size")
    if rank == 1:
        return 0, "lone"
    return (0, "length") if axis else (1, "batch")


def plan(model: ir.Model) -> InputPlan:
    """Find from the graph of `model` what its inputs mean; large weights are not read.

    Meanings come from the operators that the values reach (through copies, reshapes, casts, added
    constants, sub-graphs and model-local functions), then, for what reaches no telling operator,
    from the names that exporters use.

    Raises:
        CannotDraw: If an input is not a tensor, or its element type or rank is unknown.
    """
    flow = Flow(model)
    inputs = [value for value in model.graph.inputs if value.name not in model.graph.initializers]
    caches = find_caches(model, inputs)
    points = points_of(model)
    pasts = {pair.past for pair in caches.pairs}
    return InputPlan(
        inputs=tuple(_spec(value, flow, caches, pasts) for value in inputs),
        pairs=caches.pairs,
        windows=Windows() if caches.pairs else windows_of(model, inputs),
        points=points,
        defaults=_defaults(model, points),
    )


def _spec(value: ir.Value, flow: Flow, caches: Caches, pasts: Set[str]) -> InputSpec:
    name = value.name or ""
    if value.type is not None and not isinstance(value.type, ir.TensorType):
        raise CannotDraw(f"input `{name}` is not a tensor but of type {value.type}")
    dtype = value.dtype
    if dtype is None or dtype == ir.DataType.UNDEFINED:
        raise CannotDraw(f"the element type of input `{name}` is unknown")
    if value.shape is None:
        raise CannotDraw(f"the rank of input `{name}` is unknown")
    shape = tuple(
        dim
        if isinstance(dim, int)
        else caches.sizes.get(dim.value or "", dim.value) or f"{name}[{axis}]"
        for axis, dim in enumerate(value.shape)
    )
    uses = uses_of(flow, Place(value), caches)
    named = _role_by_name(name, dtype)
    role = uses.role or named
    if named == "position_ids" and role in ("token_ids", "write_indices"):
        role = named  # positions, too, are looked up in tables, and starts are the first of them
    if named == "past_length" and len(shape) < 2:
        role = named  # a start is what becomes of it
    if role == "attention_mask" and named == "free" and dtype.is_integer() and not caches.pairs:
        role = named  # any integers may be summed up
    if name in pasts:
        role = "past_cache"
    return InputSpec(name, dtype, shape, role, uses)


_MOST_INPUTS = 4096
"""Elements of all inputs of a run that is cheap enough to be made once more."""

_MOST_ELEMENTS = 1024
"""Elements of a default that is read; a longer one is a weight."""

_LISTS_ALL = 3
"""The last IR version whose initializers are all inputs."""


def _defaults(model: ir.Model, points: Points) -> dict[str, Array]:
    """Return other values for inputs that have a default.

    Floats are near it, of the same sign and not equal; integers, which may be sizes or ids, are
    those of the default in another order.
    """
    found: dict[str, Array] = {}
    for value in model.graph.inputs if model.ir_version > _LISTS_ALL else ():
        name = value.name or ""
        tensor = value.const_value if name in model.graph.initializers else None
        if tensor is None or isinstance(tensor, ir.ExternalTensor) or tensor.size > _MOST_ELEMENTS:
            continue
        if tensor.dtype in SIZE_TYPES:
            found[name] = np.roll(array(tensor), 1)
        elif tensor.dtype.is_floating_point() and name not in points.sizing:
            held = array(tensor).astype(np.float64)
            other = held * 1.25 + np.where(held < 0, -0.25, 0.25)
            found[name] = np.asarray(other, tensor.dtype.numpy())
    return found


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
