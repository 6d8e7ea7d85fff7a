"""Models that a release of onnxruntime loads and computes wrongly, or dies of."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import onnx

from onnx_kvtool.core.domains import DEFAULT_DOMAINS
from onnx_kvtool.guard.fault import Fault
from onnx_kvtool.model_io.protobuf import DecodeError
from onnx_kvtool.model_io.verbatim import every_node
from onnx_kvtool.ops.contrib import DOMAIN

KNOWN_WRONG = Fault(
    library="onnxruntime",
    seen="1.25 to 1.28",
    what="loads TensorScatter of strings and corrupts the memory of the process when it runs it",
    instead="does not run such a model there, nor one that `targets/runtimes.toml` says is computed"
    " wrongly",
)

_NONPAD_LIMITS = ("attention-nonpad-ignored", "attention-causal-nonpad")
"""What `targets/runtimes.toml` says of releases that mask Attention by valid lengths wrongly."""

_SPARSE = "use_sparse_mixer"

_PAST_KEY = 4
"""Position of `past_key` among the inputs of Attention."""

_NONPAD_KV_SEQLEN = 6
"""Position of `nonpad_kv_seqlen` among the inputs of Attention-24."""


def known_wrong(
    version: str, model: bytes, reasons: Callable[[str], Mapping[str, str]]
) -> str | None:
    """Return why onnxruntime `version` must not be trusted with `model`; None when it may.

    Which releases mask Attention by `nonpad_kv_seqlen` wrongly stands in `targets/runtimes.toml`.
    1.25 to 1.28 load TensorScatter of strings and corrupt the memory of the process when they run
    it; all other releases refuse to load it. On a CPU, all releases ignore `use_sparse_mixer` of
    experts, and let a single causal query of Attention with a past attend to all new keys.

    Args:
        version: Version of onnxruntime.
        model: The serialised model; not looked at for releases that are right. One that is no
            model at all is left to the runtime to complain about.
        reasons: Returns the limits of a release by name, each with what the release does.
    """
    numbers = re.match(r"(\d+)\.(\d+)", version)
    release = (int(numbers[1]), int(numbers[2])) if numbers is not None else (1, 29)
    may_mix = _SPARSE.encode() in model
    if release >= (1, 29) and not may_mix and b"is_causal" not in model:
        return None
    try:
        proto = onnx.ModelProto.FromString(model)
    except DecodeError:
        return None
    if may_mix and any(n.domain == DOMAIN and _has(n, _SPARSE) for n in every_node(proto)):
        return f"it forgets `{_SPARSE}` of experts on a CPU"
    if _has_single_query(proto.graph):
        return "it lets a single causal query of Attention attend to keys that come after it"
    if numbers is None or release >= (1, 29):
        return None
    nodes = list(every_node(proto))
    if any(_takes(node, _NONPAD_KV_SEQLEN) for node in nodes):
        known = reasons(f"onnxruntime@{numbers[0]}")
        if wrong := next((known[name] for name in _NONPAD_LIMITS if name in known), None):
            return f"it {wrong}"
    scatters = any(n.op_type == "TensorScatter" and n.domain in DEFAULT_DOMAINS for n in nodes)
    if release >= (1, 25) and scatters and _has_strings(proto):
        return "releases 1.25 to 1.28 corrupt memory when TensorScatter moves strings"
    return None


def _has(node: onnx.NodeProto, name: str) -> bool:
    """Return whether an attribute is there and not 0."""
    return any(attribute.name == name and attribute.i for attribute in node.attribute)


def _takes(node: onnx.NodeProto, position: int) -> bool:
    """Return whether a node is an Attention with an input."""
    is_standard = node.op_type == "Attention" and node.domain in DEFAULT_DOMAINS
    return is_standard and any(node.input[position : position + 1])


def _has_single_query(graph: onnx.GraphProto) -> bool:
    """Return whether a causal Attention with a past may have one query for several new keys.

    Only lengths that the main graph declares are looked at: queries and keys of a decoder have one
    length, which is declared nowhere within the graph.
    """
    lengths = {value.name: _length(value) for value in (*graph.input, *graph.value_info)}
    for node in graph.node:
        if _takes(node, _PAST_KEY) and _has(node, "is_causal"):
            query, key = (lengths.get(name) for name in node.input[:2])
            is_known = query is not None and key is not None
            if is_known and query != key and key != 1 and (query == 1 or isinstance(query, str)):
                return True
    return False


def _length(value: onnx.ValueInfoProto) -> int | str | None:
    """Return the length of a sequence in heads (B, H, S, D), or packed (B, S, H * D)."""
    dims = value.type.tensor_type.shape.dim
    if len(dims) not in (3, 4):
        return None
    size = dims[-2]
    return size.dim_value if size.HasField("dim_value") else size.dim_param or None


def _has_strings(proto: onnx.ModelProto) -> bool:
    """Return whether strings may occur anywhere: that they reach an operator is not looked for."""
    string = onnx.TensorProto.STRING
    if any(value.type.tensor_type.elem_type == string for value in proto.graph.input):
        return True
    if any(tensor.data_type == string for tensor in proto.graph.initializer):
        return True
    return any(
        attribute.t.data_type == string
        or attribute.name in ("value_string", "value_strings")
        or (attribute.name == "to" and attribute.i == string)
        for node in every_node(proto)
        for attribute in node.attribute
    )


LEFT_OUT_INPUTS = Fault(
    library="onnxruntime",
    seen="1.24 to 1.32",
    what="ends the process where it loads a QLinearSigmoid or QLinearLeakyRelu without the fifth"
    " input, `Y_zero_point`, which its schema calls optional",
    instead="gives such a node an empty input in its place",
)

_OPERATORS = ("QLinearSigmoid", "QLinearLeakyRelu")
_INPUTS = 5


def with_all_inputs(model: bytes) -> bytes:
    """Return a model whose nodes of these operators have all inputs, absent ones by an empty name.

    The constructor of the kernels asks whether the fifth input exists and not how many there are
    (`InputDefs()[4]->Exists()` in `contrib_ops/cpu/quantization/qlinear_lookup_table.cc`).

    Args:
        model: The serialised model; one without these operators, or that is no model at all, is
            returned as it is.
    """
    if not any(op.encode() in model for op in _OPERATORS):
        return model
    try:
        message = onnx.ModelProto.FromString(model)
    except DecodeError:
        return model  # for the runtime to complain about
    for node in every_node(message):
        if node.op_type in _OPERATORS and node.domain == "com.microsoft":
            node.input.extend([""] * (_INPUTS - len(node.input)))
    return bytes(message.SerializeToString())
