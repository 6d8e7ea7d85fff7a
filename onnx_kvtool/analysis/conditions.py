"""The conditions of `targets/runtimes.toml`: which nodes a release cannot be given.

A fact that is unknown strikes: what may be computed wrongly is rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING

import onnx_ir.convenience as ir_convenience

from onnx_kvtool.analysis.control_conditions import open_scan, unlike_branches, unlike_ranks
from onnx_kvtool.analysis.element_conditions import (
    given_out,
    mixed_sizes,
    negative_indices,
    negative_indices_open,
    no_value,
    off_zero,
    shape_of_values,
)
from onnx_kvtool.analysis.form_conditions import FORM_CONDITIONS
from onnx_kvtool.analysis.size_conditions import (
    beyond,
    merged_names,
    merged_names_open,
    undivided,
    unlike,
)
from onnx_kvtool.core.table import Table
from onnx_kvtool.ops.attention import Attention
from onnx_kvtool.ops.contrib_schema import DOMAIN, contrib_facts, default_of, is_contrib
from onnx_kvtool.ops.schema import is_standard
from onnx_kvtool.ops.tensor_scatter import TensorScatter
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.symbolic.dims import Dim, contradict, dims_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.analysis.constants import Folder
    from onnx_kvtool.targets.release import Limit, Release

__all__ = [
    "CONDITIONS",
    "OF_CONSTANTS",
    "OF_SHAPES",
    "OF_SOURCE",
    "OF_TYPES",
    "Condition",
    "stranger",
]

LocalName = tuple[str, str]
OF_SHAPES = frozenset(
    {
        "dynamic-input",
        "undivided",
        "unlike",
        "unlike-branches",
        "mixed-sizes",
        "given-out",
        "beyond",
        "vector-batches",
    }
)
"""Conditions that ask for shapes which nobody else needs; a finished model is judged by them."""

OF_SOURCE = frozenset({"negative-indices", "negative-indices-open"})
"""Conditions that ask for what kvtool's own nodes keep to, and those of the source may not."""

OF_CONSTANTS = frozenset({"no-elements"})
"""Conditions that ask for nothing but the node and its constants, which functions have as well."""

OF_TYPES = frozenset({"other-element-type", "absent-bound", "several-inputs"})
"""Conditions that spare the element types of their limit, which can stand for the others."""

_LONG_WAY = 100
"""Nodes from a shape back to what it is computed from."""

Condition = Callable[["ir.Node", int, "Limit", "Folder"], bool]
"""Whether a limit strikes a node that was written for an opset."""


def stranger(
    node: ir.Node, opset: int, release: Release, local: Container[LocalName]
) -> str | None:
    """Return how a release lacks the operator of a node, which ONNX does not define.

    Args:
        node: The node.
        opset: Version of the default domain that it was written for.
        release: The release.
        local: Domains and names of the functions of its model, of which a call is no stranger.

    Returns:
        A clause that follows the name of the release; None where it imports the operator as the
        node has it, or ONNX defines it.
    """
    if (node.domain, node.op_type) in local:
        return None
    if is_standard(node) and not is_contrib(node, opset):
        return None
    name = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    if not release.imports(node.domain, node.op_type):
        return f"imports no `{name}`"
    known = release.narrower.get(node.op_type) if node.domain == DOMAIN else None
    if known is None:
        return None
    count = max((i for i, value in enumerate(node.inputs, start=1) if value is not None), default=0)
    if count > known.inputs:
        return f"imports `{name}` with {known.inputs} inputs at most, here it has {count}"
    facts = contrib_facts(DOMAIN, node.op_type)
    formals = () if facts is None else facts.inputs
    for value, formal in zip(node.inputs, formals, strict=False):
        if value is not None and formal.name in known.errs:
            return f"computes some forms of `{name}` with `{formal.name}` wrongly"
    later = sorted(known.without & node.attributes.keys())
    if later:
        return f"imports `{name}` without its attribute `{later[0]}`"
    for attribute, values in known.values.items():
        given = default_of(node.op_type, attribute, opset, node.domain)
        if (own := node.attributes.get(attribute)) is not None and not own.is_ref():
            given = own.value
        if given not in values:
            listed = " or ".join(f"`{value}`" for value in values)
            return (
                f"has kernels for `{name}` with a `{attribute}` of {listed}, here it is `{given}`"
            )
    return None


