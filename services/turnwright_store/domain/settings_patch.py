"""Changes to the settings of a run."""

from __future__ import annotations

from msgspec.structs import asdict, replace
from turnwright_values.types import Budget, Loop, LoopSettings, RunSettings, RunSettingsPatch

from turnwright_core.runs import QUEUED


class QueuedSettings(LoopSettings, frozen=True):
    """Settings of a stored loop. `model_of_run`: its model follows the run's while it waits.

    It is set where the model was named by the run, or was that of an earlier loop.
    """

    model_of_run: bool = False


def queued_settings(settings: LoopSettings, *, model_of_run: bool) -> QueuedSettings:
    return QueuedSettings(**{**asdict(settings), "model_of_run": model_of_run})


def follows_run(settings: LoopSettings) -> bool:
    return isinstance(settings, QueuedSettings) and settings.model_of_run


def changed_settings(patch: RunSettingsPatch, settings: RunSettings) -> RunSettings:
    """The settings after the changes. An empty persona and a limit of 0 are the defaults."""
    return replace(
        settings,
        model=settings.model if patch.model is None else patch.model,
        temperature=settings.temperature if patch.temperature is None else patch.temperature,
        persona=settings.persona if patch.persona is None else patch.persona or None,
        context_limit=settings.context_limit if patch.context_limit is None else patch.context_limit or None,
        budget=settings.budget if patch.budget is None else (None if patch.budget == Budget() else patch.budget),
        yolo=settings.yolo if patch.yolo is None else patch.yolo,
        calls=settings.calls if patch.calls is None else patch.calls,
        title=settings.title if patch.title is None else patch.title,
    )


def changed_of_loop(patch: RunSettingsPatch, loop: Loop) -> LoopSettings:
    """The settings of a loop that has not ended, after the changes: a grant that is taken away, another model."""
    settings = loop.settings
    if patch.yolo is False:
        settings = replace(settings, yolo=False)
    if patch.model is not None and follows_run(settings) and loop.status == QUEUED:
        settings = replace(settings, model=patch.model)
    return settings
