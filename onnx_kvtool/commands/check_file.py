"""Check one file: read, find, fix, verify, write."""

from __future__ import annotations

import difflib
import gc
import os
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from onnx_kvtool.commands.arguments import impossible_size
from onnx_kvtool.commands.check_settings import Settings
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.errors import KvtoolError, MalformedModel, UnreadableModel
from onnx_kvtool.core.machine import as_shortage
from onnx_kvtool.core.reporting import missing
from onnx_kvtool.core.walk import graphs, tensors
from onnx_kvtool.core.words import escape
from onnx_kvtool.lint.context import bound
from onnx_kvtool.lint.engine import look
from onnx_kvtool.lint.facts.layers import GENAI_CONFIG
from onnx_kvtool.lint.finding import Applicability, Finding, Found
from onnx_kvtool.lint.report import Applied, Failure, FileReport, apply_fixes, fixable
from onnx_kvtool.lint.rule import RULES
from onnx_kvtool.model_io.external_data import check_external_data, external_files
from onnx_kvtool.model_io.message import external_extras
from onnx_kvtool.model_io.model import origin, read, write
from onnx_kvtool.model_io.model_source import open_model
from onnx_kvtool.model_io.remote import requests, shown
from onnx_kvtool.symbolic.dimensions import dim_names
from onnx_kvtool.targets.target import find_target

if TYPE_CHECKING:
    import onnx

    from onnx_kvtool.review.digests import Digests
    from onnx_kvtool.rewrite.verify import Verifier


_NO, _BUG = 1, 4


def check_file(path: str, settings: Settings) -> FileReport:
    """Check one file; return a report even if that fails.

    Args:
        path: The file, or `-` for standard input.
        settings: What to do.

    Raises:
        KvtoolError: If `settings.several` is false and the file cannot be checked.
    """
    start = time.monotonic()
    name = shown(path)
    try:
        with requests(settings.timeout) as notes:
            report = _Check(read(path), name, settings).run()
        report = replace(report, notes=(*notes, *report.notes))
    except KvtoolError as error:
        if not settings.several and not isinstance(error, MalformedModel):
            raise
        report = _failed(name, error, settings)
    except Exception as error:
        if not settings.several:
            raise
        if shortage := as_shortage(error):
            return _failed(name, shortage, settings)
        text = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        failure = Failure(text, None, _BUG, "".join(traceback.format_exception(error)))
        report = FileReport(name, failure=failure, is_read=False)
    if settings.several:
        # Models are cycles. Python's collector counts objects, not the bytes of their messages, so
        # that hundreds of models would stay in memory.
        gc.collect(0)
    return replace(report, seconds=time.monotonic() - start)


def check_model(source: ir.Model | onnx.ModelProto, settings: Settings) -> FileReport:
    """Check a model in memory; leave it unchanged."""
    try:
        model = open_model(source)
    except MalformedModel as error:
        return _failed("", error, settings)
    return _Check(model, origin(model).path, settings).run()


def check_nothing(settings: Settings) -> None:
    """Check an empty model, to load the modules of every check."""
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 18}, name="main_graph")
    check_model(ir.Model(graph, ir_version=10), replace(settings, dims={}, baseline=None))


def died(path: str, settings: Settings) -> FileReport:
    """Return the report of a file that a worker process died of."""
    error = UnreadableModel("the process that read it died", help="report this bug with the model")
    return _failed(path, error, settings)


def _failed(path: str, error: KvtoolError, settings: Settings) -> FileReport:
    """Return the report of a file that cannot be checked; unreadable ones have a finding."""
    if not isinstance(error, UnreadableModel):
        failure = Failure(error.message, error.help, error.exit_code)
        return FileReport(path, failure=failure, is_read=False)
    rule = RULES["MD400"]
    if rule not in settings.selection.rules(path):
        return FileReport(path, is_read=False)
    finding = rule.found(Found(Location(), error.message, help=error.help))
    finding = replace(finding, fingerprint=rule.code.lower(), identity=rule.code.lower())
    known = settings.baseline.known(path) if settings.baseline else frozenset()
    if finding.fingerprint in known:
        return FileReport(path, baselined=1, is_read=False)
    return FileReport(path, (finding,), is_read=False)


