"""A hook of mkdocs, named in `mkdocs.yml`: adds the pages that are made when the site is built."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

__all__ = ["on_files", "on_page_content", "on_page_markdown"]

_SEARCHED = {"commands": 4, "guides": 8, "index.md": 8, "notebooks": 2, "python": 2}
"""How much more the search makes of a page than of a rule or an operator, which are hundreds."""

_ROOT = Path(__file__).resolve().parents[2]
_SOURCE = re.compile(r"(\]\((?:\.\./)*)\.\./onnx_kvtool/lint/rules/pages(/\w+\.md)?\)")
"""A link from docs to the page of a rule in the package, or to their folder."""


def on_files(files: Files, *, config: Any) -> Files:
    """Put the made pages among the files of docs, in the place of those that they begin with."""
    from onnx_kvtool import __address__

    config["repo_url"], config["repo_name"] = __address__, "kvtool"
    sys.path.insert(0, str(_ROOT))  # which `python -m mkdocs` has there, and `mkdocs` does not
    from tests.pages.table import made

    for name, text in made().items():
        if (written := files.get_file_from_path(name)) is not None:
            files.remove(written)
        files.append(File.generated(config, name, content=text))
    return files


def on_page_content(html: str, *, page: Any, **_: Any) -> str:
    """Tell the search what a page is worth."""
    page.meta["search"] = {"boost": _SEARCHED.get(page.file.src_uri.split("/")[0], 1)}
    return html


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead links to the source of a rule's page to its page of the site."""
    return _SOURCE.sub(lambda link: f"{link[1]}rules{link[2] or '/index.md'})", markdown)
