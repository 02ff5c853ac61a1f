"""What a turn takes of the settings of its run when it begins. Source: decision C48; docs/adr/0044."""

from __future__ import annotations

from msgspec.structs import replace
from turnwright_values.types import Permission, Run, RunSettings, TurnRequest


def with_settings_of_run(request: TurnRequest, settings: RunSettings) -> TurnRequest:
    """The request with those settings that hold from the next turn of a run on."""
    limit, temperature = settings.context_limit, settings.temperature
    return replace(
        request,
        context_length=min(request.context_length, limit) if limit else request.context_length,
        temperature=request.temperature if temperature is None else temperature,
    )


def grant_for(run: Run, tool: str) -> Permission | None:
    """What lets the effects of a tool happen in the active loop of a run without anybody's decision, as it is now."""
    rules = run.settings.tool_rules
    if rules and tool in rules.rejected:
        return None
    if run.settings.yolo:
        return Permission.RUN
    if run.loop and run.loop.settings.yolo:
        return Permission.LOOP
    return Permission.TOOL_RULE if rules and tool in rules.approved else None
