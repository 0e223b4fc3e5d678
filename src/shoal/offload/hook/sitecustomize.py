"""Turns capture on as Python starts, where this folder is on PYTHONPATH. Another `sitecustomize` runs as before."""

import sys
from importlib.machinery import PathFinder
from pathlib import Path


def _run_the_next() -> None:
    here = str(Path(__file__).parent)
    spec = PathFinder.find_spec("sitecustomize", [each for each in sys.path if each != here])
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        spec.loader.exec_module(module_from_spec(spec))


def _capture() -> None:
    try:
        from shoal.offload.installation import install
    except ImportError:  # the Python of another environment: the program runs as it is
        return
    try:
        install()
    except Exception as error:  # a wrong setting must not keep the program from running
        print(f"shoal offload: nothing is captured: {error}", file=sys.stderr)


_run_the_next()
_capture()
