"""Check the documentation by itself: relative links and anchors resolve, and `console` examples parse as shell.

For pages outside the site, and before it is built; mkdocs checks the site, with the pages that are made from the code.

    python docs/check_links.py

prints one line per problem and ends with 1 if there is any.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.reference import PAGES

ROOT = Path(__file__).resolve().parent.parent
_MADE = {ROOT / "docs" / name for name in PAGES}
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^( *)(```+)([^\n`]*)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.MULTILINE)
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:")


def pages(root: Path) -> list[Path]:
    """All Markdown files of the project, none of an installed package."""
    found = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("examples/**/*.md")]
    return sorted(page for page in found if ".venv" not in page.parts)


def problems(root: Path) -> Iterator[str]:
    for page in pages(root):
        text = page.read_text()
        for number, what in [*_broken_links(page, text), *_broken_examples(text)]:
            yield f"{page.relative_to(root)}:{number}: {what}"


def _broken_links(page: Path, text: str) -> Iterator[tuple[int, str]]:
    prose = _CODE.sub(_blank, _FENCE.sub(_blank, text))
    for link in _LINK.finditer(prose):
        target = link.group(1) or link.group(2)
        if _ELSEWHERE.match(target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        number = text.count("\n", 0, link.start()) + 1
        if there in _MADE:
            continue
        if not there.exists():
            yield number, f"there is no {path}"
        elif anchor and there.suffix == ".md" and anchor not in anchors(there.read_text()):
            yield number, f"{there.name} has no heading #{anchor}"


def _broken_examples(text: str) -> Iterator[tuple[int, str]]:
    for fence in _FENCE.finditer(text):
        if fence.group(3).strip() != "console":
            continue
        number = text.count("\n", 0, fence.start()) + 1
        commands = _commands(fence.group(4))
        if not commands:
            yield number, "a console example without a line that begins with `$ `"
        for command in commands:
            parsed = subprocess.run(["bash", "-n"], input=command, capture_output=True, text=True, check=False)
            if parsed.returncode != 0:
                yield number, f"the shell cannot read {command!r}: {parsed.stderr.strip()}"


def _commands(example: str) -> list[str]:
    """What a reader would type: lines after `$ `, with the lines they continue on (`\\` at the end, or `> ` before)."""
    commands: list[str] = []
    for line in example.splitlines():
        line = line.strip()
        if line.startswith("$ "):
            commands.append(line[2:])
        elif commands and (commands[-1].endswith("\\") or line.startswith("> ")):
            commands[-1] += "\n" + line.removeprefix("> ")
    return commands


def anchors(text: str) -> set[str]:
    """The names that GitHub gives to headings."""
    seen: dict[str, int] = {}
    for heading in _HEADING.findall(_FENCE.sub(_blank, text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        times = seen.get(name, -1) + 1
        seen[name] = times
        if times:
            seen[f"{name}-{times}"] = 0
    return set(seen)


def _blank(match: re.Match[str]) -> str:
    """Nothing to find here, at the same place and line."""
    return re.sub(r"[^\n]", " ", match.group(0))


def main() -> int:
    found = list(problems(ROOT))
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{len(pages(ROOT))} pages, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
