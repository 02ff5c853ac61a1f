"""docs/clients/http.md works as it stands: curl starts a run and follows it, and so does the program."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from e2e.cli_process import PORTS, Bench
from needs import needs

PAGE = (Path(__file__).parents[2] / "docs" / "clients" / "http.md").read_text()
COMMANDS = "".join(re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
PROGRAM = re.search(r"^```js watch.mjs\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
WAIT_S = 100


@needs(
    "curl, jq and Node", "they are on the path of most systems", there=all(map(shutil.which, ("curl", "jq", "node")))
)
def test_the_commands_and_the_program_of_the_page(tmp_path) -> None:
    bench = Bench(tmp_path)
    services = Path(__file__).parents[2] / "services"
    shutil.copy(services / "turnwright_provider" / "scripts" / "hello.txt", bench.scripts)
    # curl finds out that nobody reads any more when something comes.
    bench.environment["TURNWRIGHT_EVENT_HEARTBEAT_S"] = "0.5"
    with bench.running("serve", *PORTS, "--listen", "http=127.0.0.1:0") as served:
        url = served.wait_for(r"^HTTP is served at (\S+)", "err")[1]
        # The same token stands in the home of this test.
        script = COMMANDS.replace("http://127.0.0.1:7444", url).replace("~/.local/share/turnwright", str(bench.home))
        (bench.project / "watch.mjs").write_text(PROGRAM[1])
        script += f'node watch.mjs {url} "$TOKEN" "$project" hello'
        done = subprocess.run(
            ["bash", "-euxo", "pipefail", "-c", script],
            cwd=bench.project, env=bench.env(), text=True, capture_output=True, timeout=WAIT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.splitlines()[-1] == "200"
        assert '"epoch"' in done.stdout
        assert "It has ended: 200" in done.stdout
