# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The manifests of an installation as a file on the controller; no cluster is asked."""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import masked
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.files import replace_file

from .._cluster.capabilities import declared
from .._components.render import build, left_out, manifests, shown
from .._inputs.cluster import check_served
from .._objects.inputs import Inputs
from .._objects.model import Context
from .._objects.names import OPERANDS


def write_manifests(inputs: Inputs, dry_run: bool, show: bool) -> dict[str, t.Any]:
    """Write the file, or delete it when the installation is to be absent; the answer is the result of the task.

    With `show` the result has the difference, with secrets masked. An object of kind Secret is never written to the
    file.
    """
    capabilities = declared(inputs)
    check_served(inputs, capabilities)
    context = Context(inputs, capabilities)
    present = inputs["state"] != "absent"
    objects = [item for item in build(context) if item["kind"] != "Secret"] if present else []
    text = manifests(objects)
    # For example a proxy with a password, in the environment of a container.
    private = masked(objects) != objects
    path = pathlib.Path(inputs["render_dir"]).expanduser() / (inputs["namespace"] + ".yaml")
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        if not dry_run:
            _bring(path, before, text if present else None, 0o600 if private else 0o644)
    except OSError as exc:
        raise NpuError(f"{path} cannot be written: {exc.strerror}.", f"Correct {OPERANDS}render_dir.") from exc
    headers = {"before_header": str(path), "after_header": str(path)}
    warnings = left_out(context) if present else []
    if present and inputs["pull_secret_content"]:
        warnings.append(f"The pull secret {inputs['pull_secret_name']} is not in {path}: create it in the cluster.")
    if private:
        warnings.append(f"{path} holds a secret of an input, so only its owner may read it: keep it private.")
    return {
        "changed": before != text,
        "path": str(path),
        "diff": [{"before": shown(before), "after": shown(text), **headers}] if before != text and show else [],
        "warnings": warnings,
    }


def _bring(path: pathlib.Path, before: str, text: str | None, mode: int) -> None:
    """Write `text` when it differs; delete the file for None."""
    if text is None:
        path.unlink(missing_ok=True)
    elif before != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(str(path), text.encode("utf-8"), mode)
