"""Refusals are counted by kind, and no more kinds of them than the limit are kept."""

from turnwright_values.types import Tier

from turnwright_core.errors import Reason
from turnwright_kit.identity.caller import Caller, Kind, Proof
from turnwright_kit.refusals import KINDS_MAX, Refusals

ALICE = Caller("alice", Kind.PERSON, Tier.CLIENT)
ROOT = Caller("operator", Kind.PERSON, Tier.SYSTEM, Proof.SECRET)


def test_the_kind_that_came_last_longest_ago_gives_way():
    refusals = Refusals()
    for number in range(KINDS_MAX + 1):
        refusals.add(ALICE, "here", "GetRun", f"p{number}", Reason.RIGHT_MISSING)
        refusals.add(ALICE, "here", "GetRun", "p1", Reason.RIGHT_MISSING)
    kept = [row.project for row in refusals.rows("")]
    assert (len(kept), kept[:2], kept[-1]) == (KINDS_MAX, ["p1", f"p{KINDS_MAX}"], "p2")
    assert [row.count for row in refusals.rows("p1")] == [KINDS_MAX + 2]


def test_a_project_that_is_not_there_is_a_refusal_of_those_who_may_not_know_all():
    refusals = Refusals()
    for caller in (ALICE, ROOT):
        refusals.add(caller, "here", "GetRun", "p", Reason.PROJECT_NOT_FOUND)
    refusals.add(ALICE, "here", "GetRun", "p", Reason.RUN_NOT_FOUND)
    assert [(row.principal, row.kind, row.proof, row.count) for row in refusals.rows("")] == [
        ("alice", "person", "token", 1)
    ]
