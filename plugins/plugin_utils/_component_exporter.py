# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""exporter"""

from __future__ import annotations

from ._model_cluster import Context, Inputs, Object

NAME = "metrics-exporter"


def objects(ctx: Context) -> list[Object]:
    raise NotImplementedError
