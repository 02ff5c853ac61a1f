"""The API for plugins of the provider, see docs/plugins.md. The names here are stable."""

from turnwright_values.provider import Dropped, Finish
from turnwright_values.replies import ThinkingBlock, ToolCall
from turnwright_values.types import Capabilities, Usage

from turnwright_core.chat.deltas import (
    AppendContent,
    AppendReasoning,
    Delta,
    SetThinkingBlocks,
    SetToolCalls,
    SetUsage,
)
from turnwright_core.chat.message import Message
from turnwright_provider.domain.failures import Failure, FailureClass, VendorError
from turnwright_provider.domain.model_call import ModelCall, VendorEvent
from turnwright_provider.domain.model_info import ModelInfo
from turnwright_provider.ports import ModelCheck, Vendor, VendorState
from turnwright_provider.vendors.registry import VendorRegistry as Registry

__all__ = [
    "AppendContent",
    "AppendReasoning",
    "Capabilities",
    "Delta",
    "Dropped",
    "Failure",
    "FailureClass",
    "Finish",
    "Message",
    "ModelCall",
    "ModelCheck",
    "ModelInfo",
    "Registry",
    "SetThinkingBlocks",
    "SetToolCalls",
    "SetUsage",
    "ThinkingBlock",
    "ToolCall",
    "Usage",
    "Vendor",
    "VendorError",
    "VendorEvent",
    "VendorState",
]
