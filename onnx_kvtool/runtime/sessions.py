"""The interface of both runtimes, execution providers, and element types that numpy lacks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Protocol

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from onnx_kvtool.core.choices import RuntimeName
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.words import enumerated, unknown_name
from onnx_kvtool.ops.schema import tensor_type

__all__ = ["RuntimeName"]  # beside what is defined here

# The interface of both runtimes.


Array = npt.NDArray[np.generic]
Arrays = dict[str, Array]

RUNTIMES: tuple[RuntimeName, ...] = ("onnxruntime", "reference")
"""The runtimes in the order of the attempts, the fast one first."""


class Session(Protocol):
    """A loaded model that can be run any number of times."""

    @property
    def runtime(self) -> str:
        """Name and version of the runtime, such as `reference 0.3.0`."""
        ...

    def run(self, inputs: Mapping[str, Array]) -> Arrays:
        """Run the model.

        Args:
            inputs: One array per graph input that is not an initializer, by name. Strings are
                arrays of objects; bfloat16 and the types below 16 bits are those of ml_dtypes.

        Returns:
            Every graph output by name, with the dtype of its element type.

        Raises:
            RunFailed: If the model fails on these inputs.
        """
        ...


def open_session(
    runtime: RuntimeName, model: bytes, directory: str, *, optimize: bool = True
) -> Session:
    """Load a model in the runtime called `runtime`.

    Only onnxruntime optimises the graph, if `optimize` allows it. Locations of external data start
    in `directory`; "" when there is none.

    Raises:
        RuntimeUnavailable: If the runtime cannot load the model or computes it wrongly.
    """
    if runtime == "onnxruntime":
        from onnx_kvtool.runtime import onnxruntime

        return onnxruntime.Session(model, directory, optimize=optimize)
    if runtime == "reference":
        from onnx_kvtool.runtime import reference

        return reference.Session(model, directory)
    raise ValueError(f"unknown runtime {runtime!r}, expected one of {RUNTIMES}")


# The execution provider of onnxruntime that runs models: that of the CPU, or another one.


CPU = "CPUExecutionProvider"

_CHOSEN: ContextVar[str | None] = ContextVar("provider", default=None)
"""The caller's text; None for the default. A forked process inherits it."""


def check_provider(text: str | None) -> None:
    """Refuse a provider that the installed onnxruntime does not have, or malformed options.

    Args:
        text: `NAME[,key=value...]`; `ExecutionProvider` at the end of the name may be left out.

    Raises:
        UsageError: If the text has another form, or there is no such provider.
    """
    if text is not None:
        _parsed(text)


@contextlib.contextmanager
def running_on(text: str | None) -> Iterator[None]:
    """Let onnxruntime run models on a provider within the block; None for the CPU."""
    token = _CHOSEN.set(text)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def provider() -> tuple[str, dict[str, str]] | None:
    """Return the chosen provider and its options; None for the default."""
    text = _CHOSEN.get()
    return None if text is None else _parsed(text)


def accelerator() -> str | None:
    """Return the name of the chosen provider; None for that of the CPU.

    It may round float32 to float16, and may not update a cache in place.
    """
    chosen = provider()
    return None if chosen is None or chosen[0] == CPU else chosen[0]


def _parsed(text: str) -> tuple[str, dict[str, str]]:
    name, *pairs = text.split(",")
    options: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise UsageError(
                f"`--provider {text}` has the option `{pair}`, expected `key=value`",
                help="write `--provider NAME,key=value`",
            )
        options[key] = value
    import onnxruntime

    there: list[str] = onnxruntime.get_available_providers()
    known = {n.lower(): n for n in there} | {
        n.removesuffix("ExecutionProvider").lower(): n for n in there
    }
    if name.lower() not in known:
        error = unknown_name(f"onnxruntime has no execution provider `{name}`", name, there)
        error.help = f"the installed one has {enumerated(there)}"
        raise error
    return known[name.lower()], options


# Element types that numpy lacks, in the memory layout of onnxruntime.


Bytes = npt.NDArray[np.uint8]


_D = ir.DataType

EXTENDED: dict[str, ir.DataType] = {
    tensor_type(dtype): dtype
    for dtype in (
        *(_D.BFLOAT16, _D.FLOAT8E4M3FN, _D.FLOAT8E4M3FNUZ, _D.FLOAT8E5M2, _D.FLOAT8E5M2FNUZ),
        *(_D.UINT4, _D.INT4),
    )
}
"""The types that onnxruntime supports, by its name for the type of a value. numpy's arrays have
those of ml_dtypes, a whole byte or more for each element; in onnxruntime's memory two elements of 4
bits share a byte, the first in the low half."""


def pack(array: Array, dtype: ir.DataType) -> Bytes:
    """Return the bytes of `array` in the layout of onnxruntime, as a flat array."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if dtype.bitwidth != 4:
        return flat
    return np.frombuffer(ir.Tensor(array, dtype).tobytes(), np.uint8)


def unpack(data: Bytes, shape: tuple[int, ...], dtype: ir.DataType) -> Array:
    """Return the array of `shape` whose bytes in onnxruntime's memory are `data`."""
    if dtype.bitwidth != 4:
        return data.copy().view(dtype.numpy()).reshape(shape)
    packed = onnx.TensorProto(data_type=dtype, dims=shape, raw_data=data.tobytes())
    return ir.serde.deserialize_tensor(packed).numpy()
