"""Changes to the settings of a run."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from turnwright_core.runs import QUEUED, Budget, CallStyle, Loop, LoopSettings, RunSettings
from turnwright_core.tool_settings import ToolRules


class SettingsPatch(Struct, frozen=True):
    """Changes to a run's settings; None leaves one as it is. An empty persona and a limit of 0 are the defaults."""

    model: str | None = None
    temperature: float | None = None
    persona: str | None = None
    context_limit: int | None = None
    budget: Budget | None = None
    yolo: bool | None = None
    calls: CallStyle | None = None
    tool_rules: ToolRules | None = None

    def apply_to(self, settings: RunSettings) -> RunSettings:
        """The settings after the changes."""
        return RunSettings(
            model=settings.model if self.model is None else self.model,
            temperature=settings.temperature if self.temperature is None else self.temperature,
            persona=settings.persona if self.persona is None else self.persona or None,
            context_limit=settings.context_limit if self.context_limit is None else self.context_limit or None,
            budget=settings.budget if self.budget is None else (None if self.budget == Budget() else self.budget),
            yolo=settings.yolo if self.yolo is None else self.yolo,
            calls=settings.calls if self.calls is None else self.calls,
            tool_rules=settings.tool_rules if self.tool_rules is None else self.tool_rules,
        )

    def of_loop(self, loop: Loop) -> LoopSettings:
        """The settings of a loop that has not ended, after the changes: a grant that is taken away, another model."""
        settings = loop.settings
        if self.yolo is False:
            settings = replace(settings, yolo=False)
        if self.model is not None and settings.model_of_run and loop.status == QUEUED:
            settings = replace(settings, model=self.model)
        return settings
