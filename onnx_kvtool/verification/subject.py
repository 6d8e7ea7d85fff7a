"""A model as verification needs it: captured, loaded, and fed as a host would do it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.walk import tensors
from onnx_kvtool.guard.crashes import slices_negative_size
from onnx_kvtool.guard.exhaustion import MOST_RUN, expanded_nodes
from onnx_kvtool.guard.weightless import weightless
from onnx_kvtool.model_io.model import origin, serialize
from onnx_kvtool.ops.contrib import is_contrib
from onnx_kvtool.runtime.errors import CannotDraw, RuntimeUnavailable
from onnx_kvtool.runtime.sessions import RUNTIMES, Array, Arrays, RuntimeName, Session, open_session
from onnx_kvtool.verification.comparison.randomness import random_values
from onnx_kvtool.verification.comparison.rounded_values import (
    Arithmetic,
    Coarse,
    arithmetic,
    coarser,
)
from onnx_kvtool.verification.comparison.tolerances import Noise
from onnx_kvtool.verification.inputs.interface import Interface, interface_of, narrowed
from onnx_kvtool.verification.inputs.plan import InputPlan, plan
from onnx_kvtool.verification.twins import twin

# Sessions of models that are fed, and whose outputs are read, as a host of theirs would do it.


_NARROW = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True, slots=True)
class Host:
    """What stands between the inputs and outputs of a comparison and those of one model.

    Attributes:
        feeds: Returns what the model is fed for the inputs of the comparison.
        outputs: Returns what is compared, from these inputs and the outputs of the model.
    """

    feeds: Callable[[Arrays], Arrays]
    outputs: Callable[[Arrays, Arrays], Arrays]


@dataclass(frozen=True, slots=True)
class Hosted:
    """A session with its host."""

    session: Session
    host: Host

    @property
    def runtime(self) -> str:
        """Name and version of what runs the model."""
        return self.session.runtime

    def run(self, inputs: Mapping[str, Array]) -> Arrays:
        """Run the model on what its host makes of `inputs`, and return what it reads."""
        fed = dict(inputs)
        return self.host.outputs(fed, self.session.run(self.host.feeds(fed)))


def wide_host(dtype: np.dtype[Any], narrow: Collection[str]) -> Host:
    """Return the host of a model that has another type where the comparison has bfloat16.

    It rounds the outputs `narrow` to bfloat16, so that data which was only moved has the same bits.
    """
    return Host(
        lambda inputs: {
            name: array.astype(dtype) if array.dtype == _NARROW else array
            for name, array in inputs.items()
        },
        lambda _, outputs: {
            name: array.astype(_NARROW) if name in narrow else array
            for name, array in outputs.items()
        },
    )


def nearest_host(dtype: np.dtype[Any]) -> Host:
    """Return a host that feeds a model in bfloat16 what another type holds of it.

    float16 has steps of 6e-8 below 6e-5, so that a small number of a cache becomes another one in
    a model of that type. Whatever it becomes, bfloat16 holds it.
    """
    return Host(
        lambda inputs: {
            name: array.astype(dtype).astype(_NARROW) if array.dtype == _NARROW else array
            for name, array in inputs.items()
        },
        lambda _, outputs: outputs,
    )


def through(outer: Host, inner: Host | None) -> Host:
    """Return a host that stands between the comparison and another one, if there is one."""
    if inner is None:
        return outer
    return Host(
        lambda inputs: inner.feeds(outer.feeds(inputs)),
        lambda inputs, outputs: outer.outputs(inputs, inner.outputs(outer.feeds(inputs), outputs)),
    )


# A model as verification needs it, captured so that the model may then be edited in place.


@dataclass(slots=True, repr=False)
class Subject:
    """One of the two models.

    Attributes:
        name: What messages call it.
        model: The serialised model.
        directory: Where its external data starts; "" if it has none, or not one place.
        interface: Its inputs and outputs.
        plan: What its inputs mean; None when they cannot be drawn.
        undrawable: Why they cannot be drawn; None when they can.
        arithmetic: How its values are computed.
        weights: The initializers of its main graph, by name; their values are not read.
        operators: The operator of each node of its main graph, in order.
        refusals: Why a runtime is not asked to load it; nothing for one that may try.
        casts: Nodes at the front of its main graph that widen weights and are not the user's.
        host: What stands between the inputs of a comparison and its own; None for nothing.
        random: Values of its main graph that random numbers go into, by name.
        contrib: Operators of onnxruntime, each with its domain.
    """

    name: str
    model: bytes
    directory: str
    interface: Interface
    plan: InputPlan | None
    undrawable: str | None
    arithmetic: Arithmetic
    weights: dict[str, ir.TensorProtocol]
    operators: tuple[str, ...]
    refusals: Mapping[RuntimeName, RuntimeUnavailable]
    random: frozenset[str]
    contrib: frozenset[tuple[str, str]]
    casts: int = 0
    host: Host | None = None
    _sessions: dict[RuntimeName, Session | RuntimeUnavailable] = field(default_factory=dict)

    @property
    def coarsest(self) -> Coarse | None:
        """The coarsest type on the path to any output; None if none is rounded."""
        return coarser(*(self.arithmetic.of(port.name) for port in self.interface.outputs))

    @property
    def is_narrow(self) -> bool:
        """Whether an output depends on a result in float16 or bfloat16."""
        return self.coarsest is not None and self.coarsest.is_narrow

    def twin(self, shaken: Collection[bytes] = ()) -> Subject:
        """Return the model in float32; its session and bytes matter; see `twins.twin`.

        Raises:
            NoTwin: If what it computes depends on the bits of the narrow type.
        """
        model, casts = twin(self.model, shaken)
        return replace(self, model=model, casts=casts, _sessions={})

    def fed(self, inputs: Arrays) -> Arrays:
        """Return what the model is fed for the inputs of the comparison."""
        return inputs if self.host is None else self.host.feeds(inputs)

    def hosted(self, session: Session) -> Session:
        """Return a session of the model as its host uses it."""
        return session if self.host is None else Hosted(session, self.host)

    def with_host(self, host: Host | None) -> Subject:
        """Return the model as `host` uses it; None for nothing in between."""
        return replace(self, host=host, _sessions={})

    def without_padding(self, names: frozenset[str]) -> Subject:
        """Return the model with inputs that are 1 throughout."""
        known = None if self.plan is None else replace(self.plan, unpadded=names)
        return replace(self, plan=known)

    def narrowed(self, expected: Interface, wide: ir.DataType) -> Subject:
        """Return the model as one that has bfloat16 where `expected` has it for `wide`."""
        interface = narrowed(self.interface, expected, wide)
        given = zip(interface.outputs, self.interface.outputs, strict=True)
        changed = frozenset(port.name for port, own in given if port.type != own.type)
        return replace(self.with_host(wide_host(wide.numpy(), changed)), interface=interface)

    def session(self, runtime: RuntimeName) -> Session:
        """Return the model loaded in `runtime`, which is tried once.

        Raises:
            RuntimeUnavailable: If the runtime cannot load the model or computes it wrongly.
        """
        known = self._sessions.get(runtime) or self.refusals.get(runtime)
        if known is None:
            try:
                known = self.hosted(open_session(runtime, self.model, self.directory))
            except RuntimeUnavailable as error:
                known = error
            self._sessions[runtime] = known
        if isinstance(known, RuntimeUnavailable):
            raise known
        return known

    def refusal(self, runtime: RuntimeName) -> RuntimeUnavailable | None:
        """Return why `runtime` does not load the model; None if it does."""
        try:
            self.session(runtime)
        except RuntimeUnavailable as error:
            return error
        return None

    def noise(self, runtime: RuntimeName) -> Noise:
        """Return what measures the model, as its host uses it, against itself."""
        return Noise(self.model, self.directory, runtime, self.hosted)

    def unload(self) -> None:
        """Let go of what the runtimes have loaded; `session` loads it again."""
        self._sessions.clear()


def capture(model: ir.Model, name: str) -> Subject:
    """Capture `model`, which is not changed and may be edited afterwards; no external data is read.

    Raises:
        KvtoolError: If the model has no written form.
    """
    data = serialize(model)
    known, undrawable = None, None
    try:
        known = plan(model)
    except CannotDraw as error:
        undrawable = error.message
    return Subject(
        name=name,
        model=data,
        directory=_directory(model),
        interface=interface_of(model),
        plan=known,
        undrawable=undrawable,
        arithmetic=arithmetic(model),
        random=random_values(model),
        contrib=frozenset(
            (node.domain, node.op_type)
            for node in model.graph.all_nodes()
            if is_contrib(node, model.opset_imports.get("", 1))
        ),
        weights={
            name: tensor
            for name, value in model.graph.initializers.items()
            if name and (tensor := value.const_value) is not None
        },
        operators=tuple(node.op_type for node in model.graph),
        refusals=_refusals(model, data),
    )


def _refusals(model: ir.Model, data: bytes) -> dict[RuntimeName, RuntimeUnavailable]:
    """Return why a runtime is not asked to load a model; nothing for one that each may try.

    onnxruntime 1.31.1 writes the body of a function in place of each call of it, and would be busy
    for days with forty functions of two calls each.
    """
    if model.functions and expanded_nodes(model) > MOST_RUN:
        size = f"the functions of the model expand to more than {MOST_RUN} nodes"
        return dict.fromkeys(RUNTIMES, RuntimeUnavailable(size))
    # Most models are told from the bytes alone, without a message that is made of them.
    if b"Slice" in data and (op_type := slices_negative_size(weightless(model))) is not None:
        reason = f"the model slices behind a `{op_type}` of negative size"
        return {"onnxruntime": RuntimeUnavailable(f"{reason}, and onnxruntime aborts")}
    return {}


def _directory(model: ir.Model) -> str:
    """Return where the external data of `model` starts; "" if it has none, or not one place."""
    if known := origin(model).directory:
        return known
    bases = {
        os.path.abspath(tensor.base_dir)
        for _, tensor in tensors(model)
        if isinstance(tensor, ir.ExternalTensor)
    }
    return bases.pop() if len(bases) == 1 else ""
