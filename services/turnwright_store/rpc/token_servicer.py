"""Rpcs of TokenService."""

from __future__ import annotations

from sqlalchemy import Connection
from turnwright.tokens.v1 import token_service_pb2 as pb
from turnwright.tokens.v1 import token_service_pb2_grpc
from turnwright.types.v1 import token_pb2
from turnwright_values.types import Token

from turnwright_core.wire.codec import codec
from turnwright_kit.identity.caller import Caller, current_caller
from turnwright_store.app import tokens
from turnwright_store.ports import Transaction
from turnwright_store.rpc.calls import Calls, Fields, mutation, policy_locks, query, until_it_holds

_token_to_pb, _ = codec(Token, token_pb2.Token)


class TokenServicer(Calls, token_service_pb2_grpc.TokenServiceServicer):
    """Serves turnwright.tokens.v1.TokenService."""

    @mutation(locks=policy_locks)
    def CreateToken(self, request: pb.CreateTokenRequest, tx: Transaction, caller: Caller) -> Fields:
        found, bearer = tokens.create_token(tx, self._service.secrets[0], caller, request)
        return {"token": _token_to_pb(found), "bearer": bearer}

    @query
    def ListTokens(self, request: pb.ListTokensRequest, connection: Connection) -> Fields:
        policy, caller = self._service.policy, current_caller()
        found, token = tokens.list_tokens(connection, policy, caller, request.page_size, request.page_token)
        return {"tokens": map(_token_to_pb, found), "next_page_token": token}

    @until_it_holds
    @mutation(locks=policy_locks)
    def RevokeToken(self, request: pb.RevokeTokenRequest, tx: Transaction, caller: Caller) -> Fields:
        found, version = tokens.revoke_token(tx, self._service.policy, caller, request.token_id)
        return {"token": _token_to_pb(found), "policy_version": version}
