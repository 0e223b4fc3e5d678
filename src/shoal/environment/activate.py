"""The words before a command that enter an environment and become the command. Pure.

Of what is on the machine it is a fixed script for `/bin/sh`, with everything that a manifest says as its arguments: it
runs with the job's rights, in the job's sandbox, and the process that the engine started stays the job's own.
"""

from __future__ import annotations

import marshal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from shoal.engine import Mount
from shoal.environment.reference import Image

_SHELL = ("/bin/sh", "-c")

_ENTER = """
[ -x "$1/bin/python" ] || {
    echo "shoal: the environment $1 has no bin/python that user $(id -u), as whom this job runs, can execute." \\
        "Check the path and its rights$2" >&2
    exit 126
}
PATH=$1/bin:$PATH
VIRTUAL_ENV=$1
export PATH VIRTUAL_ENV
unset PYTHONHOME CONDA_PREFIX
shift 2
exec "$@"
"""

_ENTER_CONDA = """
name=$1 hint=$2 prefix=
shift 2
while [ "$1" != -- ]; do
    case $1 in "~/"*) root=$HOME/${1#??} ;; *) root=$1 ;; esac
    case $name in base) place=$root ;; *) place=$root/envs/$name ;; esac
    case $name in /*) place=$name ;; esac
    if [ -z "$prefix" ] && [ -d "$place/conda-meta" ]; then prefix=$place; fi
    shift
done
[ -n "$prefix" ] || {
    echo "shoal: there is no conda environment $name that user $(id -u), as whom this job runs, can read$hint" >&2
    exit 126
}
shift
PATH=$prefix/bin:$PATH
CONDA_PREFIX=$prefix
CONDA_DEFAULT_ENV=$name
export PATH CONDA_PREFIX CONDA_DEFAULT_ENV
unset PYTHONHOME VIRTUAL_ENV
activate() { . "$1"; }
for script in "$prefix"/etc/conda/activate.d/*.sh; do
    if [ -r "$script" ]; then activate "$script"; fi
done
exec "$@"
"""

_IN_RUNTIME = """
command -v {0} >/dev/null || {{
    echo "shoal: {0} is not installed on $(hostname), and environment.runtime says that images run by it" >&2
    exit 126
}}
kept=
[ -d "$SHOAL_CHECKPOINT_DIR" ] && kept=$SHOAL_CHECKPOINT_DIR
{1}
"""
_RUNTIMES = {
    "apptainer": r"""
exec apptainer exec --no-home ${CUDA_VISIBLE_DEVICES:+--nv} --bind "$PWD" --bind "$SHOAL_RUN" ${kept:+--bind "$kept"} \
    --pwd "$PWD" "$@"
""",
    "podman": r"""
terminal= keep=
[ -t 0 ] && terminal=yes
[ "$(id -u)" = 0 ] || keep=yes
exec podman run --rm --interactive ${terminal:+--tty} --network=host --ipc=host --cgroups=disabled \
    --cap-drop=all --security-opt=no-new-privileges --read-only --log-driver=none --entrypoint= --env-host \
    ${keep:+--userns=keep-id} --user "$(id -u):$(id -g)" ${CUDA_VISIBLE_DEVICES:+--device nvidia.com/gpu=all} \
    --volume "$PWD:$PWD" --volume "$SHOAL_RUN:$SHOAL_RUN" ${kept:+--volume "$kept:$kept"} --workdir "$PWD" "$@"
""",
}

# Imported, so that it need not be compiled each time.
_ENTER_IMAGE = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import inside; inside.run()"


def in_venv(path: str, *, hint: str = "") -> tuple[str, ...]:
    """Run in a virtual environment; `hint` ends the message where it cannot be entered."""
    return (*_SHELL, _ENTER, "sh", path, hint)


def in_conda(name: str, roots: Sequence[str], *, hint: str = "") -> tuple[str, ...]:
    """Run in the environment of this name below one of the installations `roots`, or in the one with this path."""
    return (*_SHELL, _ENTER_CONDA, "sh", name, hint, *(roots or ("/",)), "--")


def in_runtime(
    runtime: str, image: Image, *, paths: Sequence[str] = (), workdir: str | None = None, given: Sequence[str] = ()
) -> tuple[str, ...]:
    """Run in an image by a program that the job's machine has. `given` are the variables that beat the image's own."""
    script = _IN_RUNTIME.format(runtime, _RUNTIMES[runtime])
    if runtime == "apptainer":
        words = [word for path in paths for word in ("--bind", path)] + (["--pwd", workdir] if workdir else [])
        words.append(image.source)
    else:
        words = [word for path in paths for word in ("--volume", f"{path}:{path}")]
        words += [word for name in sorted(given) for word in ("--env", name)]
        words += ["--workdir", workdir] if workdir else []
        words.append(image.source.removeprefix("docker://"))
    return (*_SHELL, script, "sh", *words)


def in_image(
    place: Path, *, home: Path, mounts: Sequence[Mount] = (), paths: Sequence[str] = (),
    workdir: str | None = None, given: Sequence[str] = (), driver: Mapping[str, str],
) -> tuple[str, ...]:  # fmt: skip
    """Run in the image that was unpacked at this place. `mounts` are those of the gang, `paths` what the manifest wants
    to see of the machine, `given` the names of the variables that it sets, and `driver` the libraries of the GPU driver
    by their names."""
    told = {
        "place": str(place), "home": str(home), "paths": list(paths), "workdir": workdir, "given": sorted(given),
        "driver": dict(driver),
        "mounts": [(str(one.target), str(one.target), one.read_only) for one in mounts],
    }  # fmt: skip
    return (str(Path(sys.executable).resolve()), "-I", "-S", "-c", _ENTER_IMAGE, marshal.dumps(told).hex())
