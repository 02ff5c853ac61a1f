"""The page against a stack: who sees what, by what means, and what hostile texts can do."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest
import pytest_asyncio
from turnwright.types.v1 import grant_pb2, session_command_pb2, settings_pb2

from needs import needs
from proxy import proxied
from services import token_for
from ui.browsers import CHROMIUM, DONE, GO_ON, NODES_MAX, nodes, stack

pytestmark = [
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
    needs("chromium", "apt-get install chromium", there=CHROMIUM),
]
FILE = "\n".join(f"line {number}" for number in range(80)) + "\n"
EDIT = "".join(
    f"<<SEARCH\nline {number}\nSEARCH\n<<REPLACE\nline {number}, changed\nREPLACE\n" for number in (5, 40, 70)
)
HOSTILE = '<img src=x onerror="window.taken=1"></script><script>window.taken=1</script>\u202etxt.exe\u2066 \x1b[31m'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def at(tmp_path_factory):
    async with stack(tmp_path_factory.mktemp("ui")) as made:
        yield made


async def proposed(at, run, *, file="basket.txt"):
    (at.services.files / file).write_text(FILE)
    at.services.script(f'Three places.\n<set path="{file}">{EDIT}</set>{GO_ON}', DONE)
    queued = await at.services.act("Change three lines.", run=run, yolo=False)
    await at.services.until(queued, 202)
    return queued


async def test_a_token_leaves_the_address_at_once_and_stays_in_the_tab(at):
    token = token_for("ann")
    context = await at.context()
    page = await context.new_page()
    addresses = []
    page.on("request", lambda request: addresses.append((request.url, request.headers.get("referer", ""))))
    await page.goto(f"{at.url}/#token={token}")
    await page.wait_for_selector("main.runs")
    assert page.url == f"{at.url}/#/"
    await page.reload()
    await page.wait_for_selector("main.runs")
    assert not [one for one in addresses if token in json.dumps(one)]
    kept = await page.evaluate("[Object.values(sessionStorage), Object.values(localStorage), document.cookie]")
    assert kept == [[token], [], ""]
    other = await context.new_page()
    await other.goto(f"{at.url}/")
    await other.wait_for_selector("main.sign-in")
    await page.get_by_role("button", name="Leave").click()
    await page.wait_for_selector("main.sign-in")
    assert await page.evaluate("Object.values(sessionStorage)") == []
    await context.close()


async def test_a_token_that_another_site_brings_is_taken_from_no_address_unasked(at):
    own, others = token_for("ann"), token_for("mallory")
    context = await at.context()
    page = await context.new_page()
    kept = "Object.values(sessionStorage)"

    async def goes_to(token):
        await page.goto("about:blank")
        await page.goto(f"{at.url}/#token={token}")
        await page.wait_for_selector("main.runs")

    await goes_to(own)
    await page.locator("header .who", has_text="ann").wait_for()
    await goes_to(own)
    assert await page.get_by_role("dialog").count() == 0
    await goes_to(others)
    await page.get_by_role("dialog").get_by_text("mallory").wait_for()
    assert others not in page.url
    assert await page.evaluate(kept) == [own]
    await page.get_by_role("button", name="Keep mine").click()
    await page.get_by_role("dialog").wait_for(state="detached")
    await page.reload()
    await page.locator("header .who", has_text="ann").wait_for()
    await goes_to(others)
    await page.get_by_role("button", name="Use the other one").click()
    await page.locator("header .who", has_text="mallory").wait_for()
    assert await page.evaluate(kept) == [others]
    await context.close()


async def test_a_tab_without_a_token_asks_before_it_takes_one_of_another_site(at):
    token = token_for("mallory")
    context = await at.context()
    page = await context.new_page()
    await page.route("http://elsewhere.test/", lambda route: route.fulfill(
        content_type="text/html", body=f'<a href="{at.url}/#token={token}">Look</a>'
    ))  # fmt: skip
    await page.goto("http://elsewhere.test/")
    await page.get_by_role("link", name="Look").click()
    await page.get_by_role("dialog").get_by_text("mallory").wait_for()
    assert await page.evaluate("Object.values(sessionStorage)") == []
    await page.get_by_role("button", name="Do not use it").click()
    await page.wait_for_selector("main.sign-in")
    assert await page.evaluate("Object.values(sessionStorage)") == []
    await context.close()


async def test_a_token_that_is_refused_is_dropped_and_its_holder_told(at):
    context = await at.context()
    page = await context.new_page()
    await page.goto(f"{at.url}/#token=nobody's")
    assert await page.get_by_role("alert").text_content()
    await page.wait_for_selector("main.sign-in")
    assert await page.evaluate("Object.values(sessionStorage)") == []
    await context.close()


async def test_a_team_sees_nothing_of_another_ones_project(at):
    hers = await at.services.with_project("hers")
    await hers.client.delete_grant(hers.project, "*")
    await hers.client.set_grant(hers.project, "user:alice", grant_pb2.GRANT_ROLE_OWNER)
    hers.script("A secret word: xyzzy." + DONE)
    await hers.until(await hers.act("The secret task.", run="secret-run"))
    async with at.page(name="alice") as page:
        await page.get_by_role("row", name=re.compile("secret-run")).wait_for()
    async with at.page(name="mallory") as page:
        await page.locator("option:text-is('project')").first.wait_for(state="attached")
        assert "secret" not in await page.content()
        for place in ("run/hers/secret-run", "run/hers/secret-run/packet/1", "compare/hers/secret-run/r", "rules/hers"):
            await page.goto(f"{at.url}/#/{place}")
            await page.get_by_role("alert").first.wait_for()
            shown = await page.locator("main").inner_text()
            assert "xyzzy" not in shown
            assert "secret task" not in shown
        await page.goto(f"{at.url}/#/forks/hers")
        await page.get_by_text("No run of this project was forked.").wait_for()


async def test_everything_has_a_role_and_a_name(at):
    await proposed(at, "named")
    for place in ("", f"run/{at.services.project}/named", f"run/{at.services.project}/named/packet/1", "forks/project"):
        async with at.page(place) as page:
            await page.locator("[role=grid], .proposal").first.wait_for()
            assert await page.locator("h1").count() == 1
            for role in ("banner", "main", "navigation"):
                assert await page.get_by_role(role).count() >= 1, (place, role)
            tree = await page.locator("body").aria_snapshot()
            nameless = re.findall(
                r"^\s*- (?:button|link|textbox|checkbox|combobox|spinbutton|searchbox|grid|img|article|region)(?: \[.*)?:?$",
                tree,
                re.MULTILINE,
            )
            assert not nameless, tree
            levels = [int(one) for one in re.findall(r'heading "[^\n]*" \[level=(\d)\]', tree)]
            assert levels[0] == 1
            assert all(after - before <= 1 for before, after in pairwise(levels)), levels


async def test_a_proposal_is_decided_by_keyboard_alone_hunk_by_hunk(at):
    queued = await proposed(at, "keys")
    async with at.page() as page:
        await page.get_by_role("row", name=re.compile("keys")).wait_for()
        await focus(page, "[role=row][tabindex='0']")
        while "keys" not in await page.evaluate("document.activeElement.textContent"):
            await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        await page.get_by_role("checkbox", name=re.compile("Hunk 2 of 3")).wait_for()
        await focus(page, ".proposal input[type=checkbox]", skip=1)
        await page.keyboard.press("Space")
        await focus(page, ".proposal .decide textarea")
        await page.keyboard.type("Leave the second one.")
        await focus(page, ".proposal button.good")
        assert await page.evaluate("document.activeElement.textContent") == "Accept the rest"
        assert await page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        await page.keyboard.press("Enter")
        assert (await at.services.until(queued)).status == 200
        await page.get_by_text("completed", exact=False).first.wait_for()
    kept = FILE.replace("line 5\n", "line 5, changed\n").replace("line 70\n", "line 70, changed\n")
    assert (at.services.files / "basket.txt").read_text() == kept
    record = (await at.services.entry("log://turn_1/set/basket.txt", "keys")).record
    assert record.settled.decision.principal == "ann"
    assert record.settled.decision.comment == "Leave the second one."


async def focus(page, selector, *, skip=0):
    """Press Tab until the element has the focus."""
    for _ in range(200):
        await page.keyboard.press("Tab")
        if await page.evaluate("selector => document.activeElement.matches(selector)", selector):
            if not skip:
                return
            skip -= 1
    raise AssertionError(selector)


async def test_new_events_are_seen_and_told_politely(at):
    async with at.page(f"run/{at.services.project}/live") as page:
        await page.get_by_role("alert").wait_for()
    queued = await proposed(at, "live")
    async with at.page(f"run/{at.services.project}/live") as page:
        await page.locator(".proposal").wait_for()
        said = page.get_by_role("status")
        assert await said.get_attribute("aria-live") == "polite"
        await page.get_by_role("button", name="Accept", exact=True).click()
        await at.services.until(queued)
        await page.locator(".of-turns[aria-rowcount='3']").wait_for()
        await page.get_by_text("The run is completed.").wait_for(state="attached")
        # A chat goes on, waits in the queue, and leaves it.
        at.services.script(DONE)
        await page.get_by_role("textbox", name="Message").fill("And once more.")
        await page.get_by_role("button", name="Send").click()
        await page.locator(".of-turns[aria-rowcount='4']").wait_for()


async def test_hostile_texts_are_shown_and_do_nothing(at):
    long_line = "x" * 1_000_000
    at.services.script(f"{HOSTILE}\n<sh>printf '%s' '{'y' * 60_000}'</sh>{GO_ON}", f"{long_line}{DONE}")
    await at.services.until(await at.services.act(HOSTILE, run="hostile"))
    async with at.page() as page:
        row = page.get_by_role("row", name=re.compile("hostile"))
        await row.wait_for()
        assert "<img src=x" in await row.inner_text()
        for turn in (1, 2):
            await page.goto(f"{at.url}/#/run/{at.services.project}/hostile/turn/{turn}")
            await page.get_by_role("heading", name=f"Turn {turn}").wait_for()
            await page.locator(".reply .long").first.wait_for()
            shown = await page.locator("body").inner_text()
            assert len(shown) < 100_000
            assert not re.search("[\u202a-\u202e\u2066-\u2069\x1b]", await page.content())
            assert await nodes(page) < NODES_MAX
            if turn == 1:
                assert "⟦U+202E⟧" in shown
                assert await page.locator("bdi").count() > 10
        before = len(await page.locator(".reply").inner_text())
        await page.get_by_role("button", name=re.compile("^Show 20.0 k more of")).click()
        assert len(await page.locator(".reply").inner_text()) > before
        assert await page.evaluate("window.taken") is None
        assert await page.locator("img").count() == 0


async def test_a_page_that_is_cut_off_goes_on_without_a_gap(at):
    words = [f"word{number}" for number in range(60)]
    (at.services.root / "m.txt").write_text(
        f"=== reply chunk_chars=4 delay_ms=30 ===\n{' '.join(words)}\n{GO_ON}\n=== reply ===\nThe end.{DONE}\n"
    )
    queued = await at.services.act("Say many words.", run="cut")
    async with proxied(at.url.removeprefix("http://"), is_opaque=True) as proxy, at.page() as page:
        await page.goto(f"http://{proxy.address}/#token={token_for('ann')}")
        await page.locator("main.runs").wait_for()
        await page.goto(f"http://{proxy.address}/#/run/{at.services.project}/cut/turn/1")
        for number in (5, 25, 45):
            await page.locator(".detail").get_by_text(re.compile(rf"word{number}\b")).first.wait_for()
            proxy.reset()
        await at.services.until(queued)
        await page.get_by_role("heading", name=re.compile("completed")).wait_for()
        assert (await page.locator(".reply pre").inner_text()).split() == words


async def test_a_run_is_forked_from_a_turn_and_compared(at):
    at.services.script("First." + GO_ON, "Second." + DONE)
    await at.services.until(await at.services.act("Two turns.", run="parent"))
    async with at.page(f"run/{at.services.project}/parent/turn/1") as page:
        await page.get_by_role("button", name="Fork from here").click()
        await page.get_by_text("fork of").wait_for()
        fork = page.url.rpartition("/")[2]
        assert (await at.services.client.get_run(at.services.project, fork)).run.forked_from.turn == 1
        await page.goto(f"{at.url}/#/forks/{at.services.project}")
        for name in ("parent", fork):
            await page.get_by_role("row", name=re.compile(f"(^| ){name} ")).first.click()
        await page.get_by_role("link", name=re.compile("^Compare")).click()
        await page.get_by_text("They part after turn 1.").wait_for()
        await page.get_by_role("row", name=re.compile("^1 same")).wait_for()
        await page.get_by_role("row", name=re.compile("^2 differs")).wait_for()


async def test_a_packet_stands_beside_the_one_before(at):
    at.services.script("First." + GO_ON, "Second." + DONE)
    await at.services.until(await at.services.act("Two turns.", run="packets"))
    async with at.page(f"run/{at.services.project}/packets/packet/2") as page:
        await page.locator("figure.bar").nth(1).wait_for()
        names = [await page.locator("figure.bar svg").nth(index).get_attribute("aria-label") for index in (0, 1)]
        explained = await at.services.client.explain_packet(at.services.project, "packets", 2)
        assert names[0].startswith("Turn 1: ")
        assert f"The prefix ends after {explained.prefix.tokens:,}." in names[1]
        whys = {piece.why for piece in explained.pieces}
        assert (await page.locator(".of-pieces [role=row] [title]").first.get_attribute("title")) in whys


async def test_rules_are_a_matrix_of_levels(at):
    from turnwright.types.v1 import rule_pb2

    rule = rule_pb2.Rule(verdict=rule_pb2.RULE_VERDICT_DENY, tool="sh", target="rm *")
    await at.services.client.set_rule(at.services.project, rule)
    async with at.page(f"rules/{at.services.project}") as page:
        row = page.get_by_role("row", name=re.compile("^sh rm"))
        await row.wait_for()
        cells = [" ".join(one.split()) for one in await row.get_by_role("cell").all_inner_texts()]
        assert [bool(re.match("✗ deny", one)) for one in cells[2:]] == [False, True, False]


async def test_rules_are_tried_as_a_matrix_of_commands(at):
    from turnwright.types.v1 import rule_pb2

    at.services.script(f"<sh>echo tried</sh>{GO_ON}", DONE)
    await at.services.until(await at.services.act("Try.", run="tried"))
    rule = rule_pb2.Rule(verdict=rule_pb2.RULE_VERDICT_ALLOW, tool="sh", target="git *")
    await at.services.client.set_rule(at.services.project, rule, "tried")
    async with at.page(f"run/{at.services.project}/tried/rules") as page:
        await page.get_by_label("Commands, one a line").fill(
            "sh git push\nsh git status && ls\nget a.txt\nget https://a.example/\n"
        )
        proposed = page.get_by_label("Proposed rules, as in rules.toml")
        await proposed.fill('[[rule]]\nverdict = "no"\n')
        await page.get_by_role("button", name="Try rules").press("Enter")
        await page.get_by_role("alert").filter(has_text="verdict must be one of").wait_for()
        assert "verdict" in await proposed.get_attribute("placeholder")
        deny = '[[rule]]\nverdict = "deny"\ntool = "sh"\ntarget = "git push *"\n'
        await proposed.fill(f'[[rule]]\nverdict = "allow"\ntool = "sh"\ntarget = "echo *"\n{deny}')
        await page.get_by_role("button", name="Try rules").press("Enter")
        name = "What rules decide: 2 commands of 5 would be decided otherwise"
        table = page.get_by_role("table", name=name)
        await table.wait_for()
        heads = await table.get_by_role("columnheader").all_inner_texts()
        told = {}
        for row in (await table.get_by_role("row").all())[1:]:
            cells = [" ".join(one.split()) for one in await row.get_by_role("cell").all_inner_texts()]
            told[await row.get_by_role("rowheader").inner_text()] = cells
        # The table can be scrolled without a mouse.
        region = page.get_by_role("region", name=name)
        await region.focus()
        assert await region.evaluate("one => one === document.activeElement")
        held = await at.services.client.list_rules(at.services.project, "tried")
    assert heads == ["Tool", "Command", "In force", "Proposed"]
    assert told["git push"] == ["sh", "✓ allow sh: git *, of the run", "✗ deny sh: git push *"]
    assert told["git status && ls"][2] == "? ask no rule matches"
    assert told["echo tried"] == ["sh", "? ask no rule matches", "✓ allow sh: echo *"]
    assert told["a.txt"] == ["get", "no approval needed", "no approval needed"]
    assert told["https://a.example/"] == ["get", *["? ask no rule matches"] * 2]
    # Nothing of it is kept.
    assert "echo *" not in {one.target for one in held}


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_texts_can_be_read_in_both_colour_schemes(at, scheme):
    async with at.page(color_scheme=scheme) as page:
        for selector in (":root", ".dim", "a"):
            ratio = await page.evaluate(CONTRAST, selector)
            assert ratio >= 4.5, (selector, ratio)


CONTRAST = """selector => {
  const parts = (text) => text.match(/[0-9.]+/g).slice(0, 3).map(Number);
  const light = (text) => {
    const [r, g, b] = parts(text).map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const back = light(getComputedStyle(document.documentElement).backgroundColor);
  const text = light(getComputedStyle(document.querySelector(selector)).color);
  return (Math.max(back, text) + 0.05) / (Math.min(back, text) + 0.05);
}"""


async def test_a_chat_is_steered_queued_stopped_and_rewound(at):
    run = "steered"
    at.services.script(f"<ask_user>Which colour?</ask_user>{GO_ON}", "It is blue." + DONE)
    await at.services.until(await at.services.act("Ask me.", run=run, yolo=False), 202)
    async with at.page(f"run/{at.services.project}/{run}") as page:
        await page.get_by_role("textbox", name="Answer").fill("blue")
        await page.get_by_role("button", name="Answer").click()
        await page.get_by_text("It is blue.").wait_for()
        await page.get_by_role("heading", name=re.compile("completed")).wait_for()
        at.services.script("And more." + DONE)
        await page.get_by_role("textbox", name="Message").fill("Go on.")
        await page.get_by_role("textbox", name="Message").press("Control+Enter")
        await page.get_by_text("And more.").wait_for()
        page.on("dialog", lambda dialog: dialog.accept())
        await page.goto(f"{at.url}/#/run/{at.services.project}/{run}/turn/1")
        await page.get_by_role("button", name="Rewind to here").click()
        await page.locator(".of-turns").get_by_text("blue").first.wait_for(state="detached")
    shown = [entry.path async for entry in at.services.client.list_entries(at.services.project, run)]
    assert "assistant://1" in shown
    assert "assistant://2" not in shown


async def test_a_busy_run_has_a_queue_and_can_be_stopped(at):
    (at.services.files / "kept.txt").write_text("one\n")
    at.services.script(f"<sh>touch ran</sh>{GO_ON}", DONE)
    queued = await at.services.act("Wait for me.", run="busy", yolo=False)
    await at.services.until(queued, 202)
    async with at.page(f"run/{at.services.project}/busy") as page:
        message = page.get_by_role("textbox", name="Message")
        for text in ("Then this.", "Then that."):
            await message.fill(text)
            await page.get_by_role("button", name="Send").click()
            await page.get_by_role("list", name="Queue").get_by_text(text).wait_for()
        await page.get_by_role("button", name="Cancel message 1").click()
        await page.get_by_role("list", name="Queue").get_by_text("Then this.").wait_for(state="detached")
        waiting = await at.services.client.list_commands(at.services.project, "busy")
        assert [command.preview for command in waiting] == ["Then that."]
        await page.get_by_role("button", name="Cancel message 1").click()
        await page.get_by_role("list", name="Queue").wait_for(state="detached")
        await page.get_by_role("textbox", name="Comment for the model").fill("Not this.")
        await page.get_by_role("button", name="Reject").click()
        await at.services.until(queued)
        await page.goto(f"{at.url}/#/run/{at.services.project}/busy/turn/1")
        await page.get_by_text("rejected by ann: Not this.").wait_for()
    assert not (at.services.files / "ran").exists()


async def test_a_new_task_is_given_by_the_form(at):
    await at.services.with_project("form")
    at.services.script("It is written." + DONE, name="m")
    async with at.page() as page:
        await page.get_by_text("New task").click()
        form = page.locator("details.new")
        await form.get_by_label("Project").select_option("form")
        offered = form.locator("datalist option")
        await offered.first.wait_for(state="attached")
        assert "m" in await offered.evaluate_all("all => all.map(one => one.value)")
        # A model that has no alias is typed.
        await form.get_by_label("Model").fill("scripted/m")
        await form.locator("[name=mode]").select_option("ask")
        await form.get_by_role("button", name="Start").click()
        # Without a task nothing is sent.
        assert await form.get_by_label("Task").evaluate("field => field.validity.valueMissing")
        await form.get_by_label("Task").fill("Write it down.")
        await form.get_by_role("button", name="Start").click()
        await page.get_by_role("heading", name=re.compile("completed")).wait_for()
        project, run = page.url.split("/")[-2:]
    found = await at.services.client.get_run("form", run)
    [loop] = found.loops
    assert (project, found.run.run, loop.prompt) == ("form", run, "Write it down.")
    assert (loop.settings.model, loop.settings.mode) == ("scripted/m", settings_pb2.MODE_ASK)
    assert loop.status == 200


async def test_a_task_that_is_refused_is_told_beside_the_form(at):
    theirs = await at.services.with_project("theirs")
    async with at.page(name="eve") as page:
        await page.get_by_text("New task").click()
        form = page.locator("details.new")
        await form.get_by_label("Project").select_option("theirs")
        await form.get_by_label("Model").fill("m")
        await theirs.client.set_grant(theirs.project, "*", grant_pb2.GRANT_ROLE_VIEWER)
        await form.get_by_label("Task").fill("Do it.")
        await form.get_by_role("button", name="Start").click()
        assert "needs `run` in the project theirs" in await form.get_by_role("alert").inner_text()
    assert [run async for run in theirs.client.list_runs(theirs.project)] == []


async def test_what_a_client_is_to_do_is_shown_and_asked_of_nobody(at):
    tool = settings_pb2.ToolDescription(name="open_file", description="Opens a file in the editor.", parameters="{}")
    at.services.script(f'<open_file file="a.txt"/>{GO_ON}', DONE)
    queued = await at.services.act("Open it.", run="of-client", client_tools=[tool])
    await at.services.until(queued, 202)
    async with at.page(f"run/{at.services.project}/of-client") as page:
        await page.get_by_role("heading", name=re.compile("waiting for a client")).wait_for()
        assert await page.locator(".proposal").count() == 0
        [path] = (await at.services.client.get_run(at.services.project, "of-client")).proposals
        result = session_command_pb2.IdeToolResult(call=path, content="It is open.")
        await at.services.client.submit(at.services.project, "of-client", ide_tool_result=result)
        await page.get_by_role("heading", name=re.compile("completed")).wait_for()


async def test_effects_of_a_kind_are_accepted_for_the_rest_of_the_run(at):
    at.services.script(f"<sh>echo first</sh>{GO_ON}", f"<sh>echo first</sh>{GO_ON}", DONE)
    queued = await at.services.act("Twice.", run="kinds", yolo=False)
    await at.services.until(queued, 202)
    async with at.page(f"run/{at.services.project}/kinds") as page:
        await page.get_by_role("checkbox", name=re.compile("Accept later ones of this kind")).check()
        await page.get_by_role("button", name="Accept", exact=True).click()
        assert (await at.services.until(queued)).status == 200
        await page.get_by_role("link", name="Rules").click()
        await page.get_by_role("row", name=re.compile("echo first")).wait_for()
