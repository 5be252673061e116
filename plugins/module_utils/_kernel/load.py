# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Load and unload the kernel module with a time limit."""

from __future__ import annotations

from .._base.model import NpuError
from .._host.host import ABSENT, TIMEOUT, VALUE, Host, Limit
from .blocked import BLACKLIST, DISABLED, place_of, read_blocks


class ModuleBusy(NpuError):
    """The module is in use, or unloading it hangs."""


def loaded_version(host: Host, module: str) -> str | None:
    """Version of the loaded module, empty when it has none; None when not loaded. NpuError when unknown."""
    found = host.listdir("/sys/module/" + module)
    if found.state == ABSENT and host.listdir("/sys/module").ok:
        return None
    if found.state != VALUE:
        raise NpuError(
            "/sys does not show whether %s is loaded: %s." % (module, found.detail),
            "Run as root with /sys mounted.",
        )
    return str(host.read_text("/sys/module/%s/version" % module, Limit.ATTRIBUTE).get("")).strip()


def _last(text: str) -> str:
    return " ".join(text.split())[-400:]


def unload(host: Host, module: str, timeout: float) -> bool:
    """Unload the module; False when it is not loaded. ModuleBusy when it is in use or the time limit is over."""
    if loaded_version(host, module) is None:
        return False
    done = host.run(["modprobe", "-r", module], timeout)
    if done.ok and done.value.rc == 0 and loaded_version(host, module) is None:
        return True
    count = str(host.read_text("/sys/module/%s/refcnt" % module, Limit.ATTRIBUTE).get("")).strip()
    said = _last(done.value.err) if done.ok else done.detail
    if done.ok and done.value.rc == 0:
        # A remove line of modprobe.d can be any command.
        said = "modprobe -r reports success, and it is still loaded"
    step = "Stop the users of the NPUs, or let the run reboot the host."
    for block in read_blocks(host, module)[0]:
        if block["kind"] == DISABLED:
            said, step = "%s says %s" % (place_of(block), block["text"]), "Remove that, reboot, and run again."
    raise ModuleBusy(
        "%s cannot be unloaded: %s%s."
        % (module, said.rstrip("."), " (in use %s times)" % count if count not in ("", "0") else ""),
        step,
    )


def load(host: Host, module: str, timeout: float) -> None:
    """Load the module. NpuError with the kernel's message, or after `timeout` seconds."""
    done = host.run(["modprobe", module], timeout)
    if done.ok and done.value.rc == 0 and loaded_version(host, module) is not None:
        return
    if done.state == TIMEOUT:
        raise NpuError("Loading %s hangs: %s." % (module, done.detail), "Read the kernel log; a reboot may be needed.")
    blocks = [block for block in read_blocks(host, module)[0] if block["kind"] != BLACKLIST]
    if blocks:
        raise NpuError(
            "%s is not loaded: %s says %s." % (module, place_of(blocks[0]), blocks[0]["text"]),
            "Remove that, and run again.",
        )
    if done.ok and done.value.rc == 0:
        raise NpuError(
            "modprobe reports success, and %s is not loaded." % module,
            "Run modprobe -v %s, and read the kernel log." % module,
        )
    said = _last(done.value.err) if done.ok else done.detail
    kernel = kernel_lines(host, module)
    raise NpuError(
        "%s cannot be loaded: %s.%s" % (module, said.rstrip("."), " Kernel: %s." % kernel if kernel else ""),
        "Read the kernel log (signature, build for another kernel, card without an answer).",
    )


def kernel_lines(host: Host, module: str, lines: int = 3) -> str:
    """The last lines of the kernel log that name the module; empty when it may not be read."""
    log = host.run(["dmesg", "--notime"], 5.0)
    if not log.ok:
        return ""
    return " | ".join([line.strip() for line in log.value.out.splitlines() if module in line][-lines:])
