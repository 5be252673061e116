# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Lease that keeps two writers out of one installation."""

from __future__ import annotations

import datetime
import os
import platform
import secrets
import time
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._objects.inputs import Inputs
from .._objects.names import OPERANDS
from .._objects.parts import metadata, object_name
from .._text.line import line
from .api import ApiError, Cluster, Data

COMPONENT = "lease"
API = "coordination.k8s.io/v1"
DELAY = 2.0


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class WriteLease:
    """Held between `take` and `give_up`, by one process, or by all that know the `holder`. `name` is what it guards.

    `check` is called before each write: it renews in time, and raises an error when the Lease was lost.
    """

    def __init__(
        self,
        cluster: Cluster,
        inputs: Inputs,
        clock: t.Callable[[], float] = time.monotonic,
        sleep: t.Callable[[float], None] = time.sleep,
        name: str = "operands",
        holder: str = "",
    ) -> None:
        self._cluster = cluster
        self._name = object_name(inputs, name)
        self._path = cluster.path(API, "Lease", inputs["namespace"])
        self._meta = metadata(inputs, COMPONENT, self._name)
        self._timeout, self._duration = inputs["lease_timeout"], inputs["lease_duration"]
        self._clock, self._sleep = clock, sleep
        self.holder = holder or "%s/%d/%s" % (platform.node(), os.getpid(), secrets.token_hex(4))
        self._renewed = 0.0

    def take(self) -> None:
        """Wait until the Lease is free or stale: by our clock not renewed for the holder's duration, nor for ours.

        NpuError that names the holder after lease_timeout.
        """
        start = self._clock()
        seen: tuple[t.Any, ...] | None = None
        since = start
        while True:
            live = self._read()
            spec = (live or {}).get("spec") or {}
            holder = spec.get("holderIdentity")
            stamp = (holder, spec.get("renewTime"), spec.get("leaseTransitions"))
            if stamp != seen:
                seen, since = stamp, self._clock()
            if holder == self.holder:
                # Our write succeeded although its answer was lost.
                self._renewed = self._clock()
                return
            if live is None:
                taken = self._create()
            else:
                # The holder renews it by its own duration.
                patience = max(self._duration, int(spec.get("leaseDurationSeconds") or 0))
                taken = (not holder or self._clock() - since >= patience) and self._replace(live)
            if taken:
                return
            if self._clock() - start >= self._timeout:
                raise NpuError(
                    "Another run writes to this cluster: %s holds the Lease %s since %s."
                    % (line(holder or "another run", 200), self._name, line(spec.get("acquireTime") or "just now", 60)),
                    f"Wait until it ends, or raise {OPERANDS}lease_timeout.",
                )
            self._cluster.waits(
                "Lease %s: held by %s, %d of %d s"
                % (self._name, line(holder or "another run", 200), self._clock() - start, self._timeout)
            )
            self._sleep(DELAY)

    def check(self) -> None:
        """Renew the Lease after a third of its duration; NpuError when another run holds it now."""
        if self._clock() - self._renewed < self._duration / 3.0:
            return
        # Twice: when the answer to our write is lost, the client's retry conflicts with the first try.
        for _attempt in range(2):
            live = self._read()
            if live is None or (live.get("spec") or {}).get("holderIdentity") != self.holder:
                break
            if self._replace(live):
                return
        raise NpuError(
            "The Lease %s was lost while this run wrote." % self._name, "Run again. Objects that were written stay."
        )

    def give_up(self) -> None:
        """Free the Lease. It is no error when another run has it or the server is unreachable: it expires by itself."""
        try:
            live = self._read()
            if live is not None and (live.get("spec") or {}).get("holderIdentity") == self.holder:
                self._put(dict(live, spec=dict(live["spec"], holderIdentity="")))
        except NpuError:
            return

    def _read(self) -> Data | None:
        try:
            return self._cluster.request("GET", self._path + "/" + self._name, "Read Lease %s" % self._name)[1]
        except ApiError as exc:
            if exc.status == 404:
                return None
            raise

    def _create(self) -> bool:
        spec = {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": self._duration,
            "acquireTime": _now(),
            "renewTime": _now(),
            "leaseTransitions": 1,
        }
        body = {"apiVersion": API, "kind": "Lease", "metadata": self._meta, "spec": spec}
        return self._ours(
            lambda: self._cluster.request("POST", self._path, "Create Lease %s" % self._name, {}, body), (409,)
        )

    def _replace(self, live: Data) -> bool:
        spec = dict(live.get("spec") or {})
        if spec.get("holderIdentity") != self.holder:
            spec.update(
                holderIdentity=self.holder,
                acquireTime=_now(),
                leaseTransitions=int(spec.get("leaseTransitions") or 0) + 1,
            )
        spec.update(renewTime=_now(), leaseDurationSeconds=self._duration)
        return self._ours(lambda: self._put(dict(live, spec=spec)), (404, 409))

    def _put(self, body: Data) -> t.Any:
        """Written only when nothing has changed since it was read."""
        return self._cluster.request("PUT", self._path + "/" + self._name, "Write Lease %s" % self._name, {}, body)

    def _ours(self, write: t.Callable[[], t.Any], lost: t.Collection[int]) -> bool:
        """Whether the write succeeded; `lost` are the answers that mean that another run was faster."""
        try:
            write()
        except ApiError as exc:
            if exc.status in lost:
                return False
            raise
        self._renewed = self._clock()
        return True
