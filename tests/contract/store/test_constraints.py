"""What a project says of its files: taken in, never changed, not taken in."""

import pytest
from turnwright.types.v1 import project_pb2
from turnwright_values.types import Tier

from contract.store.harness import Client, as_tier, new_project, new_run, start_store
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.limits import FILE_CONSTRAINTS_MAX, FILE_PATTERNS_MAX

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES


async def refused(call) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


UNSPECIFIED, ADD, READONLY, IGNORE = project_pb2.FileConstraintKind.values()


def constraint(pattern, kind=UNSPECIFIED):
    return project_pb2.FileConstraint(pattern=pattern, kind=kind)


async def put(client, project, *constraints, **more):
    answer = await client.call("SetFileConstraints", project=project, constraints=constraints, **more)
    return list(answer.constraints)


async def listed(client, project):
    found, token = [], ""
    while True:
        page = await client.call("ListFileConstraints", project=project, page_size=1000, page_token=token)
        found += page.constraints
        token = page.next_page_token
        if not token:
            return found


def told(constraints):
    return [(one.pattern, one.kind) for one in constraints]


@pytest.mark.parametrize(("kind", "stored"), [(UNSPECIFIED, ADD), (ADD, ADD), (READONLY, READONLY), (IGNORE, IGNORE)])
async def test_a_constraint_is_of_one_of_three_kinds(client, project, kind, stored):
    """RU112, C7: the default is to add."""
    (answer,) = await put(client, project, constraint("src/**", kind))
    assert (answer.pattern, answer.kind) == ("src/**", stored)
    assert answer.create_time.seconds
    assert await listed(client, project) == [answer]


async def test_constraints_are_replaced_removed_and_listed_by_pattern(client, project):
    """RU117."""
    await put(client, project, constraint("b/*.py"), constraint("a.py", READONLY), constraint("/^c/", IGNORE))
    assert told(await listed(client, project)) == [("/^c/", IGNORE), ("a.py", READONLY), ("b/*.py", ADD)]
    await put(client, project, constraint("a.py", IGNORE), constraint("d"), constraint("d", READONLY))
    await put(client, project, remove_patterns=["b/*.py", "never/set", "nul\x00"])
    assert told(await listed(client, project)) == [("/^c/", IGNORE), ("a.py", IGNORE), ("d", READONLY)]


async def test_constraints_belong_to_the_project_and_outlive_its_runs_and_the_store(tmp_path, own_db):
    """RU116."""
    server = await start_store(tmp_path)
    client = Client(server.address)
    project = await new_project(client)
    other = await new_project(client, "other")
    stored = await put(client, project, constraint("a.py", READONLY))
    await put(client, other, constraint("b.py"))
    await new_run(client, project)
    await client.close()
    await server.stop()
    again = await start_store(tmp_path)
    later = Client(again.address)
    found = await listed(later, project)
    await later.close()
    await again.stop()
    assert found == stored


async def test_constraints_are_listed_in_pages(client, project):
    patterns = [f"src/{number:02}.py" for number in range(5)]
    await put(client, project, *(constraint(pattern) for pattern in patterns))
    pages, token = [], ""
    while not pages or token:
        page = await client.call("ListFileConstraints", project=project, page_size=2, page_token=token)
        pages.append([one.pattern for one in page.constraints])
        token = page.next_page_token
    assert pages == [patterns[:2], patterns[2:4], patterns[4:]]


OUTSIDE = ["..", "../**", "../home/token", "a/../../b", "a/..", "{..,a}/*", "@(..|a)/x", "/etc/passwd", "/etc/*", "/"]


@pytest.mark.parametrize("pattern", ["..a", "a..", "a/..b/*", "...", "/^../", "/[.]{2}/", "link/*", ".git/config"])
async def test_a_constraint_names_what_is_below_the_root_only(client, project, pattern):
    assert told(await put(client, project, constraint(pattern))) == [(pattern, ADD)]


