#!/usr/bin/env python3
"""links.py PAGE...: every link of a Markdown page to a file of this repository, and to a heading in one, leads somewhere."""
import re
import sys
from pathlib import Path


def slug(heading):
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"[`*_]|\]\([^)]*\)|\[", "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(page):
    return {slug(line.lstrip("#")) for line in without_code(page).splitlines() if line.startswith("#")}


def without_code(page):
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)


def faults(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists():
            yield f"{page}: {target}: there is no {name}"
        elif anchor and anchor not in anchors(file):
            yield f"{page}: {target}: {file.name} has no such heading"


found = [fault for page in sys.argv[1:] for fault in faults(Path(page).resolve())]
print("\n".join(found) or f"{len(sys.argv) - 1} pages: every link leads somewhere")
sys.exit(bool(found))
