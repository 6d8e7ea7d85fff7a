"""The interface of both runtimes, execution providers, and element types that numpy lacks."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

import ml_dtypes
import numpy as np
import numpy.typing as npt

from onnx_kvtool.core.choices import RuntimeName
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.words import enumerated, unknown_name

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


@dataclass(frozen=True, slots=True)
class ExtendedType:
    """One element type.

    Attributes:
        element_type: Its number in `onnx.TensorProto.DataType`.
        dtype: Its dtype in ml_dtypes, where each element takes a whole byte or more.
        bits: Bits per element in onnxruntime's memory; two 4-bit elements share a byte, the first
            in the low half.
    """

    element_type: int
    dtype: np.dtype[np.generic]
    bits: int


EXTENDED: dict[str, ExtendedType] = {
    f"tensor({name})": ExtendedType(element_type, np.dtype(dtype), bits)
    for name, element_type, dtype, bits in (
        ("bfloat16", 16, ml_dtypes.bfloat16, 16),
        ("float8e4m3fn", 17, ml_dtypes.float8_e4m3fn, 8),
        ("float8e4m3fnuz", 18, ml_dtypes.float8_e4m3fnuz, 8),
        ("float8e5m2", 19, ml_dtypes.float8_e5m2, 8),
        ("float8e5m2fnuz", 20, ml_dtypes.float8_e5m2fnuz, 8),
        ("uint4", 21, ml_dtypes.uint4, 4),
        ("int4", 22, ml_dtypes.int4, 4),
    )
}
"""The types that onnxruntime supports, by its name for the type of a value."""


def pack(array: Array, type_: ExtendedType) -> Bytes:
    """Return the bytes of `array` in the layout of onnxruntime, as a flat array."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if type_.bits != 4:
        return flat
    nibbles = flat & np.uint8(0xF)
    if nibbles.size % 2:
        nibbles = np.append(nibbles, np.uint8(0))
    packed: Bytes = nibbles[0::2] | (nibbles[1::2] << np.uint8(4))
    return packed


def unpack(data: Bytes, shape: tuple[int, ...], type_: ExtendedType) -> Array:
    """Return the array of `shape` whose bytes in onnxruntime's memory are `data`."""
    if type_.bits != 4:
        return data.copy().view(type_.dtype).reshape(shape)
    halves = np.stack([data & np.uint8(0xF), data >> np.uint8(4)], axis=-1)
    nibbles = halves.reshape(-1)[: math.prod(shape)]
    if type_.dtype == ml_dtypes.int4:
        signed = nibbles.astype(np.int8)
        return np.where(signed > 7, signed - 16, signed).astype(type_.dtype).reshape(shape)
    return nibbles.astype(type_.dtype).reshape(shape)
