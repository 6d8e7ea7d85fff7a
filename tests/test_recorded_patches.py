"""What the pages for developers say of adding a thing, shown by a patch that adds one."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

PATCHES: Mapping[str, tuple[str, ...]] = {
    "command": ("tests/cli/test_infer.py", "tests/cli/test_requests.py"),
    "contrib": (
        "tests/ops/test_contrib_schemas.py",
        "tests/ops/test_traits.py",
        "tests/rewrite/contrib/test_older.py",
        "tests/rewrite/contrib/test_table.py",
        "tests/runtime/kernels/contrib/test_schemas.py",
    ),
    "kernel": (
        "tests/runtime/kernels/sequence",
        "tests/runtime/kernels/test_borrowing.py",
        "tests/runtime/kernels/test_signatures.py",
    ),
    "lowering": ("tests/rewrite/lowering/test_swish.py", "tests/test_tables.py"),
    "rule": ("tests/lint/test_rules.py", "tests/lint/rules/test_kv0xx_shapes.py"),
    "target": ("tests/targets/test_target.py", "tests/targets/test_limits.py"),
}
"""The tests that run the case of a patch, by the name of the patch and of its page."""
MOST_FILES = 6

each_patch = pytest.mark.parametrize("name", PATCHES)


def apply(root: Path, patch: Path, *options: str) -> None:
    """Apply a patch to a tree.

    Args:
        root: The tree.
        patch: The patch.
        options: Options of `git apply`.
    """
    if shutil.which("git") is None:
        pytest.skip("needs git")
    command = ["git", "apply", *options, str(patch)]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=60, check=False
    )
    remedy = "make the change anew, and record it: git diff"
    assert done.returncode == 0, f"{patch.name}: {done.stderr}; {remedy}"


def patch_of(root: Path, name: str) -> Path:
    return root / "docs" / "developing" / "patches" / f"{name}.patch"


def test_each_patch_that_is_recorded_is_tested(root: Path) -> None:
    assert {path.stem for path in patch_of(root, "").parent.iterdir()} == set(PATCHES)


@each_patch
def test_a_patch_fits_the_tree_and_touches_few_files(root: Path, name: str) -> None:
    patch = patch_of(root, name)
    apply(root, patch, "--check")
    touched = re.findall(r"^\+\+\+ b/(.*)$", patch.read_text(encoding="utf-8"), re.MULTILINE)
    assert 0 < len(touched) <= MOST_FILES
    page = (root / "docs" / "developing" / f"{name}.md").read_text(encoding="utf-8")
    assert f"(patches/{name}.patch)" in page


@pytest.mark.slow
@each_patch
def test_the_case_of_a_patch_passes_with_it(root: Path, tmp_path: Path, name: str) -> None:
    for entry in root.iterdir():
        if entry.name in ("onnx_kvtool", "tests", "docs"):
            shutil.copytree(entry, tmp_path / entry.name, ignore=shutil.ignore_patterns("*.pyc"))
        elif not entry.name.startswith("."):
            (tmp_path / entry.name).symlink_to(entry)
    apply(tmp_path, patch_of(root, name))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *PATCHES[name]]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
