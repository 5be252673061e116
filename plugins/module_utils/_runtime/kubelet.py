# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which container runtime the kubelet of this host uses, and where its directories are."""

from __future__ import annotations

import posixpath
import re
import typing as t

from .._base.records import asdict, dataclass
from .._formats import yaml_read
from .._host.host import Host
from .._host.proc import Process
from .._host.systemd import Unit, split_words
from .base import KUBELET_UNITS, Context, flag_values
from .distros import DISTROS, K0S, K3S, KUBELET_ROOT, MICROK8S, RKE2, Distro, arguments_of, placed

# The socket of the device plugin registration is a constant: --root-dir does not move it (kubernetes#120626).
DEVICE_PLUGIN_DIR = "/var/lib/kubelet/device-plugins"
KUBEADM_FLAGS = "/var/lib/kubelet/kubeadm-flags.env"
KUBEADM_CONFIG = "/var/lib/kubelet/config.yaml"


@dataclass(frozen=True)
class Kubelet:
    """The kubelet.

    `runtime_endpoint` is a path without unix://, empty when nothing names one; `source` says what named it.
    """

    present: bool = False
    unit: str | None = None
    root_dir: str = KUBELET_ROOT
    device_plugin_dir: str = DEVICE_PLUGIN_DIR
    pod_resources_dir: str = KUBELET_ROOT + "/pod-resources"
    runtime_endpoint: str = ""
    source: str = ""

    def to_dict(self) -> dict[str, t.Any]:
        return asdict(self)


def find_kubelet(context: Context) -> Kubelet:
    """The endpoint: input, flag of the running kubelet or its unit, its configuration, kubeadm's flags.

    k3s and rke2 have their own settings. A stopped kubelet of the host says nothing where a distribution runs.
    """
    host = context.host
    unit = context.loaded_unit(*KUBELET_UNITS)
    process = _running(context, unit)
    embedded = None if context.settled else _embedded(context, process)
    own = context.distro_unit(embedded, embedded.kubelet_units) if embedded is not None else None
    runs = own is not None and own.active or (embedded is not None and context.distro_process(embedded) is not None)
    if process is None and runs:
        unit = None
    elif process is not None and (unit is None or unit.main_pid != process.pid):
        unit = context.unit_of(process)
    argv, where = process.argv if process is not None else (), "the command line of the running kubelet"
    if not argv and unit is not None:
        argv, where = unit.argv, "the unit %s" % unit.name
    if not argv and embedded is not None and embedded.arguments:
        argv, where = arguments_of(host, embedded, "kubelet"), "%s/kubelet" % embedded.arguments
    words = own.argv if own is not None else ()
    settings = context.distro_settings(embedded) if embedded is not None else {}
    root_dir = (
        last_flag(argv, "--root-dir")
        or settings.get("root-dir")
        or (placed(embedded, settings.get("data-dir", "")).kubelet_root if embedded and not process else KUBELET_ROOT)
    )
    unit = unit or own
    # What an earlier kubeadm left behind says nothing of a distribution's own kubelet.
    alone = embedded is not None and not argv
    endpoint, source = "", ""
    if context.options.kubelet_endpoint:
        endpoint, source = context.options.kubelet_endpoint, "input"
    if not endpoint:
        endpoint, source = last_flag(argv, "--container-runtime-endpoint"), where
    if not endpoint and embedded is not None and alone:
        endpoint, source = _from_distro(settings, embedded, words)
    present = bool(argv) or unit is not None or embedded is not None
    if not endpoint and not alone:
        endpoint, source = _from_configuration(host, argv, present)
    if not endpoint and not alone and (present or host.exists(KUBEADM_FLAGS)):
        endpoint, source = last_flag(_kubeadm_flags(host), "--container-runtime-endpoint"), KUBEADM_FLAGS
    if not endpoint and embedded is not None:
        endpoint, source = embedded.socket, embedded.name
    return Kubelet(
        present=present,
        unit=unit.name if unit is not None and unit.loaded else None,
        root_dir=root_dir,
        pod_resources_dir=posixpath.join(root_dir, "pod-resources"),
        runtime_endpoint=endpoint_path(endpoint),
        source=source if endpoint else "",
    )


def endpoint_path(endpoint: str) -> str:
    """`unix:///run/x.sock`, `unix:/run/x.sock` and `/run/x.sock` are one: the path."""
    return re.sub(r"^unix:/*(?=/)", "", endpoint.strip(), flags=re.IGNORECASE)


