"""Agents on the wire."""

from __future__ import annotations

from turnwright.store.v1 import agents_pb2
from turnwright.types.v1 import agent_pb2
from turnwright_values.store import StartAgentRequest, StartAgentResponse, WaitAgentsRequest, WaitAgentsResponse
from turnwright_values.types import Agent

from turnwright_core.wire.codec import codec

agent_to_pb, agent_from_pb = codec(Agent, agent_pb2.Agent)
start_agent_to_pb, start_agent_from_pb = codec(StartAgentRequest, agents_pb2.StartAgentRequest)
started_to_pb, started_from_pb = codec(StartAgentResponse, agents_pb2.StartAgentResponse)
wait_agents_to_pb, wait_agents_from_pb = codec(WaitAgentsRequest, agents_pb2.WaitAgentsRequest)
waited_to_pb, waited_from_pb = codec(WaitAgentsResponse, agents_pb2.WaitAgentsResponse)
