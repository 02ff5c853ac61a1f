"""What stands in the store when a turn begins: the prompt, the instructions, the project's files as they are now.

Source: architecture 2; rows RU074, RU165, RU195-RU199, RU204; decision C31.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from turnwright_core.entries import EntryWrite, SetEntry, State, Tier, Visibility, to_attributes_json
from turnwright_core.errors import Reason, fault
from turnwright_core.limits import CONTEXT_LENGTH_DEFAULT
from turnwright_core.runs import Loop, Model, Run, TurnRequest
from turnwright_executor.ports.ledger import Claim


def turn_request(
    run: Run, model: Model, tools: Sequence[str], temperature_default: float, begun: TurnRequest | None = None
) -> TurnRequest:
    """The settings that a turn runs with; the smaller of the model's window and the run's limit counts.

    `begun` is that of a turn that the loop had before: what the run was given since holds from its next loop on.
    """
    window = model.context_length or CONTEXT_LENGTH_DEFAULT
    limit = run.settings.context_limit
    temperature = run.settings.temperature
    request = TurnRequest(
        model=model.alias,
        vendor_model=model.vendor_model,
        context_length=min(window, limit) if limit else window,
        temperature=temperature_default if temperature is None else temperature,
        tools=tuple(tools),
    )
    if begun is None:
        return request
    return replace(request, context_length=begun.context_length, temperature=begun.temperature)


def prompt_write(loop: Loop) -> EntryWrite:
    """The prompt of a loop, at the number of its first turn."""
    attributes = {"mode": loop.settings.mode.name.lower(), "loop": loop.sequence}
    change = SetEntry(
        body=loop.prompt,
        attributes_json=to_attributes_json(attributes),
        visibility=Visibility.VISIBLE,
        state=State.RESOLVED,
    )
    return EntryWrite("prompt://{turn}", change, Tier.PLUGIN)


def instructions_write(run: Run, tools: Mapping[str, str], *, is_brief: bool = False) -> EntryWrite:
    """The run's instructions: tool set, tool documentation, persona. The assembler makes the system message of them.

    Brief ones are for a model with a small window.
    """
    attributes = {
        "persona": run.settings.persona,
        "tools": list(tools),
        "tool_docs": dict(tools),
        **({"brief": True} if is_brief else {}),
    }
    change = SetEntry(body="", attributes_json=to_attributes_json(attributes), state=State.RESOLVED)
    return EntryWrite("instructions://system", change, Tier.SYSTEM)


def begun_with(claim: Claim, loop: Loop) -> TurnRequest | None:
    """What the latest turn of a loop runs with that has had one."""
    turns = [*claim.recent_turns, *([claim.open_turn] if claim.open_turn else [])]
    return turns[-1].request if turns and turns[-1].loop == loop.sequence else None


def model_of(claim: Claim, loop: Loop) -> Model:
    """The model of a loop. Raises MODEL_NOT_FOUND."""
    if claim.model is None:
        raise fault(
            Reason.MODEL_NOT_FOUND,
            f"The model {loop.settings.model} of this loop is gone. Add it again, or continue the run with another.",
            model=loop.settings.model,
        )
    return claim.model
