# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON ?= python3
PY := .work/venv/bin/python
LAYERS := $(PY) -m tests.tools.layers
export PYTHON PYTHONDONTWRITEBYTECODE := 1

# What the demo does not use is not built for it.
ENV_PARTS :=
demo demo-down lab-up lab-status lab-down: ENV_PARTS := --newest-alone

.PHONY: help root env stage packages test ci test-unit sanity units lint docs pages molecule integration vm bench site build release-check changelog report-picture demo demo-down lab-up lab-status lab-down clean

help: ## this list
	@sed -n 's/^\([a-z][a-z% -]*\):.*## /\1\n    /p' Makefile

root:
	@test "$$(id -u)" = 0 || { echo "make test starts system containers and needs root. Next: sudo make test, or make test-unit without root" >&2; exit 2; }

env: ## build .work: two venvs, the collections we depend on
	@$(PYTHON) tests/tools/env.py $(ENV_PARTS)

stage: env ## copy the checkout to .work/stage/ansible_collections/rebellions/npu
	@$(PY) -m tests.tools.stage

test: root stage ## every layer; budgets fit into 35 minutes on two idle cores; needs root
	@$(LAYERS) all

ci: root packages stage ## every layer and a sample of each longer proof; budgets fit into 60 minutes from nothing; needs root
	@$(LAYERS) all sample

test-unit sanity units lint docs pages: stage ## one layer without root
	@$(LAYERS) $@

molecule integration vm bench: stage ## one layer on system containers, vm on a virtual machine; needs root
	@$(LAYERS) $@

site: stage ## the documentation site in .work/site/html
	@$(PY) -m tests.tools.site

build: ## the tarball of the last commit, its SBOM and SHA256SUMS in .work/dist; needs only git and Python
	@$(PYTHON) -m tests.tools.build

release-check: root stage ## whether the last commit may be published; ends with the demo of the tarball; needs root
	@$(PY) -m tests.tools.release

changelog: stage ## write CHANGELOG.md from the fragments and the plugins of the version in galaxy.yml
	@$(PY) -m tests.tools.changelog

report-picture: stage ## docs/images/report.png of the demo's first run: REPORT=.work/demo/reports/FILE.json; without it of an example; needs chromium
	@$(PY) -m tests.tools.report_picture $(REPORT)

packages: env ## install missing system packages (root) or name them
	@$(PY) -m tests.tools.packages install

demo: stage ## simulated NPU servers brought from nothing to allocatable NPUs; asks first, YES=1 does not; VM=0 without a virtual machine
	@$(PY) -m tests.lab demo

demo-down: stage ## undo the demo and compare the machine with its state before
	@$(PY) -m tests.lab demo-down

lab-up lab-status lab-down: stage ## the simulated servers alone
	@$(PY) -m tests.lab $(subst lab-,,$@)

proof-%: stage ## a longer proof of tests/proofs; SAMPLE=1 runs a part
	@$(PY) -m tests.proofs.$*

clean: ## remove .work
	rm -rf .work
