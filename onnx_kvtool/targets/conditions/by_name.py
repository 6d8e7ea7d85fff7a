"""The conditions of `targets/runtimes.toml`: the nodes that a release does not run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onnx_kvtool.analysis.constants import const_tensor
from onnx_kvtool.core.tables import Table
from onnx_kvtool.core.walk import maker, producer
from onnx_kvtool.symbolic.dimensions import dims_of, fixed_sizes
from onnx_kvtool.targets.conditions.attributes import (
    ATTENTION_CONDITIONS,
    FORM_CONDITIONS,
    different_branches,
    different_ranks,
    early_scan,
)
from onnx_kvtool.targets.conditions.sizes import (
    Asked,
    bound_may_exceed_size,
    different_sizes,
    int64_output,
    is_constant,
    negative_indices,
    negative_indices_open,
    nonzero_zero_point,
    reshape_not_evident,
    shape_of_values,
    size_and_elements,
    sizes_as_indices,
    unknown_flatten,
)
from onnx_kvtool.targets.conditions.unsupported import other_quantized_types

# An unknown fact counts as a limit: kvtool rewrites a node that may be computed wrongly.


OF_SHAPES = frozenset(
    {
        "dynamic-input",
        "reshape-not-evident",
        "different-sizes",
        "different-branches",
        "size-and-elements",
        "int64-output",
        "bound-may-exceed-size",
        "vector-batches",
        "vector",
        "unknown-axis-size",
    }
)
"""Conditions on inferred shapes. They judge the finished model only."""

OF_SOURCE = frozenset({"negative-indices", "negative-indices-open"})
"""Conditions for nodes of the source only: kvtool's own nodes never meet them."""

OF_CONSTANTS = frozenset({"no-elements"})
"""Conditions on a node and its constants alone, which are known in functions as well."""

OF_TYPES = frozenset({"other-element-type", "absent-bound", "several-inputs"})
"""Conditions that spare some element types; kvtool casts the others to one of them."""

Condition = Callable[[Asked], bool]
"""Returns whether a limit applies to a node."""


def _absent_bound(asked: Asked) -> bool:
    """Whether a bound of Clip is left out, which 6 and earlier hold as attributes."""
    if asked.view.opset < 11 or asked.is_spared:
        return False
    view = asked.view
    return view.input("min") is None or view.input("max") is None


def _vector_batches(asked: Asked) -> bool:
    """Whether a vector is certainly multiplied by several matrices: new nodes have no shape yet."""
    ranks = [len(dims) for value in asked.node.inputs if (dims := dims_of(value)) is not None]
    return len(ranks) == 2 and min(ranks) == 1 and max(ranks) > 2


def _after_operator(asked: Asked) -> bool:
    """Whether it reads what one operator gives, and gives another type than those spared."""
    assert asked.limit.behind is not None
    is_after = maker(asked.node.inputs[0], asked.limit.behind) is not None
    return is_after and asked.result not in asked.limit.types


def _no_elements(asked: Asked) -> bool:
    """Whether it is a Constant without elements that is the result of a body."""
    if not asked.node.outputs[0].is_graph_output():
        return False
    tensor = const_tensor(asked.node.outputs[0])
    return tensor is None or tensor.size == 0


def _may_be_infinite(asked: Asked) -> bool:
    """Whether the input may hold infinities, and its element type is not spared."""
    cast = maker(asked.node.inputs[0], "Cast")
    given = None if cast is None else cast.inputs[0]
    if given is not None and given.dtype is not None and given.dtype.name == "BOOL":
        return False
    return not asked.is_spared


def _dynamic_axes(asked: Asked) -> bool:
    axes = asked.view.find("axes")
    return axes is not None and not is_constant(axes) and asked.listed("axes") is None


def _not_constant(asked: Asked) -> bool:
    """Whether an input is given at run time, or computed from what is."""
    value = asked.operand
    if value is None or asked.folder.integers(value) is not None:
        return False
    return value.is_graph_input() or const_tensor(value) is None


def _attribute(asked: Asked) -> bool:
    """Whether an attribute has one of some values, or not its default where none is named."""
    assert asked.limit.attribute is not None
    view = asked.view
    if asked.limit.attribute not in view.facts.attributes:
        return False
    value = view.attribute(asked.limit.attribute)
    if not asked.limit.values:
        return value != view.facts.attributes[asked.limit.attribute].default
    return value in asked.limit.values


