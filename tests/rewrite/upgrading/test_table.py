"""The table of upgrades against the schemas of every version of every operator."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

import onnx.defs
import pytest

from onnx_kvtool.ops.schema import NEWEST, OpFacts, op_facts
from onnx_kvtool.rewrite.upgrade import OLDEST
from onnx_kvtool.rewrite.upgrading.upgrades import EARLY, UPGRADES
from tests.grids import each

_FEWER_TYPES = {
    ("Erf", 13),
    ("ReduceLogSum", 28),
    ("ReduceLogSumExp", 28),
    ("Dropout", 10),
}
"""Steps on which types were lost: a node of such a type is refused."""


def _steps() -> Iterator[tuple[OpFacts, OpFacts]]:
    """Yield every version that came after `OLDEST`, with the one before it."""
    versions = defaultdict(set)
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.support_level.name != "EXPERIMENTAL":
            versions[schema.name].add(schema.since_version)
    for op, found in versions.items():
        ordered = sorted(found)
        for before, after in itertools.pairwise(ordered):
            old, new = op_facts(op, before), op_facts(op, after)
            if after > OLDEST and old is not None and new is not None:
                yield old, new


def _breaks(old: OpFacts, new: OpFacts) -> str | None:
    """Return what of the old version the new one does not take in the same form."""
    if new.deprecated:
        return "gone"
    for name, attribute in old.attributes.items():
        if name not in new.attributes:
            return f"attribute {name} is gone"
        if attribute.default != new.attributes[name].default:
            return f"attribute {name} has another default"
    if any(a.required and name not in old.attributes for name, a in new.attributes.items()):
        return "an attribute is required"
    if new.max_inputs < old.max_inputs or new.max_outputs < old.max_outputs:
        return "fewer inputs or outputs"
    if len(new.inputs) < len(old.inputs) or any(
        not formal.optional and not formal.variadic for formal in new.inputs[len(old.inputs) :]
    ):
        return "other inputs"
    return None


_STEPS = list(_steps())


@each(("old", "new"), {f"{new.op_type}-{new.since_version}": (old, new) for old, new in _STEPS})
def test_every_break_that_a_schema_shows_has_a_rule(old: OpFacts, new: OpFacts) -> None:
    broken = _breaks(old, new)
    if broken is None:
        return
    rule = UPGRADES.get(new.op_type)
    assert rule is not None and new.since_version in rule.changes, broken


def test_types_are_lost_on_known_steps_only() -> None:
    lost = {
        (new.op_type, new.since_version)
        for old, new in _STEPS
        for before, after in (
            *zip(old.inputs, new.inputs, strict=False),
            *zip(old.outputs, new.outputs, strict=False),
        )
        if not before.types <= after.types and not new.deprecated
    }
    assert lost - {("Scan", 9)} == {step for step in _FEWER_TYPES if step[1] <= NEWEST}


@pytest.mark.long
@each("op", UPGRADES.keys())
def test_the_changes_of_a_rule_are_versions_of_its_operator(op: str) -> None:
    versions = {
        schema.since_version
        for schema in onnx.defs.get_all_schemas_with_history()
        if schema.domain == "" and schema.name == op
    }
    assert set(UPGRADES[op].changes) <= versions


@each("op", EARLY.keys())
def test_an_early_operator_is_one_that_came_later(op: str) -> None:
    facts = op_facts(op, EARLY[op])
    assert facts is not None and facts.since_version == EARLY[op]
    assert op_facts(op, EARLY[op] - 1) is None
