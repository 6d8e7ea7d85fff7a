"""The documents are a site: every page is reached, and nothing in it leads nowhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import onnx_kvtool as kv
from tests.pages.table import documents


def test_the_navigation_has_every_page_once(root: Path) -> None:
    settings = (root / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"([\w/.-]+\.md)$", settings.partition("\nnav:\n")[2], re.MULTILINE)
    pages = {path.relative_to(root / "docs").as_posix() for path in root.glob("docs/**/*.md")}
    assert sorted(listed) == sorted(pages)


@pytest.mark.long
def test_an_index_leads_to_every_page_beside_it() -> None:
    pages = documents()
    for name in ("rules", "operators", "targets", "commands", "python"):
        beside = {path.rpartition("/")[2] for path in pages if path.startswith(f"docs/{name}/")}
        linked = set(re.findall(r"\(([\w-]+\.md)\b", pages[f"docs/{name}/index.md"]))
        assert len(beside) > 1 and beside - {"index.md"} <= linked


def test_ci_installs_what_builds_the_site(root: Path) -> None:
    ci = (root / ".ci" / "run").read_text(encoding="utf-8")
    assert re.search(r"install .*\.\[[\w,]*\bdocs\b", ci), "else the next test is skipped there"


@pytest.mark.slow
def test_the_site_builds_without_a_warning(root: Path, tmp_path: Path) -> None:
    for package in ("mkdocs", "mkdocs_jupyter"):
        pytest.importorskip(package, reason="needs the group `docs`: pip install -e '.[docs]'")
    result = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert 'href="site.css"' in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "overflow-x: auto" in (tmp_path / "site" / "site.css").read_text(encoding="utf-8")
    for page in ("rules/KV001", "operators/TensorScatter", "targets/openvino"):
        assert (tmp_path / "site" / f"{page}.html").is_file()
    found = json.loads((tmp_path / "site" / "search" / "search_index.json").read_text("utf-8"))
    boosts = {one["location"]: one.get("boost", 1) for one in found["docs"]}
    assert boosts["guides/hugging-face.html"] > boosts["commands/raise.html"]
    assert boosts["commands/raise.html"] > boosts["rules/KV209.html"]
    reference = (tmp_path / "site" / "python" / "reference.html").read_text(encoding="utf-8")
    for name in set(dir(kv)) - {"__version__"}:
        assert f'id="onnx_kvtool.{name}"' in reference
