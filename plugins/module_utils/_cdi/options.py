# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a CDI specification shall hold (CdiOptions) and what building one gave (CdiResult)."""

from __future__ import annotations

import posixpath
import re
import typing as t

from .._base.model import NpuError, Problem
from .._base.records import dataclass, field, fields
from .._base.vendor import VendorProfile

STANDALONE = "standalone"
KUBERNETES = "kubernetes"
STORAGE = "storage"
FORMS = (STANDALONE, KUBERNETES, STORAGE)
# Not a form: the caller that looked for a kubelet replaces it with one of FORMS.
AUTO = "auto"
YAML = "yaml"
JSON = "json"
SELINUX_CONTEXTS = ("auto", "none", "z", "Z")
HOOK_MODES = ("auto", "on", "off")
ZERO_DEVICES = ("fail", "skip", "remove")
# Who writes the specification: the host itself, or the daemon of the vendor's toolkit in a container.
OWNERS = ("host", "container")
SPEC_DIRS = ("/etc/cdi", "/var/run/cdi")
SPEC_SUFFIXES = (".json", ".yaml")
# The host tool as a CDI hook: its command, and the program that the kernel starts for it.
HOOK_COMMAND = "update-ldcache"
INTERPRETER = "/usr/bin/python3"

# What every container brings itself: the C and C++ run time. Mounting the host's over it breaks programs.
RUNTIME_LIBRARIES = (
    "ld-linux*",
    "linux-vdso*",
    "libc.so*",
    "libm.so*",
    "libmvec*",
    "libpthread*",
    "libdl*",
    "librt*",
    "libutil.so*",
    "libanl.so*",
    "libgcc_s*",
    "libstdc++*",
    "libresolv*",
    "libnss_*",
)


@dataclass(frozen=True)
class CdiOptions:
    """Inputs of build_spec. Paths are the host's own.

    `dev_root` is the directory that holds the device nodes; None takes DRIVER_ROOT/dev when it holds some, else /dev.
    `groups` maps a device node's name to its group and wins over sysfs and the management tool. `kind` None takes the
    vendor's. `machine` is as uname names it; None takes the machine that runs this, when a vendor library fits it.
    None for a pattern, directory or tool list takes the vendor's; an empty one turns that kind off. With the owner
    container nothing is built: the specification is read and judged, and never written.
    `host_tool` says whether the host tool may be the hook: None means where it is installed, true also where it is
    about to be. `known_hooks` are programs, or directories with a slash at the end, that other specifications may call.
    """

    form: str = STANDALONE
    kind: str | None = None
    driver_root: str = "/"
    dev_root: str | None = None
    container_library_path: str | None = None
    selinux_context: str = "auto"
    hooks: str = "auto"
    hook_path: str | None = None
    host_tool: bool | None = None
    known_hooks: t.Sequence[str] = ()
    ldconfig_path: str = "/sbin/ldconfig"
    legacy_hookname: bool = False
    zero_devices: str = "fail"
    library_patterns: t.Sequence[str] | None = None
    library_dirs: t.Sequence[str] | None = None
    plugin_dirs: t.Sequence[str] | None = None
    tools: t.Sequence[str] | None = None
    tool_dirs: t.Sequence[str] = ("/usr/bin", "/usr/local/bin")
    exclude: t.Sequence[str] = RUNTIME_LIBRARIES
    extra_mounts: t.Sequence[str] = ()
    groups: t.Mapping[str, int] | None = None
    machine: str | None = None
    spec_dirs: t.Sequence[str] = SPEC_DIRS
    owner: str = "host"

    @classmethod
    def names(cls) -> list[str]:
        """Names of all options."""
        return [one.name for one in fields(cls)]

    @classmethod
    def read(cls, given: t.Mapping[str, t.Any]) -> CdiOptions:
        """Options from values by name; a null one takes the default.

        NpuError when a name or a value is not one this understands.
        """
        for name in given:
            if name not in cls.names():
                raise NpuError(
                    "cdi: %r is not an option of a CDI specification." % name,
                    "Use one of: path, %s." % ", ".join(cls.names()),
                )
        options = cls(**{name: value for name, value in given.items() if value is not None})
        options.check()
        return options

    def check(self) -> None:
        """NpuError when a value is not one this understands."""
        for name, value, allowed in (
            ("form", self.form, FORMS + (AUTO,)),
            ("selinux_context", self.selinux_context, SELINUX_CONTEXTS),
            ("hooks", self.hooks, HOOK_MODES),
            ("zero_devices", self.zero_devices, ZERO_DEVICES),
            ("owner", self.owner, OWNERS),
        ):
            if value not in allowed:
                raise NpuError("%s is %r." % (name, value), "Use one of: %s." % ", ".join(allowed))
        for name, path in (
            ("driver_root", self.driver_root),
            ("dev_root", self.dev_root),
            ("container_library_path", self.container_library_path),
            ("hook_path", self.hook_path),
            ("ldconfig_path", self.ldconfig_path),
        ):
            if (path or name == "driver_root") and (not str(path).startswith("/") or ".." in str(path).split("/")):
                raise NpuError("%s is %r." % (name, path), "Give an absolute path without '..'.")
        for name, paths in (("extra_mounts", self.extra_mounts), ("known_hooks", self.known_hooks)):
            for path in paths:
                if not path.startswith("/"):
                    raise NpuError("%s holds %r." % (name, path), "Give absolute paths.")
        for name, number in (self.groups or {}).items():
            if isinstance(number, bool) or not re.match(r"^[0-9]+$", str(number)):
                raise NpuError("groups: the group of %s is %r." % (name, number), "Give the group's number.")


@dataclass(frozen=True)
class CdiResult:
    """`spec` is None when there is nothing to inject and that is allowed; `action` is write, skip or remove.

    `missing` is [{name, needed_by}]: libraries that were not found. `conflicts` is [{kind: version|name|device, name,
    paths, chosen}]. `devices` is [{name, path, major, minor, group}]; `libraries` and `tools` are host paths.
    """

    spec: dict[str, t.Any] | None
    action: str
    warnings: list[Problem] = field(default_factory=list)
    missing: list[dict[str, str]] = field(default_factory=list)
    conflicts: list[dict[str, t.Any]] = field(default_factory=list)
    devices: list[dict[str, t.Any]] = field(default_factory=list)
    libraries: list[str] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)


def form_for(form: str, kubelet: bool) -> str:
    """The form, or the fitting one for auto: on a node of a cluster the device plugin hands out the devices."""
    if form != AUTO:
        return form
    return KUBERNETES if kubelet else STANDALONE


def default_path(profile: VendorProfile, form: str = STANDALONE) -> str:
    """The path the vendor's own consumers read."""
    return "/var/run/cdi/%s.yaml" % (profile.cdi_storage_stem if form == STORAGE else profile.cdi_file_stem)


def format_of(path: str, wanted: str | None = None) -> str:
    """The format a spec file's name asks for; NpuError when no CDI reader would load it or `wanted` says otherwise."""
    extension = posixpath.splitext(path)[1]
    if extension not in SPEC_SUFFIXES:
        raise NpuError(
            "%s does not end in .yaml or .json, so no container runtime reads it." % path,
            "Give the path one of these endings.",
        )
    if not path.startswith("/"):
        raise NpuError("The path %s is not absolute." % path, "Give an absolute path.")
    found = extension[1:]
    if wanted and wanted != found:
        raise NpuError(
            "The path %s asks for %s and the format is %s." % (path, found, wanted),
            "Change the ending of the path or the format.",
        )
    return found