def _constant_batches(asked: Asked) -> bool:
    operand = asked.node.inputs[1]
    dims = dims_of(operand)
    is_constant = operand is not None and operand.const_value is not None
    return is_constant and (dims is None or len(dims) > 2)


_NAMED: tuple[Condition, ...] = (
    other_quantized_types,
    _absent_bound,
    _vector_batches,
    _after_operator,
    _no_elements,
    _may_be_infinite,
    _dynamic_axes,
    _not_constant,
    shape_of_values,
    reshape_not_evident,
    unknown_flatten,
    different_sizes,
    different_branches,
    different_ranks,
    early_scan,
    nonzero_zero_point,
    size_and_elements,
    sizes_as_indices,
    int64_output,
    negative_indices,
    negative_indices_open,
    bound_may_exceed_size,
    _attribute,
    _constant_batches,
    *ATTENTION_CONDITIONS,
    *FORM_CONDITIONS,
)
_PLAIN: Mapping[str, Condition] = {
    "always": lambda asked: True,
    "other-element-type": lambda asked: not asked.is_spared,
    "uint8-output": lambda asked: asked.result in (None, "uint8"),
    # It reads what a node gives, of another element type than those spared.
    "computed": lambda asked: producer(asked.node.inputs[0]) is not None and not asked.is_spared,
    # The first input has a size that is no number, or does not certainly have four dimensions.
    "dynamic-input": lambda asked: fixed_sizes(asked.dims) is None,
    "not-4d": lambda asked: len(asked.dims or ()) != 4,
    # Flatten reads several sizes that are no numbers.
    "several-unknown-sizes": lambda asked: (
        sum(not isinstance(dim, int) for dim in asked.dims or ()) > 1
    ),
    # An input that must be a scalar is known to have a dimension, or one of two is a vector.
    "no-scalar": lambda asked: bool(dims_of(asked.operand)),
    "vector": lambda asked: any(len(dims_of(v) or ()) == 1 for v in asked.node.inputs[:2]),
    # A Reshape is known to give an empty tensor, by a size of 0.
    "empty-reshape": lambda asked: (
        asked.view.number("allowzero") != 0 and 0 in (asked.listed("shape") or ())
    ),
    # Only a part of each head is rotated, and there is no attribute `num_heads`.
    "uncounted-heads": lambda asked: bool(
        asked.view.attribute("rotary_embedding_dim") and not asked.view.attribute("num_heads")
    ),
    "several-inputs": lambda asked: len(asked.node.inputs) > 2 and not asked.is_spared,
    "further-outputs": lambda asked: any(output.name for output in asked.node.outputs[1:]),
    # An optional input is left out, or given.
    "absent-input": lambda asked: asked.operand is None and not asked.is_spared,
    "absent-bias": lambda asked: asked.view.input("B") is None,
    "present-input": lambda asked: asked.operand is not None,
    # An attribute is left to its default, or not. ConstantOfShape has another type by default.
    "default-attribute": lambda asked: asked.limit.attribute not in asked.node.attributes,
    "no-value": lambda asked: "value" not in asked.node.attributes,
    "other-diagonal": lambda asked: asked.view.integer("k") != 0,
    "reduction": lambda asked: asked.view.string("reduction", "none") != "none",
    "min-max-reduction": lambda asked: (
        asked.view.string("reduction", "none") in ("max", "min") and not asked.is_spared
    ),
    # Exponentials of elements may always overflow.
    "overflowing": lambda asked: True,
    # The first input is known to be the shape of a scalar.
    "scalar": lambda asked: asked.dims == (0,),
    "nonpad": lambda asked: asked.attention.nonpad_kv_seqlen is not None,
    "masked": lambda asked: (
        asked.attention.attn_mask is not None or asked.attention.nonpad_kv_seqlen is not None
    ),
    "window": lambda asked: max(asked.attention.left_window, asked.attention.right_window) >= 0,
}

CONDITIONS: Mapping[str, Condition] = Table(
    "condition",
    [*((one.__name__.strip("_").replace("_", "-"), one) for one in _NAMED), *_PLAIN.items()],
)
"""The conditions by the name in the data file, which is the name of the function if it has one."""
