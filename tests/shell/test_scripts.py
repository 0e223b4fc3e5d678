"""Scripts whose commands run on a site leave what bash leaves: output, errors, status, files."""

from __future__ import annotations

import shutil

import pytest

from shoal.shell.table import HOOK
from tests.shell.conftest import World

STATUS = '; echo "status $? ${PIPESTATUS[*]}"'


@pytest.mark.parametrize(
    ("script", "away"),
    [
        ("cat $M/a.txt | grep 'alpha 7' | sort | tail -5", 4),
        ("grep alpha $M/a.txt $M/b.txt $M/dir/c.txt | wc -l", 2),
        ("wc $M/a.txt $M/b.txt", 1),
        ("cd $M; grep -c alpha a.txt; pwd; cd dir; wc -l ../a.txt c.txt", 2),
        ("sort -t' ' -k3,3n -r $M/a.txt | uniq -c | tail -3", 3),
        ("cut -d' ' -f3 $M/a.txt | sort -n | uniq -c | sort -rn | tail -n3", 5),
        ("sed -n '2p;$p' $M/no-newline", 1),
        ("awk '{s += $3} END {print s}' $M/a.txt", 1),
        ("tr a-z A-Z < $M/b.txt | tail -2", 2),
        ("rev $M/a.txt | tac | tail -1", 3),
        ("md5sum $M/binary $M/empty", 1),
        ("find $M -name '*.txt' -type f | sort", 2),
        ("cd $M && ls -R | cat", 2),
        ("grep -r alpha $M | sort", 2),
        ("comm -12 <(sort $M/a.txt) <(sort $M/b.txt)", 2),
        ("cat $M/binary | od -c | tail -4", 3),
        ("grep -q alpha $M/a.txt && echo yes", 1),
        ("grep -m1 alpha $M/a.txt", 1),
        ('f() { grep "$1" $M/b.txt; }; for i in 1 22 3; do f $i | wc -l; done', 3),
        ("find $M -name 'a.txt' | xargs grep -c alpha", 2),
        ("x=$(cat $M/b.txt | wc -l); echo $x", 2),
        ("{ echo header; grep 25 $M/b.txt; } | sort", 1),
    ],
)
def test_a_pipeline_leaves_what_bash_leaves(world: World, script: str, away: int) -> None:
    world.same(script + STATUS, away=away)


