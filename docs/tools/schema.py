"""Writes the API's description for the page's typed client: `python docs/tools/schema.py` after a change of the API.

`npm run build` in `web/` makes the client's types from the file, so a use that no longer fits the API fails to compile.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from reference import openapi

SCHEMA = Path(__file__).resolve().parents[2] / "web" / "src" / "api" / "schema.json"


def text() -> str:
    return json.dumps(openapi(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(text())
    sys.stdout.write(f"{SCHEMA}\n")
