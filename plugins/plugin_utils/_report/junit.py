# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report as JUnit's XML: a suite for each host and cluster, a case for each check and each drift. Pure."""

from __future__ import annotations

import re
import typing as t
import xml.etree.ElementTree as ET

from .document import FAILED, NOT_REACHED, UNKNOWN, ClusterPart, Document, Host
from .markdown import drift_text, lost_text, object_text

# What XML 1.0 cannot hold, not even escaped.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# The case of a host that says how the run went there.
REACHED, RUN = "host/reached", "host/run"
# The case of a cluster that says whether it was asked, and what begins those of drift.
ASKED, DRIFT = "cluster/asked", "drift/"


def junit(document: Document) -> str:
    """The XML. A check that has failed is a failure, one that is not known an error; a warning passes with its text."""
    made = document["made"]
    root = ET.Element("testsuites", {"name": _xml(made["playbook"] or "hosts")})
    at = made["at"].rstrip("Z")
    for host in document["hosts"]:
        root.append(_of_host(host, at))
    for cluster in document["clusters"]:
        root.append(_of_cluster(cluster, at))
    totals = {name: sum(int(suite.get(name, "0")) for suite in root) for name in ("tests", "failures", "errors")}
    root.attrib.update({name: str(number) for name, number in totals.items()})
    root.set("time", str(made["seconds"] or 0))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _of_host(host: Host, at: str) -> ET.Element:
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
    for drift in host["drift"]:
        cases.append(_case(DRIFT + drift["what"]))
        _add(cases[-1], "failure", f"{drift['was']} -> {drift['is']}", drift_text(drift), "drift")
    for lost in host["not_known"]:
        cases.append(_case(DRIFT + lost["what"]))
        _add(cases[-1], "error", f"was {lost['was']}, is not known now", lost_text(lost), UNKNOWN)
    return _suite(host["name"], host["seconds"], cases, at)


def _of_cluster(cluster: ClusterPart, at: str) -> ET.Element:
    """Whether the cluster could be asked, and what of it has drifted."""
    cases = [_case(ASKED)]
    if cluster["errors"]:
        _add(cases[0], "error", cluster["errors"][0], "\n".join(cluster["errors"]), UNKNOWN)
    for drift in cluster["drift"]:
        cases.append(_case(DRIFT + drift["object"]))
        _add(cases[-1], "failure", object_text(drift), object_text(drift), "drift")
    return _suite(f"cluster {cluster['name']}", None, cases, at)


def _suite(name: str, seconds: float | None, cases: t.Sequence[ET.Element], at: str) -> ET.Element:
    counts = {
        "tests": len(cases),
        "failures": sum(case.find("failure") is not None for case in cases),
        "errors": sum(case.find("error") is not None for case in cases),
        "skipped": sum(case.find("skipped") is not None for case in cases),
    }
    suite = ET.Element("testsuite", {"name": _xml(name), "hostname": _xml(name), "timestamp": at})
    suite.attrib.update({name: str(number) for name, number in counts.items()})
    suite.set("time", str(seconds or 0))
    for case in cases:
        case.set("classname", _xml(name))
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
