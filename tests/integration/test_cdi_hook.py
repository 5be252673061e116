# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hook of the host tool in real containers: an image keeps its LD_LIBRARY_PATH and finds the driver's libraries.

podman runs in a mount namespace of its own with its own storage, so the machine's CDI directories and /usr/local stay
as they are. The loader in the container is the judge: it preloads libraries by name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.build import build_spec
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.options import CdiOptions
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.spec import dump_spec
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.write import repair_spec
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host.zipapp import build

LIB = "/lib/x86_64-linux-gnu"
LOADER = "/lib64/ld-linux-x86-64.so.2"
IMAGE = "localhost/npu-hook"
# Where the loader of no distribution looks.
INSIDE = "/srv/npu/lib"
SHOW = (
    'echo "$LD_LIBRARY_PATH"; '
    "LD_PRELOAD='librbln-ml.so.3 librbln-ccl.so.3 libapp.so.1' cat /proc/self/maps; cat /etc/ld.so.conf.d/*.conf"
)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts and device nodes need root")


def library(path: Path, soname: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    code = path.parent / "empty.o"
    for argv in (["as", "-o", code, "/dev/null"], ["ld", "-shared", "-soname=" + soname, "-o", path, code]):
        subprocess.run(argv, check=True, timeout=60, capture_output=True)
    code.unlink()


def image(folder: Path, *more: str) -> Path:
    """The files of an image: shell, cat, C library, a library of the application; no ldconfig, as in small images."""
    for path in ("/bin/sh", "/bin/cat", f"{LIB}/libc.so.6", LOADER, *more):
        place = folder / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.path.realpath(path), place)
    library(folder / "opt/app/lib/libapp.so.1", "libapp.so.1")
    (folder / "etc/ld.so.conf.d").mkdir(parents=True)
    (folder / "etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n")
    return folder