class _Check:
    """The check of one model."""

    def __init__(self, model: ir.Model, path: str, settings: Settings) -> None:
        self.model = model
        self.path = path
        self.settings = settings
        self.rules = settings.selection.rules(path)
        self.targets = [find_target(name) for name in settings.targets]
        self.known = settings.baseline.known(path) if settings.baseline else frozenset[str]()
        self.hidden: dict[str, Any] = {}  # what the report says of findings that it does not show
        self.notes: list[str] = []

    def look(self) -> list[Finding]:
        """Return the findings of the current model."""
        with bound(self.model, self.settings.dims):
            found, suppressed = look(self.model, self.rules, self.targets)
        left = [finding for finding in found if finding.fingerprint not in self.known]
        self.hidden = {"suppressed": suppressed, "baselined": len(found) - len(left)}
        if self.settings.baseline is not None:
            marks = {finding.fingerprint for finding in found}
            on = (r for r in self.rules if not r.runtime or any(map(r.is_about, self.targets)))
            codes = {rule.code for rule in on}
            self.hidden["stale"] = self.settings.baseline.stale(self.path, marks, codes)
        return left

    def run(self) -> FileReport:
        """Find, then fix if requested."""
        names = dim_names(self.model)
        found = self.look()
        report = FileReport(
            self.path,
            _portable(found),
            **self.hidden,
            unknown_dims=tuple(sorted(self.settings.dims.keys() - names)),
            dims=tuple(sorted(names)),
            impossible_size=impossible_size(self.model, self.settings.dims),
            stamp=origin(self.model).stamp,
            beside=_beside(self.model) if self.settings.cache_dir else (),
        )
        if self.settings.fix == "none" or not fixable(found, self.settings.allowed):
            return report
        return self._fixed(report)

    def _fixed(self, report: FileReport) -> FileReport:
        """Apply fixes, prove that safe ones change nothing, and write or show the result."""
        from onnx_kvtool.review.digests import Digests

        digests = Digests("embedded")
        before = readable(self.model, digests)
        applied, found, flaw = self._apply()
        failure = None
        if flaw is not None and self.settings.strict:
            failure = Failure(flaw, None, _NO)
        elif flaw is not None:
            self.notes.append(flaw)
        report = replace(report, notes=tuple(self.notes), failure=failure)
        if not applied:
            return report
        text = difference(before, readable(self.model, digests), self.path)
        show = self.settings.fix == "show"
        if not show:
            write(self.model, self.path)
        return replace(
            report,
            findings=report.findings if show else _portable(found),
            fixed=tuple(applied),
            diff=text,
            written=not show,
            **self.hidden,
        )

    def _apply(self) -> tuple[list[Applied], Sequence[Finding], str | None]:
        """Return applied fixes, remaining findings, and why the result must not be written."""
        safe = frozenset[Applicability](("safe",))
        verifier = self._verifier()
        applied, found = apply_fixes(self.look, safe)
        if applied and verifier is None and self.settings.strict:
            return [], (), "not fixed: the fixed model was not compared"
        if applied and verifier is not None:
            result = verifier.compare(self.model)
            if result.status == "different":
                return [], (), f"not fixed: safe fixes changed the results, {result.detail}"
            if result.insufficient is not None:
                return [], (), f"not fixed: not everything was covered, {result.insufficient}"
            if result.status == "skipped":
                self.notes.append(f"the fixed model was not compared: {result.detail}")
            elif (gap := missing(result.covered)) is not None:
                self.notes.append(f"the comparison did not cover everything: {gap}")
        if self.settings.allowed > safe:
            more, found = apply_fixes(self.look, self.settings.allowed)
            applied += more
        for defect in origin(self.model).defects:
            if defect.severity == "error":
                place = f"{defect.location}: {defect.message}"
                return [], (), f"not fixed: the file cannot be written without loss, {place}"
        return applied, found, None

    def _verifier(self) -> Verifier | None:
        """Return the function that compares the fixed model with the current one."""
        from onnx_kvtool.rewrite.verify import Verifier  # and with it everything that runs models
        from onnx_kvtool.verification.report import Settings as Comparison

        try:
            check_external_data(self.model, need_bytes=True)
            asked = self.settings
            settings = Comparison(
                dims=asked.dims,
                budget=asked.budget,
                thorough=asked.thorough,
                strict=asked.strict,
            )
            return Verifier(self.model, settings)
        except KvtoolError as error:
            self.notes.append(f"the fixed model was not compared: {error.message}")
            return None


def readable(model: ir.Model, digests: Digests) -> list[str]:
    """Return a model as text, with comments for facts of rules that the text lacks."""
    from onnx_kvtool.review.printing import model_lines

    facts = [f"{d.location}: {d.message}" for d in origin(model).defects]
    facts += [f"{path} has no name" for path, graph in graphs(model) if not graph.name]
    facts += [
        f"{tensor.name}: {key} = {value}"
        for _, tensor in tensors(model)
        if isinstance(tensor, ir.ExternalTensor)
        for key, value in external_extras(tensor)
    ]
    # Only kvtool's own metadata: exporters put whole stack traces there.
    return [*model_lines(model, digests, "kvtool."), *(f"# {escape(one)}" for one in facts)]


def difference(before: list[str], after: list[str], path: str) -> str:
    """Return the unified diff of two texts of the file `path`; "" when they are equal."""
    name = escape(path)
    lines = difflib.unified_diff(before, after, name, name, lineterm="")
    return "".join(f"{line}\n" for line in lines)


def _beside(model: ir.Model) -> tuple[tuple[str, bool], ...]:
    """Return the files that rules look at, relative to the model, and whether they read them."""
    hashed = {
        os.fspath(tensor.location)
        for _, tensor in tensors(model)
        if isinstance(tensor, ir.ExternalTensor)
        and any(key == "checksum" for key, _ in external_extras(tensor))
    }
    data = dict.fromkeys(file.location for file in external_files(model))
    return (GENAI_CONFIG, True), *((name, name in hashed) for name in data)


def _portable(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return findings without references to the model, for another process or the cache."""
    return tuple(
        finding if finding.fix is None else replace(finding, fix=replace(finding.fix, apply=_spent))
        for finding in findings
    )


def _spent() -> None:
    """Do nothing, in place of the edit of a fix without its model."""
