"""Compiles the corpus again: `python make_corpus.py WORK` with nvcc, cuobjdump and Triton at hand.

WORK is a new folder. Its name stands in the debugging sections of what Triton writes.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"


def nvcc(work: Path) -> None:
    source = CORPUS / "kernels.cu"
    for arch in (80, 100):
        subprocess.run(["nvcc", "-ptx", f"-arch=sm_{arch}", source, "-o", CORPUS / f"nvcc_sm{arch}.ptx"], check=True)
    only_ptx = ["-gencode", "arch=compute_80,code=compute_80"]
    subprocess.run(["nvcc", "-fatbin", *only_ptx, source, "-o", work / "all.fatbin"], check=True)
    subprocess.run(["cuobjdump", "-xptx", "all", "all.fatbin"], cwd=work, check=True)
    (extracted,) = work.glob("*.ptx")
    shutil.copy(extracted, CORPUS / "cuobjdump_sm80.ptx")


def triton(work: Path) -> None:
    import triton as compiler
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source = Path(shutil.copy(CORPUS / "kernels_triton.py", work))
    spec = importlib.util.spec_from_file_location("kernels_triton", source)
    assert spec is not None
    assert spec.loader is not None
    kernels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernels)

    floats = "*fp32"
    add = {"x": floats, "y": floats, "out": floats, "n": "i32", "BLOCK": "constexpr"}
    softmax = {"x": floats, "out": floats, "columns": "i32", "BLOCK": "constexpr"}
    matmul = {"a": "*fp16", "b": "*fp16", "c": floats, "m": "i32", "n": "i32", "k": "i32",
              "BM": "constexpr", "BN": "constexpr", "BK": "constexpr"}  # fmt: skip
    for name, kernel, signature, constants, arch, options in (
        ("add", kernels.add, add, {(4,): 256}, 80, {}),
        ("softmax", kernels.softmax, softmax, {(3,): 256}, 80, {}),
        ("matmul", kernels.matmul, matmul, {(6,): 16, (7,): 16, (8,): 16}, 80, {"num_warps": 1, "num_stages": 2}),
        ("wgmma", kernels.matmul, matmul, {(6,): 64, (7,): 64, (8,): 64}, 90, {}),
    ):
        asked = ASTSource(fn=kernel, signature=signature, constexprs=constants)
        text = compiler.compile(asked, target=GPUTarget("cuda", arch, 32), options=options).asm["ptx"]
        text = re.sub(r'(\.file\s+\d+ ")[^"]*/', r"\1", text)
        (CORPUS / f"triton_{name}.ptx").write_text(text)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    nvcc(folder)
    triton(folder)
