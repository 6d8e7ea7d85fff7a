"""Which release `RUNTIME[@VERSION]` names, and what the data file must hold."""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import pairwise

import pytest

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.ops.schema import NEWEST, op_facts, operators
from onnx_kvtool.targets.conditions.by_name import CONDITIONS
from onnx_kvtool.targets.releases import releases
from onnx_kvtool.targets.target import find_target
from tests.grids import each

RUNTIMES = [
    "onnxruntime",
    "openvino",
    "tensorrt",
    "onnxruntime-node",
    "onnxruntime-web",
    "tract",
    "tinygrad",
    "opencv",
    "iree",
]
LISTED = f"use one of {', '.join(f'`{name}`' for name in RUNTIMES)}"


@each(
    ("text", "asked", "release", "opset"),
    [
        pytest.param(
            "onnxruntime", "onnxruntime 1.32.0", "1.32.0", 28, id="no version is the newest known"
        ),
        pytest.param(
            "onnxruntime@1.17.3", "onnxruntime 1.17.3", "1.17.3", 20, id="a known version"
        ),
        pytest.param(
            "onnxruntime@1.17", "onnxruntime 1.17.3", "1.17.3", 20, id="the patch level left out"
        ),
        pytest.param(
            "tensorrt@10", "tensorrt 10.0", "10.0", 20, id="a major version is its lowest release"
        ),
        pytest.param(
            "onnxruntime@1.17.2",
            "onnxruntime 1.17.2",
            "1.16.3",
            19,
            id="between two known ones the lower one's limits hold",
        ),
        pytest.param(
            "onnxruntime@1.21.9", "onnxruntime 1.21.9", "1.21.1", 22, id="above a known one"
        ),
        pytest.param(
            "tensorrt@10.9",
            "tensorrt 10.9",
            "10.1",
            20,
            id="versions compare by number, not by digit",
        ),
        pytest.param(
            "tensorrt@10.14",
            "tensorrt 10.14",
            "10.1",
            20,
            id="a release without a known opset has the limits of the one below",
        ),
        pytest.param("OpenVINO", "openvino 2026.4.1", "2026.4.1", 28, id="case does not matter"),
        pytest.param(
            "tract@0.23", "tract 0.23.9", "0.23.9", 22, id="a runtime of another language"
        ),
        pytest.param("opencv@5", "opencv 5.0.0", "5.0.0", 22, id="one after an unsupported one"),
    ],
)
def test_a_name_is_one_release(text: str, asked: str, release: str, opset: int) -> None:
    target = find_target(text)
    assert (target.asked, target.release.version, target.max_opset) == (asked, release, opset)
    assert target.is_known == (asked == f"{target.release.runtime} {release}")


@each(
    ("text", "message", "help"),
    [
        pytest.param(
            "onnxruntme@1.17",
            "kvtool knows no runtime `onnxruntme`",
            "did you mean `onnxruntime`?",
            id="a misspelt runtime is answered with the nearest",
        ),
        pytest.param(
            "onnxruntime==1.19.2",
            "kvtool knows no runtime `onnxruntime==1.19.2`",
            "did you mean `onnxruntime@1.19.2`?",
            id="a release written as pip does",
        ),
        pytest.param(
            "tflite",
            "kvtool knows no runtime `tflite`",
            LISTED,
            id="a runtime that resembles none",
        ),
        pytest.param("", "kvtool knows no runtime ``", LISTED, id="nothing"),
        pytest.param(
            "onnxruntime@1.14",
            "onnxruntime 1.14 is older than any release that kvtool knows; the oldest is 1.15.1",
            "use `onnxruntime@1.15.1`, or choose the opset with `--opset`",
            id="a version below all known ones",
        ),
        pytest.param(
            "tensorrt@99",
            "tensorrt 99 is newer than any release that kvtool knows; the newest is 11.0",
            "use `tensorrt@11.0`, or choose the opset with `--opset`",
            id="a version above all known ones",
        ),
        pytest.param(
            "onnxruntime@",
            "`` is no version, expected numbers separated by dots",
            "write it like `onnxruntime@1.32.0`",
            id="an empty version",
        ),
        pytest.param(
            "openvino@2026.4-lts",
            "`2026.4-lts` is no version, expected numbers separated by dots",
            "write it like `openvino@2026.4.1`",
            id="a version with words in it",
        ),
        pytest.param(
            "opencv@4.12",
            "nothing can be lowered for opencv 4.12.0: it loads no decoder as it is lowered, and "
            "computes what it is made to load wrongly without a word",
            "use `opencv@5.0.0`",
            id="a release that is known to be wrong",
        ),
        pytest.param(
            "opencv@4.14",
            "nothing can be lowered for opencv 4.14: it loads no decoder as it is lowered, and "
            "computes what it is made to load wrongly without a word",
            "use `opencv@5.0.0`",
            id="a release above one that is known to be wrong",
        ),
        pytest.param(
            "onnxruntime@1.٣",
            "`1.٣` is no version, expected numbers separated by dots",
            "write it like `onnxruntime@1.32.0`",
            id="digits of another script",
        ),
    ],
)
def test_what_names_no_release_is_wrong_usage(text: str, message: str, help: str) -> None:
    with pytest.raises(UsageError) as error:
        find_target(text)
    assert (error.value.message, error.value.help) == (message, help)