def last_flag(argv: t.Sequence[str], name: str) -> str:
    """Value of a flag; the last one wins, as the kubelet's flag library has it."""
    found = flag_values(argv, name)
    return found[-1].strip("\"'") if found else ""


def _running(context: Context, unit: Unit | None) -> Process | None:
    """The running kubelet: the main process of its unit, else the first of the host's own."""
    process = context.processes.get(unit.main_pid) if unit is not None and unit.main_pid else None
    if process is not None and (process.program == "kubelet" or context.settled):
        return process
    return context.processes.find("kubelet")


def _embedded(context: Context, kubelet: Process | None) -> Distro | None:
    """The distribution that the running kubelet belongs to, else the one that runs, else the one that is installed.

    Last comes one whose containerd socket exists.
    """
    if kubelet is not None:
        unit = context.unit_of(kubelet)
        return next((item for item in DISTROS if unit and _serves(context, item, unit)), None)
    for item in DISTROS:
        unit = context.loaded_unit(*item.kubelet_units)
        if (unit is not None and unit.active) or context.distro_process(item) is not None:
            return item
    for item in DISTROS:
        if context.distro_unit(item, item.kubelet_units) is not None:
            return item
    if context.is_socket(K3S.socket):
        return RKE2 if context.host.exists(RKE2.mark) else K3S
    return next((item for item in (K0S, MICROK8S) if context.is_socket(item.socket)), None)


def _serves(context: Context, distro: Distro, unit: Unit) -> bool:
    """True when a unit is that of a distribution."""
    own = context.distro_unit(distro, distro.kubelet_units)
    return unit.name in distro.kubelet_units or (own is not None and own.name == unit.name)


def _from_distro(settings: t.Mapping[str, str], distro: Distro, argv: t.Sequence[str]) -> tuple[str, str]:
    """The endpoint of a host's runtime that a distribution was told to use, and the setting; else empty."""
    source = "the settings of %s" % distro.name
    if distro.name == K0S.name:
        # remote:unix:///run/x.sock or docker:unix:///run/x.sock
        kind, colon, endpoint = last_flag(argv, "--cri-socket").partition(":")
        return (endpoint, source) if colon else ("", "")
    if settings.get("container-runtime-endpoint"):
        return settings["container-runtime-endpoint"], source
    return ("/run/docker.sock", source) if settings.get("docker") == "true" else ("", "")


def _from_configuration(host: Host, argv: t.Sequence[str], present: bool) -> tuple[str, str]:
    named = last_flag(argv, "--config")
    paths = [named] if named else []
    if not named and (present or host.exists(KUBEADM_CONFIG)):
        paths = [KUBEADM_CONFIG]
    directory = last_flag(argv, "--config-dir")
    if directory:
        paths += host.glob(directory, "*.conf")
    endpoint, source = "", ""
    for path in paths:
        text = host.read_text(path).get("")
        value = top_level_scalars(text).get("containerRuntimeEndpoint", "")
        if value:
            endpoint, source = value, path
    return endpoint, source


def _kubeadm_flags(host: Host) -> list[str]:
    words: list[str] = []
    for line in host.read_text(KUBEADM_FLAGS).get("").splitlines():
        key, equal, value = line.strip().partition("=")
        if equal and key == "KUBELET_KUBEADM_ARGS":
            for word in split_words(value):
                words.extend(split_words(word))
    return words


def top_level_scalars(text: str) -> dict[str, str]:
    """Scalars at the top level of a YAML mapping or JSON object, as text.

    Nested values, anchors and block text are left out.
    """
    text = text[1:] if text.startswith("\ufeff") else text
    try:
        data = yaml_read.load(text)
    except (ValueError, RecursionError):
        data = _line_scalars(text)
    if not isinstance(data, dict):
        return {}
    return {str(key): str(value) for key, value in data.items() if isinstance(value, (str, int, float))}


def _line_scalars(text: str) -> dict[str, str]:
    """The same, line by line, for a text that uses what the reader of YAML does not know."""
    found = {}
    for line in text.splitlines():
        match = re.match(r"^([\"']?)([A-Za-z0-9_.-]+)\1\s*:(?:\s+(.*))?$", line)
        if match and match.group(3):
            value = match.group(3).strip()
            quoted = re.match(r"^(?:\"([^\"]*)\"|'([^']*)')\s*(?:#.*)?$", value)
            if quoted:
                found[match.group(2)] = quoted.group(1) if quoted.group(1) is not None else quoted.group(2)
            elif value[0] not in "|>&*[{!#" and value not in ("~", "null", "Null", "NULL"):
                found[match.group(2)] = re.sub(r"\s+#.*$", "", value)
    return found
