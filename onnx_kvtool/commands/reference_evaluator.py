"""A model compiled once and run any number of times by the reference runtime."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnx_kvtool.commands.arguments import listed
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.words import enumerated, unknown_name
from onnx_kvtool.evaluation.loop import apart_from, bound_sizes, owned, plan_with
from onnx_kvtool.evaluation.proto import (
    ProtoSource,
    model_of,
    parameters_of,
    trace_lines,
    value_lines,
)
from onnx_kvtool.evaluation.run import feed_of, value_named
from onnx_kvtool.evaluation.runner import main_values
from onnx_kvtool.model_io.external_data import check_external_data
from onnx_kvtool.model_io.verbatim import write_type
from onnx_kvtool.runtime.engine.arrays import constant
from onnx_kvtool.runtime.engine.borrowed import declared_mismatch
from onnx_kvtool.runtime.engine.compiler import needed_inputs, needed_nodes
from onnx_kvtool.runtime.engine.evaluator import Evaluator
from onnx_kvtool.runtime.kernels.kernel import Value
from onnx_kvtool.symbolic.dimensions import evaluate
from onnx_kvtool.verification.inputs.plan import InputPlan, InputSpec


class ReferenceEvaluator:
    """A model that runs in the reference runtime, in place of `onnx.reference.ReferenceEvaluator`.

    Arguments, methods and properties are those of onnx. kvtool adds `caches`, `run_step` and
    `reset`, lets any value be fed or fetched, and is stricter: an input has to be of the element
    type and the shape that the model declares, and every error is a `KvtoolError`.

    The nodes are prepared once. Every operator is computed as the text of its version defines it.
    An error by that text, or an undefined result, fails and names the node. Weights are read when a
    node needs them; external weights stay mapped from their files.

    Args:
        proto: A model (an `onnx_ir.Model` or an `onnx.ModelProto`), which is not changed, its path
            or the bytes of its file; or an `onnx.GraphProto`, `FunctionProto` or `NodeProto`.
        opsets: The version of each domain, required for a graph; for a node, None is the newest
            version.
        functions: Functions that the nodes of a graph, function or node may call: each an
            `onnx.FunctionProto` or an evaluator of one.
        verbose: What each run prints: from 2 on each node, from 3 on values as well, with their
            range, from 4 on with their first elements.
        new_ops: Classes derived from `onnx.reference.op_run.OpRun` that compute operators of any
            domain, also standard ones. Of two for one operator, the first counts.
        caches: The present for each past in the next step, by name, if the graph and the names do
            not show it; None to find them.

    Attributes:
        input_names: Names of the graph inputs, in order.
        required: Those without an initializer.
        output_names: Names of the graph outputs, in order.
        input_types: Types of the inputs, each an `onnx.TypeProto`; None for a function or a node.
        output_types: Likewise.
        opsets: The version of each domain that the model imports, `""` for that of ONNX.

    Raises:
        UnreadableModel: If the model, or external data of it, cannot be read.
        UsageError: If `caches` has an unknown input or output, if a graph comes without `opsets`,
            or a model with `opsets` or `functions`.
        KvtoolError: If an operator is unknown, or its attributes break its schema.

    Examples:
        A decoder whose caches stay in the session, two prompts at once:

        >>> import numpy as np
        >>> session = kv.ReferenceEvaluator("decoder.onnx")
        >>> session.caches["key_cache.0"]
        'updated_key_cache.0'
        >>> feeds = {"input_ids": np.array([[5, 3, 8]] * 2)}
        >>> feeds |= {"position_ids": np.array([[0, 1, 2]] * 2), "write_indices": np.array([0, 0])}
        >>> feeds["nonpad_kv_seqlen"] = np.array([3, 3])
        >>> (logits,) = session.run_step(["logits"], feeds)
        >>> feeds = {"input_ids": logits[:, -1:].argmax(-1), "position_ids": np.array([[3], [3]])}
        >>> feeds |= {"write_indices": np.array([3, 3]), "nonpad_kv_seqlen": np.array([4, 4])}
        >>> (logits,) = session.run_step(["logits"], feeds)
        >>> logits.shape
        (2, 1, 256)
    """

    def __init__(
        self,
        proto: ProtoSource,
        opsets: Mapping[str, int] | None = None,
        functions: Sequence[Any] | None = None,
        verbose: int = 0,
        new_ops: Sequence[type] | None = None,
        *,
        caches: Mapping[str, str] | None = None,
    ) -> None:
        self._model = model_of(proto, opsets, functions)
        check_external_data(self._model, need_bytes=True)
        self.proto_ = proto  # as onnx's, which takes evaluators for functions
        self.functions_ = dict(enumerate(functions or ()))
        self.verbose = verbose
        self._new_ops = _checked_ops(new_ops or ())
        self._evaluators: dict[bytes, Evaluator] = {}
        if not (isinstance(proto, onnx.FunctionProto) and proto.attribute):
            self._evaluator_for(None)
        graph = self._model.graph
        self._values = main_values(graph)
        self.input_names: list[str] = [value.name or "" for value in graph.inputs]
        self.required: list[str] = [v.name or "" for v in graph.inputs if v.const_value is None]
        self.output_names: list[str] = [value.name or "" for value in graph.outputs]
        has_types = not isinstance(proto, onnx.FunctionProto | onnx.NodeProto)
        self.input_types = list(map(_type, graph.inputs)) if has_types else None
        self.output_types = list(map(_type, graph.outputs)) if has_types else None
        self.opsets: dict[str, int] = dict(self._model.opset_imports)
        if caches is not None:
            self._check_caches(caches)
        self._caches = None if caches is None else dict(caches)
        self._fitting: dict[str, object] = {}
        self._complete: set[tuple[tuple[str, ...], ...]] = set()
        self._held: dict[str, Value] = {}
        self._is_lost = False

    def __str__(self) -> str:
        inputs, outputs = (", ".join(names) for names in (self.input_names, self.output_names))
        return f"{type(self).__name__}({inputs}) -> {outputs}"

    __repr__ = __str__

    @property
    def caches(self) -> dict[str, str]:
        """The name of the present that replaces each past in the next step.

        Raises:
            UsageError: If an input is no tensor, or its element type or rank is not declared.
        """
        if self._caches is None:
            self._caches = {pair.past: pair.present for pair in self._known.pairs}
        return dict(self._caches)

    def run(
        self,
        output_names: Sequence[str] | None,
        feed_inputs: Mapping[str, Any],
        attributes: Mapping[str, Any] | None = None,
        intermediate: bool = False,
    ) -> Any:
        """Run the model once.

        Args:
            output_names: What to return: graph outputs, or any other value of the main graph; None
                for all graph outputs.
            feed_inputs: Values by name, as for `evaluate`: of graph inputs and of any other value
                of the main graph, which then is not computed. None for an input that the nodes
                which read it can do without.
            attributes: The attributes of a function that runs alone, by name: numbers, texts,
                lists of these, arrays; those left out have their defaults.
            intermediate: Whether to return every value of the main graph that was made, as a
                dictionary by name, and not the outputs alone.

        Returns:
            A list with an array of its own for each name; a list for a sequence, None for an
            optional that holds nothing.

        Raises:
            UsageError: If a name is unknown, or an input is missing or contradicts its declaration.
            KvtoolError: If the model fails on these inputs; the message names the node.
        """
        names = self._names(output_names)
        feeds = self._feeds(feed_inputs)
        self._demand(names, feeds)
        if intermediate:
            wanted = [self._values[name] for name in names]
            fed = [self._values[name] for name in feeds]
            nodes = needed_nodes(self._model.graph, fed, wanted)
            made = [value.name for _, node in nodes for value in node.outputs if value.name]
            names = list(dict.fromkeys((*feeds, *made)))
        values = _owned(names, self._ran(attributes, feeds, fetch=names), feeds)
        return dict(zip(names, values, strict=True)) if intermediate else values

    def run_step(
        self, output_names: Sequence[str] | None, feed_inputs: Mapping[str, Any]
    ) -> list[Any]:
        """Run the model once on the caches that the step before left, and keep the new ones.

        A cache of fixed size is updated in place: no step copies it. In the first step, and in the
        first one after `reset`, the caches are empty: zeros in a cache of fixed size, no rows in
        one that grows.

        Args:
            output_names: As for `run`.
            feed_inputs: As for `run`, without the pasts. One that is there takes the place of what
                the session holds; its array is copied.

        Returns:
            As `run`; but a present is a view of the cache that cannot be written to, good until the
            next step, which changes what it shows. Copy what is to be kept.

        Raises:
            UsageError: As `run`; if no cache goes round, or an empty one cannot be made because a
                dimension has no size that the inputs tell: feed that past in the first step. The
                session holds what it held.
            KvtoolError: If the model fails on these inputs, as where a linear cache has no room for
                the new rows. Some caches may then have been written to and others not, so that all
                of them are given up: the next step has to feed every past, or `reset` comes first.
        """
        caches = self.caches
        if not caches:
            raise UsageError(
                "the model has no cache that is fed back from step to step",
                help="name the pairs with `caches`, or use `run`",
            )
        names = self._names(output_names)
        given = self._feeds(feed_inputs)
        self._demand([*names, *caches.values()], {**given, **dict.fromkeys(caches)})
        fed = {past: deepcopy(given[past]) for past in caches if past in given}
        absent = [past for past in caches if past not in fed and past not in self._held]
        if self._is_lost and absent:
            raise UsageError(
                f"the step before failed, and the contents of `{absent[0]}` are unknown",
                help="feed every past, or begin anew with `reset()`",
            )
        feeds = {**given, **self._held, **fed, **self._empty(absent, given)}
        fetch = tuple(dict.fromkeys((*names, *caches.values())))
        self._held, self._is_lost = {}, True
        values = self._ran(None, feeds, fetch=fetch, give_up=caches)
        for past, present in caches.items():  # no two share memory
            self._held[past] = apart_from({present: values[present]}, self._held)[present]
        self._is_lost = False
        presents = set(caches.values())
        others = iter(_owned([n for n in names if n not in presents], values, given))
        return [_view(values[name]) if name in presents else next(others) for name in names]

    def reset(self) -> None:
        """Give up the caches: the next step begins with empty ones."""
        self._held, self._is_lost = {}, False

    @cached_property
    def _known(self) -> InputPlan:
        return plan_with(self._model, {})

    def _evaluator_for(self, attributes: Mapping[str, Any] | None) -> Evaluator:
        """Return the evaluator of the model, or of a function called with attributes."""
        given: dict[str, ir.Attr] = {}
        if isinstance(self.proto_, onnx.FunctionProto):
            given = parameters_of(self.proto_, attributes or {})
        elif attributes:
            raise UsageError("`attributes` is given, and only a function alone has attributes")
        key = b"".join(ir.to_proto(given[name]).SerializeToString() for name in sorted(given))
        if key not in self._evaluators:
            self._evaluators[key] = Evaluator(self._model, given, self._new_ops)
        return self._evaluators[key]

    def _ran(
        self, attributes: Mapping[str, Any] | None, feeds: Mapping[str, Value], **how: Any
    ) -> dict[str, Value]:
        """Run the model and return what was fetched, by name."""
        evaluator = self._evaluator_for(attributes)
        if self.verbose < 2:
            return evaluator.run(feeds, **how).values

        def say(lines: Iterable[str]) -> None:
            sys.stdout.writelines(f"{line}\n" for line in lines)

        if self.verbose > 2:
            stored = self._model.graph.initializers
            tensors = {name: v.const_value for name, v in stored.items()}
            constants = {name: constant(t) for name, t in tensors.items() if t is not None}
            say(value_lines(constants, "+C", self.verbose))
            say(value_lines(feeds, "+I", self.verbose))
        return evaluator.run(
            feeds, observe=lambda trace: say(trace_lines(trace, self.verbose)), **how
        ).values

    def _check_caches(self, caches: Mapping[str, str]) -> None:
        for past, present in caches.items():
            if past not in self.input_names:
                raise unknown_name(f"the model has no input `{past}`", past, self.input_names)
            if present not in self.output_names:
                names = self.output_names
                raise unknown_name(f"the model has no output `{present}`", present, names)

    def _names(self, names: Sequence[str] | None) -> list[str]:
        if names is None:
            return self.output_names
        for name in listed("output_names", names):
            value_named(self._values, name)
        return list(names)

    def _feeds(self, given: Mapping[str, Any]) -> dict[str, Value]:
        """Return what is fed as kernels take it, checked."""
        feeds: dict[str, Value] = {}
        for name, value in given.items():
            kind = (value.dtype, value.shape) if type(value) is np.ndarray else None
            if kind is not None and self._fitting.get(name) == kind:
                feeds[name] = value
                continue
            declared = value_named(self._values, name)
            feeds[name] = feed_of(name, value, declared)
            if (problem := declared_mismatch(declared, feeds[name])) is not None:
                raise UsageError(f"input {problem}")
            if feeds[name] is value:  # needs no conversion, and neither will the next one like it
                self._fitting[name] = kind
        return feeds

    def _demand(self, names: Sequence[str], feeds: Mapping[str, Value]) -> None:
        """Refuse to run without an input that a node needs which has to run."""
        key = (tuple(names), tuple(feeds))
        if key in self._complete:
            return
        fed, wanted = ([self._values[n] for n in given] for given in (feeds, names))
        missing = needed_inputs(self._model.graph, fed, wanted)
        if missing:
            raise UsageError(
                f"there is no value for {enumerated(value.name or '' for value in missing)}",
                help="feed it, or None where the nodes that read it can do without",
            )
        self._complete.add(key)

    def _empty(self, pasts: Sequence[str], given: Mapping[str, Value]) -> dict[str, Value]:
        """Return empty caches of the sizes that the other inputs tell."""
        if not pasts:
            return {}
        sizes = bound_sizes(self._known, given, {})
        specs = {spec.name: spec for spec in self._known.inputs}
        return {past: self._no_rows(specs[past], sizes) for past in pasts}

    def _no_rows(self, spec: InputSpec, sizes: Mapping[str, int]) -> Value:
        pair = self._known.pair_of(spec.name)
        grown = pair.axis if pair is not None and pair.kind != "fixed" else None
        shape = []
        try:
            for axis, dim in enumerate(spec.shape):
                is_grown = axis == grown and isinstance(dim, str)
                shape.append(0 if is_grown else evaluate(dim, sizes))
        except (KeyError, ZeroDivisionError) as error:
            raise UsageError(
                f"an empty `{spec.name}` cannot be made: the other inputs do not determine its "
                f"dimension {axis}, `{dim}`",
                help=f"feed `{spec.name}` in the first step",
            ) from error
        if spec.dtype == ir.DataType.STRING:
            return np.full(shape, "", object)
        return np.zeros(shape, spec.dtype.numpy())


def _owned(
    names: Sequence[str], values: Mapping[str, Value], given: Mapping[str, Value]
) -> list[Any]:
    apart = apart_from({name: values[name] for name in names}, given)
    return [owned(apart[name]) for name in names]


def _checked_ops(new_ops: Sequence[Any]) -> list[type]:
    if new_ops:
        from onnx.reference.op_run import OpRun  # costs a tenth of a second
    for cls in new_ops:
        if not (isinstance(cls, type) and issubclass(cls, OpRun) and hasattr(cls, "op_domain")):
            raise UsageError(
                f"`new_ops` has `{getattr(cls, '__name__', cls)}`, expected a class derived from "
                "`onnx.reference.op_run.OpRun` with an attribute `op_domain`"
            )
    return list(new_ops)


def _type(value: ir.Value) -> onnx.TypeProto:
    written = onnx.TypeProto()
    write_type(written, value.type, value.shape)
    return written


def _view(value: Value) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    view = value.view()
    view.flags.writeable = False
    return view
