"""What the package index shows: the README, with links to the repository at the tag."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Metadata(MetadataHookInterface):
    """Takes the address of the project from the package, where it is set."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the addresses, and the README with links that work elsewhere."""
        root = Path(self.root)
        source = (root / "onnx_kvtool" / "__init__.py").read_text(encoding="utf-8")
        address, version = (
            re.findall(rf'^{name} = "(.*)"$', source, re.MULTILINE)[0]
            for name in ("__address__", "__version__")
        )
        metadata["urls"] = {
            "Documentation": f"{address}/blob/v{version}/docs/index.md",
            "Source": address,
            "Issues": f"{address}/issues",
            "Changelog": f"{address}/blob/v{version}/CHANGELOG.md",
        }
        text = (root / "README.md").read_text(encoding="utf-8")
        raw = address.replace("//github.com/", "//raw.githubusercontent.com/")
        text = re.sub(r"(!\[[^\]]*\]\()(?!\w+:|#)", rf"\g<1>{raw}/v{version}/", text)
        text = re.sub(r"(?<!!)(\[[^\]!]*\]\()(?!\w+:|#)", rf"\g<1>{address}/blob/v{version}/", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
