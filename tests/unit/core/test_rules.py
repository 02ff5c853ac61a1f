"""What approval rules say about an effect, and which of several counts."""

from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from turnwright_values.types import Mode, Rule, RuleLevel, RuleVerdict

from turnwright_core.rules import (
    LOOSE_WORDS_MAX,
    TARGET_CHARS_MAX,
    IntendedEffect,
    TargetError,
    allows_network,
    check_target,
    decide,
    rule_words,
    targets_like,
)

D, P, R = RuleLevel.DEPLOYMENT, RuleLevel.PROJECT, RuleLevel.RUN
ALLOW, ASK, DENY = RuleVerdict.ALLOW, RuleVerdict.ASK, RuleVerdict.DENY
VERDICTS = {"allow": ALLOW, "ask": ASK, "deny": DENY}


def rules(*texts: str, level: RuleLevel = P) -> list[Rule]:
    """Rules of `allow git *`, in order; a level before it, and whose ASK it lifts behind a `^`."""
    made = []
    for number, text in enumerate(texts, 1):
        first, _, rest = text.partition(" ")
        at = {"d": D, "p": P, "r": R}.get(first[:1]) if first[1:2] == ":" else None
        verdict, _, lifted = first.rpartition(":")[2].partition("^")
        lifts = {"d": D, "p": P, "": RuleLevel.UNSPECIFIED}[lifted]
        made.append(Rule(number, at or level, VERDICTS[verdict], "sh", rest, lifts=lifts))
    return sorted(made, key=lambda rule: rule.level)


def said(texts: list[str], line: str) -> str:
    return decide(rules(*texts), IntendedEffect("sh", line)).verdict.name.lower()


@pytest.mark.parametrize(
    ("texts", "verdict"),
    [
        ([], "ask"),
        (["allow git *"], "allow"),
        (["deny git *"], "deny"),
        (["ask git *"], "ask"),
        # In one level the last that matches counts.
        (["deny git *", "allow git push"], "allow"),
        (["allow git push", "deny git *"], "deny"),
        (["allow git *", "deny git pull"], "allow"),
        (["deny git *", "ask git push"], "ask"),
        # A deny is final, from whatever level.
        (["d:deny git *", "p:allow git *", "r:allow git *"], "deny"),
        (["d:deny git *", "r:allow^d"], "deny"),
        (["p:deny git *", "r:allow^d git *"], "deny"),
        (["d:allow git *", "r:deny git push"], "deny"),
        # Otherwise the lowest level counts.
        (["d:allow git *", "p:ask git *"], "ask"),
        (["d:allow git *", "p:ask git *", "r:allow^p git *"], "allow"),
        (["d:allow git *", "r:ask git *"], "ask"),
        (["p:allow git *", "r:allow npm *"], "allow"),
        # An ask is lifted by who may write rules there.
        (["p:ask git *", "r:allow git *"], "ask"),
        (["p:ask git *", "r:allow^p git *"], "allow"),
        (["p:ask git *", "r:allow^d git *"], "allow"),
        (["d:ask git *", "r:allow^p git *"], "ask"),
        (["d:ask git *", "p:allow git *"], "ask"),
        (["d:ask git *", "p:allow^d git *"], "allow"),
        (["d:ask git *", "p:allow^d git *", "r:ask git *"], "ask"),
        (["p:ask git *", "r:allow"], "ask"),
        (["p:ask git *", "r:allow^p"], "allow"),
        # Without a pattern.
        (["allow"], "allow"),
        (["allow", "deny git *"], "deny"),
        (["deny"], "deny"),
        (["deny", "allow git *"], "allow"),
    ],
)
def test_which_rule_counts(texts, verdict):
    assert said(texts, "git push") == verdict