@pytest.mark.parametrize(
    "script",
    [
        "grep alpha $M/nosuch",
        "cat $M/dir",
        "cat $M/a.txt $M/nosuch $M/b.txt | wc -l",
        "grep '[' $M/a.txt",
        "sort $M/a.txt --nosuch",
        "head -c 0 $M/a.txt",
        "cat $M/a.txt | head -1; cat $M/no-newline | tail -c 1",
        "cat $M/empty | grep x",
        "set -e; grep zzz $M/a.txt; echo not here",
        "set -o pipefail; cat $M/a.txt | grep zzz | wc -l",
        "cd $M; cat -- -dash './with space.txt' new*; cat *dash",
        "cat $M/*",
        "grep -l alpha $M/*",
        "grep -f $M/empty $M/a.txt | head -1",
        "while read -r x; do grep -c \"$x\" $M/a.txt; done < $M/dir/c.txt",
        "printf '1\\n2\\n' | while read -r x; do grep -c \"$x\" $M/b.txt; done",
        "exec 3<$M/b.txt; head -1 <&3; read -r y <&3; echo $y",
        "{ head -1; cat; } < $M/dir/c.txt",
        "cat $M/a.txt > copy; wc -l copy; cat $M/b.txt >> copy",
        "cat $M/b.txt > $M/b2.txt; sort $M/b2.txt | tail -1",
        "echo new >> $M/b.txt; tail -1 $M/b.txt",
        "exec 4>>$M/log; echo one >&4; grep -c one $M/log; echo one >&4; grep -c one $M/log",
        "cat $M/b.txt > $M/b.txt; cat $M/dir/c.txt >> $M/dir/c.txt; wc -c $M/b.txt",
        "sort $M/b.txt -o $M/b.txt; head -2 $M/b.txt",
        "sed -i s/beta/BETA/ $M/b.txt; head -2 $M/b.txt",
        "tee $M/t1 $M/t2 < $M/b.txt | wc -l; cat $M/t2 | wc -c",
        "cp $M/a.txt $M/a2; mv $M/a2 $M/a3; mkdir -p $M/n/m; touch $M/n/m/x; rm $M/b.txt; rm -r $M/dir; ls $M",
        "cat <<EOF | grep b - $M/b.txt | tail -2\na\nb\nEOF",
        "grep -c beta <<< beta; grep -c beta - $M/b.txt <<< beta",
        "cat $M/a.txt & wait $!; echo $?",
        "coproc grep alpha $M/dir/c.txt; cat <&${COPROC[0]}",
        "grep() { echo mine; }; grep x $M/a.txt; command grep -c x $M/a.txt; \\grep -c alpha $M/a.txt; env grep -c alpha $M/a.txt",  # noqa: E501
        "PATH=/nowhere; grep -c alpha $M/a.txt",
        "mkdir bin; printf '#!/bin/sh\\necho own \"$@\"\\n' > bin/grep; chmod +x bin/grep; PATH=$PWD/bin:$PATH; grep x $M/a.txt",  # noqa: E501
        "(ulimit -f 10; cat $M/a.txt > out) 2>/dev/null; wc -c out",
        "umask 077; cat $M/a.txt > out; sort $M/b.txt -o $M/sorted; stat -c %a out $M/sorted",
        "LC_ALL=C sort $M/a.txt | tail -2; LC_ALL=xx_YY sort $M/b.txt | tail -1",
        "cat $M/a.txt 2>&1 $M/nosuch | tail -1",
        "grep alpha $M/dir/c.txt $M/nosuch > both 2>&1; cat both",
        "cat $M/a.txt >&-; cat <&- $M/empty; cat 2>&- $M/nosuch",
        "trap 'echo trapped' EXIT; grep -c beta $M/b.txt",
        "cd $M/dir; cat ../a.txt | tail -1; cat sub/../c.txt; cat ./c.txt; cat $M/../mnt/empty",
        "ln -s a.txt $M/inside; ln -s /etc/hostname $M/outside; ln -s nowhere $M/dangling; cat $M/inside | tail -1; cat $M/outside; cat $M/dangling",  # noqa: E501
        "mkfifo $M/fifo; (echo through > $M/fifo &); cat $M/fifo",
        "cat $M/a.txt ''",
        "grep '' $M/no-newline",
        "grep -c -e a -e 1 $M/a.txt $M/b.txt",
        "cd $M; wc -l <(cat a.txt) | cut -d' ' -f1",
        "cat $M/a.txt | tee copy | grep -c 9; wc copy",
        "timeout 5 grep -c alpha $M/a.txt; nice grep -c alpha $M/a.txt; nohup grep -c alpha $M/a.txt 2>/dev/null",
        "env | sort | grep -e SHOAL_SHELL -e PRELOAD; bash -c 'export -p' | grep -c -e SHOAL_SHELL -e PRELOAD",
        "awk 'BEGIN{system(\"echo ran\")}' $M/a.txt; sed '1e echo ran' $M/no-newline; find $M -name b.txt -delete; ls $M",  # noqa: E501
        "python3 -c \"import subprocess,os; print(subprocess.check_output(['grep','-c','alpha',os.environ['M']+'/a.txt']))\"",  # noqa: E501
        "printf 'all:\\n\\tgrep -c alpha %s/a.txt\\n' $M > Makefile; make -s",
        "cat $M/a.txt | (read -r x; echo $x; head -1)",
        "exec grep -c alpha $M/a.txt",
        "cat $M/a.txt >> $M/out & cat $M/b.txt >> $M/out; wait; sort $M/out | md5sum; rm $M/out",
        "shopt -s expand_aliases; alias grep='grep -n'\ngrep gamma $M/dir/c.txt",
        "sudo -n grep -c alpha $M/a.txt 2>/dev/null",
        "mkdir own; cp $(command -v grep) own/grep; chmod u+s own/grep; own/grep -c alpha $M/a.txt",
        "cd $M; echo star > '*'; cat -- '*'; grep -c star -- *.txt '*'; rm '*'; cat *.txt | md5sum",
        "mknod $M/null c 1 3; cat $M/null; ln -s /dev/zero $M/zero; head -c 5 $M/zero | od -c; rm -f $M/null $M/zero",
        "chmod 000 $M/a.txt $M/dir; wc -l $M/a.txt; cat $M/dir/c.txt; chmod 644 $M/a.txt; chmod 755 $M/dir",
        "for i in 1 2 3; do echo line $i >> $M/log; wc -l $M/log; done; : > $M/log; wc -c $M/log; echo x > $M/log; cat $M/log",  # noqa: E501
    ],
)  # fmt: skip
def test_an_unusual_script_leaves_what_bash_leaves(world: World, script: str) -> None:
    world.same(script + STATUS)


