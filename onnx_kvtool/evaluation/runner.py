"""One part of a model, ready to run in one of the runtimes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.evaluation.part import leave_out, without_rest
from onnx_kvtool.runtime import reference
from onnx_kvtool.runtime.engine.evaluator import Evaluator, Run
from onnx_kvtool.runtime.engine.program import Trace
from onnx_kvtool.runtime.kernels.kernel import Value
from onnx_kvtool.runtime.sessions import RuntimeName
from onnx_kvtool.verification.subject import capture

__all__ = ["Runner", "keep_runner", "open_runner"]


class Runner(Protocol):
    """A part that can be run any number of times."""

    @property
    def runtime(self) -> str:
        """Name and version of the runtime."""
        ...

    @property
    def borrowed(self) -> tuple[Location, ...]:
        """The nodes that onnx.reference runs."""
        ...

    def run(
        self,
        inputs: Mapping[str, Value],
        *,
        give_up: Collection[str] = (),
        observe: Callable[[Trace], None] | None = None,
    ) -> Run:
        """Run the part; see `Evaluator.run`.

        Raises:
            RunFailed: If it fails on these inputs.
        """
        ...


def open_runner(runtime: RuntimeName, part: ir.Model, given: Mapping[str, Value]) -> Runner:
    """Load a part in `runtime`.

    Args:
        runtime: `reference` or `onnxruntime`.
        part: As `part_of` returned it; not changed, and must not change while the runner is used.
        given: Values that are fed, those that are drawn left out.

    Raises:
        RuntimeUnavailable: If the runtime cannot load it, or computes it wrongly.
        KvtoolError: If the part has no written form, which onnxruntime needs.
    """
    return _Reference(part) if runtime == "reference" else _Onnxruntime(part, given)


_KEPT = "onnx_kvtool.evaluators"


def keep_runner(model: ir.Model) -> None:
    """Have a model that does not change any more compiled for the reference runtime only once."""
    model.meta[_KEPT] = _Kept(model)


@dataclass(slots=True)
class _Kept:
    """What a model is compiled to; its copies refer to it as well."""

    model: ir.Model
    evaluator: Evaluator | None = None


class _Reference:
    def __init__(self, part: ir.Model) -> None:
        kept: _Kept | None = part.meta.get(_KEPT)
        kept = kept if kept is not None and kept.model is part else _Kept(part)
        self._evaluator = kept.evaluator = kept.evaluator or Evaluator(part)

    @property
    def runtime(self) -> str:
        return f"reference {reference.VERSION}"

    @property
    def borrowed(self) -> tuple[Location, ...]:
        return self._evaluator.borrowed

    def run(
        self,
        inputs: Mapping[str, Value],
        *,
        give_up: Collection[str] = (),
        observe: Callable[[Trace], None] | None = None,
    ) -> Run:
        return self._evaluator.run(inputs, give_up=give_up, observe=observe)


class _Onnxruntime:
    """Runs the nodes that are needed and no others; it never writes into its inputs."""

    borrowed: tuple[Location, ...] = ()

    def __init__(self, part: ir.Model, given: Mapping[str, Value]) -> None:
        rest = without_rest(part, given)
        leave_out(rest, [name for name, value in given.items() if value is None])
        self._inputs = [value.name or "" for value in rest.graph.inputs]
        self._outputs = [value.name or "" for value in rest.graph.outputs]
        self._session = capture(rest, "the model").session("onnxruntime")

    @property
    def runtime(self) -> str:
        return self._session.runtime

    def run(
        self,
        inputs: Mapping[str, Value],
        *,
        give_up: Collection[str] = (),
        observe: Callable[[Trace], None] | None = None,
    ) -> Run:
        fed = {name: inputs[name] for name in self._inputs if name in inputs}
        found = self._session.run(fed)
        return Run({name: found[name] for name in self._outputs}, ())
