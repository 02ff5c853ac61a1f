"""Forwarded rpcs: messages are copied by the names of their fields, and contracts that do not fit are refused."""

import pytest
from turnwright.executor.v1 import control_pb2, query_pb2
from turnwright.store.v1 import registry_pb2
from turnwright.types.v1 import run_pb2, settings_pb2

from turnwright_executor.rpc.forwarding import Forward, copy_fields


def test_fields_are_copied_by_name_whatever_their_numbers() -> None:
    ours = query_pb2.ListRunsRequest(project="p", page_size=3, page_token="t")
    theirs = copy_fields(ours, control_pb2.ListEntriesRequest)
    assert (theirs.project, theirs.page_size, theirs.page_token) == ("p", 3, "t")
    numbers = [one.DESCRIPTOR.fields_by_name["page_size"].number for one in (ours, theirs)]
    assert numbers[0] != numbers[1]


def test_what_is_absent_stays_absent_and_a_zero_that_was_said_stays_said() -> None:
    silent = copy_fields(settings_pb2.RunSettings(), settings_pb2.RunSettings)
    said = copy_fields(settings_pb2.RunSettings(temperature=0), settings_pb2.RunSettings)
    assert not silent.HasField("temperature")
    assert said.HasField("temperature")


def test_what_is_given_stands_beside_it_and_what_the_target_has_not_is_left_out() -> None:
    page = registry_pb2.ListRunsResponse(runs=[run_pb2.Run(run="a")], next_page_token="t")
    assert copy_fields(page, control_pb2.ListEntriesResponse).next_page_token == "t"
    assert copy_fields(page, query_pb2.ListRunsResponse, next_page_token="u").next_page_token == "u"


# Python before 3.12 wraps what `__set_name__` raises, so it is called by itself.
def test_a_field_that_the_store_lacks_is_refused() -> None:
    with pytest.raises(TypeError, match=r"GetRunRequest has nothing for .*GetRunRequest\.turns_max"):
        Forward().__set_name__(object, "GetRun")
