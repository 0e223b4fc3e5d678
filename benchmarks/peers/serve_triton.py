"""Triton's own binary on the CPU, from the nvidia-pytriton wheel, with its Python backend. `serve_triton.py --port P`.

The wheel has no onnxruntime backend; the Python one runs the network in a process of its own, as Shoal does. Whatever
it needs beside the wheel (the backend with the stub for this Python, a model repository) is put into the working
directory.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

CONFIG = """
name: "orientation"
backend: "python"
max_batch_size: 1
input [{ name: "x" data_type: TYPE_FP32 dims: [3, 48, 192] }]
output [{ name: "y" data_type: TYPE_FP32 dims: [2] }]
instance_group [{ count: 1 kind: KIND_CPU }]
"""


def main(port: int) -> None:
    site = Path(sysconfig.get_path("purelib"))
    wheel, here = site / "pytriton" / "tritonserver", Path.cwd()
    shutil.copytree(wheel / "backends", here / "backends")
    stub = wheel / "python_backend_stubs" / f"{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copy(stub / "triton_python_backend_stub", here / "backends" / "python")
    model = here / "models" / "orientation"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(CONFIG)
    shutil.copy(Path(__file__).with_name("triton_model.py"), model / "1" / "model.py")
    libraries = [str(site / "nvidia_pytriton.libs"), sysconfig.get_config_var("LIBDIR")]
    environ = {
        **os.environ,
        "LD_LIBRARY_PATH": os.pathsep.join(libraries),
        "MODEL_IMPORTS": os.pathsep.join([str(site), str(Path(__file__).parent)]),
    }
    binary = str(wheel / "bin" / "tritonserver")
    options = [
        "--model-repository=models", "--backend-directory=backends", "--http-address=127.0.0.1", f"--http-port={port}",
        "--allow-grpc=false", "--allow-metrics=false",
    ]  # fmt: skip
    os.execve(binary, [binary, *options], environ)


if __name__ == "__main__":
    main(int(sys.argv[2]))
