"""What is read of a command line: less than a shell reads, and never anything else than it runs."""

import subprocess
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_core.shell_words import COMMANDS_MAX, LINE_CHARS_MAX, loose_words, read_line, runner_words

READ = {
    "": [],
    "  \t ": [],
    "\n\n": [],
    "ls": [["ls"]],
    "git status --short": [["git", "status", "--short"]],
    "git  log\t-1 ": [["git", "log", "-1"]],
    "git show HEAD~1 v1^": [["git", "show", "HEAD~1", "v1^"]],
    "echo 'a b' \"c d\"": [["echo", "a b", "c d"]],
    "echo a'b'\"c\"d": [["echo", "abcd"]],
    "g'i't status": [["git", "status"]],
    "echo '' \"\" x": [["echo", "", "", "x"]],
    r"echo a\ b \; \\ \*": [["echo", "a b", ";", "\\", "*"]],
    "echo '$HOME `ls` ; & | > <'": [["echo", "$HOME `ls` ; & | > <"]],
    r'echo "\$HOME \` \" \\ \n"': [["echo", '$HOME ` " \\ \\n']],
    'echo "a\nb"': [["echo", "a\nb"]],
    "ec\\\nho a \\\n b": [["echo", "a", "b"]],
    'echo "a\\\nb"': [["echo", "ab"]],
    "echo issue#12 a=b c~": [["echo", "issue#12", "a=b", "c~"]],
    "echo !=": None,
    "a; b": [["a"], ["b"]],
    "a;": [["a"]],
    "a && b || c | d": [["a"], ["b"], ["c"], ["d"]],
    "a &&\n\n b": [["a"], ["b"]],
    "a\nb\n": [["a"], ["b"]],
    "rm *.py a?c [ab]": [["rm", "*.py", "a?c", "[ab]"]],
    "echo 日本 'ü\u00a0ü'": [["echo", "日本", "ü\u00a0ü"]],
    "./run.sh -x": [["./run.sh", "-x"]],
}


@pytest.mark.parametrize("line", READ)
def test_a_line_is_read_as_its_simple_commands(line):
    commands = read_line(line)
    found = None if commands is None else [[word.text for word in command] for command in commands]
    assert found == READ[line]


NOT_READ = r"""
echo $HOME
echo ${HOME}
echo "$HOME"
echo "${HOME}"
echo $
echo "a$"
echo $(rm x)
echo "$(rm x)"
echo `rm x`
echo "`rm x`"
echo $((1+1))
echo $'a\nb'
echo $"a"
echo a$IFS
git${IFS}push
git status > out
git status >> out
git status 2>&1
git status 2> /dev/null
git status < in
git status <<EOF
git status <<< in
git status &> out
git status >| out
cat <(ls)
tee >(ls)
sleep 9 &
a & b
a |& b
a &
& a
(a)
(a; b)
{ a; }
{a,b}
echo {a,b}
echo }
a() { b; }
function a
! a
echo !!
echo a!b
# a
a # b
a;# b
~/bin/x
~root/x
echo ~
echo ~/x
echo PATH=~/x
echo a:~/x
A=1
A=1 git status
A= git status
A+=1 git
'A'=1 git
"A=1" git
*
*.sh
a?c
[ -f x ]
[[ -f x ]]
l[s] -l
''
"" x
'a
"a
a\
a 'b" c
a "b' c
if a
then a
else a
elif a
fi
while a
until a
do a
done
for a in b
case a in b
esac
in a
select a
time a
coproc a
a; then b
a && if b
;
;;
a ;;
a ;; b
a ; ; b
; a
&&
a &&
&& a
a && && b
||
a ||
|| a
a || || b
|
a |
| a
a | | b
a || && b
a ; && b
a && ; b
"""
MORE = [
    "a \r b",
    "a\r",
    "a \x00 b",
    "a \x1b[2J",
    "a \x07",
    "a\x7f",
    "a \x85 b",
    "a\u00a0b",
    "a \u2003 b",
    "a\u2028b",
    "a\u3000b",
    "a \ud800",
    "'a\r'",
    "a &&\n",
    "a |\n\n",
    "a\n; b",
    "a\n&& b",
    "a |\\\n| b",
    "a &\\\n& b",
    "a \\\n# b",
    "\\\n~/x",
    "echo " + "x" * LINE_CHARS_MAX,
]


