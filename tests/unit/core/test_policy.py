"""Who may do what, by the grants of a deployment. Architecture 10; ADR 66."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from turnwright.types.v1 import access_pb2
from turnwright_values.types import Grant, GrantRole, Right

from turnwright_core.errors import Reason, TurnwrightError
from turnwright_kit.identity.caller import TIERS, Caller, Kind, Proof
from turnwright_kit.identity.policy import Policy, PolicySnapshot, check_service, rights_of

VIEWER, MEMBER, OWNER, OPERATOR = GrantRole.VIEWER, GrantRole.MEMBER, GrantRole.OWNER, GrantRole.OPERATOR
NAMED = {
    VIEWER: "read",
    MEMBER: "read run decide edit files command",
    OWNER: "read run decide edit files command manage admin",
}
"""The roles of projects, as the issue has them."""


def caller(name: str, kind: Kind = Kind.PERSON, **more) -> Caller:
    return Caller(name, kind, TIERS[kind], **more)


ALICE, BOB = caller("alice"), caller("bob", groups=frozenset({"devs", "ops"}))
ROOT = caller("operator", proof=Proof.SECRET)


class Clock:
    """A clock that stands still until it is set."""

    now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


def policy_of(*grants: Grant, clock=None) -> Policy:
    made = Policy(clock or Clock())
    made.replace(PolicySnapshot(1, grants))
    return made


def words(bits: int) -> str:
    return " ".join(right.name.lower() for right in rights_of(bits))


def reason_of(check, *args) -> Reason | None:
    try:
        check(*args)
    except TurnwrightError as error:
        return error.reason
    return None


@pytest.mark.parametrize("role", NAMED)
@pytest.mark.parametrize("subject", ["user:bob", "group:devs", "group:ops", "*"])
def test_a_role_has_the_rights_of_its_name_in_its_project_alone(role, subject):
    policy = policy_of(Grant("shop", subject, role))
    assert words(policy.rights_in(BOB, "shop")) == NAMED[role]
    assert (policy.rights_in(BOB, "other"), policy.rights_in_deployment(BOB)) == (0, 0)


@pytest.mark.parametrize("subject", ["user:alice", "group:dev", "group:bob", "user:devs", "bob", "group:*", "user:*"])
def test_a_grant_to_somebody_else_gives_nothing(subject):
    assert policy_of(Grant("shop", subject, OWNER)).rights_in(BOB, "shop") == 0


def test_grants_that_fit_are_united_and_each_leaves_out_its_own():
    policy = policy_of(
        Grant("shop", "group:devs", MEMBER, without=(Right.COMMAND, Right.DECIDE)), Grant("shop", "*", VIEWER)
    )
    assert words(policy.rights_in(BOB, "shop")) == "read run edit files"
    assert words(policy.rights_in(ALICE, "shop")) == "read"
    both = policy_of(Grant("shop", "group:devs", MEMBER, without=(Right.COMMAND,)), Grant("shop", "user:bob", MEMBER))
    assert Right.COMMAND in rights_of(both.rights_in(BOB, "shop"))


def test_operators_have_admin_everywhere_and_read_no_project_by_that():
    policy = policy_of(Grant("", "user:bob", OPERATOR))
    assert words(policy.rights_in(BOB, "shop")) == "admin"
    assert words(policy.rights_in_deployment(BOB)) == "read admin"
    assert policy.projects_with(BOB, Right.READ) == []
    assert policy.projects_with(BOB, Right.ADMIN) is None


def test_the_secret_opens_everything_and_a_service_gives_no_rights_away():
    policy = policy_of()
    assert words(policy.rights_in(ROOT, "shop")) == NAMED[OWNER]
    assert Right.ADMIN in rights_of(policy.rights_in_deployment(ROOT))
    executor, assembler = (caller(name, Kind.SERVICE) for name in ("executor", "assembler"))
    assert Right.ADMIN not in rights_of(policy.rights_in(executor, "shop"))
    assert (words(policy.rights_in(assembler, "shop")), policy.rights_in_deployment(executor)) == ("read", 0)


def test_a_model_reads_and_writes_entries_whatever_it_was_granted():
    model = caller("m", Kind.MODEL)
    assert words(policy_of(Grant("shop", "user:m", OWNER)).rights_in(model, "shop")) == "read files"
    assert policy_of(Grant("", "user:m", OPERATOR)).rights_in_deployment(model) == 0


def test_a_token_that_is_limited_to_projects_reaches_no_other_one():
    limited = caller("bob", projects=frozenset({"shop"}))
    policy = policy_of(Grant("shop", "*", VIEWER), Grant("other", "*", OWNER), Grant("", "user:bob", OPERATOR))
    assert words(policy.rights_in(limited, "shop")) == "read admin"
    assert (policy.rights_in(limited, "other"), policy.rights_in_deployment(limited)) == (0, 0)
    assert policy.projects_with(limited, Right.ADMIN) == ["shop"]


def test_a_grant_ends_when_its_time_has_come():
    clock = Clock()
    policy = policy_of(Grant("shop", "*", MEMBER, until_ms=2_000), Grant("shop", "*", VIEWER), clock=clock)
    assert words(policy.rights_in(BOB, "shop")) == NAMED[MEMBER]
    clock.now_ms = 2_000
    assert words(policy.rights_in(BOB, "shop")) == "read"


def test_another_policy_holds_at_once_and_so_does_an_older_one_of_a_store_that_was_restored():
    policy = policy_of(Grant("shop", "*", OWNER))
    assert policy.rights_in(BOB, "shop")
    policy.replace(PolicySnapshot(3))
    assert not policy.rights_in(BOB, "shop")
    policy.replace(PolicySnapshot(1, [Grant("shop", "*", VIEWER)]))
    assert words(policy.rights_in(BOB, "shop")) == "read"


def test_lists_are_of_the_projects_that_may_be_read_in_their_order():
    policy = policy_of(*(Grant(name, "user:bob", VIEWER) for name in "cab"), Grant("d", "user:alice", OWNER))
    assert policy.projects_with(BOB, Right.READ) == ["a", "b", "c"]
    assert policy.projects_with(BOB, Right.RUN) == []
    assert policy.projects_with(ROOT, Right.READ) is None


def test_a_project_without_a_right_is_told_apart_from_none_by_nothing():
    policy = policy_of(Grant("hers", "user:alice", OWNER))
    told = []
    for name in ("hers", "nothing"):
        with pytest.raises(TurnwrightError) as refused:
            policy.check_project(BOB, access_pb2.RIGHT_READ, name, "GetRun")
        told.append((refused.value.reason, refused.value.message.replace(name, "?"), set(refused.value.metadata)))
    assert told[0] == told[1]
    assert told[0][0] is Reason.PROJECT_NOT_FOUND


def test_who_lacks_a_right_is_told_which_and_who_can_give_it():
    policy = policy_of(
        Grant("shop", "user:bob", VIEWER),
        Grant("shop", "user:alice", OWNER),
        Grant("shop", "group:platform", OWNER, without=(Right.ADMIN,)),
        Grant("shop", "user:carol", MEMBER),
        Grant("other", "user:dave", OWNER),
    )
    with pytest.raises(TurnwrightError) as refused:
        policy.check_project(BOB, access_pb2.RIGHT_COMMAND, "shop", "Act with `yolo`")
    error = refused.value
    assert (error.reason, error.metadata) == (Reason.RIGHT_MISSING, {"right": "command", "project": "shop"})
    assert error.message == (
        "Act with `yolo` needs `command` in the project shop, which you do not have there. alice can give it: "
        "`turnwright grant set member user:bob` in its directory."
    )


def test_who_may_not_read_a_project_is_not_told_whose_it_is():
    policy = policy_of(Grant("", "user:bob", OPERATOR), Grant("shop", "user:alice", OWNER))
    with pytest.raises(TurnwrightError) as refused:
        policy.check_project(BOB, access_pb2.RIGHT_READ, "shop", "GetRun")
    assert refused.value.reason is Reason.RIGHT_MISSING
    assert "alice" not in refused.value.message


def test_the_deployment_is_changed_by_operators_and_services_are_told_apart_from_people():
    policy = policy_of(Grant("", "user:alice", OPERATOR), Grant("shop", "user:bob", OWNER))
    check = policy.check_deployment
    assert [reason_of(check, who, Right.ADMIN, "SetModel") for who in (ALICE, ROOT)] == [None, None]
    assert reason_of(check, BOB, Right.ADMIN, "SetModel") is Reason.RIGHT_MISSING
    who = (ROOT, caller("executor", Kind.SERVICE), ALICE, caller("p", Kind.PLUGIN), caller("m", Kind.MODEL))
    assert [reason_of(check_service, one, "EndTurn") for one in who] == [None, None, *3 * [Reason.RIGHT_MISSING]]


def test_before_the_policy_is_known_nothing_is_decided_by_it():
    assert reason_of(Policy(Clock()).check_known) is Reason.SERVICE_UNAVAILABLE
    assert reason_of(policy_of().check_known) is None


@pytest.mark.asyncio
async def test_who_waits_for_a_policy_goes_on_once_it_is_there_and_nobody_waits_for_ever():
    policy = policy_of()
    waiting = asyncio.create_task(policy.until(lambda: policy.version >= 3, 60.0))
    for version in (2, 3):
        await asyncio.sleep(0)
        assert not waiting.done()
        policy.replace(PolicySnapshot(version))
    await waiting
    await policy.until(lambda: policy.version >= 4, 0.0)


SUBJECTS = st.sampled_from(["user:bob", "user:alice", "group:devs", "group:ops", "group:others", "*"])
GRANTS = st.lists(
    st.builds(
        Grant,
        st.sampled_from(["", "a", "b"]),
        SUBJECTS,
        st.sampled_from([VIEWER, MEMBER, OWNER, OPERATOR]),
        st.lists(st.sampled_from([Right.READ, Right.COMMAND, Right.ADMIN]), max_size=2).map(tuple),
    ),
    max_size=6,
)


@given(GRANTS, GRANTS)
def test_one_more_grant_never_takes_a_right_away_nor_gives_one_elsewhere(grants, more):
    before, after = policy_of(*grants), policy_of(*grants, *more)
    for name in ("a", "b", "c"):
        had, has = before.rights_in(BOB, name), after.rights_in(BOB, name)
        assert had & has == had
        if not any(grant.project in ("", name) for grant in more):
            assert had == has
