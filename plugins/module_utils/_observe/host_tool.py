# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host tool: what a host needs to stay ready by itself, after boots and when devices come and go.

Exit codes: 0 all is well, 1 a blocking check is false (or `cdi --check` found a difference), 2 bad usage or input, or
a write that failed, 3 a blocking check could not be found out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import typing as t

from .._base.model import NpuError
from .._base.records import replace
from .._base.vendor import VendorProfile
from .._cdi.options import AUTO
from .._cdi.spec import compare
from .._cdi.write import remove_spec, repair_spec, write_spec
from .._checks.prove import FAILED, KEEP, MARKER_MODES, PASSED, WRITE, Proof
from .._checks.ready_files import change_mark
from .._checks.run import SCOPES
from .._host.host import Host, Probe, run_command
from .._npu.labels import feature_file, npu_labels
from .._runtime.detect import detect_runtimes
from .facts import collect_facts
from .observe import cdi_options, engine_dirs, look_for, observe, prove_look
from .settings import Settings, complete, read_settings

OK, BAD, USAGE, UNKNOWN = 0, 1, 2, 3
INTERVAL = 5.0
ROUNDS = 3
SETTLE = 10

Print = t.Callable[[str], t.Any]
Sleep = t.Callable[[float], t.Any]


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=name,
        description=(__doc__ or "").split("\n", 1)[0],
        epilog=(__doc__ or "").split("\n\n", 1)[1],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--root",
        default="/",
        help="look below this directory, for a container that has the host mounted there, or for an image",
    )
    shared.add_argument(
        "--run-in-root",
        action="store_true",
        help="run the host's programs by chroot into --root; only for a running host",
    )
    shared.add_argument("--config", help="options file (JSON); the default is the standard one, which may be missing")
    shared.add_argument("--json", action="store_true", help="print the result as JSON")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    cdi = commands.add_parser(
        "cdi", parents=[shared], help="write the CDI specification if it is missing or not current"
    )
    cdi.add_argument("--check", action="store_true", help="only report whether it would be written; exit code 1 if so")
    validate = commands.add_parser("validate", parents=[shared], help="run the checks")
    validate.add_argument(
        "--scope",
        action="append",
        choices=SCOPES + ("none",),
        help="may be repeated; the default is in the options file",
    )
    validate.add_argument(
        "--markers", choices=MARKER_MODES, default=KEEP, help="what to do with the ready files; default: keep"
    )
    validate.add_argument(
        "--allocatable",
        type=int,
        metavar="NUMBER",
        help="number of NPUs that the node offers in the cluster, for the scope plugin",
    )
    validate.add_argument(
        "--wait", type=float, default=0.0, metavar="SECONDS", help="try again every %g s until it passes" % INTERVAL
    )
    ready = commands.add_parser(
        "ready",
        parents=[shared],
        help="after a boot or a change of devices: write the specification, prove, write the ready files",
    )
    ready.add_argument(
        "--wait", type=float, default=0.0, metavar="SECONDS", help="try again every %g s until it passes" % INTERVAL
    )
    labels = commands.add_parser("labels", parents=[shared], help="print the node labels of the NPUs as JSON")
    labels.add_argument("--nfd", action="store_true", help="print them as a feature file of Node Feature Discovery")
    labels.add_argument(
        "--expiry",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="with --nfd: the labels expire after this time; default: never",
    )
    labels.add_argument(
        "--no-timestamp", action="store_true", help="with --nfd: write no expiry time; wins over --expiry"
    )
    commands.add_parser("observe", parents=[shared], help="print everything that was observed, as JSON")
    return parser


def _host(args: argparse.Namespace) -> Host:
    if not args.run_in_root or args.root == "/":
        return Host(args.root)

    def runner(argv: t.Sequence[str], timeout: float, env: t.Mapping[str, str] | None = None) -> Probe:
        return run_command(["chroot", args.root] + list(argv), timeout, env)

    return Host(args.root, runner)


def read_config(path: str | None, standard: str, host: Host) -> dict[str, t.Any]:
    """Complete options from `path` (on this machine), else from the host's standard file, which may be missing.

    NpuError names file and place.
    """
    if path is None:
        found = host.read_text(standard)
        if found.state == "absent":
            return complete({}, standard)
        if not found.ok:
            raise NpuError("%s cannot be read: %s." % (standard, found.detail), "Run as root.")
        text = found.value
    else:
        try:
            with open(path, encoding="utf-8") as stream:
                text = stream.read()
        except (OSError, UnicodeDecodeError) as exc:
            raise NpuError("%s cannot be read: %s." % (path, exc), "Name a file that can be read.") from exc
    name = path or standard
    try:
        data = json.loads(text)
    except ValueError as exc:
        raise NpuError("%s is not JSON: %s." % (name, exc), "Correct it, or let the role write it again.") from exc
    if not isinstance(data, dict):
        raise NpuError("%s does not hold an object." % name, "Correct it, or let the role write it again.")
    return complete(data, name)


def refresh(profile: VendorProfile, host: Host, settings: Settings, check: bool = False) -> dict[str, t.Any]:
    """Write, or remove, the specification when that is due; compare()'s answer with problems as dicts."""
    runtimes = detect_runtimes(host, settings.runtimes) if settings.cdi.form == AUTO else {}
    found = compare(profile, host, cdi_options(settings, runtimes), settings.cdi_path, engine_dirs(runtimes))
    if found["changed"] and not check:
        if found["after"] is None:
            remove_spec(host, found["path"])
        elif found["after"] != found["before"]:
            write_spec(host, found["path"], found["after"])
        else:
            repair_spec(host, found["path"])
    return dict(found, problems=[problem.to_dict() for problem in found["problems"]])


