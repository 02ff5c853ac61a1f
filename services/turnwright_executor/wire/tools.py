"""Tools and results of servers, from their messages."""

from __future__ import annotations

from turnwright.catalogues.v1 import catalogue_service_pb2
from turnwright.tool.v1 import result_pb2, tool_service_pb2

from turnwright_core.wire.messages import role_from_pb
from turnwright_executor.domain.model_questions import MESSAGES_MAX, Asked, CallQuestion, ModelAnswer, question_of
from turnwright_executor.domain.tool_result import (
    EntryPart,
    ImagePart,
    ResultPart,
    StructuredPart,
    TextPart,
    ToolResult,
)
from turnwright_executor.domain.tool_servers import TIMEOUT_S, RegisteredServer, check_server
from turnwright_executor.domain.tool_spec import DescribedTool
from turnwright_executor.wire.command_records import effect_class_from_pb

_TLS = {
    catalogue_service_pb2.TOOL_SERVER_TLS_NONE: "none",
    catalogue_service_pb2.TOOL_SERVER_TLS_DEPLOYMENT: "deployment",
    catalogue_service_pb2.TOOL_SERVER_TLS_PUBLIC: "public",
}


def server_from_pb(server: catalogue_service_pb2.ToolServer, project: str) -> RegisteredServer:
    """A server of a project, or of the deployment. Raises ValueError with a sentence for one that cannot be called."""
    return check_server(
        RegisteredServer(
            server.name,
            server.address,
            _TLS.get(server.tls, "auto"),
            tuple(sorted(server.headers.items())),
            tuple(sorted(server.secret_headers.items())),
            tuple(server.tools),
            server.timeout.ToMilliseconds() / 1000 if server.HasField("timeout") else TIMEOUT_S,
            project,
        )
    )


def described_from_pb(tool: tool_service_pb2.Tool) -> DescribedTool:
    hints = tool.annotations
    return DescribedTool(
        tool.name,
        tool.description.replace("\0", ""),
        tool.schema,
        effect_class_from_pb(tool.effect_class),
        " ".join(hints.title.replace("\0", "").split()),
        hints.read_only,
        hints.destructive,
        hints.open_world if hints.HasField("open_world") else True,
        tool.version,
        tool.proposes,
    )


def question_from_pb(request: result_pb2.ToolModelRequest, alias: str) -> CallQuestion:
    """What a server wants a model to be asked; `alias`: the one that it may ask, empty: none."""
    messages = [
        Asked(
            role_from_pb(one.role),
            tuple(part.text if part.WhichOneof("part") == "text" else None for part in one.parts),
        )
        for one in request.messages[: MESSAGES_MAX + 1]
    ]
    temperature = request.temperature if request.HasField("temperature") else None
    return question_of(alias, messages, request.output_tokens_max, temperature, request.state)


def answer_to_pb(answer: ModelAnswer, state: bytes) -> result_pb2.ToolModelAnswer:
    return result_pb2.ToolModelAnswer(
        text=answer.text, model=answer.alias, cut=answer.is_cut, problem=answer.problem, state=state
    )


def result_from_pb(result: result_pb2.ToolResult) -> ToolResult:
    return ToolResult(tuple(filter(None, map(_part, result.parts))), result.status)


def _part(part: result_pb2.ToolPart) -> ResultPart | None:
    match part.WhichOneof("kind"):
        case "text":
            return TextPart(part.text)
        case "structured":
            return StructuredPart(part.structured)
        case "image":
            return ImagePart(part.image.mime_type, part.image.data)
        case "entry":
            return EntryPart(part.entry.name, part.entry.body, part.entry.summary)
    return None
