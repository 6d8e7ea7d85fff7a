"""Models that a release of onnxruntime loads and computes wrongly, or dies of."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import onnx

from onnx_kvtool.core.domains import DEFAULT_DOMAINS
from onnx_kvtool.guard.contents import Fault
from onnx_kvtool.model_io.forms import every_node
from onnx_kvtool.model_io.protobuf import DecodeError
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
    if _SPARSE.encode() in model and _mixes_sparsely(model):
        return f"it forgets `{_SPARSE}` of experts on a CPU"
    if b"is_causal" in model and _has_single_query(model):
        return "it lets a single causal query of Attention attend to keys that come after it"
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or (release := (int(numbers[1]), int(numbers[2]))) >= (1, 29):
        return None
    try:
        proto = onnx.ModelProto.FromString(model)
    except DecodeError:
        return None
    if any(_has_nonpad_kv_seqlen(node) for node in every_node(proto)):
        known = reasons(f"onnxruntime@{numbers[0]}")
        if wrong := next((known[name] for name in _NONPAD_LIMITS if name in known), None):
            return f"it {wrong}"
    scatters = any(_is(node, "TensorScatter") for node in every_node(proto))
    if release >= (1, 25) and scatters and _has_strings(proto):
        return "releases 1.25 to 1.28 corrupt memory when TensorScatter moves strings"
    return None


def _mixes_sparsely(model: bytes) -> bool:
    """Return whether experts are chosen by the sparse mixer."""
    try:
        proto = onnx.ModelProto.FromString(model)
    except DecodeError:
        return False
    return any(
        attribute.name == _SPARSE and attribute.i == 1
        for node in every_node(proto)
        if node.domain == DOMAIN
        for attribute in node.attribute
    )


def _has_single_query(model: bytes) -> bool:
    """Return whether a causal Attention with a past may have one query for several new keys.

    Only lengths that the main graph declares are looked at: queries and keys of a decoder have one
    length, which is declared nowhere within the graph.
    """
    try:
        graph = onnx.ModelProto.FromString(model).graph
    except DecodeError:
        return False
    lengths = {value.name: _length(value) for value in (*graph.input, *graph.value_info)}
    for node in graph.node:
        if not _is(node, "Attention") or len(node.input) <= _PAST_KEY or not node.input[_PAST_KEY]:
            continue
        if any(attribute.name == "is_causal" and attribute.i for attribute in node.attribute):
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


def _has_nonpad_kv_seqlen(node: onnx.NodeProto) -> bool:
    if not _is(node, "Attention"):
        return False
    return len(node.input) > _NONPAD_KV_SEQLEN and bool(node.input[_NONPAD_KV_SEQLEN])


def _is(node: onnx.NodeProto, op_type: str) -> bool:
    return node.op_type == op_type and node.domain in DEFAULT_DOMAINS


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