@pytest.mark.parametrize(
    ("pattern", "line", "is_allowed", "is_denied"),
    [
        ("git *", "git", True, True),
        ("git *", "git push --force", True, True),
        ("git push", "git push", True, True),
        ("git push", "git push origin", False, False),
        ("git push *", "git pull", False, False),
        ("git * main", "git push main", True, True),
        ("git * main", "git push origin main", False, False),
        ("git log --*", "git log --oneline", True, True),
        ("git log --*=*", "git log --format=x", True, True),
        ("git log a*b*c", "git log axbxc", True, True),
        ("git log a*b*c", "git log acb", False, False),
        ("git log 'a b'", "git log a\\ b", True, True),
        ("git log '*'", "git log x", False, False),
        ("git log '*'", "git log '*'", True, True),
        ("*", "anything at all", True, True),
        # What a shell makes of a word is not known.
        ("git * main", "git p* main", False, True),
        ("git add *", "git add *.py", True, True),
        ("git add x", "git add [x]", False, False),
        # Every command of a line.
        ("git *", "git add . && git commit -m 'a b'", True, True),
        ("git *", "git add . && rm -rf .", False, True),
        ("git *", "ls | git apply", False, True),
        # What is not read is never allowed, and denied wherever it may stand.
        ("git *", "git push > out", False, True),
        ("git *", "git push $(rm -rf .)", False, True),
        ("git *", "echo $(git push)", False, True),
        ("git push", "x=1 git push origin &", False, True),
        ("git *", "sh -c 'git push'", False, True),
        ("git *", "sudo git push", False, True),
        ("sudo git *", "sudo git push", True, True),
        ("git *", "find . -exec git rm {} +", False, True),
        ("find * -exec git *", "find . -exec git rm x", True, True),
        ("find *", "find . -name x", True, True),
        ("find *", "find . -exec rm x", False, True),
        ("git *", "git -c core.pager=x log", False, True),
        ("*", "sudo ls", False, True),
        ("*", "", False, False),
        # Another program of that name, or the same by another name.
        ("git *", "./git push", False, True),
        ("git *", "/usr/bin/git push", False, True),
        ("git *", "GIT push", False, True),
        ("git *", "gitk", False, False),
        ("git *", "echo git push", False, False),
        ("git *", "g\\it push", True, True),
        ("git *", "git " + "x" * 20000, False, True),
        ("git *", "echo > " + "x " * LOOSE_WORDS_MAX, False, True),
    ],
)
def test_what_a_pattern_of_commands_matches(pattern, line, is_allowed, is_denied):
    assert (said([f"allow {pattern}"], line) == "allow") is is_allowed
    assert (said([f"deny {pattern}"], line) == "deny") is is_denied
    asked = said(["allow", f"ask {pattern}"], line)
    assert (asked == "ask") is is_denied


@pytest.mark.parametrize("line", ["git -C . push", "git --no-pager push", "git -c a=b push x", "sudo git -C . push"])
def test_options_before_a_subcommand_hide_it_from_no_deny(line):
    assert said(["allow", "deny git push *"], line) == "deny"
    assert said(["allow", "deny git pull *"], line) == "allow"


@pytest.mark.parametrize(
    "line", ["git pu$()sh", "git $X push", "g?t push", "$'\\x67it' push", "gi{t,} push", "echo $(ls)"]
)
def test_a_line_that_the_shell_changes_is_asked_about_where_a_command_is_denied(line):
    assert said(["allow", "deny git push *"], line) == "ask"
    assert said(["allow", "deny src/**"], line) == said(["allow"], line) == "allow"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("git", "git grep -O/tmp/x a"),
        ("git", "git rebase -xid"),
        ("git", "git log --output=x"),
        ("tar", "tar -Fid x"),
        ("tar", "tar xIf id x"),
        ("rsync", "rsync -ave id a b"),
        ("go", "go test --exec=id"),
        ("go", "go vet -vettool=id"),
        ("npm", "npm install --script-shell=id"),
        ("cargo", "cargo build --config a"),
        ("rg", "rg --pre=id a"),
        ("make", "make SHELL=id"),
        ("find", "find . -delete"),
    ],
)
def test_an_allow_of_a_program_is_none_of_what_its_options_run(name, line):
    assert said([f"allow {name} *"], line) == "ask"


