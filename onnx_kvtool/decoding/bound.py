"""A model in onnxruntime with its caches in the caller's buffers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import onnxruntime as ort

from onnx_kvtool.runtime.onnxruntime import array_of, load, load_exactly, running
from onnx_kvtool.runtime.sessions import EXTENDED, Array


class Buffer:
    """A tensor in memory that onnxruntime reads or writes in place.

    Attributes:
        value: The value that onnxruntime binds.
    """

    def __init__(self, value: Any, array: Array | None = None) -> None:
        self.value = value
        self._array = array  # the value points into it

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(self.value.shape())

    def write(self, rows: tuple[slice, ...], values: Array) -> None:
        """Write values into a part of it; `zeros` must have made it."""
        assert self._array is not None
        self._array[rows] = values

    def read(self) -> Array:
        """Return a copy of its elements, with a dtype of ml_dtypes if numpy has none."""
        return array_of(self.value)


class BoundSession:
    """A model loaded by onnxruntime on the CPU, run with bound inputs and outputs.

    Args:
        model: The serialised model.
        directory: The directory of external data; "" if there is none.
        threads: Threads per node; None for one per core.

    Raises:
        ModelRejected: If the model breaks the specification.
        RuntimeUnavailable: If onnxruntime cannot load the model, or computes it wrongly.
    """

    profile_to: ClassVar[str | None] = None
    """The path prefix of the profiles of sessions that are opened next; None for no profiles."""

    is_exact: ClassVar[bool] = False
    """Whether the sessions that are opened next compute products with weights of a few bits in
    float32."""

    def __init__(self, model: bytes, directory: str, threads: int | None = None) -> None:
        options = ort.SessionOptions()
        if self.profile_to is not None:
            options.enable_profiling = True
            options.profile_file_prefix = self.profile_to
        if threads is not None:
            options.intra_op_num_threads = threads
        self._session = (load_exactly if self.is_exact else load)(model, directory, options)
        self._types = {value.name: value.type for value in self._session.get_inputs()}
        self.outputs = [value.name for value in self._session.get_outputs()]

    def end_profiling(self) -> str:
        """Return the path of the profile of all runs so far."""
        return str(self._session.end_profiling())

    def zeros(self, name: str, shape: tuple[int, ...]) -> Buffer:
        """Return a buffer of zeros for the input `name`."""
        type_ = self._types[name]
        if (extended := EXTENDED.get(type_)) is None:
            name = type_.removeprefix("tensor(").removesuffix(")")
            array = np.zeros(shape, "float32" if name == "float" else name)
            return Buffer(ort.OrtValue.ortvalue_from_numpy(array), array)
        array = np.zeros(shape, extended.numpy())
        made = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, extended.value)
        return Buffer(made, array)

    def run(
        self, arrays: Mapping[str, Array], buffers: Mapping[str, Buffer], into: Mapping[str, Buffer]
    ) -> dict[str, Buffer]:
        """Run the model.

        Args:
            arrays: Inputs by name.
            buffers: Inputs in buffers, by name.
            into: Buffers for outputs by name; one that is also an input is written in place. The
                other outputs get new buffers.

        Returns:
            Every output by name.

        Raises:
            RunFailed: If the model fails on these inputs.
        """
        with running() as options:
            binding = self._session.io_binding()
            for name, array in arrays.items():
                binding.bind_cpu_input(name, np.asarray(array, order="C"))
            for name, buffer in buffers.items():
                binding.bind_ortvalue_input(name, buffer.value)
            for name in self.outputs:
                if name in into:
                    binding.bind_ortvalue_output(name, into[name].value)
                else:
                    binding.bind_output(name, "cpu")
            self._session.run_with_iobinding(binding, options)
            values = binding.get_outputs()
        return {
            name: into[name] if name in into else Buffer(value)
            for name, value in zip(self.outputs, values, strict=True)
        }
