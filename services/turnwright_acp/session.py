"""One session of an editor: a run that is watched, prompted and asked about.

The watch is the only source of updates, so they have one order; a prompt is answered behind the last of its loop
(AP35, AG07). What the editor has been told is kept, so that a snapshot, which comes where events were missed, adds what
is new.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Final

from msgspec import Struct
from turnwright.runs.v1 import run_service_pb2
from turnwright.types.v1 import (
    entry_pb2,
    loop_pb2,
    message_pb2,
    plan_pb2,
    run_pb2,
    session_command_pb2,
    session_pb2,
    settings_pb2,
)

from turnwright_acp.editor_tools import offered_tools
from turnwright_acp.jsonrpc import INTERNAL_ERROR, Connection, RpcError
from turnwright_acp.permissions import PAUSE_S, Permissions, SessionPlace, insisted
from turnwright_acp.plans import PlanUpdates
from turnwright_acp.shapes import Capabilities, SessionUpdate
from turnwright_acp.updates import (
    CallUpdates,
    TextUpdates,
    answered_usage,
    available_commands,
    chunk,
    config_options,
    reasoning_of,
    usage_update,
)
from turnwright_client import Client, Reason, RunView, TurnwrightError
from turnwright_client.sessions import CommandKinds
from turnwright_core.runs import LOOP_ENDED, QUEUED
from turnwright_kit.logs import get_logger

_log = get_logger("acp")
ABORTED: Final = "aborted"
BUDGET_EXHAUSTED: Final = "budget_exhausted"
"""Words with which the reason of a loop begins."""
TOO_LONG: Final = 413
FAILED: Final = 500
PLAN_FILE_BYTES_MAX: Final = 96 * 1024
"""Bytes of a plan's file that are shown."""
ECHO_S: Final = 5.0
"""Seconds that a change of the settings may take to come with the watch."""
ABORT_WAIT_S: Final = 10.0
"""Seconds that the end of a session waits for its prompt to be cancelled."""
LOST: Final = "The connection to the run was lost; what it does goes on. Send the next prompt to connect again: "


class Prompting(Struct):
    """A prompt that has not been answered."""

    ended: asyncio.Future[SessionUpdate]
    """Its answer."""
    command_id: str
    """The command that it becomes."""
    giving: asyncio.Task[None] | None = None
    """Gives it to the run, as often as that takes."""
    loop: int = 0
    """Its loop; 0: not known yet."""
    is_cancelled: bool = False


