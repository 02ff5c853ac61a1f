"""Forwarded rpcs: messages are copied by the names of their fields, and contracts that do not fit are refused."""

import pytest
from turnwright.executor.v1 import control_pb2, executor_service_pb2, query_pb2
from turnwright.store.v1 import registry_pb2
from turnwright.types.v1 import run_pb2

from turnwright_executor.rpc.forwarding import Forward, copy_fields


def test_fields_are_copied_by_name_whatever_their_numbers() -> None:
    ours = control_pb2.SetFileConstraintsRequest(
        project="p", request_id="r", remove_patterns=["a"], constraints=[registry_pb2.FileConstraint(pattern="b")]
    )
    theirs = copy_fields(ours, registry_pb2.SetFileConstraintsRequest)
    assert (theirs.project, theirs.request_id, list(theirs.remove_patterns)) == ("p", "r", ["a"])
    assert [one.pattern for one in theirs.constraints] == ["b"]


def test_what_is_absent_stays_absent_and_a_zero_that_was_said_stays_said() -> None:
    silent = copy_fields(executor_service_pb2.InitProjectRequest(), registry_pb2.InitProjectRequest)
    said = copy_fields(executor_service_pb2.InitProjectRequest(clients=False), registry_pb2.InitProjectRequest)
    assert not silent.HasField("clients")
    assert said.HasField("clients")


def test_what_is_given_stands_beside_it_and_what_the_target_has_not_is_left_out() -> None:
    page = registry_pb2.ListRunsResponse(runs=[run_pb2.Run(run="a")], next_page_token="t")
    assert copy_fields(page, control_pb2.ListFileConstraintsResponse).next_page_token == "t"
    assert copy_fields(page, query_pb2.ListRunsResponse, next_page_token="u").next_page_token == "u"


# Python before 3.12 wraps what `__set_name__` raises, so it is called by itself.
def test_a_field_that_the_store_lacks_is_refused() -> None:
    with pytest.raises(TypeError, match=r"ResolveProposalRequest has nothing for .*ResolveRequest\.accept"):
        Forward("ResolveProposal").__set_name__(object, "Resolve")
