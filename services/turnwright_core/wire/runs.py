"""Projects, models, runs, loops and turns on the wire."""

from __future__ import annotations

from turnwright.types.v1 import budget_pb2, loop_pb2, model_pb2, project_pb2, run_pb2, settings_pb2, turn_pb2, usage_pb2

from turnwright_core.errors import Reason, fault
from turnwright_core.runs import (
    Budget,
    ForkOrigin,
    Loop,
    LoopSettings,
    Mode,
    Model,
    Project,
    Run,
    RunSettings,
    Spending,
    Turn,
    TurnRequest,
    TurnResult,
    Usage,
)
from turnwright_core.wire.entries import cursor_from_pb, cursor_to_pb
from turnwright_core.wire.times import time_from_pb, time_to_pb


def project_to_pb(project: Project) -> project_pb2.Project:
    return project_pb2.Project(
        name=project.name,
        root=project.root,
        workspace_id=project.workspace_id,
        create_time=time_to_pb(project.create_ms),
        config_path=project.config_path,
    )


def model_to_pb(model: Model) -> model_pb2.Model:
    return model_pb2.Model(alias=model.alias, vendor_model=model.vendor_model, context_length=model.context_length)


def model_from_pb(model: model_pb2.Model) -> Model:
    return Model(model.alias, model.vendor_model, model.context_length)


def usage_to_pb(usage: Usage) -> usage_pb2.Usage:
    return usage_pb2.Usage(
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        completion_tokens=usage.completion_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        total_tokens=usage.total_tokens,
        cost_usd=usage.cost_usd,
    )


def usage_from_pb(usage: usage_pb2.Usage) -> Usage:
    return Usage(
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        completion_tokens=usage.completion_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        total_tokens=usage.total_tokens,
        cost_usd=usage.cost_usd if usage.HasField("cost_usd") else None,
    )


def budget_to_pb(budget: Budget) -> budget_pb2.Budget:
    return budget_pb2.Budget(
        turns_max=budget.turns_max,
        tokens_max=budget.tokens_max,
        cost_usd_max=budget.cost_usd_max,
        wall_s_max=budget.wall_s_max,
    )


def budget_from_pb(budget: budget_pb2.Budget) -> Budget:
    return Budget(budget.turns_max, budget.tokens_max, budget.cost_usd_max, budget.wall_s_max)


def spending_to_pb(spent: Spending) -> budget_pb2.Spending:
    return budget_pb2.Spending(
        turns=spent.turns,
        tokens=spent.tokens,
        lost_tokens=spent.lost_tokens,
        cost_usd=spent.cost_usd,
        turns_without_cost=spent.turns_without_cost,
        wall_s=spent.wall_s,
        prompt_tokens=spent.prompt_tokens,
    )


def spending_from_pb(spent: budget_pb2.Spending) -> Spending:
    return Spending(
        turns=spent.turns,
        tokens=spent.tokens,
        lost_tokens=spent.lost_tokens,
        cost_usd=spent.cost_usd,
        turns_without_cost=spent.turns_without_cost,
        wall_s=spent.wall_s,
        prompt_tokens=spent.prompt_tokens,
    )


def loop_settings_to_pb(settings: LoopSettings) -> settings_pb2.LoopSettings:
    return settings_pb2.LoopSettings(
        mode=int(settings.mode),  # type: ignore[arg-type]
        model=settings.model,
        no_repo=settings.no_repo,
        no_interaction=settings.no_interaction,
        no_web=settings.no_web,
        no_proposals=settings.no_proposals,
        yolo=settings.yolo,
        budget=budget_to_pb(settings.budget) if settings.budget else None,
    )


def loop_settings_from_pb(settings: settings_pb2.LoopSettings) -> LoopSettings:
    """Loop settings from the wire. Raises InvalidError for an unknown mode."""
    try:
        mode = Mode(settings.mode)
    except ValueError:
        raise fault(Reason.INVALID_FIELD, f"{settings.mode} is not a mode.", field="mode") from None
    return LoopSettings(
        mode=mode,
        model=settings.model,
        no_repo=settings.no_repo,
        no_interaction=settings.no_interaction,
        no_web=settings.no_web,
        no_proposals=settings.no_proposals,
        yolo=settings.yolo,
        budget=budget_from_pb(settings.budget) if settings.HasField("budget") else None,
    )


def run_settings_to_pb(settings: RunSettings) -> settings_pb2.RunSettings:
    return settings_pb2.RunSettings(
        model=settings.model,
        temperature=settings.temperature,
        persona=settings.persona,
        context_limit=settings.context_limit,
        budget=budget_to_pb(settings.budget) if settings.budget else None,
        yolo=settings.yolo,
    )


def run_settings_from_pb(settings: settings_pb2.RunSettings) -> RunSettings:
    return RunSettings(
        model=settings.model,
        temperature=settings.temperature if settings.HasField("temperature") else None,
        persona=settings.persona if settings.HasField("persona") else None,
        context_limit=settings.context_limit if settings.HasField("context_limit") else None,
        budget=budget_from_pb(settings.budget) if settings.HasField("budget") else None,
        yolo=settings.yolo,
    )