class EditorSession:
    """A run that an editor has open. `open` begins the watch, `close` ends it."""

    def __init__(
        self,
        client: Client,
        connection: Connection,
        place: SessionPlace,
        can: Capabilities,
        title: str,
    ) -> None:
        """`title` is what the editor has been told of the run."""
        self.id, self.project, self.root, self.run = place.id, place.project, place.root, place.run
        self.reasoning = "default"
        self._asks_only = False
        self._client, self._connection, self._can = client, connection, can
        self._view = RunView()
        self._texts, self._calls = TextUpdates(), CallUpdates(place.root)
        self._plans = PlanUpdates(place.root)
        self._list_texts: list[str] = []
        """Texts of the latest snapshot that the list of all plans cannot show."""
        self._permissions = Permissions(client, connection, place, can, lambda: self.mode)
        self._prompting: Prompting | None = None
        self._beginning = asyncio.Lock()
        """Held while a prompt is given to the run, until its loop is known."""
        self._own_loops: set[int] = set()
        self._questions: set[str] = set()
        """Questions that the editor was told."""
        self._settings = ("", "")
        """Mode and model that the editor was told, or asked for."""
        self._configuring, self._changed = asyncio.Lock(), asyncio.Condition()
        self._title = title
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._may_send = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None
        self._cancelling: set[asyncio.Task[None]] = set()

    async def open(self, *, replays: bool = False) -> None:
        """Begin to watch. Returns with the state of the run; nothing but that is sent before `release`.

        `replays`: send the conversation and the plans so far (AG08, AP37); otherwise the editor is taken to have them.
        """
        await self._begin_watch()
        self._settings = (self.mode, self.model)
        async for update in self._untold():
            if replays:
                await self._send(update)

    async def _begin_watch(self) -> None:
        self._opened = asyncio.get_running_loop().create_future()
        self._watch = asyncio.create_task(self._follow(), name=f"acp session {self.run}")
        await asyncio.wait((self._watch, self._opened), return_when=asyncio.FIRST_COMPLETED)
        if self._watch.cancelled():
            raise RpcError(INTERNAL_ERROR, "The session was closed meanwhile.")
        if self._watch.done():
            await self._watch

    def release(self) -> None:
        """Send updates from now on, and ask for what waits for a decision."""
        self._may_send.set()
        self._notify(available_commands())
        self._permissions.take_all(self._view.proposals.values(), is_ours=True)

    @property
    def mode(self) -> str:
        if self._view.run is not None and self._view.run.settings.yolo:
            return "yolo"
        return "ask" if self._asks_only else "act"

    @property
    def model(self) -> str:
        run = self._view.run
        return (run.settings.model or run.loop.settings.model) if run else ""

    async def set_mode(self, mode: str) -> None:
        """It holds from the next prompt on; not to be asked any more, and to be asked again, holds at once."""
        async with self._configuring:
            self._asks_only = mode == "ask"
            await self._configure(settings_pb2.RunSettingsPatch(yolo=mode == "yolo"), mode, self.model)

    async def set_model(self, model: str) -> None:
        async with self._configuring:
            await self._configure(settings_pb2.RunSettingsPatch(model=model), self.mode, model)

    async def _configure(self, patch: settings_pb2.RunSettingsPatch, mode: str, model: str) -> None:
        """Change settings of the run, and wait until the watch has told so: what it tells later, others have done."""
        before, self._settings = self._settings, (mode, model)
        try:
            await self._client.configure_run(self.project, self.run, patch)
        except TurnwrightError:
            self._settings = before
            raise
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ECHO_S), self._changed:
                await self._changed.wait_for(lambda: (self.mode, self.model) == (mode, model))

    async def options(self) -> list[SessionUpdate]:
        """What can be set beside the mode."""
        models = [one.alias for one in await self._client.list_models()]
        return config_options(self.model, models, self.reasoning)

    async def prompt(self, parts: Iterable[message_pb2.Part]) -> SessionUpdate:
        """Give the run a prompt and wait for the end of its loop. Returns the answer. Raises RpcError."""
        if not self._may_send.is_set():
            raise RpcError(INTERNAL_ERROR, "The session is not open yet: wait for the answer that opens it.")
        if self._prompting is not None:
            raise RpcError(INTERNAL_ERROR, "This session answers one prompt at a time: cancel that one, or wait.")
        ended: asyncio.Future[SessionUpdate] = asyncio.get_running_loop().create_future()
        prompting = self._prompting = Prompting(ended, secrets.token_hex(16))
        giving = self._give(prompting, session_command_pb2.UserMessage(parts=parts))
        prompting.giving = asyncio.create_task(giving, name="acp prompt")
        try:
            await asyncio.wait((prompting.giving,))
            if not prompting.giving.cancelled():
                await prompting.giving
            return await ended
        finally:
            prompting.giving.cancel()
            self._prompting = None

    async def _give(self, prompting: Prompting, message: session_command_pb2.UserMessage) -> None:
        async with self._beginning:
            if self._watch is None or self._watch.done():
                await self._begin_watch()
            await self._begin(prompting, message)

    async def _begin(self, prompting: Prompting, message: session_command_pb2.UserMessage) -> None:
        """Give the message to the run: as the answer to what it has asked, or as a task."""
        run, command_id = self._view.run, prompting.command_id
        asked = next((path for path in self._questions if path in self._view.proposals), "")
        if asked and run is not None:
            prompting.loop = run.loop.sequence
            answer = "\n\n".join(part.text for part in message.parts)
            await insisted(
                lambda: self._client.resolve(
                    self.project, self.run, asked, accept=True, answer=answer, request_id=command_id
                )
            )
            return
        command: CommandKinds = {"user_message": message}
        match [part.text.strip() for part in message.parts]:
            case ["/undo"]:
                record = await self._client.call_tool(self.project, self.run, "undo")
                await self._send(chunk("agent_message", record.body, record.path))
                self._end(prompting, "end_turn")
                return
            case ["/retry"]:
                command = {"regenerate": session_command_pb2.Regenerate()}
        is_ask = self.mode == "ask"
        settings = settings_pb2.LoopSettings(
            mode=settings_pb2.MODE_ASK if is_ask else settings_pb2.MODE_ACT,
            client_tools=[] if is_ask else offered_tools(self._can),
            reasoning=reasoning_of(self.reasoning),
        )
        message.settings.CopyFrom(settings)
        given = await insisted(lambda: self._client.submit(self.project, self.run, command_id, **command))
        prompting.loop = given.loop.sequence
        self._own_loops.add(prompting.loop)
        await self._send_title(given.run)

    def cancel(self) -> None:
        """End the prompt that is being worked on, if there is one (AG06)."""
        if self._prompting is not None and not self._prompting.is_cancelled:
            self._prompting.is_cancelled = True
            task = asyncio.create_task(self._abort(self._prompting), name="acp cancel")
            self._cancelling.add(task)
            task.add_done_callback(self._cancelling.discard)

    async def abort(self) -> None:
        """Cancel the prompt, and wait until it has ended."""
        self.cancel()
        if self._cancelling:
            await asyncio.wait(self._cancelling, timeout=ABORT_WAIT_S)

    async def _abort(self, prompting: Prompting) -> None:
        """Take the loop of a prompt out of the queue, or end it; try until it is known to have ended."""
        giving = prompting.giving
        assert giving is not None
        await asyncio.wait((giving,), timeout=PAUSE_S)
        if giving.cancel():
            await asyncio.wait((giving,))
            if not prompting.loop:
                self._end(prompting, "cancelled")
                await self._take_back(prompting.command_id)
        while prompting.loop and not prompting.ended.done():
            try:
                shown = self._view.run.loop if self._view.run is not None else loop_pb2.Loop()
                # The latest loop of an idle run is shown before anybody has claimed it.
                if shown.sequence == prompting.loop and shown.status != QUEUED:
                    await self._client.abort(self.project, self.run, loop=prompting.loop)
                else:
                    await self._client.cancel_command(self.project, self.run, loop=prompting.loop)
                    self._end(prompting, "cancelled")
            except TurnwrightError as error:
                _log.warning("cancel_failed", run=self.run, reason=error.reason.name)
            await asyncio.wait((prompting.ended,), timeout=PAUSE_S)

    async def _take_back(self, command_id: str) -> None:
        """Cancel what became of attempts to give a prompt that were not answered."""
        try:
            await insisted(lambda: self._client.cancel_command(self.project, self.run, command_id))
        except TurnwrightError as error:
            if error.reason is not Reason.ENTRY_NOT_FOUND:
                _log.warning("cancel_failed", run=self.run, reason=error.reason.name)
                return
            # None has arrived, or its loop has begun.
            loop = (await self._found()).run.loop
            if loop.command_id == command_id:
                await insisted(lambda: self._client.abort(self.project, self.run, loop=loop.sequence))

    async def close(self) -> None:
        """Stop to watch; the run goes on. A prompt that is not answered yet is."""
        giving = None if self._prompting is None else self._prompting.giving
        tasks = [task for task in (self._watch, giving, *self._cancelling) if task is not None]
        for task in tasks:
            task.cancel()
        await self._permissions.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._prompting is not None:
            self._end(self._prompting, "cancelled")

    async def _follow(self) -> None:
        form = "operations" if self._can.has_plans else "legacy"
        watch = self._client.watch(self.project, self.run, plans=form)  # type: ignore[arg-type]
        try:
            async with contextlib.aclosing(watch) as events:
                async for event in events:
                    self._view.apply(event)
                    is_whole = event.WhichOneof("event") == "snapshot"
                    if is_whole and not event.snapshot.last:
                        continue
                    if is_whole:
                        self._list_texts = list(event.snapshot.legacy_plan.texts)
                    if not self._opened.done():
                        self._opened.set_result(None)
                        if not self._may_send.is_set():
                            # `open` tells of this one.
                            await self._may_send.wait()
                            continue
                    if is_whole:
                        await self._catch_up()
                    else:
                        await self._take(event)
        except Exception as error:
            message = error.message if isinstance(error, TurnwrightError) else type(error).__name__
            _log.error("watch_ended", run=self.run, exc_info=error)
            if self._prompting is not None and not self._prompting.ended.done():
                self._prompting.ended.set_exception(RpcError(INTERNAL_ERROR, LOST + message))
            if not self._opened.done():
                raise

    async def _catch_up(self) -> None:
        """Events were missed: tell what has become of the run meanwhile."""
        async for update in self._untold():
            await self._send(update)
        await self._settings_changed()
        await self._title_changed()
        self._permissions.take_all(self._view.proposals.values(), is_ours=self._is_own_loop())
        await self._look_for_end()

    async def _untold(self) -> AsyncIterator[SessionUpdate]:
        """What the view holds and the editor was not told, in its order."""
        for update in self._untold_messages():
            yield update
        for plan in self._view.held.plans.values():
            text = await self._plan_text(plan)
            for update in self._plans.put(plan, text):
                yield update
        for update in self._plans.without(self._view.held.plans):
            yield update
        for update in self._plans.put_list(self._view.held.legacy or (), self._list_texts):
            yield update

    def _untold_messages(self) -> Iterator[SessionUpdate]:
        for entry in self._view.timeline():
            yield from self._of_entry(entry)
        if (partial := self._view.partial) is not None:
            yield from self._texts.to(f"reasoning://{partial.turn}", partial.reasoning)
            yield from self._texts.to(f"assistant://{partial.turn}", partial.content)

    def _of_entry(self, entry: entry_pb2.Entry) -> Iterable[SessionUpdate]:
        match entry.scheme:
            case "prompt" if entry.loop in self._own_loops:
                return ()
            case "prompt" | "assistant" | "reasoning":
                return self._texts.whole(entry)
            case _:
                return (*self._texts.answer(entry), *self._calls.take(entry))

    async def _take(self, event: Any) -> None:  # noqa: C901, PLR0912 - one case for each kind
        match event.WhichOneof("event"):
            case "stream_started":
                self._texts.begin(event.stream_started.turn)
            case "stream_delta":
                for delta in event.stream_delta.deltas:
                    for update in self._texts.grown(event.stream_delta.turn, delta):
                        await self._send(update)
            case "message_added" | "message_updated" as kind:
                entry = getattr(event, kind).entry
                if entry.scheme == "prompt":
                    # Whose prompt it is, is known once its loop is.
                    async with self._beginning:
                        pass
                for update in self._of_entry(entry):
                    await self._send(update)
            case "output_appended":
                for update in self._calls.grown(event.output_appended.path, event.output_appended.text):
                    await self._send(update)
            case "proposal_pending":
                async with self._beginning:
                    self._permissions.take(event.proposal_pending.proposal, is_ours=self._is_own_loop())
            case "proposal_resolved":
                self._permissions.withdraw(event.proposal_resolved.decision.path)
            case "plan_updated":
                plan = event.plan_updated
                for update in self._plans.put(plan, await self._plan_text(plan)):
                    await self._send(update)
            case "plan_removed":
                for update in self._plans.without(self._view.held.plans):
                    await self._send(update)
            case "legacy_plan":
                for update in self._plans.put_list(event.legacy_plan.items, event.legacy_plan.texts):
                    await self._send(update)
            case "thread_updated":
                await self._settings_changed()
            case "turn_finished":
                await self._follow_files()
                if usage := usage_update(event.turn_finished.turn, (await self._found()).spent.cost_usd):
                    await self._send(usage)
            case "runtime_updated":
                await self._look_for_end()
            case "run_state":
                await self._title_changed()
                await self._look_for_end()
            case _:
                pass

    def _is_own_loop(self) -> bool:
        """Whether this editor has prompted the loop that the run is at."""
        return self._view.run is not None and self._view.run.loop.sequence in self._own_loops

    async def _settings_changed(self) -> None:
        """Tell the mode and the model, if somebody else has changed them."""
        async with self._changed:
            self._changed.notify_all()
        (mode, model), self._settings = self._settings, (self.mode, self.model)
        if mode != self.mode:
            await self._send({"sessionUpdate": "current_mode_update", "currentModeId": self.mode})
        if model != self.model and (options := await insisted(self.options)):
            await self._send({"sessionUpdate": "config_option_update", "configOptions": options})

    async def _title_changed(self) -> None:
        """Tell the title, if anybody has changed it: no event has it, but one of the run follows."""
        # What answers a prompt has the title of that moment.
        async with self._beginning:
            pass
        await self._send_title((await self._found()).run)

    async def _send_title(self, run: run_pb2.Run) -> None:
        """Send what the run is about, if that has changed."""
        if run.title not in ("", self._title):
            self._title, updated = run.title, run.update_time.ToJsonString()
            await self._send({"sessionUpdate": "session_info_update", "title": run.title, "updatedAt": updated})

    async def _found(self) -> run_service_pb2.GetRunResponse:
        return await insisted(lambda: self._client.get_run(self.project, self.run))

    async def _follow_files(self) -> None:
        """Tell the plans again whose files have changed (AP11)."""
        plans = self._view.held.plans.values()
        for plan in [one for one in plans if one.kind == plan_pb2.PLAN_KIND_FILE]:
            for update in self._plans.put(plan, await self._plan_text(plan)):
                await self._send(update)

    async def _plan_text(self, plan: plan_pb2.Plan) -> str:
        """The content of the file of a file plan; empty for any other, and where there is no such file."""
        if self._plans.file_of(plan) is None:
            return ""
        try:
            entry = await insisted(lambda: self._client.get_entry(self.project, self.run, plan.body.strip()))
        except TurnwrightError as error:
            if error.reason not in (Reason.ENTRY_NOT_FOUND, Reason.INVALID_FIELD):
                raise
            return ""
        return entry.body.encode()[:PLAN_FILE_BYTES_MAX].decode(errors="ignore")

    async def _look_for_end(self) -> None:
        """Answer the prompt if its loop has ended, or waits for what the next prompt will say."""
        if self._prompting is not None:
            # The end may come before the loop is known.
            async with self._beginning:
                pass
        prompting, run = self._prompting, self._view.run
        if prompting is None or not prompting.loop or run is None or prompting.ended.done():
            return
        loop = run.loop
        if loop.sequence > prompting.loop:
            loop = await insisted(lambda: self._client.get_loop(self.project, self.run, prompting.loop))
        if loop.sequence == prompting.loop and loop.status in LOOP_ENDED:
            self._settle(prompting, loop)
        elif self._view.state == session_pb2.SESSION_STATE_WAITING_USER_INPUT:
            waiting = [one for one in self._view.proposals.values() if one.HasField("question")]
            if waiting and not any(one.path in self._questions for one in waiting):
                question = waiting[0].question
                self._questions.add(waiting[0].path)
                options = "".join(f"\n- {option}" for option in question.options)
                await self._send(chunk("agent_message", f"\n\n{question.question}{options}", waiting[0].path))
                self._end(prompting, "end_turn")

    def _settle(self, prompting: Prompting, loop: loop_pb2.Loop) -> None:
        word = loop.reason.partition(":")[0]
        if prompting.ended.done():
            return
        usage = answered_usage(loop.usage) if self._can.has_plans else {}
        if prompting.is_cancelled or word == ABORTED:
            self._end(prompting, "cancelled", usage)
        elif loop.status == FAILED:
            message = loop.reason or "The task failed."
            prompting.ended.set_exception(RpcError(INTERNAL_ERROR, message, {"status": FAILED}))
        elif loop.status == TOO_LONG:
            self._end(prompting, "max_tokens", usage)
        elif word == BUDGET_EXHAUSTED:
            self._end(prompting, "max_turn_requests", usage)
        else:
            self._end(prompting, "end_turn", usage)

    @staticmethod
    def _end(prompting: Prompting, reason: str, usage: SessionUpdate | None = None) -> None:
        if not prompting.ended.done():
            prompting.ended.set_result({"stopReason": reason, **(usage or {})})

    async def _send(self, update: SessionUpdate) -> None:
        self._notify(update)
        await self._connection.drain()

    def _notify(self, update: SessionUpdate) -> None:
        self._connection.notify("session/update", {"sessionId": self.id, "update": update})