@pytest.mark.parametrize(
    ("pattern", "path", "is_allowed", "is_denied"),
    [
        ("src/**", "src/a.py", True, True),
        ("src/**", "src/deep/er/a.py", True, True),
        ("src/**", "srcs/a.py", False, False),
        ("src/*", "src/deep/a.py", False, False),
        ("src/*.py", "src/a.py", True, True),
        ("**/*.py", "a.py", True, True),
        ("**/b/**/*.py", "a/b/b/c/d.py", True, True),
        ("**/b/*.py", "a/b/b/c/d.py", False, False),
        ("./src/a.py", "src/a.py", True, True),
        ("src/a.py", "src/b.py", False, False),
        ("**", "src/a.py", True, True),
        ("src/**", "src/.env", False, True),
        ("**", ".git/hooks/x", False, True),
        ("src/.*", "src/.env", True, True),
        ("src/**", "SRC/a.py", False, True),
        ("src/**", "src/../a.py", False, True),
        ("caf\u00e9/**", "cafe\u0301/x", True, True),
        ("https://docs.example.org/**", "https://docs.example.org/a/b?c=/d", True, True),
        ("https://docs.example.org/**", "https://docs.example.org", True, True),
        ("https://docs.example.org/**", "https://docs.example.org.evil.org/", False, False),
        ("https://*.example.org/**", "https://evil.org?.example.org/", False, False),
        ("https://*.example.org/**", "https://evil.org#.example.org/", False, False),
        ("https://*.example.org/**", "https://x@a.example.org/", False, True),
        ("https://docs.example.org/**", "https://DOCS.example.org/a", False, True),
        ("https://docs.example.org/a/**", "https://docs.example.org/a/../b", False, True),
    ],
)
def test_what_a_pattern_of_places_matches(pattern, path, is_allowed, is_denied):
    places = IntendedEffect("sh", places=(path,))
    assert (decide(rules(f"allow {pattern}"), places).verdict is ALLOW) is is_allowed
    assert (decide(rules(f"deny {pattern}"), places).verdict is DENY) is is_denied


def test_every_file_of_a_change_is_decided():
    several = IntendedEffect("set", places=("src/a.py", "b.py"))
    only = Rule(1, P, ALLOW, "set", "src/**")
    assert decide([only], several).verdict is ASK
    assert decide([only, Rule(2, P, ALLOW, "set", "*.py")], several).verdict is ALLOW
    assert decide([only, Rule(2, P, DENY, "set", "*.py")], several).rule.id == 2


def test_a_rule_is_for_its_tool_its_person_and_its_mode():
    intended = IntendedEffect("sh", "ls", principal="ann", mode=Mode.ACT)
    for more in ({"tool": "env"}, {"principal": "bob"}, {"mode": Mode.ASK}):
        assert decide([Rule(1, P, DENY, **more)], intended).verdict is ASK
    fitting = Rule(1, P, DENY, tool="sh", principal="ann", mode=Mode.ACT)
    assert decide([fitting], intended).rule is fitting
    assert decide([Rule(1, P, DENY)], IntendedEffect("anything")).verdict is DENY
    assert decide([Rule(1, P, DENY, "", "x")], IntendedEffect("anything")).verdict is ASK


def test_the_network_is_given_by_a_rule_of_the_project_alone():
    def network(*made: Rule) -> bool:
        return allows_network(made, IntendedEffect("sh", "npm install y && npm test"))

    given_ = Rule(1, P, ALLOW, "sh", "npm install *", network=True)
    both = Rule(2, P, ALLOW, "sh", "npm *", network=True)
    assert not network(given_)
    assert network(both)
    assert not network(Rule(2, R, ALLOW, "sh", "npm *", network=True))
    assert not network(both, Rule(3, P, ALLOW, "sh", "npm test"))
    assert not network(both, Rule(3, P, DENY, "sh", "npm test"))


PATTERNS = ["", "*", "a", "a *", "a * c", "b x", "sudo a *", "a x*"]
LINES = ["a", "a b c", "a x && b x", "b x > y", "sudo a b", "a $(b x)", "", "c", "x=1 a b", "a x* ; c"]
RULES = st.builds(
    Rule,
    level=st.sampled_from([D, P, R]),
    verdict=st.sampled_from([ALLOW, ASK, DENY]),
    tool=st.sampled_from(["", "sh"]),
    target=st.sampled_from(PATTERNS),
    lifts=st.sampled_from([RuleLevel.UNSPECIFIED, D, P]),
)


@given(st.lists(RULES, max_size=5), RULES, st.integers(0, 5), st.sampled_from(LINES))
def test_one_more_deny_never_allows_more(some, one, place, line):
    before = decide(some, IntendedEffect("sh", line)).verdict
    more = [*some[:place], replace(one, verdict=DENY), *some[place:]]
    assert decide(more, IntendedEffect("sh", line)).verdict >= before


@given(st.lists(RULES, max_size=5), st.sampled_from(LINES))
def test_without_an_allow_nothing_is_allowed_and_the_rule_that_decides_says_so(some, line):
    decision = decide(some, IntendedEffect("sh", line))
    if all(rule.verdict is not ALLOW for rule in some):
        assert decision.verdict is not ALLOW
    assert decision.rule is None or decision.rule.verdict is decision.verdict
    assert decision.rule is not None or decision.verdict is ASK


