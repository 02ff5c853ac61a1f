"""What a project says of its files holds in its loops. Rows RU113, RU114, RU116."""

import pytest
from turnwright.store.v1 import registry_pb2, store_service_pb2_grpc

from services import SECRET
from turnwright_core.errors import MissingError
from turnwright_core.kit.peer import Peer

pytestmark = pytest.mark.asyncio

SET = '<set path="a.txt"><<SEARCH\nold\nSEARCH\n<<REPLACE\nnew\nREPLACE</set>'
GO_ON = '<update status="102">Going on.</update>'
DONE = '<update status="200">Done.</update>'


async def constrain(services, **said):
    """Constraints by pattern; `_` stands for a dot."""
    peer = Peer("store", services.addresses["store"], SECRET, 10.0)
    stub = store_service_pb2_grpc.StoreServiceStub(peer.channel)
    constraints = [
        registry_pb2.FileConstraint(pattern=pattern.replace("_", "."), kind=kind) for pattern, kind in said.items()
    ]
    request = registry_pb2.SetFileConstraintsRequest(project=services.project, constraints=constraints)
    await peer.call(stub.SetFileConstraints, request)
    await peer.close()


async def test_the_change_of_a_readonly_file_is_refused_at_the_gate(services):
    """RU113, RU116: of every run of the project, from its next loop on."""
    await constrain(services, a_txt="readonly")
    for run in ("r", "s"):
        services.script(SET + GO_ON, DONE, SET + GO_ON, DONE)
        await services.until(await services.act(run=run))
        assert await services.status("log://turn_1/set/a.txt", run) == 403
    assert (services.files / "a.txt").read_text() == "old\n"


async def test_an_ignored_file_has_no_entry(services):
    """RU114, RU116: not any more either."""
    (services.files / "b.txt").write_text("here\n")
    services.script(DONE, DONE, DONE)
    await services.until(await services.act())
    assert (await services.entry("b.txt")).body == "here\n"
    await constrain(services, b_txt="ignore")
    await services.until(await services.act())
    with pytest.raises(MissingError):
        await services.entry("b.txt")
    assert (await services.entry("a.txt")).body == "old\n"
