"""A stand-in for the gateway's process: keeps to the files' contract and serves nothing.

python fake_gateway.py FOLDER [--fail]
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from shoal.base.processes import start_ticks
from shoal.serve import contract
from shoal.serve.contract import Address, GatewayStatus, ModelState, ReplicaStatus, ServiceStatus, VersionStatus


def main() -> None:
    folder = Path(sys.argv[1])
    if "--fail" in sys.argv:
        sys.exit("cannot bind the port: it is taken")
    contract.hold(folder)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        config = contract.read_config(folder)
        assert config is not None
        found = tuple(_status(one, folder) for one in config.services)
        contract.write_status(
            folder,
            GatewayStatus(
                os.getpid(), start_ticks(os.getpid()) or 0, time.time(), config.generation,
                Address(config.http.host, config.http.port or 41001),
                Address(config.grpc.host, config.grpc.port or 41002), found,
            ),
        )  # fmt: skip
        time.sleep(0.05)


def _status(deployment: contract.Deployment, folder: Path) -> ServiceStatus:
    """A replica is ready when a file of its name says so: the test's, or its own process's."""
    names = [path.name for path in sorted((folder / "ready").glob(f"{deployment.spec.name}-*"))]
    ready = tuple(ReplicaStatus(contract.connection_name(deployment.spec.tenant, name), True) for name in names)
    models = tuple(VersionStatus(one.name, one.version, ModelState.READY) for one in deployment.spec.models)
    return ServiceStatus(deployment.id, ready, models, requests=7, rate_per_s=1.5, p99_s=0.004)


if __name__ == "__main__":
    main()
