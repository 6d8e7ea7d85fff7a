"""Facts about operands, and about releases of runtimes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import onnx_ir as ir

from onnx_kvtool.core.domains import DEFAULT_DOMAINS, operator_label
from onnx_kvtool.core.tables import Table
from onnx_kvtool.lint.context import Context, Site
from onnx_kvtool.ops.traits import dtype_name
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.symbolic.dimensions import dims_of
from onnx_kvtool.symbolic.expressions import Expr, integer
from onnx_kvtool.symbolic.simplification import Facts, substitute

if TYPE_CHECKING:
    from onnx_kvtool.symbolic.index_maps import IndexMaps
    from onnx_kvtool.targets.release import Limit
    from onnx_kvtool.targets.target import Target


T = TypeVar("T")

# The operands of a TensorScatter, as far as they are known, even of a malformed node.
#
# The view of the operator refuses a node with an illegal mode or axis; rules about its other
# properties still apply.


def node_words(node: ir.Node) -> str:
    """Return a node for messages: its operator, and its name if it has one."""
    op = operator_label(node)
    return f"`{op}` node `{node.name}`" if node.name else f"an unnamed `{op}` node"


def shape_words(dims: Sequence[int | str | None] | None) -> str:
    """Return a shape for messages, with `?` for unknown dimensions."""
    if dims is None:
        return "of unknown rank"
    return "[" + ", ".join("?" if d is None else str(d) for d in dims) + "]"


FIRST_OPSET = 24
"""The opset that brought TensorScatter."""


class Operands(NamedTuple):
    """The operands of a TensorScatter.

    Attributes:
        past: past_cache: (B, ..., S, ..., D).
        update: (B, ..., L, ..., D).
        write_indices: (B,), int64; None where it is absent.
        present: present_cache.
        written_axis: The attribute `axis`, or its default; None where it cannot be read.
        axis: The same counted from the front; None where it is illegal or the rank is unknown.
        mode: The attribute `mode`, or its default; None where it cannot be read.
    """

    past: ir.Value
    update: ir.Value
    write_indices: ir.Value | None
    present: ir.Value
    written_axis: int | None
    axis: int | None
    mode: str | None

    def sizes(self, maps: IndexMaps) -> tuple[Expr, Expr] | None:
        """Return S and L, the sizes of past_cache and update along the axis; None if unknown."""
        past, update = maps.shape(self.past), maps.shape(self.update)
        if self.axis is None or past is None or update is None or len(past) != len(update):
            return None
        return past[self.axis], update[self.axis]


def operands(context: Context, site: Site) -> Operands | None:
    """Return the operands of a TensorScatter; None where a required one is missing.

    A node below opset 24 is read as it would be there: the model may only have the wrong label.
    """
    return context.once(("operands", site.node), lambda: _operands(site))


def _operands(site: Site) -> Operands | None:
    try:
        view = NodeView(site.node, max(site.opset or 0, FIRST_OPSET))
        past, update = view.operands("past_cache", "update")
        indices = view.input("write_indices")
    except MalformedNode:
        return None
    if not site.node.outputs:
        return None
    axis, mode = _or_none(view.integer, "axis"), _or_none(view.string, "mode")
    shape = past.shape if past.shape is not None else update.shape
    front = None
    if axis is not None and shape is not None and -len(shape) <= axis < len(shape):
        front = axis % len(shape) or None
    return Operands(past, update, indices, site.node.outputs[0], axis, front, mode)


class Start(NamedTuple):
    """The write index of one sequence, or of all sequences.

    Attributes:
        row: The batch row; None for an expression that holds for each row.
        first: The element of `write_indices`.
        facts: Facts about the coordinates in `first`.
    """

    row: int | None
    first: Expr
    facts: Facts

    @property
    def text(self) -> str:
        """The element as text: `write_indices[1]=14`."""
        row = "b" if self.row is None else str(self.row)
        number = self.first.number
        return f"write_indices[{row}]={number if number is not None else self.first}"


def rows(context: Context, site: Site, found: Operands) -> tuple[Start, ...]:
    """Return the known starts: constants row by row, otherwise expressions.

    An expression that depends on the row is returned for the first and the last row, because it
    reaches its bounds there. A start that the caller chooses is unknown.
    """
    indices = found.write_indices
    if indices is None or (indices.shape is not None and len(indices.shape) > 1):
        return ()
    # The layers of a decoder share their starts.
    return context.once(("starts", indices), lambda: tuple(_rows(context, site, indices)))


def _rows(context: Context, site: Site, indices: ir.Value) -> Iterator[Start]:
    known = context.folder.partial(indices)
    given: set[int] = set()
    if known is not None and known.numbers.ndim <= 1:
        numbers, mask = known.numbers.ravel(), known.known.ravel()
        for row in range(numbers.size):
            if mask[row]:
                given.add(row)
                yield Start(row, integer(int(numbers[row])), Facts())
        if known.complete:
            return
    described = context.index_maps(site).of(indices)
    if not described.known or described.shape is None:
        return
    parts = described.vector()
    if parts is not None:
        yield from (
            Start(row, part, described.facts) for row, part in enumerate(parts) if row not in given
        )
    elif described.element is not None:
        element, shape = described.element, described.shape
        ends = [element]
        if shape and element.depends_on(0):
            facts = Facts(shape)
            ends = [substitute(element, {0: at}, facts) for at in (integer(0), shape[0] - 1)]
        yield from (Start(None, expr, described.facts) for expr in ends)


def declared(value: ir.Value) -> str:
    """Return type and dimensions of a value: `float32[2, 3, 7, 5]`."""
    dtype = "an unknown type" if value.dtype is None else dtype_name(value.dtype)
    dims = dims_of(value)
    return dtype if dims is None else f"{dtype}{shape_words(dims)}"


def _or_none(read: Callable[[str], T], name: str) -> T | None:
    try:
        return read(name)
    except MalformedNode:
        return None


# What the data on a release of a runtime says of a node.


_FUSED = "onnxruntime's optimiser and model builder put it there, and onnxruntime alone runs it"
_RETIRED = "it was an experiment of early releases, and onnxruntime alone still runs it"

_EARLY = (
    *("Affine", "Crop", "DynamicSlice", "GRUUnit", "GivenTensorFill", "ImageScaler"),
    *("ParametricSoftplus", "Scale", "ScaledTanh"),
)

IN_DEFAULT_DOMAIN: Mapping[str, str] = Table(
    "operator that onnxruntime has in the default domain",
    [
        # Opset 17 made this one of ONNX; below, it is one of onnxruntime's.
        ("LayerNormalization", _FUSED),
        ("SimplifiedLayerNormalization", _FUSED),
        *dict.fromkeys(_EARLY, _RETIRED).items(),
    ],
)
"""A clause about each operator."""


def runtime_words(target: Target) -> str:
    """Return a target for messages, with the release whose limits apply if that differs."""
    if target.is_known:
        return target.asked
    return f"{target.asked} (as known of {target.release.version})"


def lowering_command(target: Target) -> str:
    """Return the command that lowers a model for a release, the same for all rules."""
    return f"`kvtool lower MODEL --target {target.release.runtime}@{target.release.version}`"


def has_operator(target: Target, name: str) -> bool:
    """Return whether the release has a newer operator, as `TensorScatter-24`."""
    return name in target.release.native


def limits_named(target: Target, *names: str) -> list[Limit]:
    """Return the limits of a release with these names, in the order of the data file."""
    return [limit for limit in target.release.limits if limit.name in names]


def limited(context: Context, target: Target) -> Iterator[tuple[Site, Limit]]:
    """Yield each node that a limit of the release applies to, with the limit.

    A limit applies if a fact is unknown. Other rules report nodes that their schemas do not allow.
    """
    from onnx_kvtool.targets.conditions.by_name import CONDITIONS
    from onnx_kvtool.targets.conditions.sizes import Asked

    by_operator: dict[str, list[Limit]] = {}
    for limit in target.release.limits:
        by_operator.setdefault(limit.operator, []).append(limit)
    for site in context.sites_of(*by_operator):
        if site.node.domain not in DEFAULT_DOMAINS or site.opset is None:
            continue
        for limit in by_operator[site.node.op_type]:
            if not limit.concerns(site.opset):
                continue
            try:
                applies = CONDITIONS[limit.when](
                    Asked(NodeView(site.node, site.opset), limit, context.folder)
                )
            except MalformedNode:
                continue
            if applies:
                yield site, limit


def dtype_word(node: ir.Node) -> str | None:
    """Return the element type of a node's first input or output, as the data file writes it."""
    for value in (*node.inputs[:1], *node.outputs[:1]):
        if value is not None and value.dtype is not None and value.dtype.name != "UNDEFINED":
            return value.dtype.name.lower()
    return None
