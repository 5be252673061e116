# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Users of the NPUs during a driver change: services stopped in order, the daemon, and all others."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import typing as t

from .._base.model import NpuError
from .._base.records import asdict
from .._base.vendor import VendorProfile
from .._host.handles import Holder, Processes
from .._host.host import ABSENT, Host, Limit
from .._kernel import load as kmod
from .._kernel.modinfo import read_module
from .._npu.driver_notes import Record
from .._npu.smi import read_smi
from .._npu.users import KERNEL, MODULE, WITHOUT_PROCESS, describe_holders, find_holders
from .journal import Journal
from .request import STOP, WAIT, Request

UNIT_TIMEOUT = 90.0
LOOK_EVERY = 2.0
GRACE = 20.0
# A handle that is opened and closed during a look leaves a reference without a holder.
LOOKS = 3
LOOK_AGAIN = 0.5


class InUse(NpuError):
    """Something uses the NPUs; `users` are all of them, as plain data."""

    def __init__(self, message: str, next_step: str, users: t.Iterable[Holder]) -> None:
        super().__init__(message, next_step)
        self.users: list[Record] = [asdict(user) for user in users]


def _what_to_do(found: t.Sequence[Holder]) -> str:
    """The next step for users that are in the way."""
    if any(holder.kind not in WITHOUT_PROCESS for holder in found):
        return "Stop these users, list their services, or set in_use to wait or stop; nothing was changed."
    modules = [holder.name for holder in found if holder.kind == MODULE]
    act = "Unload %s (modprobe -r)" % ", ".join(modules) if modules else "End what holds the module"
    return "%s, or reboot the host, or let the run reboot it (reboot: if_required); nothing was changed." % act


