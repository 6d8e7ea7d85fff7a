"""The reference runtime as a backend of onnx, as `onnx.backend.base` defines one.

import onnx_kvtool.backend as backend

rep = backend.prepare(model)  # an onnx.ModelProto
outputs = rep.run([array])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

from onnx_kvtool.commands.reference_evaluator import ReferenceEvaluator
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.words import counted
from onnx_kvtool.evaluation.proto import ProtoSource


class KvtoolBackendRep(BackendRep):
    """A model that is ready to run.

    Args:
        session: The model.
    """

    def __init__(self, session: ReferenceEvaluator) -> None:
        self._session = session

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model.

        Args:
            inputs: Values by name; or a sequence of them in the order of the graph inputs that
                are no initializers; or one array for a model with one input.
            kwargs: Taken for the sake of the interface, and not looked at.

        Returns:
            The graph outputs, in order.

        Raises:
            UsageError: If there are more inputs than the model has, or as `ReferenceEvaluator.run`.
            KvtoolError: As `ReferenceEvaluator.run`.
        """
        names = self._session.required
        return tuple(self._session.run(None, _by_name(inputs, names, "at most ")))


def _by_name(inputs: Any, names: Sequence[str], at_most: str = "") -> dict[str, Any]:
    """Return inputs of any form by name; without `at_most`, each name needs one."""
    if isinstance(inputs, Mapping):
        return dict(inputs)
    values = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
    if len(values) > len(names) or (len(values) < len(names) and not at_most):
        raise UsageError(f"got {counted(len(values), 'input')}, expected {at_most}{len(names)}")
    return dict(zip(names, values, strict=False))


class KvtoolBackend(Backend):
    """The reference runtime, on the CPU."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether models run on `device`: on `CPU`, with a number behind it or not."""
        return device.split(":", maxsplit=1)[0] == "CPU"

    @classmethod
    def prepare(cls, model: ProtoSource, device: str = "CPU", **kwargs: Any) -> KvtoolBackendRep:
        """Return a model that is ready to run.

        Args:
            model: As for `ReferenceEvaluator`.
            device: Where to run it.
            kwargs: `opsets` as for `ReferenceEvaluator`; the others as in `KvtoolBackendRep.run`.

        Raises:
            UsageError: If the device is none that there is.
            KvtoolError: As `ReferenceEvaluator`.
        """
        if not cls.supports_device(device):
            raise UsageError(f"the device is `{device}`, expected `CPU`")
        return KvtoolBackendRep(ReferenceEvaluator(model, kwargs.get("opsets")))

    @classmethod
    def run_model(
        cls, model: ProtoSource, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Run a model once; see `prepare` and `KvtoolBackendRep.run`."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one node once.

        Args:
            node: The node.
            inputs: A value for each of its inputs that has a name, in order; or by name.
            device: Where to run it.
            outputs_info: Dtype and shape of each output, which need not be given.
            kwargs: `opset_version` is the version of the node's domain, the newest unless given.

        Raises:
            UsageError: If there are not as many inputs as names.
            KvtoolError: As `prepare` and `KvtoolBackendRep.run`.
        """
        names = list(dict.fromkeys(name for name in node.input if name))
        feeds = _by_name(inputs, names)
        opset = kwargs.get("opset_version")
        opsets = None if opset is None else {node.domain: opset}
        return cls.prepare(node, device, opsets=opsets).run(feeds)


is_compatible = KvtoolBackend.is_compatible
prepare = KvtoolBackend.prepare
run_model = KvtoolBackend.run_model
run_node = KvtoolBackend.run_node
supports_device = KvtoolBackend.supports_device
