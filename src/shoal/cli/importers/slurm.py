"""Reads batch scripts of Slurm: `#SBATCH` directives and the options of `sbatch` become a job's manifest.

What has a counterpart is carried over; what has none is named in a note. The script runs as it is, with Slurm's names
for what Shoal tells a job; `srun` in it starts the command in the rank that runs the script.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from shoal.base.validation import shown
from shoal.contract.manifest.document import Document
from shoal.contract.manifest.problems import explain
from shoal.contract.manifest.schema import JobManifest
from shoal.core import Invalid

_SHORT = {
    "J": "job-name", "t": "time", "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "a": "array", "d": "dependency",
    "o": "output", "e": "error", "A": "account", "D": "chdir", "p": "partition", "q": "qos", "C": "constraint",
    "w": "nodelist", "x": "exclude", "G": "gpus", "L": "licenses", "b": "begin", "H": "hold", "W": "wait",
    "i": "input", "k": "no-kill", "s": "oversubscribe", "Q": "quiet", "v": "verbose", "F": "nodefile",
    "M": "clusters", "S": "core-spec", "m": "distribution",
}  # fmt: skip
_FLAGS = {
    "hold", "wait", "no-kill", "oversubscribe", "quiet", "verbose", "requeue", "no-requeue", "parsable", "exclusive",
    "contiguous", "overcommit", "spread-job", "test-only", "reboot", "ignore-pbs", "use-min-nodes", "get-user-env",
}  # fmt: skip
_SILENT = {"quiet", "verbose", "parsable", "wait", "requeue"}
"""What changes nothing here, or is the caller's affair."""

_WHEN = {"afterok": "success", "afternotok": "failure", "afterany": "end"}
_WHY = {
    "output": "the output is kept by Shoal: `shoal logs JOB`",
    "error": "output and errors are kept together by Shoal: `shoal logs JOB`",
    "partition": "Shoal chooses the nodes; a type of accelerator is asked for with --gres=gpu:TYPE:N",
    "mail-type": "no --mail-user says who is told",
    "mail-user": "no --mail-type says of what",
    "qos": "use a manifest's `priority_class` and `priority`",
    "exclusive": "ask for all that a node has",
    "no-requeue": "a job whose node is lost or that is preempted is tried again; see `restart` in the manifest",
    "hold": "submit it, and `shoal suspend` it",
}

_MAIL = {
    "BEGIN": ("started",), "END": ("ended",), "FAIL": ("failed",), "REQUEUE": ("requeued",),
    "TIME_LIMIT": ("time-limit",), "ALL": ("started", "ended", "failed", "requeued"),
}  # fmt: skip
"""Types of mail, and the topics of news that they are."""

_VARIABLES = (
    'export SLURM_JOB_ID="$SHOAL_JOB_ID" SLURM_JOBID="$SHOAL_JOB_ID"; '
    'export SLURM_JOB_NAME="$SHOAL_JOB_NAME" SLURM_JOB_ACCOUNT="$SHOAL_TENANT"; '
    'export SLURM_NTASKS="$WORLD_SIZE" SLURM_NPROCS="$WORLD_SIZE" SLURM_PROCID="$RANK" SLURM_LOCALID="$LOCAL_RANK"; '
    'export SLURM_RESTART_COUNT="$((SHOAL_ATTEMPT - 1))"; '
    'if [ -n "$SHOAL_ARRAY_ID" ]; then export SLURM_ARRAY_JOB_ID="$SHOAL_ARRAY_ID" '
    'SLURM_ARRAY_TASK_ID="$SHOAL_ARRAY_INDEX" SLURM_ARRAY_TASK_COUNT="$SHOAL_ARRAY_COUNT" '
    'SLURM_ARRAY_TASK_MIN="$SHOAL_ARRAY_MIN" SLURM_ARRAY_TASK_MAX="$SHOAL_ARRAY_MAX"; fi; '
)
_SRUN = (
    "srun() { while :; do case $1 in --*=*|-[a-zA-Z]?*) shift;; "
    "-[nNcptwJAoeGD]|--ntasks|--nodes|--cpus-per-task|--partition|--time|--gres|--gpus|--output|--error|--mem) "
    'shift 2;; -*) shift;; *) break;; esac; done; "$@"; }; export -f srun; '
)