def test_releases_are_in_ascending_order_runtime_by_runtime() -> None:
    runtimes = [release.runtime for release in releases()]
    assert list(dict.fromkeys(runtimes)) == RUNTIMES
    assert runtimes == sorted(runtimes, key=RUNTIMES.index)
    for before, after in pairwise(releases()):
        if before.runtime == after.runtime:
            assert before.number < after.number


@each("release", releases())
def test_every_release_says_where_its_facts_come_from(release) -> None:
    assert release.source
    assert all(limit.source and limit.reason for limit in release.limits)


@each("release", releases())
def test_every_native_operator_exists_at_an_opset_that_the_release_loads(release) -> None:
    for entry in release.native:
        op_type, _, since = entry.partition("-")
        facts = op_facts(op_type, int(since))
        assert facts is not None and facts.since_version == int(since)
        assert release.max_opset is None or int(since) <= release.max_opset


def test_every_limit_names_releases_that_are_known() -> None:
    text = files("onnx_kvtool.targets").joinpath("runtimes.toml").read_text(encoding="utf-8")
    known = {str(release) for release in releases()}
    for spans in re.findall(r'(?m)^releases = "(.*)"$', text):
        for span in spans.split(", "):
            runtime, first, last = re.fullmatch(
                r"(\S+) ([\d.]+)(?:\+| to ([\d.]+))?", span
            ).groups()
            assert {f"{runtime} {first}", f"{runtime} {last or first}"} <= known, span


def test_no_release_has_and_lacks_an_operator() -> None:
    for release in releases():
        native = {entry.partition("-")[0] for entry in release.native}
        limits = [limit for limit in release.limits if limit.when == "always" and not limit.since]
        lacking = {limit.operator for limit in limits}
        assert not native & lacking, str(release)


def test_every_limit_names_an_operator_and_a_condition_and_every_condition_is_used() -> None:
    limits = {limit for release in releases() for limit in release.limits}
    assert {limit.operator for limit in limits} <= operators()
    assert {limit.when for limit in limits} == set(CONDITIONS)


def test_every_input_and_attribute_that_a_limit_names_is_one_of_its_operator() -> None:
    for limit in {limit for release in releases() for limit in release.limits}:
        facts = op_facts(limit.operator, NEWEST)
        assert facts is not None or not (limit.operand or limit.attribute)
        if limit.operand:
            assert limit.operand in {formal.name for formal in facts.inputs}, limit.name
        if limit.attribute:
            assert limit.attribute in facts.attributes, limit.name


def test_a_lower_opset_is_the_remedy_only_for_a_version_that_lacks_a_kernel() -> None:
    for limit in {limit for release in releases() for limit in release.limits if limit.lower_opset}:
        assert limit.when == "always"
        facts = op_facts(limit.operator, limit.since)
        assert facts is not None
        assert facts.since_version == limit.since
        assert op_facts(limit.operator, limit.since - 1) is not None


def test_every_attribute_that_must_not_be_written_out_has_a_default() -> None:
    for release in releases():
        for operator, name in release.explicit:
            facts = op_facts(operator, NEWEST)
            assert facts is not None
            assert facts.attributes[name].default is not None


def test_the_lowest_release_of_each_runtime_has_a_known_opset() -> None:
    for runtime in RUNTIMES:
        lowest = next(r for r in releases() if r.runtime == runtime and not r.unsupported)
        assert lowest.max_opset is not None
