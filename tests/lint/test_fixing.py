"""Fixes are applied in rounds until none is left."""

from __future__ import annotations

from collections.abc import Callable

from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.lint.finding import Applicability, Finding, Fix
from onnx_kvtool.lint.report import ROUNDS, apply_fixes

SAFE: frozenset[Applicability] = frozenset({"safe"})
BOTH: frozenset[Applicability] = frozenset({"safe", "unsafe"})


def finding(mark: str, fix: Fix | None) -> Finding:
    return Finding(Diagnostic("XX001", "error", Location(), mark), "name", "", fix, mark)


class Numbers:
    """A model of numbers, of which each one above 0 is found and can be lowered by one."""

    def __init__(self, *numbers: int, applicability: Applicability = "safe") -> None:
        self.numbers = list(numbers)
        self.applicability = applicability
        self.looks = 0

    def look(self) -> list[Finding]:
        self.looks += 1
        return [
            finding(f"{place}:{number}", Fix(self.applicability, "Lower it", self.lower(place)))
            for place, number in enumerate(self.numbers)
            if number
        ]

    def lower(self, place: int) -> Callable[[], None]:
        def apply() -> None:
            self.numbers[place] -= 1

        return apply


def test_nothing_to_fix_is_one_look() -> None:
    model = Numbers(0, 0)
    assert apply_fixes(model.look, SAFE) == ([], [])
    assert model.looks == 1


def test_a_fix_that_uncovers_a_finding_is_followed() -> None:
    model = Numbers(3, 1)
    applied, left = apply_fixes(model.look, SAFE)
    assert model.numbers == [0, 0] and left == []
    assert [line.fingerprint for line in applied] == ["0:3", "1:1", "0:2", "0:1"]


def test_it_ends_after_the_last_round() -> None:
    model = Numbers(ROUNDS + 5)
    applied, left = apply_fixes(model.look, SAFE)
    assert model.numbers == [5] and len(applied) == ROUNDS and len(left) == 1


def test_a_fix_that_changes_nothing_is_not_called_done() -> None:
    calls = []
    stuck = finding("stuck", Fix("safe", "Do nothing", lambda: calls.append(1)))
    applied, left = apply_fixes(lambda: [stuck], SAFE)
    assert applied == [] and left == [stuck] and calls == [1]


def test_unsafe_fixes_wait_to_be_allowed() -> None:
    model = Numbers(2, applicability="unsafe")
    assert apply_fixes(model.look, SAFE)[0] == []
    assert model.numbers == [2]
    assert len(apply_fixes(model.look, BOTH)[0]) == 2
    assert model.numbers == [0]


def test_findings_without_a_fix_stay() -> None:
    lone = finding("lone", None)
    assert apply_fixes(lambda: [lone], BOTH) == ([], [lone])