@pytest.mark.parametrize("line", [*filter(None, NOT_READ.split("\n")), *MORE], ids=repr)
def test_a_line_is_not_read_of_which_a_shell_makes_more(line):
    assert read_line(line) is None


def test_words_that_may_become_several_are_known():
    ((_, quoted, glob, mixed),) = read_line(r"""ls '*' a*b "*"\**?""") or ((),)
    assert (quoted.globs, glob.globs, mixed.text, mixed.globs) == ((), (1,), "***?", (2, 3))


@cache
def shell(line: str) -> frozenset[tuple[str, ...]]:
    """What /bin/sh runs of a line whose commands are `a`, `b` and `c`."""
    told = "printf '%s\\001' {0} \"$@\" >&3; printf '\\002' >&3"
    functions = "; ".join(f"{name}() {{ {told.format(name)}; }}" for name in "abc")
    script = f"exec 3>&1 >/dev/null; {functions}\n{line}"
    done = subprocess.run(
        ["/bin/sh", "-c", script], capture_output=True, text=True, check=False, env={"PATH": "/nowhere"}, cwd="/"
    )
    assert not done.stderr, done.stderr
    return frozenset(tuple(one.split("\x01")[:-1]) for one in done.stdout.split("\x02")[:-1])


PIECES = [
    "a",
    "b",
    "c",
    " ",
    "  ",
    "\t",
    "\n",
    ";",
    "&&",
    "||",
    "|",
    "'",
    '"',
    "\\",
    "x",
    "-x",
    "#",
    "=",
    "~",
    ".",
    ":",
]


@given(st.lists(st.sampled_from([*PIECES, "'x y'", '"x\\"y"', "\\;", "'$x'", "ü"]), max_size=12).map("".join))
def test_a_shell_runs_nothing_else_than_what_was_read(line):
    commands = read_line(line)
    if commands is None or any(command[0].text not in ("a", "b", "c") for command in commands):
        return
    read = {tuple(word.text for word in command) for command in commands}
    ran = shell(line)
    assert ran <= read
    if "||" not in line:
        assert ran == read


@pytest.mark.parametrize(
    ("line", "runners"),
    [
        ("git push", []),
        ("sudo git push", ["sudo"]),
        ("/usr/bin/sudo git push", ["/usr/bin/sudo"]),
        ("sh -c 'git push'", ["sh"]),
        ("find . -name x", []),
        ("find . -exec rm x", ["-exec"]),
        ("git -c alias.x=y x", ["-c"]),
        ("git fetch --upload-pack=x", ["--upload-pack=x"]),
        ("git fetch --upload-p x", ["--upload-p"]),
        ("git fetch --", []),
        ("npm run build", []),
        ("uv run rm", ["run"]),
    ],
)
def test_a_command_that_runs_another_says_so(line, runners):
    ((command),) = read_line(line) or ((),)
    assert sorted(runner_words(command)) == runners


@pytest.mark.parametrize(
    "line",
    [
        "echo $(git push)",
        "(git push)",
        "{ git push; }",
        "x=1 git push &",
        "sh -c 'git push'",
        'sh -c "git push"',
        "`git push`",
        "g\\it pu''sh > x",
        "gi\\\nt push <x",
        "git${IFS}push",
        "git$IFS'push'",
        "{git,push}",
    ],
)
def test_what_may_become_words_of_a_command_is_among_the_loose_words(line):
    words = loose_words(line)
    assert words[words.index("git") + 1] == "push"


def test_no_more_commands_are_read_than_rules_are_held_against() -> None:
    assert len(read_line(";".join(["ls"] * COMMANDS_MAX)) or ()) == COMMANDS_MAX
    assert read_line(";".join(["ls"] * (COMMANDS_MAX + 1))) is None