class Engine:
    """podman with a storage of its own, and what stands in for /run and /usr/local."""

    def __init__(self, home: Path) -> None:
        self.home = home
        for name in ("run/cdi", "run/lock", "local/libexec/rebellions-npu", "storage", "state", "etc"):
            (home / name).mkdir(parents=True)
        tool = home / "local/libexec/rebellions-npu/rbln-host"
        tool.write_bytes(build())
        tool.chmod(0o755)

    def write(self, **options: t.Any) -> None:
        spec = build_spec(
            PROFILE,
            Host("/"),
            CdiOptions(
                **{
                    "form": "kubernetes",
                    "driver_root": str(self.home / "driver"),
                    "container_library_path": INSIDE,
                    "library_dirs": ["/usr/lib64"],
                    "host_tool": True,
                    "selinux_context": "none",
                    **options,
                }
            ),
        ).spec
        assert spec is not None
        (self.home / "run/cdi/rbln.yaml").write_text(dump_spec(spec, "yaml"))

    def call(self, *words: str, user: bool = False) -> subprocess.CompletedProcess[str]:
        """podman with these words; as another user without any rights when `user` says so."""
        place = self.home / ("user" if user else "storage")
        place.mkdir(exist_ok=True)
        argv = ["podman", "--root", f"{place}/r", "--runroot", f"{place}/s", "--tmpdir", f"{place}/t"]
        argv += ["--storage-driver=vfs", "--cgroup-manager=cgroupfs", "--events-backend=none", *words]
        become = ""
        if user:
            os.chown(place, 65534, 65534)
            argv[1:1] = ["--storage-opt=vfs.ignore_chown_errors=true"]
            become = "exec setpriv --reuid=65534 --regid=65534 --clear-groups "
        script = 'mount --bind "$0/run" /run && mount --bind "$0/local" /usr/local && %s"$@"' % (become or "exec ")
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(place), "XDG_RUNTIME_DIR": str(place)}
        return subprocess.run(
            ["unshare", "--mount", "sh", "-c", script, str(self.home), *argv],
            capture_output=True, text=True, timeout=120, check=False, env=env, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def try_run(self, *flags: str, user: bool = False, script: str = SHOW) -> subprocess.CompletedProcess[str]:
        words = ["run", "--rm", "--network=none", "--device", "rebellions.ai/npu=all"]
        # Those that podman would raise may be beyond what this machine allows.
        words += ["--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"]
        return self.call(*words, *flags, IMAGE, "/bin/sh", "-c", script, user=user)

    def run(self, *flags: str, user: bool = False, script: str = SHOW) -> str:
        done = self.try_run(*flags, user=user, script=script)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def engine() -> t.Iterator[Engine]:
    """Not below pytest's directory, which lets no other user in."""
    home = Path(tempfile.mkdtemp(prefix="npu-hook"))
    home.chmod(0o755)
    try:
        yield prepared(home)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def prepared(home: Path) -> Engine:
    found = Engine(home)
    driver = home / "driver/usr/lib64"
    library(driver / "librbln-ml.so.3.2.2", "librbln-ml.so.3")
    library(driver / "librbln-ccl.so", "librbln-ccl.so.3")
    (driver / "librbln-ml.so.3").symlink_to("librbln-ml.so.3.2.2")
    files = image(home / "image", "/sbin/ldconfig")
    subprocess.run(["tar", "-C", str(files), "-cf", str(home / "image.tar"), "."], check=True, timeout=60)
    for user in (False, True):
        done = found.call(
            "import", "--change", "ENV LD_LIBRARY_PATH=/opt/app/lib", f"{home}/image.tar", IMAGE, user=user
        )
        assert done.returncode == 0, done.stderr
    return found


def proven(shown: str) -> None:
    assert shown.startswith("/opt/app/lib\n"), shown
    for path in (f"{INSIDE}/librbln-ml.so.3", f"{INSIDE}/librbln-ccl.so", "/opt/app/lib/libapp.so.1"):
        assert f" {path}" in shown, shown
    assert "cannot be preloaded" not in shown and f"{INSIDE}\n" in shown, shown


@pytest.mark.parametrize(
    "flags", [(), ("--read-only",), ("--uidmap=0:100000:65536",), ("--user=1000:1000", "--cap-drop=all")], ids=str
)
def test_the_variable_of_the_image_stays_and_the_libraries_are_found(engine: Engine, flags: tuple[str, ...]) -> None:
    engine.write()
    proven(engine.run(*flags))


def test_a_user_without_rights_runs_it_too(engine: Engine) -> None:
    engine.write()
    proven(engine.run(user=True))
    proven(engine.run("--read-only", user=True))


def test_ldconfig_in_the_container_keeps_the_libraries(engine: Engine) -> None:
    """A package that is installed later runs it."""
    engine.write()
    shown = engine.run(script="/sbin/ldconfig; " + SHOW)
    proven(shown)


def test_without_the_hook_the_loader_does_not_find_them_and_the_variable_loses_the_value_of_the_image(
    engine: Engine,
) -> None:
    """What was wrong: this is what the other tests would see."""
    engine.write(host_tool=False)
    assert "cannot be preloaded" in engine.run(script=SHOW.rsplit(";", 1)[0])
    engine.write(hooks="off")
    assert engine.run(script=SHOW.rsplit(";", 1)[0]).startswith(INSIDE + "\n")


def test_a_volume_on_etc_is_left_alone_and_the_container_starts(engine: Engine) -> None:
    engine.write()
    etc = engine.home / "etc"
    (etc / "ld.so.conf.d").mkdir(exist_ok=True)
    (etc / "ld.so.cache").write_text("of the host")
    engine.run("-v", f"{etc}:/etc", script="true")
    assert (etc / "ld.so.cache").read_text() == "of the host" and not list((etc / "ld.so.conf.d").iterdir())


def test_the_environment_of_the_image_does_not_reach_the_hook(engine: Engine) -> None:
    """LD_PRELOAD of an image would be loaded into the hook, which runs as root outside the container."""
    engine.write()
    engine.run("-e", "LD_PRELOAD=/srv/none.so", "-e", "PYTHONHOME=/srv/none", script="true")


def test_a_runtime_does_not_follow_a_linked_directory(engine: Engine) -> None:
    """Why cdi_dir_linked of our own directory is an error."""
    engine.write()
    place = engine.home / "run/cdi"
    place.rename(engine.home / "run/other")
    place.symlink_to("other")
    try:
        done = engine.try_run(script="true")
    finally:
        place.unlink()
        (engine.home / "run/other").rename(place)
    assert done.returncode != 0 and "unresolvable CDI devices" in done.stderr, done.stderr
    assert engine.try_run(script="true").returncode == 0


@pytest.mark.parametrize("place, bits", [("run/cdi", 0o700), ("run/cdi/rbln.yaml", 0o600)])
def test_what_a_user_cannot_read_is_repaired_C10_cdi_perms(engine: Engine, place: str, bits: int) -> None:
    engine.write()
    (engine.home / place).chmod(bits)
    done = engine.try_run(user=True, script="true")
    assert done.returncode != 0 and "unresolvable CDI devices" in done.stderr, done.stderr
    assert repair_spec(Host(str(engine.home)), "/run/cdi/rbln.yaml")
    assert not repair_spec(Host(str(engine.home)), "/run/cdi/rbln.yaml")
    assert engine.try_run(user=True, script="true").returncode == 0
