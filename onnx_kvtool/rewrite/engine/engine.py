"""Making every node of a model legal at the target: relabel, rule, function body, or refuse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from onnx_kvtool.analysis.constants import ConstantFolder
from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.walk import step_path, subgraphs
from onnx_kvtool.emit.emitter import Emitter, Names, Refusal, Replacement, ScopedValues
from onnx_kvtool.ops.legality import Fit, Problem, fit
from onnx_kvtool.ops.schema import has_body, is_standard, op_facts
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.rewrite.engine.dtypes import detour_element_type
from onnx_kvtool.rewrite.engine.expand import Body, body_key, schema_body
from onnx_kvtool.rewrite.engine.guards import illegal_in, malformed, require_meaning
from onnx_kvtool.rewrite.engine.inline import (
    can_relabel,
    copy_metadata,
    instantiate,
    relabel,
    replace_node,
)
from onnx_kvtool.rewrite.engine.rule import Cause, LoweringContext, RewriteRule, Rewritten, cause_of
from onnx_kvtool.rewrite.report import Lowered
from onnx_kvtool.shapes.onnx_inference import refusal
from onnx_kvtool.symbolic.knowledge import Lost
from onnx_kvtool.targets.conditions.by_name import OF_TYPES
from onnx_kvtool.targets.limits import Stage
from onnx_kvtool.targets.remedies import REMEDIES

BodyKey = tuple[int, bytes]

_BRANCHES = 11
"""The first opset where the branches of an If may differ in shape."""

_DYNAMIC = Problem("dynamic-input", "an input that must become an attribute is not constant")


@dataclass(slots=True)
class Engine:
    """The legalisation of one model.

    Nodes of other domains, and of operators that ONNX does not define, are left alone. A node that
    cannot be made legal is refused, and the work goes on with the next one, so that every refusal
    is reported; the graph is then no longer fit for anything but the report.

    Attributes:
        rules: The table of rules, by operator.
        only: Operators to rewrite, whether the target needs it or not; empty means: whatever the
            target needs.
        faithful: Whether a node that takes the place of another one of its operator is that node to
            the reader: it takes over name, documentation and metadata.
        bodies: Function bodies that were made legal already, common to nested engines.
        avoided: Number of rewritten nodes for each limit of the release, by operator and reason;
            the opset has their operators.
        lost: Where and why types and ranks were lost, by value.
        causes: What brought a refusal about, by its position in `refused`.
        trace: Gets for each node where it, or the node that it was written for, stood in the
            source; None where nobody asks.
    """

    context: LoweringContext
    rules: Mapping[str, RewriteRule]
    only: frozenset[str] = frozenset()
    faithful: bool = False
    bodies: dict[BodyKey, Body | Refusal | None] = field(default_factory=dict)
    lowered: list[Lowered] = field(default_factory=list)
    refused: list[Diagnostic] = field(default_factory=list)
    avoided: Counter[tuple[str, str]] = field(default_factory=Counter)
    lost: Mapping[ir.Value, Lost] = field(default_factory=dict)
    causes: dict[int, Cause] = field(default_factory=dict)
    trace: dict[ir.Node, Location] | None = None
    _lowest: dict[tuple[str, str, str], int | None] = field(default_factory=dict)

    def run(self, graph: ir.Graph, path: str, names: Names) -> None:
        """Make a main graph and its nested graphs legal, in place."""
        self._graph(graph, path, ScopedValues(graph, None, names))

    def _graph(self, graph: ir.Graph, path: str, scope: ScopedValues) -> None:
        for index, node in enumerate(tuple(graph)):
            if self.trace is not None:
                self.trace[node] = Location.of(path, node, index)
            if node.attributes.data:
                for name, inner in subgraphs(node):
                    inner_path = step_path(path, node.name, index, name)
                    # Only ONNX's own control flow is known to let a body read outer values.
                    outer = scope if is_standard(node) else None
                    self._graph(inner, inner_path, ScopedValues(inner, outer, scope.names))
            if is_standard(node) and (not self.only or node.op_type in self.only):
                self._node(node, path, index, scope)

    def _node(self, node: ir.Node, path: str, index: int, scope: ScopedValues) -> None:
        target = self.context.target
        problems: list[Problem] = []
        forced = True
        try:
            if not self.only:
                fitted = fit(node, self.context.opset_of(node), target)
                problems, forced = self._problems(node, fitted)
                if not problems:
                    relabel(node, fitted, target, self.context.folder)
                    return
            self._rewrite(node, Location.of(path, node, index), scope, problems, forced)
        except (Refusal, MalformedNode) as error:
            self._refuse(node, Location.of(path, node, index), error)
        except KvtoolError:
            raise
        except Exception:  # a rule need not expect what onnx refuses; all else is a bug
            text = refusal(node, self.context.opset_of(node))
            if text is None:
                raise
            self._refuse(node, Location.of(path, node, index), malformed("malformed", text))

    def _problems(self, node: ir.Node, fitted: Fit) -> tuple[list[Problem], bool]:
        """Return why a node cannot stay, and whether the opset has its operator all the same."""
        if fitted.problems:
            return fitted.problems, False
        limited = self._limited(node)
        if limited is not None:
            return [limited], True
        return [] if can_relabel(node, fitted, self.context.folder) else [_DYNAMIC], False

    def _limited(self, node: ir.Node, stage: Stage = "source") -> Problem | None:
        """Return why the release does not support a node that the opset has."""
        context = self.context
        if context.limits is None:
            return None
        return context.limits.problem(node, context.opset_of(node), context.folder, stage)

    def _rewrite(
        self,
        node: ir.Node,
        place: Location,
        scope: ScopedValues,
        problems: list[Problem],
        forced: bool,
        *,
        part: bool = False,
    ) -> tuple[ir.Value | None, ...]:
        """Replace one node by others, and return what replaced its outputs.

        `place` is where it, or the node that it comes from, stands in the source, and `problems`
        say why it cannot stay. If `forced`, it goes although the opset has its operator. A `part`
        of a rewritten node is reported with that.
        """
        may_branch = self.context.options.branches
        em = Emitter(scope, self.context.target, node.name or node.op_type, branches=may_branch)
        try:
            rule, made = self._replacement(node, em, problems, forced)
        except BaseException:
            em.discard()
            raise
        replacement = Replacement((made,)) if isinstance(made, ir.Value) else made
        if replacement.folds:
            em.fold(self.context.folder.integers, replacement.outputs)
        emitted = replace_node(node, em, replacement)
        if self.faithful:
            copy_metadata(node, emitted)
        if self.trace is not None:
            _note(emitted, place, self.trace)
        if not part:
            self.lowered.append(Lowered(place, rule, replacement.via))
        others: dict[ir.Value, ir.Value | None] = {}
        for new in emitted:
            limited = self._limited(new, "emitted")
            if limited is not None:
                outputs = tuple(new.outputs)
                later = self._rewrite(new, place, scope, [limited], True, part=True)
                others.update(zip(outputs, later, strict=True))
        if others:
            em.share_instead(others)
        if forced and problems:
            self.avoided[node.op_type, problems[0].text] += 1
        return tuple(None if v is None else others.get(v, v) for v in replacement.outputs)

    def _replacement(
        self, node: ir.Node, em: Emitter, problems: list[Problem], forced: bool
    ) -> tuple[str, ir.Value | Replacement]:
        """Emit the replacement of a node, by the first rule that applies.

        `problems` say why it cannot stay; if `forced`, it goes although the target has it.
        """
        rule, context = self.rules.get(node.op_type), self.context
        opset = context.opset_of(node)
        require_meaning(node, opset)
        if rule is not None and rule.applies(opset, context.target, forced):
            for keep_fused in (True, False) if context.keep_fused else (False,):
                replacement = rule.apply(
                    Rewritten(node, replace(context, keep_fused=keep_fused)), em
                )
                forms = (new for new in em.nodes if new.op_type == node.op_type)
                limits = (self._limited(new, "emitted") for new in forms)
                limited = next(filter(None, limits), None)
                illegal = None if replacement is None else illegal_in(em)
                if replacement is not None and limited is None and illegal is None:
                    return rule.name, replacement
                em.discard()
                problems = problems if limited is None else [limited]
                if illegal is not None and illegal.code not in [p.code for p in problems]:
                    problems = [illegal, *problems]
        other = self._other_form(node, em, problems, forced)
        if other is not None and illegal_in(em) is None:
            return other
        em.discard()
        body = self._body(node, opset)
        if body is not None:
            outputs = instantiate(body.model.graph, [node.inputs[i] for i in body.inputs], em)
            placed: list[ir.Value | None] = [None] * len(node.outputs)
            for index, output in zip(body.outputs, outputs, strict=True):
                placed[index] = output
            return "function_body", Replacement(tuple(placed))
        if problems:
            help = "try a lower `--opset`, another `--via` or `--bounds`, or a newer release"
            raise Refusal(
                problems[0].code,
                "; ".join(p.text for p in problems),
                help=problems[0].help or (help if problems[0].code == "target-limit" else None),
            )
        raise Refusal("no-rule", f"kvtool has no lowering for `{node.op_type}`")

    def _other_form(
        self, node: ir.Node, em: Emitter, problems: list[Problem], forced: bool
    ) -> tuple[str, ir.Value | Replacement] | None:
        """Emit the same operator in a form that the target supports; None if there is none."""
        context = self.context
        detour: Replacement | None = None
        if not forced:
            detour = detour_element_type(context, node, em) if problems else None
        elif context.limits is not None:
            limit = context.limits.applicable(node, context.opset_of(node), context.folder)
            if limit is None:
                return None
            if limit.when in REMEDIES:
                name, remedy = REMEDIES[limit.when]
                form = remedy(NodeView(node, context.opset_of(node)), em)
                return None if form is None else (name, form)
            if limit.when in OF_TYPES:
                detour = detour_element_type(context, node, em, limit.types)
        return None if detour is None else ("element_type", detour)

    def _body(self, node: ir.Node, opset: int) -> Body | None:
        """Return the legal body of a node; reuse an equal one."""
        if op_facts(node.op_type, opset) is None:
            return None
        folder = self.context.folder
        key = (self.context.target, body_key(node, opset, folder))
        if key not in self.bodies:
            body = schema_body(node, opset, folder)
            self.bodies[key] = None if body is None else self._legal_body(node, body)
        known = self.bodies[key]
        if isinstance(known, Refusal):
            raise known
        return known

    def _legal_body(self, node: ir.Node, body: Body) -> Body | Refusal:
        inner = replace(self.context, opset=body.opset, folder=ConstantFolder())
        engine = Engine(inner, self.rules, bodies=self.bodies)
        engine.run(body.model.graph, "", Names(body.model))
        if not engine.refused:
            return body
        first = engine.refused[0]
        # The lowest opset is that of the whole body, not of the first node that stands in the way.
        return Refusal(
            first.code,
            f"the function body of `{node.op_type}` needs {first.location.op}: {first.message}",
            help=first.help,
        )

    def _refuse(self, node: ir.Node, place: Location, error: Refusal | MalformedNode) -> None:
        lowest = None
        if isinstance(error, Refusal) and not self.only:
            key = (node.op_type, error.code, error.message)
            if key not in self._lowest:
                self._lowest[key] = self._search_lowest(node)
            lowest = self._lowest[key]
        # Types are no cause where kvtool has no rule for the operator, whatever they are.
        would_do = error.code != "new-operator" or node.op_type in self.rules
        if isinstance(error, Refusal) and (would_do or has_body(node.op_type)):
            cause = cause_of(node, place, error.code, self.lost)
            if cause is not None:
                self.causes[len(self.refused)] = cause
        self.refused.append(
            Diagnostic(error.code, "error", place, error.message, error.help, lowest)
        )

    def _search_lowest(self, node: ir.Node) -> int | None:
        """Return the lowest opset above the target that would not refuse this node."""
        source = self.context.opset_of(node)
        for opset in range(self.context.target + 1, source + 1):
            options = replace(self.context.options, branches=opset >= _BRANCHES)
            context = replace(self.context, opset=source, target=opset, options=options)
            trial = replace(self, context=context)
            problems, forced = trial._problems(node, fit(node, source, opset))
            if not problems:
                return opset
            scope = ScopedValues(ir.Graph([], [], nodes=[]), None, Names())
            em = Emitter(scope, opset, "trial", branches=options.branches)
            try:
                trial._replacement(node, em, problems, forced)
                return opset
            except (Refusal, MalformedNode):
                continue
            finally:
                em.discard()
        return None


def _note(nodes: Iterable[ir.Node], place: Location, trace: dict[ir.Node, Location]) -> None:
    """Note the place of nodes and of those in their bodies."""
    for node in nodes:
        trace[node] = place
        for _, body in subgraphs(node):
            _note(body, place, trace)
