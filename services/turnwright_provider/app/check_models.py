"""Whether models could be called: each vendor is asked once, all vendors at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from turnwright_core.errors import TurnwrightError
from turnwright_core.runs import Model
from turnwright_provider.app.generate import find_vendor
from turnwright_provider.domain.names import split_vendor_model
from turnwright_provider.ports import Vendor


async def check_models(vendors: Mapping[str, Vendor], models: Sequence[Model]) -> list[str]:
    """What is wrong with each model, in order; empty where nothing is."""
    problems = [""] * len(models)
    asked: dict[str, list[tuple[int, str]]] = {}
    for place, model in enumerate(models):
        try:
            vendor, name = split_vendor_model(model.vendor_model)
            find_vendor(vendors, vendor)
            asked.setdefault(vendor, []).append((place, name))
        except TurnwrightError as error:
            problems[place] = error.message
    async with asyncio.TaskGroup() as group:
        for vendor, places in asked.items():
            group.create_task(_ask(vendors[vendor], places, problems))
    return problems


async def _ask(vendor: Vendor, places: list[tuple[int, str]], problems: list[str]) -> None:
    answers = await vendor.check([name for _, name in places])
    for (place, _), problem in zip(places, answers, strict=True):
        problems[place] = problem
