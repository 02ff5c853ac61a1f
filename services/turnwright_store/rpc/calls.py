"""What every rpc of the store shares: the caller, the database, and answers to repeated requests.

Most rpcs are one transaction, one query or one watch, and are declared as that: `mutation`, `query` and `watch` make
the handler of the function that does the work, which gives the fields of the answer. It may run more than once.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final, TypeVar

from google.protobuf.message_factory import GetMessageClass
from msgspec import Struct, field
from sqlalchemy import Connection
from turnwright_values.store import Durability
from turnwright_values.types import Cursor, Right

from turnwright_core.checks import check_words
from turnwright_core.limits import NAME_CHARS_MAX
from turnwright_core.schemes import Scheme
from turnwright_core.wire.entries import cursor_from_pb
from turnwright_kit.identity.caller import Caller, current_caller
from turnwright_kit.identity.policy import Policy
from turnwright_kit.refusals import Refusals
from turnwright_kit.telemetry import event
from turnwright_kit.telemetry_names import AUDIT_EVENT, SpanAttributes
from turnwright_store.app.audit import audited_call, record
from turnwright_store.app.idempotency import run_once, starts_no_run
from turnwright_store.app.store_rules import with_schemes
from turnwright_store.app.watches import Watch, Watches
from turnwright_store.domain.locks import POLICY_LOCK, REGISTRY_LOCK, project_lock, request_lock, run_lock
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.pages import BOUND_CHARS, bind_token, unbound_token
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.domain.viewers import Viewer, viewing
from turnwright_store.ports import ANY_SCOPE, Database, Query, Subscription, Transaction, Work
from turnwright_store.sql.idempotency import RequestKey

HOLDS_S_MAX: Final = 5.0
"""Longest wait for a change of the policy to come back from the database, in seconds."""

M = TypeVar("M")
R = TypeVar("R")
Q = TypeVar("Q")
C = TypeVar("C", bound="Calls")
WatchHandler = Callable[[C, Q, Any], AsyncIterator[R]]
Handler = Callable[[C, Q, Any], Awaitable[Any]]
Fields = dict[str, Any]
"""The fields of an answer: its message is that of the rpc."""


class DatabaseOfViewer(Struct, frozen=True):
    """A database with the private runs of one viewer alone."""

    database: Database
    viewer: Viewer

    async def write(self, work: Work[R], durability: Durability, locks: Collection[str]) -> R:
        return await self.database.write(partial(viewing, self.viewer, work), durability, locks)

    async def read(self, query: Query[R]) -> R:
        return await self.database.read(partial(viewing, self.viewer, query))

    def subscribe(self, scopes: Collection[int], follows: int = ANY_SCOPE) -> Subscription:  # noqa: ARG002 - as others
        # Who follows reads nothing, and would not notice that a run is there for it no longer.
        return self.database.subscribe(scopes)


class StoreBackend(Struct):
    """What the servicers share; `rules` is set when the database is open."""

    database: Database
    clock_ms: Callable[[], int]
    """Milliseconds since 1970."""
    policy: Policy
    """Who may do what."""
    secrets: Sequence[str] = ()
    """The deployment's secret, and those that are accepted beside it."""
    opened: StoreRules | None = None
    watches: Watches = field(default_factory=Watches)
    """The watches that are open."""
    refusals: Refusals = field(default_factory=Refusals)
    """What this store has refused."""
    quota_locks: frozenset[str] = frozenset()
    """The lock for what calls reserve, while there are quotas as far as is known here."""

    @property
    def rules(self) -> StoreRules:
        assert self.opened is not None, "the service was not started"
        return self.opened

    def update(self, schemes: Iterable[Scheme]) -> None:
        self.opened = with_schemes(self.rules, schemes)


class Calls:
    """Base of the servicers."""

    def __init__(self, service: StoreBackend) -> None:
        self._service = service

    @property
    def _database(self) -> Database:
        """The database as it is there for the caller of an rpc."""
        caller, policy, database = current_caller(), self._service.policy, self._service.database
        if caller.is_trusted:
            return database
        return DatabaseOfViewer(database, Viewer(caller.name, partial(policy.has, caller, Right.ADMIN)))

    @property
    def _rules(self) -> StoreRules:
        return self._service.rules

    @property
    def _quota_locks(self) -> frozenset[str]:
        return self._service.quota_locks

    async def _once(
        self,
        request: Any,
        answer: Callable[[], R],
        work: Callable[[Transaction, Caller], R],
        *,
        locks: Collection[str],
        durability: Durability = Durability.FULL,
        starts: Callable[[R], str] = starts_no_run,
    ) -> R:
        """Run a mutation, idempotent by its request id; that of a command is its own.

        `locks` are those of the work; the request is locked too. `starts` returns the run whose work the request
        started: the answer is kept at least until that work has ended.
        """
        caller = current_caller()
        method = answer.__name__.removesuffix("Response")
        id_field = "request_id" if hasattr(request, "request_id") else "command_id"
        if not (request_id := getattr(request, id_field, "")):
            return await self._audited(request, caller, work, durability, locks)
        check_words(id_field, request_id, NAME_CHARS_MAX)
        key = RequestKey(getattr(request, "project", ""), caller.name, method, request_id)
        asked = _without_owner_fields(request)
        return await self._audited(
            request,
            caller,
            work,
            durability,
            {*locks, request_lock(*key)},
            lambda tx, change: run_once(tx, key, asked, answer, change, starts),
        )

    async def _audited(
        self,
        request: Any,
        caller: Caller,
        work: Callable[[Transaction, Caller], R],
        durability: Durability,
        locks: Collection[str],
        around: Callable[[Transaction, Work[R]], R] = lambda tx, change: change(tx),
    ) -> R:
        """Do the work of an rpc that changes something, with its row of the audit in the same transaction.

        What is `around` may find that it has been done already, and then there is no row.
        """
        call = audited_call(request, caller)
        row: SpanAttributes | None = None

        def change(tx: Transaction) -> R:
            nonlocal row
            answer = work(tx, caller)
            row = record(tx, caller, call, answer) if call else None
            return answer

        def attempt(tx: Transaction) -> R:
            nonlocal row
            row = None
            return around(tx, change)

        answer = await self._database.write(attempt, durability, locks)
        if row:
            event(AUDIT_EVENT, f"{caller.name} called {caller.method}", row)
        return answer


