"""`python -m shoal.serve.gateway --home-dir DIR`: serve what DIR/config.json says, until SIGTERM."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path


def main() -> int:
    arguments = argparse.ArgumentParser(prog="shoal.serve.gateway", description=__doc__)
    arguments.add_argument("--home-dir", type=Path, required=True, help="the directory with config.json")
    arguments.add_argument("--scheduler", default="deadline", help="deadline, fair or all-share [deadline]")
    options = arguments.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    import uvloop

    from shoal.core import ShoalError
    from shoal.serve.gateway.process import serve

    try:
        uvloop.run(serve(options.home_dir, scheduler=options.scheduler))
    except (ShoalError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