@dataclass(slots=True)
class _Options:
    """What was asked for, by long name; the last one counts. `where` says which line."""

    values: dict[str, str] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)

    def read(self, words: Sequence[str], where: str) -> list[str]:
        """Take options; returns the words from the first that is none. Raises Invalid."""
        rest = list(words)
        while rest and rest[0].startswith("-") and rest[0] != "-":
            word = rest.pop(0)
            if word == "--":
                break
            if word.startswith("--"):
                name, given, value = word[2:].partition("=")
            else:
                name, value = _SHORT.get(word[1], word[1]), word[2:].removeprefix("=")
                given = value
            if name in _FLAGS:
                pass
            elif not given:
                if not rest:
                    raise Invalid(f"--{name} lacks its value", where=where, hint=f"--{name}=VALUE")
                value = rest.pop(0)
            self.values[name] = value
            self.where[name] = where
        return rest


def import_slurm(
    script: str, *, name: str, options: Sequence[str] = (), arguments: Sequence[str] = (), folder: Path
) -> tuple[JobManifest, tuple[str, ...]]:
    """The job that a batch script describes, and a note on each thing that changed or could not be carried over.

    `name` is the script's file, which is among the job's files; `options` are those of the command line, which count
    more than the script's; `folder` is where it was submitted, and where it runs. Raises Invalid.
    """
    if not script.startswith("#!"):
        raise Invalid(
            "this is no batch script: its first line names no interpreter",
            where=f"{name}:1",
            hint="begin with #!/bin/bash",
        )
    asked = _Options()
    for number, line in enumerate(script.splitlines(), 1):
        text = line.strip()
        if text and not text.startswith("#"):
            break
        if text.startswith("#SBATCH"):
            try:
                words = shlex.split(text.removeprefix("#SBATCH"), comments=True)
            except ValueError as error:
                raise Invalid(f"the directive cannot be split into words: {error}", where=f"{name}:{number}") from None
            asked.read(words, f"{name}:{number}")
    asked.read(options, "the command line")
    return _SlurmImporter(asked, script, name, arguments, folder).run()


def split_words(words: Sequence[str]) -> tuple[list[str], str | None, str, list[str]]:
    """A command line of `sbatch`: its options, the command of `--wrap`, the script, and the script's arguments."""
    asked = _Options()
    rest = asked.read(words, "the command line")
    wrapped = asked.values.pop("wrap", None)
    options = [f"--{name}" if name in _FLAGS else f"--{name}={value}" for name, value in asked.values.items()]
    if wrapped is None and not rest:
        raise Invalid("there is no script", where="SCRIPT", hint="`shoal sbatch script.sh`, or - for stdin")
    return options, wrapped, "" if wrapped is not None else rest[0], rest if wrapped is not None else rest[1:]


