"""What each rpc of the contract asks of its callers: whoever changes it, or adds an rpc, changes this table too."""

from importlib import import_module
from pathlib import Path

from turnwright.types.v1 import access_pb2, entry_pb2

from turnwright_kit.access import access_of

GENERATED = Path(__file__).resolve().parents[2] / "gen" / "python"

ASKED = {
    "identity": """
        Discover GetIdentity GetStatus InitProject ListModels ListSchemes ListTokens RevokeToken
        SetScheme
    """,
    "read": """
        ExplainPacket ExportRun GetEntries GetEntry GetPlan GetProposal GetRun ListCommands ListEntries ListEntryHistory
        ListFileConstraints ListLoops ListMessages ListPlans ListRules ListRuns ListSchedules ListTools ListTurns ReadPacket
        ReadView SearchEntries SubmitCommand TestRules WatchChanges WatchPlans WatchRun WatchRuns
    """,
    "read in projects": """
        GetProject ListProjects ListProposals WatchProposals
    """,
    "run": """
        AbortRun Act Ask CancelCommand ConfigureRun CreateRun DeleteRun EnqueueLoop ForkRun ImportRun InjectMessage
    """,
    "decide": """
        ResolveProposal
    """,
    "edit": """
        AppendStream DeletePlan EndStream Notify OpenStream SetPlan UpdatePlan
    """,
    "files": """
        CallTool WriteEntries
    """,
    "command": """
        DeleteRule SetRule
    """,
    "manage": """
        DeleteSchedule PauseSchedule RenameRun ResumeSchedule SetFileConstraints SetSchedule
    """,
    "admin": """
        DeleteWebhook ListDeliveries ListWebhooks RetryDelivery SetWebhook
    """,
    "read in project_or_deployment": """
        ListGrants ListQuotas ListToolServers
    """,
    "admin in project_or_deployment": """
        AddToolServer BeginToolLogin CompleteToolLogin DeleteGrant DeleteQuota EndToolLogin ListAudit RecordToolLogin RemoveToolServer SetGrant SetQuota
    """,
    "admin in deployment": """
        CreateToken DeleteModel SetModel
    """,
    "service": """
        AdoptFiles Assemble Cancel CheckBudget CheckModels ClaimDeliveries ClaimRun ClaimWork CountTokens Describe Dispatch EndDelivery EndTurn
        Explain FindPlaces Generate GetLease GetSettings ListVendors ListWork Login ReleaseRun RenewLeases WatchPolicy
        WriteTitle StartAgent WaitAgents SettleAgents
    """,
}
"""The rpcs by the right that they need, and where."""


def services():
    """The descriptors of all services."""
    for path in sorted((GENERATED / "turnwright").rglob("*_service_pb2.py")):
        module = import_module(".".join(path.relative_to(GENERATED).with_suffix("").parts))
        yield from module.DESCRIPTOR.services_by_name.values()


def asked_by(method) -> str:
    access = access_of(method)
    right = access_pb2.Right.Name(access.right).removeprefix("RIGHT_").lower()
    reach = access_pb2.Reach.Name(access.reach).removeprefix("REACH_").lower()
    return right if access.reach == access_pb2.REACH_UNSPECIFIED else f"{right} in {reach}"


def test_every_rpc_asks_what_the_table_says() -> None:
    found = [(method.name, asked_by(method)) for service in services() for method in service.methods]
    assert sorted(found) == sorted((name, asked) for asked, names in ASKED.items() for name in names.split())


def test_the_rpcs_that_declare_a_tier() -> None:
    found = {
        method.name: entry_pb2.Tier.Name(access_of(method).min_tier).removeprefix("TIER_").lower()
        for service in services()
        for method in service.methods
        if access_of(method).min_tier
    }
    assert found == {
        "WriteEntries": "model",
        "SetScheme": "plugin",
        **dict.fromkeys(["WatchPlans", "WatchRuns"], "client"),
        **dict.fromkeys(["StartAgent", "WaitAgents", "SettleAgents"], "system"),
    }
