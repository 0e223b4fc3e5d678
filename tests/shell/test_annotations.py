"""Arguments are understood as getopt understands them, and what is not understood runs here."""

from __future__ import annotations

import shlex

import pytest

from shoal.core import Invalid
from shoal.shell.annotations import Match, NotUnderstood, Split, load, match, parse
from shoal.shell.annotations.check import try_all
from shoal.shell.annotations.posh import translate

SHIPPED = load([])


def understood(text: str, **environ: str) -> Match:
    words = shlex.split(text)
    return match(SHIPPED.get(words[0], ()), words, environ)


@pytest.mark.parametrize(
    ("text", "reads", "stdin"),
    [
        ("cat a b", ("a", "b"), False),
        ("cat", (), True),
        ("cat - a", ("a",), True),
        ("cat -- -x", ("-x",), False),
        ("grep x", (), True),
        ("grep -A3 x f", ("f",), False),
        ("grep -A 3 x f", ("f",), False),
        ("grep -inE x f g", ("f", "g"), False),
        ("grep -ie x f", ("f",), False),
        ("grep --max=3 x f", ("f",), False),
        ("grep --regexp=x f", ("f",), False),
        ("grep --regexp x f", ("f",), False),
        ("grep -f pats f", ("pats", "f"), False),
        ("grep -fpats f", ("pats", "f"), False),
        ("grep f -e x", ("f",), False),
        ("head -5 f", ("f",), False),
        ("head -n5", (), True),
        ("sort -k1,1 -n -t, f", ("f",), False),
        ("cut -d' ' -f1-3 f", ("f",), False),
        ("awk -F: '{print $1}' f", ("f",), False),
        ("comm -12 a b", ("a", "b"), False),
        ("find a b -name '*.c' -print", ("a", "b"), False),
        ("git status -s", (), False),
        ("zannotate -routing -routing-mrt-file=m", ("m",), True),
    ],
)
def test_what_is_read(text: str, reads: tuple[str, ...], stdin: bool) -> None:
    found = understood(text)
    assert (found.reads, found.stdin) == (reads, stdin)
    assert not found.changes


@pytest.mark.parametrize(
    ("text", "writes"),
    [
        ("sort f -o g", ("g",)),
        ("sort --output=g f", ("g",)),
        ("sed -i s/a/b/ f", ("f",)),
        ("sed -i.bak s/a/b/ f", ("f",)),
        ("tee -a x y", ("x", "y")),
        ("cp a b", ("b",)),
        ("rm -rf a b", ("a", "b")),
        ("mogrify -format gif -path D -thumbnail 100x100 a.jpg", ("D",)),
        ("uniq a b", ("b",)),
        ("git add a", ("a",)),
    ],
)
def test_what_is_written_is_never_run_twice(text: str, writes: tuple[str, ...]) -> None:
    found = understood(text)
    assert found.changes
    assert set(writes) <= set(found.writes)


@pytest.mark.parametrize(
    "text",
    [
        "grep", "grep --nosuch x", "grep --no x f", "grep -R x d", "grep -d skip x f", "grep --count=3 x", "grep -e",
        "tail -f f", "tail --follow=name f", "sort -R f", "sort --files0-from=f", "sort -T /tmp f", "wc --files0-from=f",  # noqa: E501
        "sed '1e id' f", "sed s/a/b/e f", "sed 's/a/b/w out' f", "sed 'r other' f", "sed -f script f", "sed '1d;w x' f",
        "awk 'BEGIN{system(\"id\")}'", "awk '{print > \"x\"}' f", "awk '{print | \"sh\"}' f", "awk '{\"date\" | getline d}' f",  # noqa: E501
        "awk '{print ENVIRON[\"A\"]}' f", "awk -f s f", "awk 'BEGIN{srand();print rand()}'", "find d -delete",
        "find d -exec rm {} ';'", "find d -newer x", "find d -printf x", "md5sum -c f", "gzip f", "xz f", "git push",
        "git status --nosuch", "git -C d status", "jq env f", "jq 'input_filename' f", "pr f", "diff -u a b", "ls -l d",
        "du d", "df", "ssh host", "xargs grep x", "cp -r a b", "cp a b c", "comm a", "dd if=a",
    ],
)  # fmt: skip
def test_what_is_not_understood_runs_here(text: str) -> None:
    with pytest.raises(NotUnderstood):
        understood(text)


@pytest.mark.parametrize(
    ("text", "split", "across"),
    [
        ("grep x a b", Split.CONCAT, True), ("grep -c x a b", Split.CONCAT, False), ("grep -m1 x a b", Split.NEVER, False),  # noqa: E501
        ("grep -q x a b", Split.NEVER, False), ("cat -n a b", Split.NEVER, False), ("cat a - b", Split.NEVER, True),
        ("sort a b", Split.MERGE, False), ("sort -s a b", Split.NEVER, False), ("sort -m a b", Split.NEVER, False),
        ("wc a b", Split.NEVER, False), ("sed p a b", Split.NEVER, True), ("sed 2p a b", Split.NEVER, False),
        ("grep -l x a b", Split.CONCAT, False), ("grep -A1 x a b", Split.NEVER, False),
    ],
)  # fmt: skip
def test_flags_change_what_may_be_dealt_out(text: str, split: Split, across: bool) -> None:
    found = understood(text)
    assert (found.split, found.across) == (split, across)


def test_options_end_at_the_first_operand_where_posix_is_asked_for() -> None:
    assert understood("grep x f -v").reads == ("f",)
    assert understood("grep x f -v", POSIXLY_CORRECT="1").reads == ("f", "-v")


