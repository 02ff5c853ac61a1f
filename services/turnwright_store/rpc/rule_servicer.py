"""Rpcs of RuleService."""

from __future__ import annotations

from sqlalchemy import Connection
from turnwright.rules.v1 import rule_service_pb2 as pb
from turnwright.rules.v1 import rule_service_pb2_grpc
from turnwright.types.v1 import rule_pb2
from turnwright_values.types import DecidingRule, Rule, RuleSet

from turnwright_core.rules import RuleDecision, deciding, rule_words
from turnwright_core.wire.codec import codec
from turnwright_kit.identity.caller import Caller
from turnwright_store.app import approval_rules
from turnwright_store.app.list_entries import time_limit
from turnwright_store.ports import Transaction
from turnwright_store.rpc.calls import Calls, Fields, address_of, mutation, project_locks, query

_rule_to_pb, _rule_from_pb = codec(Rule, rule_pb2.Rule)
_deciding_to_pb = codec(DecidingRule, rule_pb2.DecidingRule)[0]
_rules_to_pb = codec(RuleSet, rule_pb2.RuleSet)[0]


class RuleServicer(Calls, rule_service_pb2_grpc.RuleServiceServicer):
    """Serves turnwright.rules.v1.RuleService."""

    @mutation(locks=project_locks)
    def SetRule(self, request: pb.SetRuleRequest, tx: Transaction, caller: Caller) -> Fields:
        done = approval_rules.set_rule(tx, self._rules, caller, address_of(request), _rule_from_pb(request.rule))
        tx.detail["rule"] = rule_words(done)
        return {"rule": _rule_to_pb(done)}

    @mutation(locks=project_locks)
    def DeleteRule(self, request: pb.DeleteRuleRequest, tx: Transaction, caller: Caller) -> Fields:
        gone = approval_rules.delete_rule(tx, self._rules, caller, address_of(request), request.id)
        tx.detail["rule"] = rule_words(gone)
        return {}

    @query
    def ListRules(self, request: pb.ListRulesRequest, connection: Connection) -> Fields:
        found = approval_rules.list_rules(connection, self._rules, address_of(request))
        return {"set": _rules_to_pb(found)}

    @query
    def TestRules(self, request: pb.TestRulesRequest, connection: Connection) -> Fields:
        given = request.rules_text if request.HasField("rules_text") else None
        check_time = time_limit(self._rules.pattern_s_max, "effects", "ask about fewer effects")
        where = address_of(request)
        found = approval_rules.test_rules(connection, self._rules, where, request.effects, given, check_time)
        return {"decisions": map(_decision_to_pb, found)}


def _decision_to_pb(made: RuleDecision) -> pb.TestedDecision:
    rule = _deciding_to_pb(deciding(made.rule)) if made.rule else None
    return pb.TestedDecision(verdict=rule_pb2.RuleVerdict.ValueType(int(made.verdict)), rule=rule)