class _SlurmImporter:
    def __init__(self, asked: _Options, script: str, name: str, arguments: Sequence[str], folder: Path) -> None:
        self._asked = asked
        self._left = dict(asked.values)
        self._script = script
        self._name = name
        self._arguments = arguments
        self._folder = folder
        self._notes: list[str] = []

    def run(self) -> tuple[JobManifest, tuple[str, ...]]:
        values: dict[str, Any] = {"labels": {"imported-from": "slurm"}, "name": self._job_name()}
        if (account := self._take("account")) is not None:
            values["tenant"] = account.lower()
            self._notes.append(f"account {account} is taken for the tenant")
        if (comment := self._take("comment")) is not None:
            values["description"] = comment
        if (limit := self._take("time")) is not None and limit not in ("0", "UNLIMITED", "INFINITE"):
            values["max_runtime"] = self._seconds(limit)
        if (array := self._take("array")) is not None:
            values["array"] = array
        self._dependencies(values)
        self._mail(values)
        self._resources(values)
        self._nodes(values)
        self._environment(values)
        self._command(values)
        for option in sorted(self._left.keys() - _SILENT):
            why = _WHY.get(option, "it has no counterpart")
            self._notes.append(f"--{option} is left out: {why}")
        try:
            return JobManifest.model_validate(values), tuple(self._notes)
        except ValidationError as error:
            problems = [
                Invalid(found.what, where=self._origin(found.field), hint=found.hint)
                for found in explain(error, Document(values, self._name))
            ]
            if len(problems) == 1:
                raise problems[0] from None
            raise Invalid(
                f"{len(problems)} directives cannot be carried over", where=self._name, problems=tuple(problems)
            ) from None

    def _origin(self, path: str) -> str:
        option = {"max_runtime": "time", "array": "array", "name": "job-name", "tenant": "account"}.get(path, path)
        return self._asked.where.get(option, self._name)

    def _take(self, option: str) -> str | None:
        return self._left.pop(option, None)

    def _number(self, option: str) -> int | None:
        text = self._take(option)
        if text is None:
            return None
        if not text.isdecimal() or not int(text):
            raise Invalid(
                f"--{option}={text} is no number", where=self._asked.where[option], hint="give one whole number"
            )
        return int(text)

    def _job_name(self) -> str:
        given = self._take("job-name") or self._name.partition(".")[0]
        name = re.sub(r"[^a-z0-9]+", "-", given.lower()).strip("-")[:56].strip("-") or "job"
        if name != given:
            self._notes.append(f"the name {shown(given)} became {name!r}: names are lower-case words with dashes")
        return name

    def _seconds(self, text: str) -> float:
        """`M`, `M:S`, `H:M:S`, `D-H`, `D-H:M` or `D-H:M:S`."""
        days, dash, rest = text.rpartition("-")
        parts = rest.split(":")
        known = all(part.isdecimal() for part in parts) and len(parts) <= 3 and (days.isdecimal() or not dash)
        if not known:
            raise Invalid(
                f"--time={text} is no time", where=self._asked.where["time"], hint="such as 90, 1:30:00 or 2-12"
            )
        numbers = [int(part) for part in parts]
        if dash:
            hours, minutes, seconds = [*numbers, 0, 0][:3]
        elif len(numbers) == 3:
            hours, minutes, seconds = numbers
        else:
            hours, (minutes, seconds) = 0, [*numbers, 0][:2]
        return float(int(days or 0) * 86_400 + hours * 3600 + minutes * 60 + seconds)

    def _dependencies(self, values: dict[str, Any]) -> None:
        text = self._take("dependency")
        if not text:
            return
        if "?" in text:
            raise Invalid(
                "a dependency of which any part is enough has no counterpart", where=self._asked.where["dependency"],
                hint="Shoal waits for all that is named: separate them with a comma",
            )  # fmt: skip
        after: list[dict[str, str]] = []
        for part in text.split(","):
            kind, _, refs = part.partition(":")
            if kind not in _WHEN or not refs:
                self._notes.append(f"--dependency={part} is left out: only afterok, afternotok and afterany are kept")
                continue
            after += [{"job": ref, "when": _WHEN[kind]} for ref in refs.split(":")]
        values["after"] = after

    def _mail(self, values: dict[str, Any]) -> None:
        kinds = [one.upper() for one in self._asked.values.get("mail-type", "").split(",") if one]
        users = [one for one in self._asked.values.get("mail-user", "").split(",") if one]
        if kinds == ["NONE"]:
            self._take("mail-type")
            self._take("mail-user")
            return
        if not kinds or not users:
            return
        self._take("mail-type")
        self._take("mail-user")
        if away := [one for one in users if "@" not in one]:
            self._notes.append(f"--mail-user={','.join(away)} is left out: a mail address has a domain")
        topics = list(dict.fromkeys(topic for one in kinds for topic in _MAIL.get(one, ())))
        if unknown := [one for one in kinds if one not in _MAIL and one != "ARRAY_TASKS"]:
            self._notes.append(f"--mail-type={','.join(unknown)} is left out: it has no counterpart")
        if topics and len(away) < len(users):
            section = {"to": [one for one in users if "@" in one], "on": topics}
            values["extensions"] = {"notify": {**section, **({"array_tasks": True} if "ARRAY_TASKS" in kinds else {})}}

    def _resources(self, values: dict[str, Any]) -> None:
        nodes, tasks = self._number("nodes"), self._number("ntasks")
        per_node = self._number("ntasks-per-node")
        ranks = tasks or (nodes or 1) * (per_node or 1)
        nodes = nodes or 1
        resources: dict[str, Any] = {}
        cpus = self._number("cpus-per-task") or 1
        resources["cpus"] = cpus
        total, kind = self._accelerators(nodes, ranks)
        if total:
            if total % ranks:
                raise Invalid(
                    f"{total} accelerators cannot be shared out evenly over {ranks} tasks", where=self._name,
                    hint="use --gpus-per-task, or as many accelerators as tasks",
                )  # fmt: skip
            resources["accelerators"] = {"type": kind, "count": total // ranks}
        if (memory := self._take("mem")) is not None and memory != "0":
            resources["memory"] = self._bytes("mem", memory) * nodes // ranks
        elif (memory := self._take("mem-per-cpu")) is not None:
            resources["memory"] = self._bytes("mem-per-cpu", memory) * cpus
        values["resources"] = resources
        values["ranks"] = ranks
        if ranks > 1:
            self._notes.append(
                f"the script runs in each of the {ranks} tasks, not once: `srun CMD` in it starts CMD once in each"
            )
        if nodes > 1 and ranks % nodes == 0:
            values["ranks_per_node"] = ranks // nodes
        elif nodes > 1:
            self._notes.append(f"--nodes={nodes} is left out: Shoal puts the {ranks} tasks on as few nodes as it can")

    def _nodes(self, values: dict[str, Any]) -> None:
        """Features that are all needed (`a&b`) are labels, as the engine `slurm` gives them to its nodes."""
        text = self._take("constraint")
        if text is None:
            return
        features = text.split("&")
        if all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", one) for one in features):
            values["nodes"] = {"require": {f"feature.{one}": "yes" for one in features}}
        else:
            self._notes.append(f"--constraint={text} is left out: only features joined by & are kept")

    def _accelerators(self, nodes: int, ranks: int) -> tuple[int, str]:
        """How many for all tasks, and their type."""
        for option, times in (("gres", nodes), ("gpus-per-node", nodes), ("gpus", 1), ("gpus-per-task", ranks)):
            text = self._take(option)
            if text is None:
                continue
            words = [word for word in text.removeprefix("gpu:").split(":") if word != "gpu"]
            count = words.pop() if words and words[-1].isdecimal() else "1"
            if len(words) > 1 or "," in text or (option == "gres" and not text.startswith("gpu")):
                self._notes.append(f"--{option}={text} is left out: only accelerators, as gpu:TYPE:COUNT, are kept")
                continue
            return int(count) * times, words[0].lower() if words else "any"
        return 0, "any"

    def _bytes(self, option: str, text: str) -> int:
        matched = re.fullmatch(r"(\d+)([KMGT]?)B?", text, re.IGNORECASE)
        if matched is None:
            raise Invalid(f"--{option}={text} is no size", where=self._asked.where[option], hint="such as 4000M or 16G")
        number, unit = matched.groups()
        return int(number) << {"K": 10, "M": 20, "G": 30, "T": 40}[unit.upper() or "M"]

    def _environment(self, values: dict[str, Any]) -> None:
        text = self._take("export")
        if text is None:
            return
        env = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
        values["env"] = env
        bare = [part for part in text.split(",") if "=" not in part and part not in ("NONE", "NIL")]
        if bare:
            self._notes.append(f"--export={','.join(bare)}: the environment of the submission is not taken along")

    def _command(self, values: dict[str, Any]) -> None:
        folder = str(self._folder / (self._take("chdir") or ""))
        self._notes.append(f"it runs in {folder}, as under Slurm: that folder must be there on every node")
        interpreter = self._script.splitlines()[0][2:].strip() or "/bin/sh"
        where = shlex.quote(folder)
        line = (
            f'script="$PWD/$0"; export SLURM_SUBMIT_DIR={where}; cd {where} || exit 1; {_VARIABLES}{_SRUN}'
            f'exec {interpreter} "$script" "$@"'
        )
        values["command"] = ["bash", "-c", line, self._name, *self._arguments]
        values["files"] = [self._name]
