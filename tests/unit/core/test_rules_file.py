"""The file with the approval rules of a deployment: what it says, and what is told of one that cannot be read."""

import pytest
from turnwright_values.types import Mode, Rule, RuleLevel, RuleVerdict

from turnwright_core.rules import RULES_MAX
from turnwright_core.rules_file import FILE_BYTES_MAX, RulesFile, RulesFileError, read_rules


def test_rules_are_read_in_their_order(tmp_path):
    file = tmp_path / "rules.toml"
    file.write_text(
        '[[rule]]\nverdict = "deny"\ntool = "sh"\ntarget = "git push *"\n'
        '[[rule]]\nverdict = "allow"\nprincipal = "ann"\nmode = "act"\nnetwork = true\n'
    )
    found = read_rules(file)
    deployment = RuleLevel.DEPLOYMENT
    assert found.rules == (
        Rule(0, deployment, RuleVerdict.DENY, "sh", "git push *", by="operator"),
        Rule(0, deployment, RuleVerdict.ALLOW, "", "", "ann", Mode.ACT, True, "operator", lifts=deployment),
    )
    assert found.version
    file.write_text("# none yet")
    assert read_rules(file) == RulesFile()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[[rule]", "cannot be read as rules"),
        ("\xff", "cannot be read as rules"),
        ("rule = 3", "cannot be read as rules"),
        ("[[rule]]", "verdict"),
        ('[[rule]]\nverdict = "maybe"', "verdict must be one of allow, ask, deny"),
        (
            '[[rule]]\nverdict = "allow"\nwhat = "x"',
            r"`what`.*may have verdict, tool, target, principal, mode, network$",
        ),
        ('[[rules]]\nverdict = "allow"', r"`rules`.*Each \[\[rule\]\] may have verdict, "),
        ('[[rule]]\nverdict = "ask"\n[[rule]]\nverdict = "allow"\ntool = "sh"\ntarget = "a > b"', "rule 2 of "),
        ('[[rule]]\nverdict = "allow"\nmode = "x"', "mode must be act or ask"),
        ('[[rule]]\nverdict = "deny"\nnetwork = true', "network"),
        ('[[rule]]\nverdict = "ask"\n' * (RULES_MAX + 1), f"at most {RULES_MAX}"),
        ("#" * (FILE_BYTES_MAX + 1), f"more than {FILE_BYTES_MAX} bytes"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_what_is_wrong(tmp_path, text, word):
    file = tmp_path / "rules.toml"
    if text is not None:
        file.write_bytes(text.encode("latin-1"))
    with pytest.raises(RulesFileError, match=word) as refused:
        read_rules(file)
    assert str(file) in str(refused.value)
