# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""More scenes of the proof of rollouts: what a node waits for before it begins, and a second controller."""

from __future__ import annotations

import contextlib
import datetime
import http.server
import json
import socket
import subprocess
import threading
import time
import typing as t
import urllib.error
import urllib.request
from pathlib import Path

from tests.integration._play import FOLDER, NAMESPACE_OF_TESTS
from tests.lab._base import CACHE, end, run, until
from tests.lab.standins.payload import VERSIONS
from tests.proofs._proof import Part
from tests.proofs._rollout_lab import DONE, HOST, RECORD, RESTART, WORKING, Field, Rolling

OLD, NEW = VERSIONS
VALIDATE = "validation-required"
APPROVED = "rebellions.ai/npu-rollout.approved"
SOAK = 15
# Seconds until the window opens, which begins with a minute.
AHEAD = 150
QUERY = "fleet_is_well == bool 1"


def gates(part: Part, field: Field) -> None:
    """A window that opens, a wave that soaks, a person, a real Prometheus, and a workload before each uncordon."""
    first, second, last = field.names
    smoke = {
        "enabled": True,
        "image": {"repository": "busybox", "tag": "1"},
        "command": ["sh", "-c", "ls /dev/rbln*"],
        "timeout": 60,
    }
    field.mark()
    with Prometheus() as prometheus:
        # The first node has to wait for it: the run looks at its hosts before, which takes half a minute.
        opens = (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=AHEAD)).replace(second=0)
        closes = opens + datetime.timedelta(hours=3)
        rolling = Rolling(
            field,
            OLD,
            rbln_rollout_waves=[1, 2, "100%"],
            rbln_rollout_window=[{"from": opens.strftime("%H:%M"), "to": closes.strftime("%H:%M")}],
            rbln_rollout_soak="%ds" % SOAK,
            rbln_rollout_approval=True,
            rbln_rollout_metrics={"url": prometheus.url, "query": QUERY},
            rbln_rollout_smoke=True,
            rbln_operands_smoke=smoke,
        )
        with part.case("no node begins before the window opens"):
            rolling.says("the maintenance window opens at %s" % opens.strftime("%Y-%m-%dT%H:%M:00Z"))
            rolling.reaches(first, *WORKING)
            assert time.time() >= opens.timestamp()
        rolling.reaches(first, DONE)
        ended = time.monotonic()
        with part.case("the next wave soaks, and then waits for a person"):
            rolling.says("wave 2 is not approved")
            assert time.monotonic() - ended >= SOAK - 1 and field.states(second) == [], field.states(second)
        field.lab.kubectl("annotate", *RECORD, APPROVED + "=2,3")
        with part.case("the query of a Prometheus that says no keeps it"):
            rolling.says("the query of rbln_rollout_metrics says no")
            assert prometheus.says() == "0" and field.states(second) == [], field.states(second)
        prometheus.well = 1
        with part.case("and goes on when it says yes"):
            rolling.reaches(second, *WORKING)
            assert prometheus.says() == "1"
        done = rolling.wait().good(field.names)
    part.note = "%.1f s" % done.seconds
    with part.case("a workload has run on each node before its uncordon"):
        for name in field.names:
            assert field.states(name)[-4:] == [HOST, RESTART, VALIDATE, DONE], field.states(name)
            # Once, also where pods that came back hold all NPUs of the node after it.
            proof = done.one("Judge the workload", name)
            assert (
                proof.play == "3 Hosts"
                and "the smoke workload ended with code 0" in proof.msg
                and "/dev/rbln" in proof.data["log"][0]
            ), proof
        left = field.lab.kubectl("get", "jobs", "-n", NAMESPACE_OF_TESTS, "-o", "name").stdout
        assert "smoke" not in left, left
    with part.case("all nodes have the driver and are in service"):
        assert [field.loaded(name) for name in field.names] == [OLD] * 3
        assert field.closed_together() == 1
        field.in_service(*field.names)
        field.all_run()


def beside(part: Part, field: Field) -> None:
    """A second controller while the first one lives."""
    first = field.names[0]
    field.mark()
    living = Rolling(field, NEW)
    living.reaches(first, HOST)
    other = Rolling(field, NEW, name="beside", rbln_operands_lease_timeout=5).wait()
    with part.case("the second one waits for the Lease, and ends before it changes a node"):
        assert living.process.poll() is None, "the first run has ended before the second one"
        assert other.code == 2 and " Next: " in other.out, other.code
        assert "Lease" in other.out, [one.msg for one in other.results if one.state == "failed"]
        plays = {one.play for one in other.results if one.state not in ("skipped", "failed")}
        assert "2 Preflight" in plays and "3 Hosts" not in plays, plays
    run = living.wait().good(field.names)
    part.note = "%.1f s" % run.seconds
    with part.case("nothing is done twice"):
        for name in field.names:
            told = field.states(name)
            assert told.count(HOST) == 1 and told.count(DONE) == 1 and told[-1] == DONE, told
        assert [field.loaded(name) for name in field.names] == [NEW] * 3 and field.closed_together() == 1
        field.in_service(*field.names)
        field.all_run()


class Prometheus:
    """Debian's Prometheus, which scrapes one number of ours each second: `fleet_is_well`."""

    def __init__(self) -> None:
        self.well = 0
        self._over = contextlib.ExitStack()

    def __enter__(self) -> Prometheus:
        with self._over:
            outer = self

            class Page(http.server.BaseHTTPRequestHandler):
                def do_GET(self) -> None:
                    body = b"fleet_is_well %d\n" % outer.well
                    self.send_response(200)
                    self.send_header("Content-Type", "text/plain; version=0.0.4")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

                def log_message(self, format: str, *args: t.Any) -> None:
                    pass

            page = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
            threading.Thread(target=page.serve_forever, daemon=True).start()
            self._over.callback(page.shutdown)
            home = FOLDER / "prometheus"
            home.mkdir(parents=True, exist_ok=True)
            target = {"targets": ["127.0.0.1:%d" % page.server_port]}
            jobs = [{"job_name": "fleet", "scrape_interval": "1s", "static_configs": [target]}]
            (home / "prometheus.yml").write_text(json.dumps({"scrape_configs": jobs}))
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                address = "127.0.0.1:%d" % free.getsockname()[1]
            self.url = "http://" + address
            words = [program(), "--config.file", home / "prometheus.yml", "--storage.tsdb.path", home / "data"]
            words += ["--web.listen-address", address]
            with open(home / "log", "wb") as log:
                process = subprocess.Popen(list(map(str, words)), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            self._over.callback(end, process)
            until(60, "Prometheus has scraped", lambda: self.says() == "0", 0.5)
            self._over = self._over.pop_all()
        return self

    def __exit__(self, *_why: object) -> None:
        self._over.close()

    def says(self) -> str:
        """The value of the query, empty for none."""
        address = self.url + "/api/v1/query?query=" + QUERY.replace(" ", "%20").replace("=", "%3D")
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                found = json.load(answer)["data"]["result"]
        except (OSError, urllib.error.URLError):
            return ""
        return str(found[0]["value"][1]) if found else ""


def program() -> Path:
    """The program of Debian's package, which is not installed: only fetched and unpacked."""
    home = CACHE / "prometheus"
    found = home / "usr" / "bin" / "prometheus"
    if not found.exists():
        home.mkdir(parents=True, exist_ok=True)
        run(["apt-get", "download", "prometheus"], 300, cwd=home)
        (package,) = home.glob("prometheus_*.deb")
        run(["dpkg-deb", "-x", package, home], 60)
        package.unlink()
    return found
