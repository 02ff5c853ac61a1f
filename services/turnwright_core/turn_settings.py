"""What a turn takes of the settings of its run when it begins. Source: decision C48; docs/adr/0044."""

from __future__ import annotations

from msgspec.structs import replace

from turnwright_core.runs import Run, RunSettings, TurnRequest


def with_settings_of_run(request: TurnRequest, settings: RunSettings) -> TurnRequest:
    """The request with those settings that hold from the next turn of a run on."""
    limit, temperature = settings.context_limit, settings.temperature
    return replace(
        request,
        context_length=min(request.context_length, limit) if limit else request.context_length,
        temperature=request.temperature if temperature is None else temperature,
    )


def accepts_unasked(run: Run, tool: str) -> bool:
    """Whether the effects of a tool happen in the active loop of a run without anybody's decision, as it is now."""
    rules = run.settings.tool_rules
    if rules and tool in rules.rejected:
        return False
    is_yolo = run.settings.yolo or (run.loop is not None and run.loop.settings.yolo)
    return is_yolo or (rules is not None and tool in rules.approved)