@pytest.mark.parametrize(
    ("pattern", "kind", "field"),
    [
        ("", ADD, "pattern"),
        ("x" * 2049, ADD, "pattern"),
        ("nul\x00", ADD, "pattern"),
        ("$.items[0]", ADD, "pattern"),
        ("//item/@name", ADD, "pattern"),
        ("/(/", ADD, "pattern"),
        *((pattern, ADD, "pattern") for pattern in OUTSIDE),
        ("a.py", 9, "constraints.kind"),
    ],
)
async def test_a_malformed_constraint_is_refused_and_nothing_is_stored(client, project, pattern, kind, field):
    error = await refused(put(client, project, constraint("good"), constraint(pattern, kind)))
    assert error.metadata["field"] == field
    assert await listed(client, project) == []


async def test_a_request_has_at_most_a_thousand_constraints(client, project):
    many = [constraint(f"f{number}") for number in range(1001)]
    error = await refused(put(client, project, *many))
    assert error.metadata == {"field": "constraints", "limit": "1000", "actual": "1001", "unit": "items"}
    patterns = [one.pattern for one in many]
    error = await refused(put(client, project, remove_patterns=patterns))
    assert error.metadata["field"] == "remove_patterns"


async def test_a_project_has_at_most_ten_thousand_constraints(client, project):
    for start in range(0, FILE_CONSTRAINTS_MAX, 1000):
        await put(client, project, *(constraint(f"f{number}") for number in range(start, start + 1000)))
    error = await refused(put(client, project, constraint("f0", IGNORE), constraint("one more")))
    assert (error.reason, error.metadata["limit"]) == (Reason.LIMIT_EXCEEDED, str(FILE_CONSTRAINTS_MAX))
    await put(client, project, constraint("f0", IGNORE))
    found = told(await listed(client, project))
    assert (len(found), found[0]) == (FILE_CONSTRAINTS_MAX, ("f0", IGNORE))


async def test_a_project_has_at_most_a_hundred_globs_and_regexes_among_its_constraints(client, project):
    """Each of them is held against every path."""
    await put(client, project, *(constraint(f"/f{number}/") for number in range(FILE_PATTERNS_MAX)))
    error = await refused(put(client, project, constraint("src/*.py")))
    assert (error.reason, error.metadata["limit"]) == (Reason.LIMIT_EXCEEDED, str(FILE_PATTERNS_MAX))
    await put(client, project, constraint("exact.py"), constraint("/f0/", IGNORE))
    await put(client, project, constraint("src/*.py"), remove_patterns=["/f0/"])
    assert len(await listed(client, project)) == FILE_PATTERNS_MAX + 1


async def test_constraints_are_no_matter_of_models(client, project):
    """RU117: an rpc for clients, not a tool."""
    model = as_tier(client.peer.address, Tier.MODEL)
    error = await refused(put(model, project, constraint("a.py"), remove_patterns=["b.py"]))
    await model.close()
    assert error.reason is Reason.RIGHT_MISSING


async def test_an_unknown_project_has_no_constraints(client):
    for call in (
        put(client, "nowhere", constraint("a.py")),
        listed(client, "nowhere"),
        put(client, "nowhere", remove_patterns=["a.py"]),
    ):
        assert (await refused(call)).reason is Reason.PROJECT_NOT_FOUND


async def test_a_repeated_request_is_answered_as_the_first(client, project):
    first = await put(client, project, constraint("a.py", READONLY), request_id="once")
    await put(client, project, remove_patterns=["a.py"])
    assert await put(client, project, constraint("a.py", READONLY), request_id="once") == first
    assert await listed(client, project) == []


async def test_a_claim_brings_the_constraints_of_its_project_unless_they_are_many_or_long(client, run):
    await run.enqueue()
    assert told((await run.claim()).file_constraints) == []
    await put(client, run.project, constraint("b.txt", IGNORE), constraint("a.txt"))
    claim = await run.claim()
    assert told(claim.file_constraints) == [("a.txt", ADD), ("b.txt", IGNORE)]
    await put(client, run.project, constraint("c" * 2048), constraint("d" * 2048))
    assert (await run.claim()).file_constraints_left_out
    await put(client, run.project, remove_patterns=["c" * 2048, "d" * 2048])
    await put(client, run.project, *(constraint(f"{number}.txt") for number in range(99)))
    assert (await run.claim()).file_constraints_left_out
