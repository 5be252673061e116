# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report as JUnit's XML: a suite for each host, a case for each check. Pure."""

from __future__ import annotations

import re
import typing as t
import xml.etree.ElementTree as ET

from .document import FAILED, NOT_REACHED, UNKNOWN, Document, Host

# What XML 1.0 cannot hold, not even escaped.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# The case of a host that says how the run went there.
REACHED, RUN = "host/reached", "host/run"


def junit(document: Document) -> str:
    """The XML. A check that has failed is a failure, one that is not known an error; a warning passes with its text."""
    made = document["made"]
    root = ET.Element("testsuites", {"name": _xml(made["playbook"] or "hosts")})
    for host in document["hosts"]:
        root.append(_suite(host, made["at"].rstrip("Z")))
    totals = {name: sum(int(suite.get(name, "0")) for suite in root) for name in ("tests", "failures", "errors")}
    root.attrib.update({name: str(number) for name, number in totals.items()})
    root.set("time", str(made["seconds"] or 0))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(host: Host, at: str) -> ET.Element:
    cases = [*_run(host), *(_case(name) for name in host["checks"]["passed"])]
    for check in host["checks"]["others"]:
        case = _case(check["id"])
        told = _told(check["detail"], check["next_step"])
        if check["result"] == FAILED:
            _add(case, "failure", check["detail"], told, FAILED)
        elif check["result"] == UNKNOWN:
            _add(case, "error", check["detail"], told, UNKNOWN)
        else:
            ET.SubElement(case, "system-out").text = _xml(f"{check['result']}: {told}")
        cases.append(case)
    counts = {
        "tests": len(cases),
        "failures": sum(case.find("failure") is not None for case in cases),
        "errors": sum(case.find("error") is not None for case in cases),
        "skipped": sum(case.find("skipped") is not None for case in cases),
    }
    suite = ET.Element("testsuite", {"name": _xml(host["name"]), "hostname": _xml(host["name"]), "timestamp": at})
    suite.attrib.update({name: str(number) for name, number in counts.items()})
    suite.set("time", str(host["seconds"] or 0))
    for case in cases:
        case.set("classname", _xml(host["name"]))
        suite.append(case)
    return suite


def _run(host: Host) -> list[ET.Element]:
    """How the run went on the host. One that was not seen has no other case."""
    reached, failure = _case(REACHED), host["failure"]
    if host["state"] == NOT_REACHED:
        ET.SubElement(reached, "skipped", {"message": _xml(host["reason"])})
        return [reached]
    if not host["pool"] and failure is None:
        _add(reached, "error", host["reason"] or "The host was not seen.", host["reason"], UNKNOWN)
        return [reached]
    run = _case(RUN)
    if failure is not None:
        told = _told(failure["cause"], failure["next_step"])
        message = f"{failure['task']}: {failure['cause']}" if failure["task"] else failure["cause"]
        _add(run, "failure", message, told, host["state"])
    elif host["state"] == UNKNOWN and all(check["result"] != UNKNOWN for check in host["checks"]["others"]):
        _add(run, "error", host["reason"], host["reason"], UNKNOWN)
    return [run]


def _case(name: str) -> ET.Element:
    return ET.Element("testcase", {"name": _xml(name), "time": "0"})


def _add(case: ET.Element, tag: str, message: str, told: str, kind: str) -> None:
    ET.SubElement(case, tag, {"message": _xml(message), "type": kind}).text = _xml(told)


def _told(what: str, step: str) -> str:
    return f"{what} Next: {step}" if step else what


def _xml(text: t.Any) -> str:
    return _NOT_XML.sub("", str(text))
