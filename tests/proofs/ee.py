# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An image by ansible-builder and podman from execution-environment.yml, and what runs in it.

No registry of images is reached: the base is made of Debian's packages, so that package manager and Python have other
names. The collection comes as the tarball of `make build`. Everything else is as the file says.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import typing as t
from pathlib import Path

import yaml

from tests.lab._rootfs import Flavour, _mmdebstrap
from tests.proofs._proof import Part, Proof
from tests.tools.build import build, working
from tests.tools.paths import CACHE, COLLECTIONS, ROOT, VENV, environment

BASE, IMAGE = "localhost/npu-ee-base:1", "localhost/npu-ee:1"
# Of an image that has nothing of Ansible: Python and what brings its packages.
BARE = Flavour("trixie", ("ca-certificates", "python3", "python3-pip", "python3-venv"))
# How this machine reaches PyPI and Debian. Only a file that is there is mounted.
SHARED = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs", "/usr/local/share/ca-certificates", "/etc/pip.conf")
PASSED = ("PIP_INDEX_URL", "PIP_CERT", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE")
LOAD = """
import importlib, pkgutil, sys
sys.path.insert(0, "/usr/share/ansible/collections")
from ansible.plugins import loader
loader.init_plugin_loader()
import ansible_collections.rebellions.npu.plugins as plugins
names = [m.name for m in pkgutil.walk_packages(plugins.__path__, plugins.__name__ + ".")]
for name in names:
    importlib.import_module(name)
print("LOADED", len(names))
"""
# ansible-navigator asks for /dev/mqueue before it starts podman: a view of /dev that has it, for one command.
QUEUES = """
set -e
mount -t tmpfs npu-dev "$1"
for one in /dev/*; do
  to=$1/${one#/dev/}
  if [ -L "$one" ]; then cp -a "$one" "$to"
  elif [ -d "$one" ]; then mkdir "$to"; mount --rbind "$one" "$to"
  else : >"$to"; mount --bind "$one" "$to"; fi
done
[ -d "$1/mqueue" ] || { mkdir "$1/mqueue"; mount -t mqueue npu-mqueue "$1/mqueue"; }
mount --rbind "$1" /dev
shift
exec "$@"
"""

# A folder whose program `podman` has a storage of its own: the images of this machine are left alone.
_OWN: list[Path] = []


def own_podman(folder: Path) -> None:
    """In a container no limit may be higher than that of podman, which lowers its own; runc leaves the others alone."""
    limits = ["nofile=%d:%d" % resource.getrlimit(resource.RLIMIT_NOFILE), "nproc=4096:4096"]
    conf = folder / "containers.conf"
    engine = '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
    conf.write_text("[containers]\ndefault_ulimits = %s\npids_limit = 0\n%s" % (json.dumps(limits), engine))
    program = folder / "bin" / "podman"
    program.parent.mkdir()
    words = (conf, shutil.which("podman"), folder, folder)
    program.write_text('#!/bin/sh\nCONTAINERS_CONF=%s exec %s --root %s/root --runroot %s/run "$@"\n' % words)
    program.chmod(0o755)
    _OWN.append(program.parent)


def run(*argv: t.Any, timeout: int = 1200, **env: str) -> str:
    """What a command says; RuntimeError with its end when it fails."""
    settings = environment(**env)
    settings["PATH"] = "%s:%s" % (_OWN[0], settings["PATH"])
    done = subprocess.run(
        [str(word) for word in argv], env=settings, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", timeout=timeout, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError("%s: exit %d\n%s" % (" ".join(map(str, argv[:4])), done.returncode, done.stdout[-3000:]))
    return done.stdout


def of_debian(folder: Path, tarball: Path) -> Path:
    """execution-environment.yml with the names of Debian and the tarball."""
    file: dict[str, t.Any] = yaml.safe_load((ROOT / "execution-environment.yml").read_text(encoding="utf-8"))
    file["images"]["base_image"]["name"] = BASE
    file["dependencies"]["python_interpreter"] = {"package_system": "python3", "python_path": "/usr/bin/python3"}
    file["options"] = {"package_manager_path": "/usr/bin/apt-get", "skip_pip_install": True}
    collections = file["dependencies"]["galaxy"]["collections"]
    assert [one["name"] for one in collections] == ["rebellions.npu", "kubernetes.core"]
    # Galaxy is not reached: the other one is unpacked as `make env` has it.
    file["dependencies"]["galaxy"]["collections"] = [{"name": "dist/" + tarball.name, "type": "file"}]
    shutil.copytree(COLLECTIONS / "ansible_collections" / "kubernetes", folder / "tree" / "kubernetes")
    file["additional_build_files"] = [
        {"src": str(tarball), "dest": "dist"},
        {"src": str(folder / "tree"), "dest": "collections"},
    ]
    file["build_arg_defaults"] = {"ANSIBLE_GALAXY_CLI_COLLECTION_OPTS": "--offline"}
    file["additional_build_steps"] = {
        "prepend_base": ["RUN apt-get update"],
        "append_galaxy": ["COPY _build/collections /usr/share/ansible/collections/ansible_collections"],
    }
    for name in ("requirements.txt", "bindep.txt"):
        shutil.copy(ROOT / name, folder / name)
    path = folder / "execution-environment.yml"
    path.write_text(yaml.safe_dump(file, sort_keys=False))
    return path


def volumes() -> list[str]:
    return ["--volume=%s:%s:ro" % (path, path) for path in SHARED if os.path.exists(path)]


def inside(folder: Path, *argv: str) -> str:
    """A command in the image, as AWX starts it: another user, the job's folder as /runner."""
    options = ["--rm", "--network=host", "--user=1000:0", "--volume=%s:/runner" % folder, "--workdir=/runner"]
    return run("podman", "run", *options, "-e", "HOME=/runner", IMAGE, *argv)


def image(part: Part, folder: Path) -> None:
    with part.case("a base from packages alone"):
        tar = CACHE / "ee" / "base.tar"
        tar.parent.mkdir(parents=True, exist_ok=True)
        if not tar.exists():
            _mmdebstrap(BARE, tar.with_suffix(".part.tar"), "minbase")
            tar.with_suffix(".part.tar").rename(tar)
        run("podman", "import", "-q", tar, BASE)
    with part.case("ansible-builder builds the image"):
        tarball, files = build(folder / "dist", working(), int(time.time()), "0" * 40)
        assert files > 200
        definition = of_debian(folder, tarball)
        # No layer of a step is kept.
        extra = " ".join(
            ["--layers=false", "--network=host", *volumes(), *("--env=" + n for n in PASSED if n in os.environ)]
        )
        run(
            VENV / "bin" / "ansible-builder", "build", "-f", definition, "-c", folder / "context", "-t", IMAGE,
            "--container-runtime", "podman", "--extra-build-cli-args=" + extra, "-v", "3",
        )  # fmt: skip


def use(part: Part, folder: Path) -> None:
    work = folder / "runner"
    work.mkdir()
    work.chmod(0o777)
    with part.case("its packages are there: ssh, gpg, sshpass"):
        out = inside(work, "sh", "-c", "ssh -V 2>&1; gpg --version; sshpass -V; pip list 2>/dev/null")
        for word in ("OpenSSH", "gpg (GnuPG)", "sshpass", "kubernetes", "tomlkit", "PyYAML", "ansible-runner"):
            assert word in out, (word, out)
    with part.case("every file of the collection's plugins is loaded"):
        (work / "load.py").write_text(LOAD)
        out = inside(work, "python3", "load.py")
        assert int(out.rpartition("LOADED ")[2]) > 200, out
    with part.case("ansible-galaxy lists both collections"):
        out = inside(work, "ansible-galaxy", "collection", "list")
        assert "rebellions.npu" in out and "kubernetes.core" in out, out
    # The image has no sudo: it manages other hosts.
    here = {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3", "ansible_become": False}
    hosts = {"npu_nodes": {"hosts": {"here": here}, "vars": {"rbln_driver_source": "preinstalled"}}}
    (work / "hosts.json").write_text(json.dumps(hosts))
    with part.case("plan in check mode"):
        out = inside(work, "ansible-playbook", "-i", "hosts.json", "rebellions.npu.plan", "--check")
        assert "Plan for 1 host" in out and "failed=0" in out, out[-2000:]
    with part.case("ansible-navigator starts the image"):
        view = folder / "dev"
        view.mkdir()
        argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", QUEUES, "sh", view]
        # It gives these to the container; there are other paths.
        argv += ["env", *("--unset=" + name for name in environment() if name.startswith("ANSIBLE_"))]
        argv += [VENV / "bin" / "ansible-navigator", "run", "rebellions.npu.plan", "-i", work / "hosts.json"]
        argv += ["--mode", "stdout", "--eei", IMAGE, "--pp", "never", "--ce", "podman", "--pae", "false"]
        out = run(*argv, "--lf", folder / "navigator.log", HOME=str(work))
        assert "Plan for 1 host" in out, out[-2000:]


def main() -> int:
    proof = Proof("ee")
    if os.geteuid():
        proof.say("podman of root builds the image. Next: sudo make proof-ee")
        return 2
    folder = Path(tempfile.mkdtemp(prefix="npu-ee-"))
    try:
        own_podman(folder)
        with proof.part("image") as part:
            image(part, folder)
        with proof.part("use") as part:
            use(part, folder)
    finally:
        subprocess.run([folder / "bin" / "podman", "rmi", "--all", "--force"], capture_output=True, check=False)
        # podman binds its storage on itself.
        subprocess.run(["umount", folder / "root" / "overlay"], capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)
    return proof.close()


if __name__ == "__main__":
    sys.exit(main())