_OWNER_FIELDS: Final = ("epoch", "written_by", "new")
"""Fields that differ if a later owner repeats a request."""


def _without_owner_fields(request: Any) -> Any:
    """The request without fields that differ if a later owner repeats it."""
    fields = [name for name in _OWNER_FIELDS if name in request.DESCRIPTOR.fields_by_name]
    if not fields:
        return request
    asked = type(request)()
    asked.CopyFrom(request)
    for name in fields:
        asked.ClearField(name)
    return asked


def mutation(
    *,
    locks: Callable[[Any], Collection[str]],
    durability: Durability = Durability.FULL,
    starts: Callable[[Any], str] = starts_no_run,
) -> Callable[[Callable[[C, Q, Transaction, Caller], Fields]], Handler[C, Q]]:
    """Declare an rpc as one transaction; see `Calls._once`."""

    def declare(work: Callable[[C, Q, Transaction, Caller], Fields]) -> Handler[C, Q]:
        method = work.__name__

        async def handle(self: C, request: Q, _context: Any) -> Any:
            answer = _answer_of(request, method)
            return await self._once(
                request,
                answer,
                lambda tx, caller: answer(**work(self, request, tx, caller)),
                locks=locks(request),
                durability=durability,
                starts=starts,
            )

        return handle

    return declare


def until_it_holds(handle: Handler[C, Q]) -> Handler[C, Q]:
    """A change of the policy, which is answered once this service decides by it."""

    async def changed(self: C, request: Q, context: Any) -> Any:
        answer, policy = await handle(self, request, context), self._service.policy
        await policy.until(lambda: policy.version >= answer.policy_version, HOLDS_S_MAX)
        return answer

    return changed


def query(read: Callable[[C, Q, Connection], Fields]) -> Handler[C, Q]:
    """Declare an rpc as one query. The tokens of pages are bound to the caller, and to what the request asks for."""
    method = read.__name__
    read_page = _paged(read, method)

    async def handle(self: C, request: Any, _context: Any) -> Any:
        answer = _answer_of(request, method)
        work = read_page if "page_token" in request.DESCRIPTOR.fields_by_name else read
        return await self._database.read(lambda connection: answer(**work(self, request, connection)))

    return handle


_OF_A_PAGE: Final = ("page_token", "page_size", "without_bodies")
"""Fields that may differ between the requests for the pages of one list."""


def _paged(read: Callable[[C, Q, Connection], Fields], method: str) -> Callable[[C, Q, Connection], Fields]:
    def read_page(self: C, request: Any, connection: Connection) -> Fields:
        asked = type(request)()
        asked.CopyFrom(request)
        for name in _OF_A_PAGE:
            if name in asked.DESCRIPTOR.fields_by_name:
                asked.ClearField(name)
        caller = f"{method} {current_caller().kind.value} {current_caller().name}\0".encode()
        wanted = caller + asked.SerializeToString(deterministic=True)
        digest = hashlib.sha256(wanted).hexdigest()[:BOUND_CHARS]
        asked.CopyFrom(request)
        asked.page_token = unbound_token(request.page_token, digest)
        fields = read(self, asked, connection)
        return {**fields, "next_page_token": bind_token(fields.get("next_page_token", ""), digest)}

    return read_page


def _answer_of(request: Any, method: str) -> type[Any]:
    """The message that an rpc answers with. It stands in the file of its request."""
    return GetMessageClass(request.DESCRIPTOR.file.message_types_by_name[f"{method}Response"])


def watch(
    to_message: Callable[[C, M], R],
) -> Callable[[Callable[[C, Q], Awaitable[Watch[M]]]], WatchHandler[C, Q, R]]:
    """Declare an rpc as a watch: of the function that begins it, and `to_message` for each of its messages."""

    def declare(begin: Callable[[C, Q], Awaitable[Watch[M]]]) -> WatchHandler[C, Q, R]:
        async def handle(self: C, request: Q, _context: Any) -> AsyncIterator[R]:
            changes = self._service.watches.follow(partial(begin, self, request), lambda: self._rules.heartbeat_s)
            async with aclosing(changes):
                async for change in changes:
                    yield to_message(self, change)

        return handle

    return declare


def address_of(request: Any) -> RunRef:
    return RunRef(request.project, request.run)


def run_locks(request: Any) -> set[str]:
    return {run_lock(request.project, request.run)}


def registry_locks(_request: Any) -> set[str]:
    # Who creates a project owns it.
    return {REGISTRY_LOCK, POLICY_LOCK}


def project_locks(request: Any) -> set[str]:
    return {project_lock(request.project)}


def policy_locks(_request: Any) -> set[str]:
    return {POLICY_LOCK}


def alias_locks(request: Any) -> set[str]:
    """Locks to create, rename or delete a run: the project's too, so that no run is deleted while it is forked."""
    new = {run_lock(request.project, request.new_run)} if hasattr(request, "new_run") else set()
    return {project_lock(request.project), run_lock(request.project, request.run), *new}


def after_cursor(request: Any) -> Cursor | None:
    return cursor_from_pb(request.after) if request.HasField("after") else None