def _code(proof: Proof) -> int:
    return {PASSED: OK, FAILED: BAD}.get(proof.state, UNKNOWN)


def _lines(proof: Proof) -> t.Iterator[str]:
    for check in proof.checks:
        word = (
            "ok"
            if check.ok
            else "unknown"
            if check.ok is None
            else "FAILED"
            if check.name in proof.failed
            else check.severity
        )
        step = "  -> %s" % check.next_step if check.next_step else ""
        yield "%-8s %s/%s: %s%s" % (word, check.scope, check.name, check.detail, step)
    for change in proof.changes:
        yield "%-8s %s" % (change["act"], change["path"])
    yield proof.state


def _report(proof: Proof, as_json: bool, say: Print, **more: t.Any) -> int:
    if as_json:
        say(json.dumps(dict(proof.to_dict(), **more), sort_keys=True))
    else:
        for line in _lines(proof):
            say(line)
    return _code(proof)


def _cdi(profile: VendorProfile, host: Host, settings: Settings, args: argparse.Namespace, say: Print) -> int:
    found = refresh(profile, host, settings, args.check)
    if args.json:
        say(json.dumps({key: value for key, value in found.items() if key not in ("before", "after")}, sort_keys=True))
    else:
        for problem in found["problems"]:
            say("%s: %s %s" % (problem["severity"], problem["detail"], problem["next_step"]))
        act = "would be" if args.check else "was"
        say(
            "%s: %s"
            % (
                found["path"],
                "%s %s" % (act, "removed" if found["after"] is None else "written")
                if found["changed"]
                else found["state"],
            )
        )
    if found["action"] == "fail" or (args.check and found["changed"]):
        return BAD
    return OK


def _until(attempt: t.Callable[[], Proof], wait: float, sleep: Sleep) -> Proof:
    deadline = time.monotonic() + wait
    proof = attempt()
    while proof.state != PASSED and time.monotonic() + INTERVAL <= deadline:
        sleep(INTERVAL)
        proof = attempt()
    return proof


def _validate(
    profile: VendorProfile, host: Host, settings: Settings, args: argparse.Namespace, say: Print, sleep: Sleep
) -> int:
    scopes = settings.rules.scopes if not args.scope else [scope for scope in args.scope if scope != "none"]
    settings = replace(settings, rules=replace(settings.rules, scopes=scopes, markers=args.markers))
    if args.allocatable is not None:
        settings = replace(settings, wanted=dict(settings.wanted, node_allocatable=args.allocatable))
    proof = _until(lambda: prove_look(profile, host, look_for(profile, host, settings), settings), args.wait, sleep)
    return _report(proof, args.json, say)


def _ready(
    profile: VendorProfile, host: Host, settings: Settings, args: argparse.Namespace, say: Print, sleep: Sleep
) -> int:
    scopes = [scope for scope in settings.rules.scopes if scope != "plugin"]
    host.run(["udevadm", "settle", "--timeout=%d" % SETTLE], SETTLE + 2.0)

    def attempt() -> Proof:
        proof = Proof()
        for _round in range(ROUNDS):
            refresh(profile, host, settings)
            # While the driver changes, or after an interrupted change, the ready files belong to that change.
            markers = KEEP if change_mark(host, profile) is None else WRITE
            now = replace(settings, rules=replace(settings.rules, scopes=scopes, markers=markers))
            proof = prove_look(profile, host, look_for(profile, host, now), now)
            # Devices that came while the checks ran: their event asked for a start that was merged into this one.
            if not refresh(profile, host, settings, check=True)["changed"]:
                break
        return proof

    return _report(_until(attempt, args.wait, sleep), args.json, say)


def _labels(profile: VendorProfile, host: Host, settings: Settings, args: argparse.Namespace, say: Print) -> int:
    labels = npu_labels(profile, collect_facts(profile, host, settings.facts))
    if labels is None:
        sys.stderr.write("The PCI functions of this host cannot be read, so there are no labels for its NPUs.\n")
        return UNKNOWN
    if not args.nfd:
        say(json.dumps(labels, sort_keys=True))
        return OK
    expires = time.time() + args.expiry if args.expiry > 0 and not args.no_timestamp else None
    say("\n".join(feature_file(labels, expires)))
    return OK


def main(
    profile: VendorProfile, standard_config: str, argv: t.Sequence[str], say: Print = _say, sleep: Sleep = time.sleep
) -> int:
    """Run one command; the exit code."""
    parser = _parser(standard_config.rsplit("/", 1)[-1].rsplit(".", 1)[0])
    args = parser.parse_args(list(argv))
    if not args.command:
        parser.print_usage(sys.stderr)
        return USAGE
    host = _host(args)
    try:
        settings = read_settings(profile, read_config(args.config, standard_config, host))
        if args.command == "cdi":
            return _cdi(profile, host, settings, args, say)
        if args.command == "validate":
            return _validate(profile, host, settings, args, say, sleep)
        if args.command == "ready":
            return _ready(profile, host, settings, args, say, sleep)
        if args.command == "labels":
            return _labels(profile, host, settings, args, say)
        seen = observe(profile, host, settings)
        say(json.dumps(seen, sort_keys=True))
        return {PASSED: OK, FAILED: BAD}.get(seen["observed"]["state"], UNKNOWN)
    except NpuError as exc:
        sys.stderr.write("%s: %s\n" % (parser.prog, exc))
        return USAGE
