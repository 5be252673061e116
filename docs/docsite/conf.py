# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sphinx: the guides of docs/ by myst, the reference by antsibull-docs. `make site` builds it."""

project = "rebellions.npu"
author = "The rebellions.npu authors"
project_copyright = "2026, " + author

extensions = ["myst_parser", "sphinx_antsibull_ext"]
myst_heading_anchors = 4
myst_enable_extensions = ["html_image"]
suppress_warnings = ["myst.header"]

html_theme = "furo"
html_title = "rebellions.npu"
html_show_sphinx = False
html_copy_source = False
html_static_path: list[str] = []
html_theme_options = {"source_repository": "https://github.com/rebellions-npu/rebellions.npu/", "source_branch": "main"}

highlight_language = "text"
pygments_style = "ansible"
pygments_dark_style = "monokai"

# A name that leads nowhere is an error; what is said of Ansible itself is not on this site.
nitpicky = True
default_role = "any"
nitpick_ignore_regex = [
    (r".*", r"ansible_collections\.(ansible|kubernetes|community|awx)\..*"),
    (r"std:ref", r"action_plugins|callback_plugins|ansible_configuration_settings|common_return_values"),
    (r"envvar", r"(?!RBLN).*"),
]
