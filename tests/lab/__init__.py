# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab: systemd hosts that are Ansible targets and Kubernetes nodes at once.

The demo, molecule and the integration tests use it.
"""

from __future__ import annotations

from .lab import Lab, LabError

__all__ = ["Lab", "LabError"]
