"""Batch scripts of Slurm as manifests: what is carried over, what is named, and what runs in the end."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from shoal.cli.importers.slurm import import_slurm, split_words
from shoal.contract.manifest import JobManifest
from shoal.core import Invalid

HERE = Path("/data/ada")


def read(directives: str, *, options: tuple[str, ...] = (), body: str = "true") -> tuple[JobManifest, tuple[str, ...]]:
    lines = "".join(f"#SBATCH {line}\n" for line in directives.strip().splitlines())
    return import_slurm(f"#!/bin/bash\n{lines}{body}\n", name="train.sh", options=options, folder=HERE)


def test_the_usual_directives_become_fields() -> None:
    manifest, notes = read(
        """
        --job-name=Fine_Tune
        --account=vision
        -t 1-02:30:00
        --ntasks 4 --cpus-per-task=2
        --gres=gpu:a100:4   # one for each
        --mem=64G
        -a 0-99%10
        --dependency=afterok:j-1:j-2,afterany:prepare
        --export=ALL,LR=0.1
        --output=%x-%j.out
        """
    )
    assert (manifest.name, manifest.tenant, manifest.max_runtime, manifest.array) == (
        "fine-tune", "vision", 95_400.0, "0-99%10",
    )  # fmt: skip
    assert [(one.job, one.when.value) for one in manifest.after] == [
        ("j-1", "success"), ("j-2", "success"), ("prepare", "end"),
    ]  # fmt: skip
    asked = manifest.resources
    assert (manifest.ranks, asked.cpus, asked.memory) == (4, 2.0, 16 << 30)
    assert (asked.accelerators.type, asked.accelerators.count) == ("a100", 1)
    assert (manifest.env, manifest.files) == ({"LR": "0.1"}, ("train.sh",))
    told = "\n".join(notes)
    for part in ("'Fine_Tune' became 'fine-tune'", "--output is left out", "not once", "/data/ada", "--export=ALL"):
        assert part in told


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("1:30", 90), ("2:00:00", 7200), ("1-12", 129_600), ("1-0:30", 88_200), ("1-0:0:5", 86_405)],
)
def test_times_as_slurm_writes_them(text: str, seconds: int) -> None:
    assert read(f"--time={text}")[0].max_runtime == seconds


@pytest.mark.parametrize(
    ("directives", "count", "kind", "ranks"),
    [
        ("--gpus=2", 2, "any", 1), ("--gres=gpu:3", 3, "any", 1), ("--gpus-per-task=h100:2\n-n3", 2, "h100", 3),
        ("-N2 --ntasks-per-node=4 --gres=gpu:4", 1, "any", 8), ("--gres=gpu:a100", 1, "a100", 1),
        ("--gpus-per-node=2 --nodes=2", 2, "any", 2),
    ],
)  # fmt: skip
def test_accelerators_are_shared_out_over_the_tasks(directives: str, count: int, kind: str, ranks: int) -> None:
    manifest, _ = read(directives)
    got = manifest.resources.accelerators
    assert (got.count, got.type, manifest.ranks) == (count, kind, ranks)


@pytest.mark.parametrize(
    ("directives", "per_node"),
    [("-N2 --ntasks-per-node=4", 4), ("-N3", 1), ("-N2 -n6", 3), ("-N2 -n5", None), ("-n4", None)],
)
def test_tasks_are_as_many_on_each_node_where_that_can_be(directives: str, per_node: int | None) -> None:
    manifest, notes = read(directives)
    assert manifest.ranks_per_node == per_node
    assert any("--nodes=2 is left out" in note for note in notes) is (directives == "-N2 -n5")


def test_directives_end_with_the_first_command_and_the_command_line_counts_more() -> None:
    manifest, _ = read("--time=10", options=("-t", "20"), body="true\n#SBATCH --time=30")
    assert manifest.max_runtime == 1200


def test_what_has_no_counterpart_is_named() -> None:
    _, notes = read("--partition=gpu --mail-type=END --exclusive\n--dependency=singleton\n--licenses=x:1")
    told = "\n".join(notes)
    for option in ("partition", "mail-type", "exclusive", "dependency=singleton", "licenses"):
        assert f"--{option} is left out" in told


@pytest.mark.parametrize(
    ("directives", "what", "where"),
    [
        ("--time=soon", "--time=soon is no time", "train.sh:2"),
        ("--ntasks=0", "--ntasks=0 is no number", "train.sh:2"),
        ("--mem=lots", "--mem=lots is no size", "train.sh:2"),
        ("-n3 --gpus=4", "cannot be shared out evenly", "train.sh"),
        ("--dependency=afterok:1?afterok:2", "any part is enough", "train.sh:2"),
        ("--array=5-2", "ends before it begins", "train.sh:2"),
        ("--job-name='a", "cannot be split into words", "train.sh:2"),
        ("--time", "--time lacks its value", "train.sh:2"),
    ],
)
def test_wrong_directives_are_named_with_their_line(directives: str, what: str, where: str) -> None:
    with pytest.raises(Invalid, match=what) as caught:
        read(directives)
    assert caught.value.where == where


def test_a_file_that_is_no_script_is_refused() -> None:
    with pytest.raises(Invalid, match="names no interpreter"):
        import_slurm("echo hello\n", name="x.sh", folder=HERE)


def test_the_command_line_of_sbatch() -> None:
    assert split_words(["-n", "2", "--hold", "train.sh", "-n", "x"]) == (
        ["--ntasks=2", "--hold"], None, "train.sh", ["-n", "x"],
    )  # fmt: skip
    assert split_words(["--wrap=echo hi", "-t5"]) == (["--time=5"], "echo hi", "", [])
    with pytest.raises(Invalid, match="there is no script"):
        split_words(["-n", "2"])


def test_the_script_runs_in_its_folder_with_slurms_names_its_arguments_and_srun(tmp_path: Path) -> None:
    run, home = tmp_path / "run", tmp_path / "home dir"
    run.mkdir()
    home.mkdir()
    script = (
        "#!/bin/bash\n"
        'srun -n 2 --mpi=none echo "$1" "$SLURM_ARRAY_TASK_ID" "$SLURM_ARRAY_JOB_ID" "$SLURM_PROCID" > out.txt\n'
        'echo "$SLURM_SUBMIT_DIR" >> out.txt; exit 7\n'
    )
    (run / "job.sh").write_text(script)
    manifest, _ = import_slurm(script, name="job.sh", arguments=["two words"], folder=home)
    env = {
        **os.environ, "RANK": "0", "WORLD_SIZE": "1", "SHOAL_ATTEMPT": "1", "SHOAL_JOB_ID": "j-1-5",
        "SHOAL_ARRAY_ID": "j-1", "SHOAL_ARRAY_INDEX": "5",
    }  # fmt: skip
    ended = subprocess.run(manifest.argv(), cwd=run, env=env, check=False)
    assert ended.returncode == 7
    assert (home / "out.txt").read_text() == f"two words 5 j-1 0\n{home}\n"


def test_features_become_labels_of_nodes() -> None:
    manifest, notes = read("--constraint=gpu80&nvlink")
    assert manifest.affinity.require == (("feature.gpu80", ("yes",)), ("feature.nvlink", ("yes",)))
    assert not any("constraint" in note for note in notes)
    for text in ("a|b", "[a&b]", "a*2", "a&"):
        manifest, notes = read(f'--constraint="{text}"')
        assert manifest.nodes is None
        assert any(f"--constraint={text} is left out" in note for note in notes)
