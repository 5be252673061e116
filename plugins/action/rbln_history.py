# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of rbln_history: the module's answer is judged."""

from __future__ import annotations

from ansible.plugins.action.normal import ActionModule as Normal
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.action import Answering


class ActionModule(Answering, Normal):
    """As ansible runs any module, with the answer judged."""
