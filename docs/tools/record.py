"""Records a real run as a picture of a terminal: `python docs/tools/record.py` writes docs/pictures/terminal.svg.

Each command is run in a terminal of its own (pty), in an empty home, and its output with its colours is drawn by Rich.
The picture has no script and no font from elsewhere.
"""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

OUT = Path(__file__).resolve().parents[1] / "pictures" / "terminal.svg"
COLUMNS = 124
JOB = """\
name: {name}
command: [python3, -u, -c, "import time; time.sleep({seconds}); print('accuracy 0.97')"]
resources: {{accelerators: {slots}, cpus: 0.5, memory: 256MiB}}
expected_runtime: {seconds}s
"""
FILES = {
    "train.yaml": JOB.format(name="train", seconds=12, slots=2),
    "next.yaml": JOB.format(name="next", seconds=1, slots=1),
}
STEPS = [
    ("shoal up --detach --slots 2", "a server; its jobs will outlive it"),
    ("shoal submit train.yaml next.yaml", "on disk before the ids are printed"),
    ("shoal explain next", "why does it wait?"),
    (r"""kill -9 $(grep -oP '"pid": \K\d+' ~/.shoal/server.json)""", "the server dies; another one takes over"),
    ("shoal wait train next", "nothing was lost"),
    ("shoal jobs", ""),
]
INKS = ("#282c34", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#abb2bf")
THEME = TerminalTheme((30, 33, 41), (214, 220, 228), [tuple(bytes.fromhex(ink[1:])) for ink in INKS])
FORMAT = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"><title>A real session</title>
<style>
.{unique_id}-matrix {{ font-family: 'DejaVu Sans Mono', Menlo, Consolas, monospace; font-size: {char_height}px;
  line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g></svg>
"""


def run(command: str, home: Path) -> str:
    """What the command prints on a terminal; raises CalledProcessError."""
    bin_directory = Path(sys.executable).parent
    env = {
        "HOME": str(home), "PATH": f"{bin_directory}:{os.environ['PATH']}", "TERM": "xterm-256color", "LANG": "C.UTF-8",
        "COLUMNS": str(COLUMNS), "SHOAL_SERVE__PORT": "0", "SHOAL_SERVE__GRPC_PORT": "0",
    }  # fmt: skip
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        ["bash", "-c", f"stty cols {COLUMNS} rows 50; {command}"], cwd=home, env=env,
        stdin=follower, stdout=follower, stderr=follower, close_fds=True,
    )  # fmt: skip
    os.close(follower)
    printed = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:
            break
        if not piece:
            break
        printed += piece
        if process.poll() is not None and len(piece) == 0:
            break
    if process.wait() != 0:
        raise subprocess.CalledProcessError(process.returncode, command, printed)
    return printed.decode().replace("\r\n", "\n")


def main() -> None:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    with tempfile.TemporaryDirectory(prefix="shoal-") as directory:
        home = Path(directory)
        for name, text in FILES.items():
            (home / name).write_text(text)
        for command, note in STEPS:
            typed = Text.assemble(("$ ", "bold green"), (command, "bold"), (f"   # {note}" if note else "", "#8b95a5"))
            console.print(typed, soft_wrap=True)
            output = run(command, home).rstrip().replace(str(home), "~")
            if output:
                console.print(Text.from_ansi(output), soft_wrap=True)
        run("shoal down", home)
    svg = console.export_svg(title="Shoal: a real session", theme=THEME, code_format=FORMAT, unique_id="shoal")
    OUT.write_text(re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE))


if __name__ == "__main__":
    main()