def loop_to_pb(loop: Loop) -> loop_pb2.Loop:
    return loop_pb2.Loop(
        sequence=loop.sequence,
        settings=loop_settings_to_pb(loop.settings),
        prompt=loop.prompt,
        status=loop.status,
        reason=loop.reason,
        summary=loop.summary,
        first_turn=loop.first_turn,
        turns=loop.turns,
        usage=usage_to_pb(loop.usage),
        create_time=time_to_pb(loop.create_ms),
        end_time=time_to_pb(loop.end_ms),
        revision=loop.revision,
    )


def loop_from_pb(loop: loop_pb2.Loop) -> Loop:
    return Loop(
        sequence=loop.sequence,
        settings=loop_settings_from_pb(loop.settings),
        prompt=loop.prompt,
        status=loop.status,
        reason=loop.reason,
        summary=loop.summary,
        first_turn=loop.first_turn,
        turns=loop.turns,
        usage=usage_from_pb(loop.usage),
        create_ms=time_from_pb(loop.create_time),
        end_ms=time_from_pb(loop.end_time),
        revision=loop.revision,
    )


def run_to_pb(run: Run) -> run_pb2.Run:
    return run_pb2.Run(
        project=run.project,
        run=run.run,
        settings=run_settings_to_pb(run.settings),
        status=run.status,
        turn=run.turn,
        loop=loop_to_pb(run.loop) if run.loop else None,
        summary=run.summary,
        loops_queued=run.loops_queued,
        revision=run.revision,
        create_time=time_to_pb(run.create_ms),
        update_time=time_to_pb(run.update_ms),
        forked_from=_origin_to_pb(run.forked_from) if run.forked_from else None,
        held=run.held,
    )


def _origin_to_pb(origin: ForkOrigin) -> run_pb2.ForkOrigin:
    return run_pb2.ForkOrigin(run=origin.run, turn=origin.turn)


def run_from_pb(run: run_pb2.Run) -> Run:
    return Run(
        project=run.project,
        run=run.run,
        settings=run_settings_from_pb(run.settings),
        status=run.status,
        turn=run.turn,
        loop=loop_from_pb(run.loop) if run.HasField("loop") else None,
        summary=run.summary,
        loops_queued=run.loops_queued,
        revision=run.revision,
        create_ms=time_from_pb(run.create_time),
        update_ms=time_from_pb(run.update_time),
        forked_from=ForkOrigin(run.forked_from.run, run.forked_from.turn) if run.HasField("forked_from") else None,
    )


def turn_request_to_pb(request: TurnRequest) -> turn_pb2.TurnRequest:
    return turn_pb2.TurnRequest(
        model=request.model,
        vendor_model=request.vendor_model,
        context_length=request.context_length,
        temperature=request.temperature,
        tools=request.tools,
    )


def turn_request_from_pb(request: turn_pb2.TurnRequest) -> TurnRequest:
    return TurnRequest(
        model=request.model,
        vendor_model=request.vendor_model,
        context_length=request.context_length,
        temperature=request.temperature,
        tools=tuple(request.tools),
    )


def turn_result_to_pb(result: TurnResult) -> turn_pb2.TurnResult:
    return turn_pb2.TurnResult(
        finish=result.finish,
        error=result.error,
        usage=usage_to_pb(result.usage),
        status=result.status,
        reason=result.reason,
        strikes=result.strikes,
        fingerprint=result.fingerprint,
        packet_digest=result.packet_digest,
        packet_tokens=result.packet_tokens,
        cursor=cursor_to_pb(result.cursor) if result.cursor else None,
        first_delta_ms=result.first_delta_ms,
        model_ms=result.model_ms,
        lost_tokens=result.lost_tokens,
        lost_cost_usd=result.lost_cost_usd,
        work_ms=result.work_ms,
    )


def turn_result_from_pb(result: turn_pb2.TurnResult) -> TurnResult:
    return TurnResult(
        finish=result.finish,
        error=result.error,
        usage=usage_from_pb(result.usage),
        status=result.status,
        reason=result.reason,
        strikes=result.strikes,
        fingerprint=result.fingerprint,
        packet_digest=result.packet_digest,
        packet_tokens=result.packet_tokens,
        cursor=cursor_from_pb(result.cursor) if result.HasField("cursor") else None,
        first_delta_ms=result.first_delta_ms,
        model_ms=result.model_ms,
        lost_tokens=result.lost_tokens,
        lost_cost_usd=result.lost_cost_usd,
        work_ms=result.work_ms,
    )


def turn_to_pb(turn: Turn) -> turn_pb2.Turn:
    return turn_pb2.Turn(
        number=turn.number,
        loop=turn.loop,
        request=turn_request_to_pb(turn.request),
        result=turn_result_to_pb(turn.result) if turn.result else None,
        begin_time=time_to_pb(turn.begin_ms),
        end_time=time_to_pb(turn.end_ms),
        revision=turn.revision,
    )


def turn_from_pb(turn: turn_pb2.Turn) -> Turn:
    return Turn(
        number=turn.number,
        loop=turn.loop,
        request=turn_request_from_pb(turn.request),
        result=turn_result_from_pb(turn.result) if turn.HasField("result") else None,
        begin_ms=time_from_pb(turn.begin_time),
        end_ms=time_from_pb(turn.end_time),
        revision=turn.revision,
    )
