# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of rbln_bundle: builds the folder from the downloads of a host, and sends hosts the missing files."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import os
import pathlib
import shutil
import tempfile
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.manifest import INDEX, Manifest, examine
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.request import (
    ABSENT,
    CHECKED,
    COLLECTED,
    REACHED,
    arguments,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.action import Answering
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.answer import require
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host.bundle import (
    answer_of,
    asked_of,
    assemble,
    driver_files,
    pack_for,
    planned_of,
    read_folder,
    room_for,
    verified,
    wanted_images,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host.bundle_signature import (
    read_keyring,
    verify_folder,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.cluster import ROLE, read_inputs
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import raw_inputs, role_inputs
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.inputs import Inputs

Result = dict[str, t.Any]
MODULE = "rebellions.npu.rbln_bundle"


class ActionModule(Answering):
    # An incomplete folder must not change the host: the temporary directory is created only to send or fetch.
    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> Result:
        self._vars = task_vars or {}
        self._warning = ""
        result: Result = super().run(tmp, task_vars)
        _validation, args = self.validate_argument_spec(argument_spec=arguments(PROFILE.runfile_stamp_dir))
        local = tempfile.mkdtemp(prefix="rbln-bundle-")
        try:
            if args["ca_cert"]:
                args["authorities"] = pathlib.Path(args["ca_cert"]).read_text(encoding="utf-8")
            if args["state"] == COLLECTED:
                result.update(self._collect(args, local))
            elif args["state"] == REACHED:
                result.update(_address(self._module(args)))
            elif args["state"] == ABSENT:
                result.update(self._module(args))
            else:
                result.update(self._place(args, local))
        except NpuError as exc:
            result.update(failed=True, msg=str(exc))
        except OSError as exc:
            result.update(
                failed=True,
                msg="%s: %s. Next: check the file and the free space on the controller."
                % (exc.filename or local, exc.strerror),
            )
        finally:
            shutil.rmtree(local, ignore_errors=True)
        if self._warning:
            result["warnings"] = [*result.get("warnings", []), self._warning]
        return result

    def _module(self, args: Result) -> Result:
        given = {key: value for key, value in args.items() if value is not None}
        answer = dict(self._execute_module(module_name=MODULE, module_args=given, task_vars=self._vars))
        if args["state"] == COLLECTED and not answer.get("failed"):
            require(
                self._host_name(self._vars), "rbln_bundle", answer, ("os", "format", "requested", "files", "images")
            )
        return answer

    def _images(self) -> list[Result]:
        """Images that rbln_operands uses with the variables of this host, even if no cluster is set."""
        given = {"rbln_operands_driver_instances": self._vars.get("rbln_driver_instances") or [], **self._vars}
        given.update(rbln_operands_enabled=True, rbln_operands_state="present", rbln_operands_delivery="apply")
        inputs = read_inputs(raw_inputs(self._templar, given, role_inputs((ROLE,))))
        images, self._warning = wanted_images(t.cast(Inputs, inputs))
        return images

    def _collect(self, args: Result, local: str) -> Result:
        if not args["folder"]:
            raise NpuError("folder is not set.", "Set folder to the directory of the bundle on the controller.")
        drivers = driver_files(args["runfiles"], args["driver_packages"])
        if args["operands"]:
            args["images"] = args["images"] + self._images()
        before = self._before(args["folder"])
        if self._task.check_mode:
            return self._foreseen(args, before, drivers)
        have = {one.sha256 for one in before.files} if before else set()
        if before:
            have -= {one.sha256 for one in examine(args["folder"], before.files).bad}
        args["have"] = sorted(have)
        folder = self._make_tmp_path()
        try:
            args["transfer"] = self._connection._shell.join_path(folder, "files.tar")
            answer = self._module(args)
            if answer.get("failed"):
                return answer
            checked = answer_of(answer)
            archive = os.path.join(local, "files.tar")
            with room_for([one for one in checked.manifest.files if one.sha256 not in have], local):
                self._connection.fetch_file(args["transfer"], archive)
        finally:
            self._remove_tmp_path(folder)
        changed, manifest = assemble(args["folder"], checked, archive, have, drivers, args["base"], args["kernels"])
        return dict(
            _told(args["folder"], manifest),
            changed=changed,
            diff=_diff(args["folder"], before, manifest) if changed else [],
        )

    @staticmethod
    def _before(folder: str) -> Manifest | None:
        try:
            return read_folder(folder)[0]
        except NpuError:
            return None

    def _foreseen(self, args: Result, before: Manifest | None, drivers: t.Sequence[t.Any]) -> Result:
        answer = self._module(args)
        if answer.get("failed"):
            return answer
        checked, planned = answer_of(answer).manifest, planned_of(answer)
        wanted = {row["sha256"] for row in planned} | {one.sha256 for _path, one in drivers}
        have = {one.sha256 for one in before.files if one.kind != INDEX} if before else set()
        told = {
            "requested": list(checked.requested),
            "planned": planned,
            "size": sum(row["size"] for row in planned),
        }
        return dict(told, changed=checked.format != "deb" or wanted != have, folder=args["folder"])

    def _place(self, args: Result, local: str) -> Result:
        if args["keyring"] and not (args["folder"] or args["url"]):
            raise NpuError("keyring is set, but neither folder nor url is.", "Set folder or url.")
        if args["folder"]:
            manifest, args["manifest"] = read_folder(args["folder"])
            if args["keyring"]:
                verify_folder(args["folder"], args["manifest"], args["keyring"])
            digest = hashlib.sha256(args["manifest"].encode("utf-8")).hexdigest()
            if args["sha256"] and args["sha256"].lower() != digest:
                raise NpuError(
                    "The SHA-256 of the manifest in %s is %s, not %s." % (args["folder"], digest, args["sha256"]),
                    "Use the right bundle, or correct sha256.",
                )
            if args["state"] == CHECKED:
                verified(args["folder"], manifest.files)
        elif args["keyring"]:
            args["keys"] = base64.b64encode(read_keyring(args["keyring"])).decode("ascii")
        if args["state"] == CHECKED and args["operands"]:
            args["images"] = args["images"] + self._images()
        answer = self._module(args)
        if answer.get("failed") or args["state"] == CHECKED or not answer.get("lacking") or args["url"]:
            return answer
        if not args["folder"]:
            raise NpuError(
                "%s lacks files, but neither folder nor url is set." % args["directory"], "Set folder or url."
            )
        lacking = asked_of(answer, manifest)
        if self._task.check_mode:
            verified(args["folder"], lacking)
            return answer
        pack_for(args["folder"], lacking, os.path.join(local, "files.tar"))
        folder = self._make_tmp_path()
        try:
            args["archive"] = self._connection._shell.join_path(folder, "files.tar")
            self._transfer_file(os.path.join(local, "files.tar"), args["archive"])
            return self._module(args)
        finally:
            self._remove_tmp_path(folder)


def _address(answer: Result) -> Result:
    """The answer of the server. NpuError when its address is none: the others would be sent there."""
    if not answer.get("failed"):
        try:
            answer["address"] = str(ipaddress.ip_address(str(answer.get("address"))))
        except ValueError as exc:
            raise NpuError(
                "The server gives no valid address.",
                "Set rbln_bundle_serve_address to the address that it is to listen on.",
            ) from exc
    return answer


def _told(folder: str, manifest: Manifest) -> Result:
    with open(os.path.join(folder, "manifest.json"), "rb") as stream:
        digest = hashlib.sha256(stream.read()).hexdigest()
    images = [
        {"reference": one.reference, "target": one.target, "digest": one.digest, "reason": one.reason}
        for one in manifest.images
    ]
    told = {"folder": folder, "manifest_sha256": digest, "size": manifest.size, "count": len(manifest.files)}
    return dict(told, images=images, requested=list(manifest.requested))


def _diff(folder: str, before: Manifest | None, after: Manifest) -> Result:
    texts = [
        "".join("%s\n" % one for one in sorted(map(str, manifest.files))) if manifest else ""
        for manifest in (before, after)
    ]
    return {"before": texts[0], "after": texts[1], "before_header": folder, "after_header": folder}
