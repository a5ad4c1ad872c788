"""What the metadata of the package takes from the address of its repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = r'(!\[[^\]]*\]\(|\b(?:src|srcset)=")(?!\w+:|#)'
FILE = r'(\]\(|\bhref=")(?=[\w./-]+[)"#])'


class Addresses(MetadataHookInterface):
    """The addresses in the metadata, and links of the README that lead to them.

    The option `address` in pyproject.toml is that of the repository, and `documentation` that of its pages. Both are
    empty as long as there are none. Then there are no addresses, and links stay relative.
    """

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `urls` and `readme`."""
        readme = Path(self.root, "README.md").read_text()
        urls: dict[str, str] = {}
        if address := self.config["address"]:
            version = f"v{metadata['version']}"
            readme = re.sub(PICTURE, rf"\1{address}/raw/{version}/", readme)
            readme = re.sub(FILE, rf"\1{address}/blob/{version}/", readme)
            urls |= {
                "Source": address,
                "Issues": f"{address}/issues",
                "Changelog": f"{address}/blob/main/CHANGELOG.md",
            }
        if documentation := self.config["documentation"]:
            urls["Documentation"] = documentation
        metadata["urls"] = urls
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}
