"""Look for what `zensical build --strict` does not see in the pages that it has built.

`python tools/check_site.py site https://address.of/the/pages` names every link, picture or script that leads to no file
or to no anchor, every page where a directive of mkdocstrings is left, and every page of docs/ that is not in the
navigation.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

LEFT = re.compile(r"::: |Could not collect")
INCLUDE = re.compile(r"--8 *< *--")  # not taken for what it is, also in code


class Page(HTMLParser):
    """What a page refers to, its anchors, and its text outside of code.

    Args:
        text: the HTML.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.anchors: set[str] = set()
        self.text = ""
        self._code = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element refers to, and its anchor."""
        for name, value in attrs:
            if name in ("href", "src"):
                self.targets.add(value or "")
            elif name == "srcset":
                self.targets.update(each.split()[0] for each in (value or "").split(","))
            elif value and (name == "id" or (name, tag) == ("name", "a")):
                self.anchors.add(value)
        self._code += tag in ("code", "script", "style")

    def handle_endtag(self, tag: str) -> None:
        """Note the end of code."""
        self._code -= tag in ("code", "script", "style")

    def handle_data(self, data: str) -> None:
        """Note text outside of code."""
        if not self._code:
            self.text += data


def faults(site: Path, address: str) -> list[str]:
    """Return what is wrong with the built pages.

    Args:
        site: the folder.
        address: where they will be found; absolute links start with it.
    """
    base = address.rstrip("/") + "/"
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        own = path.relative_to(site).as_posix()
        left = LEFT.search(page.text) or INCLUDE.search(path.read_text())
        if left:
            found.append(f"{own}: {left[0].strip()!r} is left")
        for target in sorted(page.targets):
            parts = urlsplit(urljoin(base + own, target))
            if urlsplit(base)[:2] != parts[:2]:
                continue  # another host, mail, or data
            if not parts.path.startswith(urlsplit(base).path):
                if not urlsplit(target).netloc:
                    found.append(f"{own}: {target} leads out of the pages")
                continue
            file = site / unquote(parts.path).removeprefix(urlsplit(base).path)
            file = file / "index.html" if file.is_dir() else file
            if not file.is_file():
                found.append(f"{own}: {target} does not exist")
            elif (
                parts.fragment
                and file in pages
                and unquote(parts.fragment) not in pages[file].anchors
            ):
                found.append(f"{own}: {target} has no such anchor")
    return found


def outside_navigation(docs: Path, configuration: str) -> list[str]:
    """Return the pages that the navigation does not name.

    Args:
        docs: the folder of their sources.
        configuration: the text of mkdocs.yml.
    """
    named = set(re.findall(r"[\w./-]+\.md\b", configuration.partition("\nnav:")[2]))
    pages = (path.relative_to(docs).as_posix() for path in sorted(docs.rglob("*.md")))
    return [f"{page} is not in the navigation" for page in pages if page not in named]


def main() -> None:
    """Print all faults, and fail if there are any."""
    site, address = sys.argv[1:]
    found = faults(Path(site), address)
    found += outside_navigation(Path("docs"), Path("mkdocs.yml").read_text())
    print("\n".join(found) or f"{site}: every link, anchor and page is right")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