class Units:
    """Services, daemon and other users of one host's NPUs."""

    def __init__(
        self, host: Host, profile: VendorProfile, request: Request, sleep: t.Callable[[float], None] = time.sleep
    ) -> None:
        self.host, self.profile, self.request, self.sleep = host, profile, request, sleep

    def kernel(self) -> str:
        """The running kernel; empty when it cannot be read."""
        return str(self.host.read_text("/proc/sys/kernel/osrelease", Limit.ATTRIBUTE).get("")).strip()

    def module_version(self) -> str | None:
        """Version of the module on disk for the running kernel; None when missing or unknown."""
        module = read_module(self.host, self.profile.module, self.kernel() or None, 10.0).get()
        return module.version if module else None

    def present_version(self, stamp: Record | None) -> str | None:
        """Version of the present driver: module on disk, else loaded module, else stamp."""
        return self.module_version() or self.loaded_version() or (stamp or {}).get("version")

    # -- the module

    def loaded_version(self) -> str | None:
        """Version of the loaded module; None when it is not loaded."""
        return kmod.loaded_version(self.host, self.profile.module)

    def load(self) -> None:
        kmod.load(self.host, self.profile.module, self.request.load_timeout)

    def unload(self) -> None:
        kmod.unload(self.host, self.profile.module, self.request.load_timeout)

    # -- units

    def _active(self, unit: str) -> bool:
        """Whether a unit runs. NpuError when systemd does not answer: unknown is not stopped."""
        done = self.host.run(["systemctl", "is-active", unit], UNIT_TIMEOUT)
        if done.state == ABSENT:
            return False
        said = done.value.out.strip() if done.ok else ""
        if not said:
            why = " ".join(done.value.err.split())[-300:] if done.ok else done.detail
            raise NpuError(
                "systemd does not report whether %s runs: %s." % (unit, why.rstrip(".") or "no output"),
                "Run `systemctl status %s` on the host." % unit,
            )
        return said in ("active", "activating", "reloading")

    def require_answers(self) -> None:
        """NpuError when the state of a unit to stop is unknown."""
        for unit in [*self.request.services, *self.profile.daemon_units]:
            self._active(unit)

    def _systemctl(self, act: str, unit: str) -> None:
        done = self.host.run(["systemctl", act, unit], UNIT_TIMEOUT)
        if not done.ok or done.value.rc != 0:
            said = " ".join(done.value.err.split())[-300:] if done.ok else done.detail
            raise NpuError(
                "systemctl %s %s failed: %s." % (act, unit, said.rstrip(".")),
                "Read `systemctl status %s` on the host." % unit,
            )

    def stop(self, journal: Journal) -> None:
        """Stop the services, the daemon and, by policy, all other users. Each unit is journaled before it stops."""
        for unit in [*self.request.services, *self.profile.daemon_units]:
            if self._active(unit):
                journal.save(stopped=[*[name for name in journal.record["stopped"] if name != unit], unit])
                self._systemctl("stop", unit)
        if self.request.in_use == STOP:
            self._end(self._find())

    def stop_daemon(self) -> None:
        for unit in self.profile.daemon_units:
            if self._active(unit):
                self._systemctl("stop", unit)

    def stop_again(self, journal: Journal) -> None:
        """Stop again the services of this change, which may run again, then the daemon."""
        for unit in [name for name in journal.record["stopped"] if name not in self.profile.daemon_units]:
            if self._active(unit):
                self._systemctl("stop", unit)
        self.stop_daemon()

    def start_daemon(self, journal: Journal) -> None:
        """Start the daemon if its unit is enabled or was stopped for this change."""
        for unit in self.profile.daemon_units:
            state = self.host.run(["systemctl", "is-enabled", unit], UNIT_TIMEOUT)
            said = state.value.out.strip() if state.ok else ""
            # Without an answer the unit may exist: start what was stopped.
            present = said not in ("", "not-found", "masked", "masked-runtime") or not (
                state.ok or state.state == ABSENT
            )
            if present and (said == "enabled" or unit in journal.record["stopped"]) and not self._active(unit):
                self._systemctl("start", unit)

    def start_services(self, journal: Journal, warn: t.Callable[[str], None]) -> None:
        """Start the stopped services in reverse order. A service that does not start is only a warning."""
        for unit in reversed([name for name in journal.record["stopped"] if name not in self.profile.daemon_units]):
            try:
                self._systemctl("start", unit)
            except NpuError as exc:
                warn(str(exc))

    # -- other users

    def _find(self) -> list[Holder]:
        """All users but the named services and the daemon; those without a process are a reboot's to end, last."""
        if self.loaded_version() is None:
            return []
        for turn in range(LOOKS):
            found = self._look()
            if not any(holder.kind == KERNEL for holder in found) or turn == LOOKS - 1:
                break
            self.sleep(LOOK_AGAIN)
        return found

    def _look(self) -> list[Holder]:
        _path, smi = read_smi(self.host, self.profile, 5.0)
        found, probe = find_holders(self.profile, self.host, smi.get({}).get("contexts", []), (os.getpid(),))
        if not probe.ok:
            raise NpuError("The users of the NPUs cannot be determined: %s." % probe.detail, "Run as root.")
        return [holder for holder in found if holder.unit not in (*self.request.services, *self.profile.daemon_units)]

    def holders(self) -> list[Record]:
        """Users of the NPUs other than the named services and the daemon, as plain data."""
        return [asdict(holder) for holder in self._find()]

    def in_the_way(self) -> list[Holder]:
        """The users that keep this run from a reboot, or from unloading the module where it may not reboot."""
        return self._in_the_way(self._find())

    def _in_the_way(self, found: t.Sequence[Holder]) -> list[Holder]:
        if not self.request.reboot_allowed:
            return list(found)
        return [holder for holder in found if holder.kind not in WITHOUT_PROCESS]

    def foresee(self) -> list[Record]:
        """The users now. InUse, by policy, when one of them would refuse the change; stops nothing and waits for none.

        The pods that leave the node before do not refuse it.
        """
        if self.request.in_use == WAIT:
            return self.holders()
        everyone = self._find()
        stay = [holder for holder in everyone if not holder.pod or holder.pod not in self.request.drained]
        self._refuse_or_wait(stay, lambda text: None)
        return [asdict(holder) for holder in everyone]

    def refuse_or_wait(self, tell: t.Callable[[str], None] = lambda text: None) -> list[Record]:
        """InUse at once, or after the time limit, by policy. Stops nothing. Returns the users found at first.

        `tell` gets what is waited for at each look.
        """
        everyone = self._find()
        self._refuse_or_wait(everyone, tell)
        return [asdict(holder) for holder in everyone]

    def _refuse_or_wait(self, everyone: t.Sequence[Holder], tell: t.Callable[[str], None]) -> None:
        found = self._in_the_way(everyone)
        if self.request.in_use == STOP:
            self._refuse_pods(found)
            found = [holder for holder in found if holder.kind in WITHOUT_PROCESS]
        deadline = time.monotonic() + (self.request.in_use_timeout if self.request.in_use == WAIT else 0)
        while found and time.monotonic() < deadline:
            limit = self.request.in_use_timeout
            tell("waits, at most %g s, until nothing uses the NPUs: %s" % (limit, describe_holders(found)))
            self.sleep(LOOK_EVERY)
            found = self.in_the_way()
        if found:
            waited = " after %g s" % self.request.in_use_timeout if self.request.in_use == WAIT else ""
            raise InUse(
                "The NPUs are in use%s: %s." % (waited, describe_holders(found)),
                _what_to_do(found),
                found,
            )

    def _refuse_pods(self, found: t.Sequence[Holder]) -> None:
        pods = [holder for holder in found if self._in_pod(holder)]
        if pods:
            # Kubernetes would start them again at once, in the middle of the change.
            raise InUse(
                "Pods use the NPUs: %s." % describe_holders(pods),
                "Cordon and drain the node (kubectl drain), or wait for the pods to end, and run again; "
                "no pod was stopped.",
                found,
            )

    def _in_pod(self, holder: Holder) -> bool:
        return bool(
            holder.pid and "kubepods" in str(self.host.read_text("/proc/%d/cgroup" % holder.pid, Limit.PROC).get(""))
        )

    def _end(self, found: t.Sequence[Holder]) -> None:
        """Send SIGTERM to each user, new ones too, and SIGKILL after a grace period. Pods are never stopped."""
        asked: dict[tuple[int | None, int | None], float] = {}
        killed: set[tuple[int | None, int | None]] = set()
        begun = time.monotonic()
        found = self._in_the_way(found)
        while found and time.monotonic() - begun < 2 * GRACE:
            self._refuse_pods(found)
            for holder in found:
                who, now = (holder.pid, holder.started), time.monotonic()
                if who not in asked:
                    asked[who] = now
                    self._signal(holder, signal.SIGTERM)
                elif now - asked[who] >= GRACE and who not in killed:
                    killed.add(who)
                    self._signal(holder, signal.SIGKILL)
            self.sleep(0.2)
            found = self.in_the_way()
        if found:
            raise NpuError(
                "These users still hold the NPUs: %s." % describe_holders(found), "Stop them by hand and run again."
            )

    def _signal(self, holder: Holder, number: int) -> None:
        # The PID may belong to another process by now.
        if holder.pid and (holder.started is None or Processes(self.host).started(holder.pid) == holder.started):
            with contextlib.suppress(ProcessLookupError):
                os.kill(holder.pid, number)
