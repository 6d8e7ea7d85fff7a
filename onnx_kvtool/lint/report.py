"""The findings and fixes of a check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from onnx_kvtool.core.diagnostic import Severity
from onnx_kvtool.core.record import Key, Record, plain
from onnx_kvtool.core.reporting import Shown
from onnx_kvtool.lint.finding import Applicability, Finding
from onnx_kvtool.model_io.atomic import Stamp

# The reports of `kvtool check`.


RANK: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}
"""Order of the severities, the worst first."""


@dataclass(frozen=True, slots=True)
class Applied(Record):
    """An applied fix that removed its finding.

    Attributes:
        code: Code of the finding.
        title: The edit that the fix made.
        fingerprint: Fingerprint of the finding.
    """

    code: str
    title: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Failure(Record):
    """Why the check of a file did not finish.

    Attributes:
        message: What went wrong, one sentence without a full stop.
        help: What to do about it.
        exit_code: Exit code of the command line; 4 for a bug in kvtool.
        traceback: Traceback of a bug.
    """

    message: str
    help: str | None
    exit_code: int
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Known(Record):
    """A finding in a baseline.

    Attributes:
        code: Code of the rule.
        fingerprint: Fingerprint of the finding.
        place: Where it was, as text.
    """

    code: str
    fingerprint: str
    place: str


@dataclass(frozen=True, slots=True)
class FileReport(Record):
    """The findings in one model.

    Attributes:
        path: Path as given; `-` for standard input, "" for a model in memory.
        findings: Findings that are neither suppressed nor in the baseline, in the order of the
            model; after fixes, the remaining ones.
        fixed: Applied fixes; with `--diff`, those that `--fix` would apply.
        diff: Changes by fixes, as a unified diff of ONNX text; "" if there are none.
        written: Whether kvtool replaced the file.
        suppressed: Number of findings that the model suppresses.
        baselined: Number of findings that are in the baseline.
        stale: Baseline entries of the file that no longer occur.
        notes: Notes.
        failure: Why the check did not finish; None if it did.
        is_read: Whether kvtool could read the model.
        unknown_dims: Names from `--dim` that no input of the model has.
        impossible_size: The input dimension that would be negative with these sizes; None if there
            is none.
        dims: Names of the dimensions of its inputs.
        seconds: How long it took.
        stamp: Stamp of the file when it was read; None if there is none.
        beside: Files beside the model that the findings depend on, relative to its directory, and
            whether they depend on the content.
        is_kept: Whether this is the result of an earlier run.
    """

    path: str
    findings: tuple[Finding, ...] = ()
    fixed: tuple[Applied, ...] = ()
    diff: str = ""
    written: bool = False
    suppressed: int = 0
    baselined: int = 0
    stale: tuple[Known, ...] = ()
    notes: tuple[str, ...] = ()
    failure: Failure | None = None
    is_read: bool = True
    unknown_dims: tuple[str, ...] = ()
    impossible_size: str | None = None
    dims: tuple[str, ...] = field(default=(), compare=False)
    seconds: float = field(default=0.0, compare=False)
    stamp: Stamp | None = field(default=None, compare=False)
    beside: tuple[tuple[str, bool], ...] = field(default=(), compare=False)
    is_kept: bool = field(default=False, compare=False)

    JSON = (
        "path",
        "findings",
        *(
            Key(name, is_optional=True)
            for name in ("fixed", "diff", "written", "suppressed", "baselined", "stale", "notes")
        ),
        Key("reason", "failure", is_optional=True),
        Key("failure", "cause", is_optional=True),
        *(Key(name, is_optional=True) for name in ("is_read", "unknown_dims", "impossible_size")),
    )

    @property
    def reason(self) -> str | None:
        """Why the check did not finish, in one sentence."""
        return None if self.failure is None else self.failure.message


@dataclass(frozen=True, slots=True)
class Summary(Record):
    """Counts over all files.

    Attributes:
        files: Checked files.
        error: Findings of severity `error`.
        warning: As `error`.
        info: As `error`.
        fixed: Applied fixes.
        fixable: Findings that `--fix` would remove.
        unsafe_fixable: Further findings that `--fix --unsafe-fixes` would remove.
        suppressed: Findings that the models suppress.
        baselined: Findings in the baseline.
    """

    files: int
    error: int
    warning: int
    info: int
    fixed: int
    fixable: int
    unsafe_fixable: int
    suppressed: int
    baselined: int


@dataclass(frozen=True, slots=True)
class RuleCount(Record):
    """The findings of one rule.

    Attributes:
        code: Code of the rule.
        name: Name.
        severity: Highest severity of its findings.
        count: Number of findings.
        fixable: Findings with a fix.
    """

    code: str
    name: str
    severity: Severity
    count: int
    fixable: int


class Tally:
    """Counts over all files, added file by file, without the findings.

    Args:
        fail_on: Lowest severity that makes the check fail.

    Attributes:
        fail_on: As given.
        notes: Notes on the whole run.
        failures: Files whose check did not finish, and why.
        would_change: Whether fixes that were not written would change a model.
        kept: Files whose results are those of an earlier run.
        shard: The part `i/n` of all files; None for all.
    """

    def __init__(self, fail_on: Severity) -> None:
        self.fail_on: Severity = fail_on
        self.notes: tuple[str, ...] = ()
        self.failures: list[tuple[str, Failure]] = []
        self.would_change = False
        self.kept = 0
        self.shard: str | None = None
        self._totals: Counter[str] = Counter()
        self._rules: dict[str, RuleCount] = {}

    def add(self, file: FileReport) -> None:
        """Count one more file."""
        if file.failure is not None:
            self.failures.append((file.path, file.failure))
        self.kept += file.is_kept
        self.would_change |= bool(file.diff) and not file.written
        self._totals["files"] += 1
        self._totals["fixed"] += len(file.fixed)
        self._totals["suppressed"] += file.suppressed
        self._totals["baselined"] += file.baselined
        for finding in file.findings:
            code, fix = finding.code, finding.fix
            self._totals[finding.severity] += 1
            rule = self._rules.get(code, RuleCount(code, finding.name, finding.severity, 0, 0))
            self._rules[code] = replace(
                rule,
                severity=min(rule.severity, finding.severity, key=RANK.__getitem__),
                count=rule.count + 1,
                fixable=rule.fixable + (fix is not None),
            )
            if fix is not None:
                self._totals["fixable" if fix.applicability == "safe" else "unsafe_fixable"] += 1

    @property
    def summary(self) -> Summary:
        """The counts so far."""
        return Summary(**{name: self._totals[name] for name in Summary.__slots__})

    @property
    def exit_code(self) -> int:
        """Exit code of the command line, but for `--exit-zero`; see `CheckReport.exit_code`."""
        if self.failures:
            return max(failure.exit_code for _, failure in self.failures)
        failing = any(self._totals[name] for name in RANK if RANK[name] <= RANK[self.fail_on])
        return int(self.would_change or failing)

    def fails(self, finding: Finding) -> bool:
        """Return whether a finding is at or above `fail_on`."""
        return RANK[finding.severity] <= RANK[self.fail_on]

    def counts(self) -> tuple[RuleCount, ...]:
        """Return the findings by rule, most first."""
        return tuple(sorted(self._rules.values(), key=lambda row: (-row.count, row.code)))


@dataclass(frozen=True, slots=True)
class CheckReport(Shown):
    """The findings in all files; a sequence of them.

    Attributes:
        files: One report for each file, in the order of the arguments.
        fail_on: Lowest severity that makes the check fail.
        notes: Notes on the whole run.
        shard: The part `i/n` of all files; None for all.

    Examples:
        >>> report = kv.check("wrong_axis.onnx")
        >>> len(report), report.summary.error, report.exit_code
        (1, 1, 1)
    """

    files: tuple[FileReport, ...]
    fail_on: Severity = "error"
    notes: tuple[str, ...] = ()
    shard: str | None = None

    JSON = (
        "files",
        "summary",
        "fail_on",
        "notes",
        Key("shard", is_optional=True),
        Key("counts", "statistics", is_asked=True),
    )

    def __iter__(self) -> Iterator[Finding]:
        for file in self.files:
            yield from file.findings

    def __len__(self) -> int:
        return sum(len(file.findings) for file in self.files)

    def __getitem__(self, index: int) -> Finding:
        return list(self)[index]

    @property
    def tally(self) -> Tally:
        """The totals of all files."""
        tally = Tally(self.fail_on)
        tally.notes, tally.shard = self.notes, self.shard
        for file in self.files:
            tally.add(file)
        return tally

    @property
    def summary(self) -> Summary:
        """Counts over all files."""
        return self.tally.summary

    @property
    def failures(self) -> tuple[tuple[str, Failure], ...]:
        """Files whose check did not finish, and why."""
        return tuple(self.tally.failures)

    @property
    def exit_code(self) -> int:
        """Exit code of the command line, but for `--exit-zero`.

        The highest one of the failures; else 1 for a finding at or above `fail_on`, or for a model
        that fixes would change; else 0.
        """
        return self.tally.exit_code

    @property
    def counts(self) -> tuple[RuleCount, ...]:
        """Findings by rule, most first."""
        return self.tally.counts()

    def to_json(self, *, statistics: bool = False) -> dict[str, Any]:
        """Return the JSON form that the command-line contract fixes; with `statistics`, counts."""
        counts = {"statistics": plain(self.counts)} if statistics else {}
        return {**super(CheckReport, self).to_json(), **counts}


# Applying fixes until none remains.


ROUNDS = 10
"""How often a model is checked again, because one fix may uncover another finding."""


def fixable(findings: Sequence[Finding], allowed: Collection[Applicability]) -> list[Finding]:
    """Return the findings with an allowed fix."""
    return [f for f in findings if f.fix is not None and f.fix.applicability in allowed]


def apply_fixes(
    look: Callable[[], Sequence[Finding]], allowed: Collection[Applicability]
) -> tuple[list[Applied], Sequence[Finding]]:
    """Apply allowed fixes and check again, in place, repeatedly.

    It ends when no allowed fix is left, when a round leaves the same findings as the one before, or
    after `ROUNDS` rounds.

    Returns:
        The fixes whose findings are gone, in the order of application, and the findings at the end.
    """
    applied: dict[str, Applied] = {}
    found = look()
    before: set[str] = set()
    for _ in range(ROUNDS):
        todo = fixable(found, allowed)
        now = {finding.fingerprint for finding in todo}
        if not todo or now == before:
            break
        before = now
        for finding in todo:
            if finding.fix is not None:
                finding.fix.apply()
                line = Applied(finding.code, finding.fix.title, finding.fingerprint)
                applied[finding.fingerprint] = line
        found = look()
    left = {finding.fingerprint for finding in found}
    return [line for line in applied.values() if line.fingerprint not in left], found