@pytest.mark.parametrize("shell", ["dash", "zsh"])
def test_other_shells_have_the_same_results(world: World, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    world.same(
        "cat $M/a.txt | grep 'alpha 7' | sort | tail -5; echo $?; cd $M; grep -c beta b.txt nosuch; echo $?",
        shell=shell,
        away=5,
    )


@pytest.mark.slow
def test_many_and_long_arguments(world: World) -> None:
    world.same(f"cd $M; grep -c alpha {'a.txt ' * 20_000} | sort | uniq -c" + STATUS, away=3)
    world.same(f"grep -c -e {'x' * 120_000} -e alpha $M/a.txt" + STATUS, away=1)


def test_a_name_that_is_not_utf_8(world: World) -> None:
    world.same("cd $M; cp a.txt $'caf\\xe9'; grep -c alpha caf*; ls | od -c | head -3" + STATUS)


def test_input_of_the_script_is_read_as_bash_reads_it(world: World) -> None:
    world.same("grep -c alpha $M/a.txt; cat; cat $M/empty" + STATUS, data=b"the input\n")


def test_a_producer_ends_with_its_consumer(world: World) -> None:
    world.same("cat $M/a.txt $M/a.txt $M/a.txt $M/a.txt $M/a.txt $M/a.txt | head -1", away=2)
    world.same("yes | head -2000 | sort -m - $M/empty | tail -1")


def test_without_its_agent_a_script_runs_here(own_world: World) -> None:
    own_world.begin()
    own_world.same("grep -c alpha $M/a.txt", away=1)
    own_world.end()
    table = own_world.home / "shell" / "table"
    assert table.exists()
    environ = {
        "LD_PRELOAD": str(HOOK), "SHOAL_SHELL_TABLE": str(table),
        "SHOAL_SHELL_RUN": "x:0:0:0",
    }  # fmt: skip
    own_world.fill()
    expected = own_world.plain("cat $M/a.txt | grep alpha | wc -l; echo ${PIPESTATUS[*]}")
    assert own_world.plain("cat $M/a.txt | grep alpha | wc -l; echo ${PIPESTATUS[*]}", **environ) == expected


@pytest.mark.parametrize(
    "script",
    [
        "cat $M/a.txt | sort -r > $M/out; wc $M/out; head -1 $M/out",
        "sort $M/a.txt >> $M/b.txt; sort $M/b.txt | md5sum; echo old > $M/c; grep alpha $M/a.txt 1<> $M/c; wc $M/c",
        "{ grep 'alpha 7' $M/a.txt; sort $M/b.txt; } > $M/out; md5sum $M/out; exec 5> $M/o; sort $M/b.txt >&5; wc $M/o",
        # Each writes once: what two of several writes leave in one file differs between two runs of bash as well.
        "(grep 'alpha 99' $M/a.txt & grep 'beta 13' $M/b.txt; wait) > $M/o; exec 5> $M/p;"
        "grep 'alpha 99' $M/a.txt >&5 & grep 'alpha 98' $M/a.txt >&5 & exec 5>&-;"
        "wait; for i in o p; do sort $M/$i | md5sum; done; rm $M/[op]",
        "sort $M/a.txt > $M/x & sort -r $M/a.txt > $M/y & wait; cat $M/x $M/y | md5sum; (umask 7; sort $M/b.txt > z)",
        "grep '[' $M/a.txt > $M/out; sort $M/nosuch > $M/out2; grep nothing $M/a.txt > $M/out; echo $?; wc $M/out*",
        "sort $M/a.txt > $M/out 2>&1; sort $M/nosuch > $M/out2 2>&1; cat $M/out2; ln -s out $M/l; sort $M/b.txt > $M/l",
        "cd $M/dir; sort ../a.txt > ../out; cat < ../out > new; cmp new $M/out; set -C; sort c.txt > new; echo $?; ls",
    ],
)
def test_output_to_a_file_of_a_site_is_written_there(world: World, script: str) -> None:
    world.same(script + STATUS)


def test_such_output_does_not_cross_the_link(world: World) -> None:
    entries = world.same("cat $M/a.txt | sort -r > $M/out", away=2)
    assert entries[-1]["moved"] == 0
    assert "there" in str(entries[-1]["why"])
