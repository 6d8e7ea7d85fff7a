"""Print what the changelog says of a release, if its tag, its version and its section agree.

python .ci/release_notes.py v0.2.0 > notes.md
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).resolve().parents[1] / "CHANGELOG.md"


def notes(tag: str, version: str, changelog: str) -> str:
    """Return the text of the topmost section, without its heading.

    Raises:
        ValueError: If the tag is not that of the version, or the section is of another one or has
            no date yet.
    """
    if tag != f"v{version}":
        raise ValueError(f"the tag is `{tag}`, expected `v{version}`, which the package says")
    _, heading, text, *_ = re.split(r"^## (.*)$", changelog, flags=re.MULTILINE)
    if not re.fullmatch(rf"\[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d", heading):
        expected = f"[{version}] - YYYY-MM-DD"
        raise ValueError(f"the topmost section of the changelog is `{heading}`, not `{expected}`")
    return text.strip() + "\n"


def main() -> int:
    """Print the notes of the tag that is the argument."""
    from onnx_kvtool import __address__, __version__

    (tag,) = sys.argv[1:]
    if "OWNER" in __address__:
        sys.stderr.write("error: `__address__` in onnx_kvtool/__init__.py names no owner yet\n")
        return 1
    try:
        found = notes(tag, __version__, CHANGELOG.read_text(encoding="utf-8"))
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
