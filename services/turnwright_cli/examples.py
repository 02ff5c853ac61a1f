"""Examples for --help, by command. A test parses each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "turnwright": (
        "turnwright                              open a session in this directory",
        "turnwright -c                           continue the latest run of it",
        "turnwright act 'fix the failing test'   give one task, exit with its result",
        "turnwright ask 'how does login work?'   ask; nothing is changed",
    ),
    "turnwright act": (
        "turnwright act 'fix the failing test'",
        "turnwright act -r fix-login 'now add a test for it'",
        "git diff | turnwright act -y --max-cost 1 -",
    ),
    "turnwright ask": (
        "turnwright ask 'how does login work?'",
        "turnwright ask -j --answer-schema list.json 'list the modules'",
    ),
    "turnwright resolve": (
        "turnwright resolve fix-login",
        "turnwright resolve fix-login --reject --reason 'keep the old name'",
    ),
    "turnwright inbox": ("turnwright inbox --all", "turnwright inbox --watch"),
    "turnwright watch": ("turnwright watch fix-login",),
    "turnwright runs": ("turnwright runs", "turnwright runs -j | jq -r .run"),
    "turnwright runs list": ("turnwright runs list -p ../api",),
    "turnwright models list": ("turnwright models list",),
    "turnwright plan list": ("turnwright plan list fix-login",),
    "turnwright runs show": (
        "turnwright runs show fix-login --turns",
        "turnwright runs show fix-login --diff | patch -p1 -R",
        "turnwright runs show fix-login --packet 3",
    ),
    "turnwright runs abort": ("turnwright runs abort fix-login",),
    "turnwright runs remove": ("turnwright runs remove fix-login",),
    "turnwright runs export": (
        "turnwright runs export fix-login -o fix-login.json",
        "turnwright runs export fix-login --html -o fix-login.html",
    ),
    "turnwright runs import": (
        "turnwright runs import fix-login.json",
        "turnwright runs import fix-login.json --run again",
    ),
    "turnwright explain": ("turnwright explain fix-login 3", "turnwright explain fix-login --next"),
    "turnwright replay": ("turnwright replay fix-login",),
    "turnwright eval": (
        "turnwright eval evals.toml",
        "turnwright eval evals.toml --model sonnet --repeat 3 --html report.html",
        "turnwright eval evals.toml --only off-by-one --output copies",
    ),
    "turnwright undo": ("turnwright undo fix-login      the latest turn", "turnwright undo fix-login 3    turn 3"),
    "turnwright fork": ("turnwright fork fix-login --turn 3 --to other-way",),
    "turnwright rename": ("turnwright rename local-k7qm fix-login",),
    "turnwright inject": ("turnwright inject fix-login 'the tests need Python 3.12'",),
    "turnwright config": ("turnwright config fix-login", "turnwright config fix-login --model other --max-turns 20"),
    "turnwright plan": ("turnwright plan show fix-login",),
    "turnwright plan show": ("turnwright plan show fix-login --version 2",),
    "turnwright plan set": (
        "turnwright plan set fix-login '1. Read. 2. Write.'",
        "turnwright plan set fix-login --file plan.md",
    ),
    "turnwright plan update": ("turnwright plan update fix-login 'Also mind the docs.'",),
    "turnwright plan rm": ("turnwright plan rm fix-login",),
    "turnwright schedules": (
        "turnwright schedules add r nightly --cron '0 3 * * 1-5' 'Run the tests.'",
        "turnwright schedules add r beat --every 10m    tell that time has passed",
        "turnwright schedules list r",
    ),
    "turnwright schedules list": ("turnwright schedules list r",),
    "turnwright schedules add": (
        "turnwright schedules add r nightly --cron '0 3 * * 1-5' 'Run the tests.'",
        "turnwright schedules add r beat --every 10m",
    ),
    "turnwright schedules remove": ("turnwright schedules remove r nightly",),
    "turnwright audit": ("turnwright audit --since 7d", "turnwright audit --refused --deployment"),
    "turnwright quota": ("turnwright quota", "turnwright quota set tokens-day 2000000"),
    "turnwright quota list": ("turnwright quota list --deployment",),
    "turnwright quota set": (
        "turnwright quota set cost-month 50",
        "turnwright quota set tokens-day 500000 --of user:alice",
        "turnwright quota set cost-day 20 --of project:shop --deployment",
    ),
    "turnwright quota remove": ("turnwright quota remove cost-month",),
    "turnwright grant": ("turnwright grant", "turnwright grant set member user:alice"),
    "turnwright grant list": ("turnwright grant list --deployment",),
    "turnwright grant set": (
        "turnwright grant set owner group:platform",
        "turnwright grant set member user:ci --without command --until 30d",
        "turnwright grant set operator user:alice --deployment",
    ),
    "turnwright grant remove": ("turnwright grant remove user:ci",),
    "turnwright identity": ("turnwright identity",),
    "turnwright models": ("turnwright models", "turnwright models add local openai/qwen3-coder"),
    "turnwright models add": ("turnwright models add local openai/qwen3-coder --context 65536",),
    "turnwright models set": ("turnwright models set local --no-images",),
    "turnwright models remove": ("turnwright models remove local",),
    "turnwright init": ("turnwright init", "turnwright init --url http://127.0.0.1:8080/v1"),
    "turnwright project": ("turnwright project --assembly transcript",),
    "turnwright acp": ("turnwright acp", "turnwright acp -m sonnet --server agents.example.com:7440"),
    "turnwright doctor": ("turnwright doctor",),
    "turnwright serve": ("turnwright serve", "turnwright serve --only store --listen store=0.0.0.0:7441"),
    "turnwright store": ("turnwright store backup copy.db",),
    "turnwright store backup": ("turnwright store backup copy.db",),
    "turnwright store restore": ("turnwright store restore copy.db --db postgresql://host/name",),
    "turnwright policy": (
        "turnwright policy set allow 'git status *' --tool sh",
        'turnwright policy test "git push" --tool sh',
        "turnwright policy backtest --rules rules.toml --all",
    ),
    "turnwright policy list": ("turnwright policy list --run fix-tests",),
    "turnwright policy set": (
        "turnwright policy set allow 'git status *' --tool sh",
        "turnwright policy set ask 'migrations/**'",
        "turnwright policy set deny 'rm *' --tool sh",
    ),
    "turnwright policy remove": ("turnwright policy remove 12",),
    "turnwright policy test": (
        'turnwright policy test "git push" --tool sh',
        "turnwright policy test src/a.py --tool set",
    ),
    "turnwright policy backtest": (
        "turnwright policy backtest --rules rules.toml --all",
        "turnwright policy backtest --hook my_voters:careful --all",
    ),
    "turnwright token": ("turnwright token create --principal alice",),
    "turnwright token create": (
        "turnwright token create --principal alice",
        "turnwright token create --principal ci --project thing --days 7",
    ),
    "turnwright token list": ("turnwright token list",),
    "turnwright token revoke": ("turnwright token revoke HKqZlrRNoLY8Unaa",),
    "turnwright token key": ("turnwright token key executor",),
    "turnwright completion": (
        'eval "$(turnwright completion bash)"     in ~/.bashrc',
        'eval "$(turnwright completion zsh)"      in ~/.zshrc',
        "turnwright completion fish | source       in ~/.config/fish/config.fish",
    ),
    "turnwright demo": ("turnwright demo",),
}
