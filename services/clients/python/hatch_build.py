"""What is in the wheel: packages that stand beside those of the services, in a checkout or in a release's sources."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

REPO = Path(__file__).parents[3]
PACKAGES = {
    "turnwright": "gen/python",
    "turnwright_values": "gen/python",
    "turnwright_core": "services",
    "turnwright_client": "services",
}


class Packages(BuildHookInterface[Any]):
    """An editable install has none of them: it finds them where they stand, by `dev-mode-dirs`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":
            build_data["force_include"] = {str(REPO / folder / name): name for name, folder in PACKAGES.items()}
            build_data["force_include"][str(REPO / "LICENSE")] = "turnwright_client/LICENSE"
