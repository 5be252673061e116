# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-in for rbln-cdi-hook, an OCI createContainer hook.

It makes links and refreshes the loader cache in the container's root.
"""

import json
import os
import subprocess
import sys


def inside(root, path):
    """PATH below ROOT with every link in its parents resolved inside ROOT; ValueError when it would leave."""
    real = os.path.join(os.path.realpath(os.path.join(root, os.path.dirname(path).lstrip("/"))), os.path.basename(path))
    if os.path.commonpath([root, real]) != root:
        raise ValueError("%s leaves the container's root" % path)
    return real


def main(argv):
    if len(argv) < 2 or argv[1] not in ("create-symlinks", "update-ldcache"):
        sys.stderr.write(
            "usage: rbln-cdi-hook create-symlinks --link TARGET::LINK ... | update-ldcache --folder DIR ...\n"
        )
        return 2
    values = [argv[at + 1] for at in range(2, len(argv) - 1) if argv[at] in ("--link", "--folder")]
    if not values:
        return 0
    bundle = json.load(sys.stdin)["bundle"]
    with open(os.path.join(bundle, "config.json")) as handle:
        root = os.path.realpath(os.path.join(bundle, json.load(handle)["root"]["path"]))
    if argv[1] == "create-symlinks":
        for item in (part for value in values for part in value.split(",")):
            target, link = item.split("::", 1)
            path = inside(root, link)
            os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
            if os.path.islink(path) and os.readlink(path) == target:
                continue
            if os.path.lexists(path):
                os.unlink(path)
            os.symlink(target, path)
        return 0
    ldconfig = os.environ.get("RBLN_CDI_HOOK_LDCONFIG_PATH", "/sbin/ldconfig")
    path = inside(root, "/etc/ld.so.conf.d/00-rbln.conf")
    os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
    with open(path, "w") as handle:
        handle.write("".join(folder + "\n" for folder in values))
    main_file = inside(root, "/etc/ld.so.conf")
    if not os.path.exists(main_file):
        with open(main_file, "w") as handle:
            handle.write("include /etc/ld.so.conf.d/*.conf\n")
    subprocess.run([ldconfig, "-r", root], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
