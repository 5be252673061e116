# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-ins for the silicon and for the vendor's files that are not public; see README.md."""