def test_few_lines_are_expected_of_what_stops_early() -> None:
    assert understood("grep -m1 x f").ratio < understood("grep x f").ratio < understood("grep -v x f").ratio
    assert understood("grep -q x f").few


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("[x", "file", "no TOML"),
        ("x = 1", "[x]", "a command is a table"),
        ("[x]\nnosuch = 1", "[x]", "no word of the language"),
        ('[x]\noptions = ["x"]', "[x]", "is no option"),
        ('[x]\noptions = ["-x =nosuch"]', "[x]", "no kind of argument"),
        ('[x]\noperands = ["input!"]', "[x]", "is no operand"),
        ('[x]\nsplit = "nosuch"', "[x]", "split is"),
        ('[x]\nlike = "y"', "[x]", "there is no command"),
    ],
)
def test_a_wrong_annotation_is_told_with_its_place(text: str, where: str, what: str) -> None:
    with pytest.raises(Invalid) as found:
        parse(text, "file")
    assert what in found.value.what
    assert where in str(found.value.where)


def test_own_annotations_replace_those_that_come_with_shoal(tmp_path: object) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "own.toml"
    path.write_text('[cat]\noptions = ["-q"]\noperands = ["input*"]\n[mytool]\nlike = "grep"\nratio = 2\n')
    found = load([path])
    assert match(found["cat"], ["cat", "-q", "a"], {}).reads == ("a",)
    with pytest.raises(NotUnderstood):
        match(found["cat"], ["cat", "-n", "a"], {})
    assert match(found["mytool"], ["mytool", "-i", "x", "a"], {}).ratio == 2


POSH = """
# as in POSH's own file
cat: PARAMS:[(splittable,type:input_file,size:list(list_separator:( ))),]
grep[splittable_across_input,reduces_input]: FLAGS:[(short:v,long:invert-match)] PARAMS:[(type:str,size:1),(type:input_file,size:list(list_separator:( )))]
grep[splittable_across_input,reduces_input]: FLAGS:[(short:v,long:invert-match)] OPTPARAMS:[(short:e,long:regexp,type:str,size:1),(short:f,long:file,type:input_file,size:1)] PARAMS:[(type:input_file,size:list(list_separator:( )))]
mogrify[long_arg_single_dash]: OPTPARAMS:[(long:format,type:str,size:1),(long:path,type:output_file,size:1),(long:thumbnail,type:str,size:1)] PARAMS:[(type:input_file,splittable,size:list(list_separator:( )))]
pr: FLAGS:[(short:m,long:merge),(short:t)] OPTPARAMS:[(short:s,type:str,size:1,attached)] PARAMS:[(type:input_file,size:list(list_separator:( )))]
head: OPTPARAMS:[(long:lines,short:n,size:1)]
q: FLAGS:[(short:H)] OPTPARAMS:[(short:d,size:1,type:str)] PARAMS:[(type:str,size:1)]
/home/u/go/bin/zannotate[long_arg_single_dash]: FLAGS:[(long:routing)] OPTPARAMS:[(long:routing-mrt-file,type:input_file,size:1),(long:input-file-type,type:str,size:1)]
git status[needs_current_dir]: OPTPARAMS:[(short:C,size:1,type:input_file)]
git commit[needs_current_dir]: OPTPARAMS:[(short:F,long:file,size:1,type:input_file)]
"""  # noqa: E501


def test_posh_annotations_are_taken_over() -> None:
    found = parse(translate(POSH, "posh"), "posh")
    assert list(found) == ["cat", "grep", "mogrify", "pr", "head", "q", "zannotate", "git"]

    def taken(text: str) -> Match:
        words = text.split()
        return match(found[words[0]], words, {})

    assert taken("cat a b").split is Split.CONCAT
    assert (taken("grep -v x a").reads, taken("grep -v x a").ratio, taken("grep -v x a").across) == (("a",), 0.5, True)
    assert taken("grep -e x a").reads == ("a",)
    assert taken("mogrify -path D -thumbnail 1x1 a").writes == ("D",)
    assert taken("pr -mts, a b").reads == ("a", "b")
    assert taken("zannotate -routing -routing-mrt-file=m").reads == ("m",)
    assert (taken("git status").cwd, taken("git commit -F m").reads) == (True, ("m",))
    with pytest.raises(NotUnderstood):
        taken("git push")


@pytest.mark.parametrize(
    "text",
    ["cat", "cat[nosuch]: PARAMS:[(type:str)]", "cat: PARAMS:[(type:str", "cat: PARAMS:[(type:nosuch)]", "cat: nothing",
     "cat: FLAGS:[(size:1)]", "tar: FLAGS:[(short:x),(short:z))]"],
)  # fmt: skip
def test_a_wrong_line_of_posh_is_told_with_its_number(text: str) -> None:
    with pytest.raises(Invalid) as found:
        translate(f"# first\n{text}\n", "posh")
    assert found.value.where == "posh:2"


def test_the_real_commands_take_what_their_annotations_say() -> None:
    claims = try_all(
        {name: SHIPPED[name] for name in ("cat", "grep", "cut", "tr", "uniq", "head", "comm", "fold", "md5sum")}
    )
    assert [one for one in claims if not one.holds] == []
    assert len(claims) > 100


def test_a_false_claim_is_found() -> None:
    wrong = parse('[tail]\noptions = ["--nosuch"]\noperands = ["input*"]\nsplit = "concat"\nacross = true\n'
                  '[tee]\noperands = ["input*"]\n', "x")  # fmt: skip
    failed = {(one.command, one.claim) for one in try_all(wrong) if not one.holds}
    assert failed == {
        ("tail", "takes --nosuch"), ("tail", "works on pieces of its input"), ("tail", "its files may be dealt out"),
        ("tee", "writes no file"),
    }  # fmt: skip