def _always(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    return True


def _other_element_type(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    return _type_of(node) not in limit.types


def _absent_bound(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether a bound of Clip is left out, which 6 and earlier hold as attributes."""
    if opset < 11 or _type_of(node) in limit.types:
        return False
    view = NodeView(node, opset)
    return view.input("min") is None or view.input("max") is None


def _absent(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether an input is left out, and the element type is not spared."""
    assert limit.operand is not None
    return NodeView(node, opset).input(limit.operand) is None and _type_of(node) not in limit.types


def _present(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether an optional input is given."""
    assert limit.operand is not None
    return NodeView(node, opset).input(limit.operand) is not None


def _vector_batches(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether a vector is certainly multiplied by several matrices: new nodes have no shape yet."""
    ranks = [len(dims) for value in node.inputs if (dims := dims_of(value)) is not None]
    return len(ranks) == 2 and min(ranks) == 1 and max(ranks) > 2


def _several_inputs(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    return len(node.inputs) > 2 and _type_of(node) not in limit.types


def _behind(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether it reads what one operator gives, and gives another type than those spared."""
    producer = None if node.inputs[0] is None else node.inputs[0].producer()
    if producer is None or producer.op_type != limit.behind or not is_standard(producer):
        return False
    given = node.outputs[0].dtype
    return given is None or given.name.lower() not in limit.types


def _computed(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether it reads what a node gives, of another element type than those spared."""
    data = node.inputs[0]
    return data is not None and data.producer() is not None and _type_of(node) not in limit.types


def _no_elements(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether it is a Constant without elements that is the result of a body."""
    if not node.outputs[0].is_graph_output():
        return False
    tensor = ir_convenience.get_const_tensor(node.outputs[0])
    return tensor is None or tensor.size == 0


def _infinite(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether the input may hold infinities, and its element type is not spared."""
    data = node.inputs[0]
    producer = None if data is None else data.producer()
    if producer is not None and producer.op_type == "Cast":
        given = producer.inputs[0]
        if given is not None and given.dtype is not None and given.dtype.name == "BOOL":
            return False
    return _type_of(node) not in limit.types


def _further_outputs(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    return any(output.name for output in node.outputs[1:])


def _reduction(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    view = NodeView(node, opset)
    return "reduction" in view.facts.attributes and view.attribute("reduction") != "none"


def _extremes(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether it keeps the larger or smaller number, of another element type than those spared."""
    view = NodeView(node, opset)
    if "reduction" not in view.facts.attributes:
        return False
    return view.attribute("reduction") in ("max", "min") and _type_of(node) not in limit.types


def _dynamic_axes(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    view = NodeView(node, opset)
    if "axes" in view.facts.attributes:
        return False
    axes = view.input("axes")
    if axes is None or (axes.const_value is not None and not axes.is_graph_input()):
        return False
    return folder.integers(axes) is None


def _not_constant(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether an input is given at run time, or computed from what is."""
    assert limit.operand is not None
    view = NodeView(node, opset)
    if limit.operand not in {formal.name for formal in view.facts.inputs}:
        return False  # an attribute of this version
    value = view.input(limit.operand)
    if value is None or folder.integers(value) is not None:
        return False
    return value.is_graph_input() or ir_convenience.get_const_tensor(value) is None


def _dynamic_input(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    dims = dims_of(node.inputs[0])
    return dims is None or not all(isinstance(dim, int) for dim in dims)


def _attribute(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether an attribute has one of some values, or not its default where none is named."""
    assert limit.attribute is not None
    view = NodeView(node, opset)
    if limit.attribute not in view.facts.attributes:
        return False
    value = view.attribute(limit.attribute)
    if not limit.values:
        return value != view.facts.attributes[limit.attribute].default
    return value in limit.values


def _constant_batches(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    operand = node.inputs[1]
    dims = dims_of(operand)
    is_constant = operand is not None and operand.const_value is not None
    return is_constant and (dims is None or len(dims) > 2)


def _nonpad(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    return Attention(node, opset).nonpad_kv_seqlen is not None


def _causal_nonpad_rows(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    view = Attention(node, opset)
    return view.nonpad_kv_seqlen is not None and view.is_causal and _length(view.query) != 1


def _masked(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    view = Attention(node, opset)
    return view.attn_mask is not None or view.nonpad_kv_seqlen is not None


def _causal_single_row(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    view = Attention(node, opset)
    if not view.is_causal or view.nonpad_kv_seqlen is not None or view.past_key is not None:
        return False
    queries, keys = _length(view.query), _length(view.key)
    # With as many keys as queries, a single query has the one key that it may see.
    return queries is None or (queries != keys and (queries == 1 or isinstance(queries, str)))


def _masked_softcap(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    view = Attention(node, opset)
    return view.softcap != 0 and _hides_keys(view)


def _masked_score_output(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    view = Attention(node, opset)
    return (
        "qk_matmul_output" in view.outputs
        and view.integer("qk_matmul_output_mode") in limit.values
        and _hides_keys(view)
    )


def _short_mask(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Only a mask that is certainly short: the release fails loudly on one that turns out to be."""
    view = Attention(node, opset)
    dims = dims_of(view.attn_mask)
    if view.past_key is not None or not dims:
        return False
    return contradict(dims[-1], _length(view.key))


def _window(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    view = Attention(node, opset)
    return view.left_window >= 0 or view.right_window >= 0


def _computed_heads(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether heads are grouped in 4-D, and the shape of an operand is computed."""
    view = Attention(node, opset)
    dims = [dims_of(value) for value in (view.query, view.key)]
    if any(one is not None and len(one) == 3 for one in dims):
        return False  # attributes give the numbers
    query, key = (None if one is None else one[1] for one in dims)
    if isinstance(query, int) and query == key:
        return False
    before: list[ir.Value | None] = [view.query, view.key, view.value]
    steps = 0
    while before and steps < _LONG_WAY:
        value = before.pop()
        producer = None if value is None else value.producer()
        if producer is None:
            continue
        if producer.op_type == "Reshape":
            if folder.integers(producer.inputs[1]) is None:
                return True
        elif producer.op_type not in ("MatMul", "Gemm", "TensorScatter", "ScatterND"):
            before += producer.inputs
        steps += 1
    return bool(before)


def _uncounted_heads(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether a part of each head is rotated, of which the attributes do not say how many."""
    view = NodeView(node, opset)
    return bool(view.attribute("rotary_embedding_dim")) and not view.attribute("num_heads")


def _no_plain_4d(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    view = Attention(node, opset)
    if view.past_key is not None or view.past_value is not None or view.softcap != 0:
        return True
    if view.nonpad_kv_seqlen is not None or set(view.outputs) != {"Y"}:
        return True
    operands = [view.query, view.key, view.value]
    if view.attn_mask is not None:
        operands.append(view.attn_mask)
    return any(len(dims_of(value) or ()) != 4 for value in operands)


def _no_kv_cache_update(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    view = TensorScatter(node, opset)
    past, update = dims_of(view.past_cache), dims_of(view.update)
    if past is None or update is None or len(past) != 4 or len(update) != 4:
        return True
    return not (
        view.sequence_axis == 2
        and isinstance(past[2], int)
        and view.mode == "linear"
        and view.write_indices is not None
        and view.past_cache.is_graph_input()
        and view.present_cache.is_graph_output()
        and _type_of(node) in limit.types
    )


def _hides_keys(view: Attention) -> bool:
    hides = view.is_causal or view.attn_mask is not None or view.nonpad_kv_seqlen is not None
    return hides or view.left_window >= 0 or view.right_window >= 0


def _length(value: ir.Value) -> Dim:
    """Return L of (B, H, L, D) or (B, L, H * D)."""
    dims = dims_of(value)
    return dims[-2] if dims is not None and len(dims) >= 2 else None


def _type_of(node: ir.Node) -> str | None:
    """Return the element type that the first input and the first output have; None if unknown."""
    for value in (node.inputs[0], node.outputs[0]):
        if value is not None and value.dtype is not None:
            return value.dtype.name.lower()
    return None


CONDITIONS: Mapping[str, Condition] = Table(
    "condition",
    [
        ("always", _always),
        ("other-element-type", _other_element_type),
        ("absent-bound", _absent_bound),
        ("absent", _absent),
        ("present", _present),
        ("vector-batches", _vector_batches),
        ("several-inputs", _several_inputs),
        ("behind", _behind),
        ("computed", _computed),
        ("no-elements", _no_elements),
        ("infinite", _infinite),
        ("further-outputs", _further_outputs),
        ("reduction", _reduction),
        ("extremes", _extremes),
        ("dynamic-axes", _dynamic_axes),
        ("not-constant", _not_constant),
        ("dynamic-input", _dynamic_input),
        ("shape-of-values", shape_of_values),
        ("undivided", undivided),
        ("merged-names", merged_names),
        ("merged-names-open", merged_names_open),
        ("unlike", unlike),
        ("unlike-branches", unlike_branches),
        ("unlike-ranks", unlike_ranks),
        ("open-scan", open_scan),
        ("off-zero", off_zero),
        ("mixed-sizes", mixed_sizes),
        ("given-out", given_out),
        ("negative-indices", negative_indices),
        ("negative-indices-open", negative_indices_open),
        ("no-value", no_value),
        ("beyond", beyond),
        ("attribute", _attribute),
        ("constant-batches", _constant_batches),
        ("nonpad", _nonpad),
        ("causal-nonpad-rows", _causal_nonpad_rows),
        ("masked", _masked),
        ("causal-single-row", _causal_single_row),
        ("masked-softcap", _masked_softcap),
        ("masked-score-output", _masked_score_output),
        ("short-mask", _short_mask),
        ("window", _window),
        ("computed-heads", _computed_heads),
        ("uncounted-heads", _uncounted_heads),
        ("no-plain-4d", _no_plain_4d),
        ("no-kv-cache-update", _no_kv_cache_update),
        *FORM_CONDITIONS,
    ],
)
