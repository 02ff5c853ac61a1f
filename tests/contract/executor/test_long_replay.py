"""A run of 200 turns on a copy of this repository's own files: every packet is assembled again to the same bytes."""

from __future__ import annotations

import itertools
import shutil
import tracemalloc
from pathlib import Path

import pytest
from turnwright.types.v1 import explanation_pb2 as pb
from turnwright.types.v1 import settings_pb2

from contract.executor.test_replayed_packets import explained
from services import running

TREE = Path(__file__).parents[3]
TURNS = 200
MORE = '<update status="102">More.</update>'
WINDOW = 163_840


def replies(paths: list[str]) -> list[str]:
    """Reads, notes, plans and edits; what is in the way is archived now and then."""
    made = []
    for turn, path in enumerate(itertools.islice(itertools.cycle(paths), TURNS - 1), 1):
        commands = [f'<get path="{path}"/>', f'<set path="known://{turn}">{path} is read.</set>']
        if turn % 10 == 1:
            commands.append(f'<set_plan plan_id="main"># Turn {turn}\n\n* go on</set_plan>')
        elif turn % 3 == 0:
            commands.append(f'<update_plan plan_id="main">{path} is read</update_plan>')
        if turn % 7 == 0:
            commands.append(f"<sh>echo '# {turn}' >> {path}; wc -l {path}</sh>")
        if turn % 12 == 0:
            commands.append('<set path="services/**" visibility="archived"/>')
        made.append("".join(commands) + MORE)
    return [*made, '<update status="200">Done.</update>']


@pytest.mark.soak
@pytest.mark.asyncio
@pytest.mark.timeout(1800)
async def test_a_run_of_200_turns_on_a_real_repository_is_replayed(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    monkeypatch.setenv("TURNWRIGHT_CONTEXT_m", str(WINDOW))
    async with running(tmp_path, loop_turns_max=TURNS + 1) as services:
        shutil.copytree(TREE / "services", services.files / "services", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(TREE / "CONTRIBUTING.md", services.files / "AGENTS.md")
        paths = sorted(str(path.relative_to(services.files)) for path in services.files.glob("services/*/app/*.py"))
        services.script(*replies(paths))
        wanted = settings_pb2.LoopSettings(model="m", yolo=True)
        queued = await services.client.act(services.project, "Read.", run="r", settings=wanted)
        loop = await services.until(queued)
        assert (loop.status, loop.reason, loop.turns) == (200, "update", TURNS)
        # A small part of the run first, so that caches are filled before memory is measured.
        await explained(services, 5)
        tracemalloc.start()
        told = []
        for turn in range(1, TURNS + 1):
            one = await services.client.explain_packet(services.project, "r", turn, 0)
            told.append((one.digest, one.stored_digest, one.tokens, list(one.gaps), [step.kind for step in one.steps]))
            if turn == TURNS // 4:
                early = tracemalloc.get_traced_memory()[0]
        late = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        whole = await services.client.explain_packet(services.project, "r", TURNS, 5000)
    assert [digest for digest, _, _, _, _ in told] == [stored for _, stored, _, _, _ in told]
    assert [gaps for _, _, _, gaps, _ in told] == [[]] * TURNS
    assert len({tokens for _, _, tokens, _, _ in told}) > TURNS // 2
    assert late - early < 8 * 1024 * 1024
    assert sum(piece.tokens for piece in whole.pieces) == whole.tokens
    assert pb.PIECE_KIND_PROJECT_INSTRUCTIONS in {total.kind for total in whole.kinds}