@pytest.mark.parametrize(
    ("tool", "target", "problem"),
    [
        ("sh", "git *", ""),
        ("sh", "*", ""),
        ("sh", "./run.sh ../x", ""),
        ("sh", "", ""),
        ("set", "src/**", ""),
        ("get", "https://a.org/**", ""),
        ("", "git *", ""),
        ("", "src/**", ""),
        ("sh", "git push > x", "not one command"),
        ("sh", "git | x", "not one command"),
        ("sh", "git ?", "not one command"),
        ("sh", "g* push", "not one command"),
        ("sh", "'git", "not one command"),
        ("set", "../x", "leads out"),
        ("set", "/etc/x", "leads out"),
        ("", "/etc/x (1)", "leads out"),
        ("sh", "  ", "blank"),
        ("set", "a\nb", "printable"),
        ("set", "x" * (TARGET_CHARS_MAX + 1), "at most 512"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_told(tool, target, problem):
    if not problem:
        check_target(tool, target)
        return
    with pytest.raises(TargetError, match=problem):
        check_target(tool, target)


@pytest.mark.parametrize(
    ("intended", "targets"),
    [
        (IntendedEffect("sh", "git status --short"), ("git status *",)),
        (IntendedEffect("sh", "git add . && git commit -m x"), ("git add *", "git commit *")),
        (IntendedEffect("sh", "git add a; git add b"), ("git add *",)),
        (IntendedEffect("sh", "git"), ("git",)),
        (IntendedEffect("sh", "git -C x log"), ("git -C x log",)),
        (IntendedEffect("sh", "rm -rf build"), ("rm -rf build",)),
        (IntendedEffect("sh", "python3 -m unittest 'a b'"), ("python3 -m unittest 'a b'",)),
        (IntendedEffect("sh", 'echo "it\'s"'), ("echo 'it'\\''s'",)),
        (IntendedEffect("sh", "docker run x"), ("docker run x",)),
        (IntendedEffect("sh", "git log '*'"), ("git log *",)),
        (IntendedEffect("sh", "ls '*'"), ("ls '*'",)),
        (IntendedEffect("sh", "rm *.o"), None),
        (IntendedEffect("sh", "ls > x"), None),
        (IntendedEffect("sh", ""), None),
        (IntendedEffect("sh", ";".join(f"echo {n}" for n in range(11))), None),
        (IntendedEffect("sh", "ls " + "x" * TARGET_CHARS_MAX), None),
        (IntendedEffect("set", places=("src/a.py", "src/b.py", "c.py")), ("src/**", "c.py")),
        (IntendedEffect("set", places=("src/.x/c.py",)), ("src/.x/c.py",)),
        (IntendedEffect("set", places=("a*/b",)), None),
        (IntendedEffect("get", places=("https://a.org/b?c",)), ("https://a.org/**",)),
        (IntendedEffect("get", places=("https://x@a.org/b",)), None),
        (IntendedEffect("plugin_tool"), ("",)),
    ],
)
def test_effects_of_a_kind_match_what_they_were_told_by(intended, targets):
    assert targets_like(intended) == targets
    for target in targets or ():
        check_target(intended.tool, target)
    if targets:
        made = [Rule(1, P, ALLOW, intended.tool, target) for target in targets]
        assert decide(made, intended).verdict is ALLOW


def test_a_line_and_rules_made_to_take_long_do_not():
    long = ["a " * 8000, "a" * 16000, "$ " + "a " * (LOOSE_WORDS_MAX - 2), "a ; " * 4000]
    many = [Rule(n, P, DENY, "sh", "a " + "*a" * 200 + "*b") for n in range(10)]
    began_s = thread_time()
    for line in long:
        decide(many, IntendedEffect("sh", line))
    behind_options = [Rule(n, P, DENY, "sh", f"a x{n} *b") for n in range(100)]
    decide(behind_options, IntendedEffect("sh", "bash -c 'a x';" + "a -o " * 450))
    decide([Rule(1, P, ALLOW, "set", "**/a/" * 80 + "b")] * 10, IntendedEffect("set", places=("a/" * 2000 + "c",)))
    assert thread_time() - began_s < 30


def test_a_rule_is_told_in_a_line():
    assert rule_words(Rule(1, P, DENY, "sh", "git push *")) == "deny sh: git push *"
    assert rule_words(Rule(1, P, ASK)) == "ask every tool"
