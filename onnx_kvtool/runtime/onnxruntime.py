"""Models run by onnxruntime, on the CPU or on the chosen provider."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as capi

from onnx_kvtool.guard.onnxruntime_faults import known_wrong, with_all_inputs
from onnx_kvtool.model_io.protobuf import DecodeError
from onnx_kvtool.model_io.verbatim import every_node
from onnx_kvtool.runtime.errors import (
    ModelRejected,
    OutOfMemory,
    RunFailed,
    RuntimeUnavailable,
)
from onnx_kvtool.runtime.sessions import CPU, EXTENDED, Array, Arrays, pack, provider, unpack
from onnx_kvtool.targets.target import limit_reasons

VERSION: str = ort.__version__
"""Version of the installed onnxruntime."""

_FOLDER = "session.model_external_initializers_file_folder_path"
"""The directory of external data of a model given as bytes; ignored before 1.21."""

_BLOCKED_PRODUCTS = "session.qdq_matmulnbits_accuracy_level"
"""How a MatMul of a blocked DequantizeLinear is computed once they are fused: 4, the default,
rounds the other operand to 8 bits; 1 is float32. MatMulNBits has an attribute for it."""

_EXPERTS = ("ORT_QMOE_CPU_QNBIT_GEMM", "fp32")
"""The same for QMoE, which has no other setting for weights of 8 bits: an environment variable that
onnxruntime reads when it loads the model."""

_FLOAT32 = 1

_INT8_STAYS = "session.qdqisint8allowed"
"""Whether int8 between QuantizeLinear and DequantizeLinear stays; else it becomes uint8 on x86-64.
There 1.31.1 drops `output_dtype`, and cannot load its own result for a Reshape behind a
DequantizeLinear of int8 at opset 21 or later."""

_SPINNING = "session.intra_op.allow_spinning"
"""Whether threads that wait for work keep their processor busy. Two models that run in turns wait
for each other: spinning doubled the time, and more on a busy machine."""

_NO_PREPACKING = "session.disable_prepacking"
"""Whether kernels do without rearranged copies of matrices, which do not pay within a few runs."""

_FATAL = 4
"""Log severity; lower ones log each run of TensorScatter, and errors that we raise anyway."""

_INVALID = r"INVALID_GRAPH|[Ii]nvalid model|(?:Type|Shape)InferenceError\]|: Type Error: "
"""Texts of errors of onnxruntime for a model that breaks the specification."""

# The binding raises classes of its own, which have no common base but Exception, and plain
# built-in ones for arrays it cannot convert.
_ERRORS: tuple[type[Exception], ...] = (
    *(c for c in vars(capi).values() if isinstance(c, type) and issubclass(c, Exception)),
    RuntimeError,
    TypeError,
    ValueError,
)


def load(model: bytes, directory: str, options: ort.SessionOptions) -> ort.InferenceSession:
    """Load a model into onnxruntime with its CPU provider, or the chosen one.

    This sets the log severity and the directory of external data in `options`; "" is none.

    Raises:
        ModelRejected: If the model breaks the specification.
        RuntimeUnavailable: If onnxruntime cannot load the model, or computes it wrongly.
        OutOfMemory: If it gets no memory.
    """
    if (reason := known_wrong(VERSION, model, limit_reasons)) is not None:
        raise RuntimeUnavailable(f"{named()} computes this model wrongly: {reason}")
    options.log_severity_level = _FATAL
    if directory:
        options.add_session_config_entry(_FOLDER, directory)
    chosen = provider()
    providers: list[Any] = [chosen] if chosen is not None and chosen[0] != CPU else []
    providers.append(CPU)  # which has a kernel for what another lacks
    try:
        session = ort.InferenceSession(
            with_all_inputs(model), options, providers=providers, enable_fallback=0
        )
    except _ERRORS as error:
        _check_memory(error)
        is_invalid = re.search(_INVALID, str(error)) is not None
        raise (ModelRejected if is_invalid else RuntimeUnavailable)(
            f"{named()} cannot load the model: {_informative(error)}"
        ) from error
    if chosen is not None and chosen[0] not in session.get_providers():
        raise RuntimeUnavailable(
            f"onnxruntime {VERSION} cannot start {chosen[0]}",
            help="its libraries or its device are missing, or an option is wrong",
        )
    return session


def load_exactly(model: bytes, directory: str, options: ort.SessionOptions) -> ort.InferenceSession:
    """Load a model as `load` does, with float32 products for weights of a few bits."""
    options.add_session_config_entry(_BLOCKED_PRODUCTS, str(_FLOAT32))
    with _exact_experts(model):
        return load(_accurate(model)[0], directory, options)


def named() -> str:
    """Return name and version, and the provider if one was chosen."""
    chosen = provider()
    return f"onnxruntime {VERSION}" + (f" ({chosen[0]})" if chosen is not None else "")


_NO_MEMORY = r"bad[_ ]alloc|[Ff]ailed to allocate memory"
"""Texts of errors of onnxruntime that got no memory."""


def _check_memory(error: Exception) -> None:
    if isinstance(error, MemoryError) or re.search(_NO_MEMORY, str(error)):
        raise OutOfMemory(
            f"{named()}: there is not enough memory: {_informative(error)}",
            help="give the process more memory, or use smaller sizes",
        ) from error


@contextlib.contextmanager
def running() -> Iterator[ort.RunOptions]:
    """Yield the options of a run in the block.

    Raises:
        RunFailed: If it fails.
        OutOfMemory: If it gets no memory.
    """
    options = ort.RunOptions()
    options.log_severity_level = _FATAL
    try:
        yield options
    except _ERRORS as error:
        _check_memory(error)
        raise RunFailed(f"{named()}: {_informative(error)}") from error


def _accurate(model: bytes) -> tuple[bytes, list[int]]:
    """Return a model that computes products with weights of a few bits in float32.

    Also return the `accuracy_level` of each node that would round more.
    """
    if b"accuracy_level" not in model:
        return model, []
    try:
        message = onnx.ModelProto.FromString(model)
    except DecodeError:
        return model, []  # onnxruntime reports it
    found = []
    for node in every_node(message):
        for attribute in node.attribute:
            if attribute.name == "accuracy_level" and attribute.i > _FLOAT32:
                found.append(attribute.i)
                attribute.i = _FLOAT32
    return bytes(message.SerializeToString()), found


def lowered_accuracy(model: bytes) -> list[int]:
    """Return the `accuracy_level` of each node, if `Session` sets 1 instead."""
    return _accurate(model)[1]


def may_round(model: bytes) -> bool:
    """Return whether onnxruntime may round more in a model than `Session` allows."""
    is_fused = b"block_size" in model and b"DequantizeLinear" in model
    return is_fused or b"QMoE" in model or bool(lowered_accuracy(model))


@contextlib.contextmanager
def _exact_experts(model: bytes) -> Iterator[None]:
    """Compute experts with weights of a few bits in float32, unless the user set another way."""
    name, value = _EXPERTS
    if b"QMoE" not in model or name in os.environ:
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


class Session:
    """A model loaded by onnxruntime with its CPU provider; see `sessions.Session`.

    Products with weights of a few bits are computed in float32, whatever accuracy the model allows:
    rounding the other operand to 8 bits changes results by a hundredth, which would hide the
    difference of two models.

    Args:
        model: The serialised model.
        directory: The directory of external data; "" if there is none. Needs onnxruntime 1.21;
            from 1.24 on it refuses locations outside of the directory.
        optimize: Whether the graph may be optimised; results may then differ by rounding.
        exact: Whether products with weights of a few bits are computed in float32.

    Raises:
        ModelRejected: If the model breaks the specification.
        RuntimeUnavailable: If the model cannot be loaded (no kernel for an operator and type, an
            opset or IR version that is too new, external data that is missing), or if this release
            is known to compute it wrongly.
    """

    def __init__(
        self, model: bytes, directory: str, *, optimize: bool = True, exact: bool = True
    ) -> None:
        options = ort.SessionOptions()
        options.enable_cpu_mem_arena = False  # it pays over many runs, and keeps what it once took
        if not optimize:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.add_session_config_entry(_NO_PREPACKING, "1")
        options.add_session_config_entry(_INT8_STAYS, "1")
        options.add_session_config_entry(_SPINNING, "0")
        self._session = (load_exactly if exact else load)(model, directory, options)
        self._inputs = {value.name: value.type for value in self._session.get_inputs()}
        self._outputs = {value.name: value.type for value in self._session.get_outputs()}
        types = {*self._inputs.values(), *self._outputs.values()}
        self._is_extended = not EXTENDED.keys().isdisjoint(types)
        if self._is_extended and "tensor(string)" in self._inputs.values():
            raise RuntimeUnavailable(
                f"{named()} takes no strings beside types that numpy has not: {sorted(types)}"
            )

    @property
    def runtime(self) -> str:
        """Name and version."""
        return named()

    def run(self, inputs: Mapping[str, Array]) -> Arrays:
        """Run the model; see `sessions.Session.run`."""
        names = list(self._outputs)
        with running() as options:
            if self._is_extended:
                return self._run_extended(names, inputs, options)
            values = self._session.run(names, dict(inputs), options)
            return {name: _array(value) for name, value in zip(names, values, strict=True)}

    def _run_extended(
        self, names: list[str], inputs: Mapping[str, Array], options: ort.RunOptions
    ) -> Arrays:
        """Run with values of types that numpy lacks, as `OrtValue`."""
        # The values point into these arrays, which must outlive the run.
        buffers = {name: self._buffer(name, array) for name, array in inputs.items()}
        values = self._session.run_with_ort_values(
            names, {name: value for name, (value, _) in buffers.items()}, options
        )
        return {name: array_of(value) for name, value in zip(names, values, strict=True)}

    def _buffer(self, name: str, array: Array) -> tuple[Any, Array]:
        type_ = EXTENDED.get(self._inputs.get(name, ""))
        if type_ is None:
            array = np.asarray(array, order="C")
            return ort.OrtValue.ortvalue_from_numpy(array), array
        if array.dtype != type_.numpy():
            raise TypeError(f"input `{name}` is of dtype {array.dtype}, expected {type_.numpy()}")
        # One byte per pair of 4-bit elements, but the shape of the unpacked array: the binding
        # reads as many bytes as the type needs from the front of the buffer.
        buffer = np.zeros(array.shape, array.dtype)
        packed = pack(array, type_)
        buffer.reshape(-1).view(np.uint8)[: packed.size] = packed
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(buffer, type_.value), buffer


def _array(value: object) -> Array:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"an output is a {type(value).__name__}, expected a tensor")
    return value


def array_of(value: Any) -> Array:
    """Return a copy of a tensor of onnxruntime, with a dtype of ml_dtypes if numpy has none."""
    if not value.is_tensor():
        raise TypeError(f"an output is a {value.data_type()}, expected a tensor")
    type_ = EXTENDED.get(value.data_type())
    if type_ is None:
        return _array(value.numpy()).copy()
    shape = tuple(value.shape())
    size = math.ceil(math.prod(shape) * type_.bitwidth / 8)
    data = ctypes.string_at(value.data_ptr(), size) if size else b""
    return unpack(np.frombuffer(data, np.uint8), shape, type_)


def _informative(error: Exception) -> str:
    """Return the line of an onnxruntime message that says what is wrong.

    Such a message begins with a code, and may name a source file, a function signature and the
    failed condition first.
    """
    text = str(error).strip()[:_MOST_CHARACTERS]
    for noise in _NOISE:
        text = re.sub(noise, "", text, flags=re.DOTALL)
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line.rstrip(".") or type(error).__name__


_MOST_CHARACTERS = 10_000
"""Longest part of a message that is searched: names in it may be of any length."""

_NOISE = (
    r"^\[ONNXRuntimeError\] : \d+ : \w+ : ",
    r"^.*?Status Message: ",
    r"^This is an invalid model\. In Node, .* , Error ",
    r"/\S+\.(?:cc|h):\d+ .* was false\. ",
    r"/\S+\.(?:cc|h):\d+ [^\n]*?\)(?:::<lambda\([^)]*\)>)? ",
    r"^\w+\.(?:cc|h):\d+ \w+ ",
    r"^ONNX Runtime only \*guarantees\* .*(?=Current official support)",
)
"""Prefixes of a message before its sentence, in the order of removal."""
