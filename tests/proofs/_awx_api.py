# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for the API of AWX: what the modules of awx.awx ask, with the rules of AWX that our objects could break.

It keeps objects in memory, refuses fields that a kind does not have, hides secrets, makes the source of a constructed
inventory by itself, and knows no project update: a project has the playbooks of a folder at once.
"""

from __future__ import annotations

import base64
import copy
import http.server
import json
import re
import threading
import typing as t
import urllib.parse
from pathlib import Path

import jinja2
import yaml

Data = dict[str, t.Any]
USER, PASSWORD, TOKEN = "admin", "stand-in", "token-of-the-stand-in"
HIDDEN = "$encrypted$"
# {endpoint: (type, {field: value when it is not given})}
PROMPTS = (
    "credential diff_mode execution_environment forks instance_groups inventory job_slice_count job_type labels limit "
    "scm_branch skip_tags tags timeout variables verbosity"
)
KINDS: dict[str, tuple[str, Data]] = {
    "organizations": ("organization", {"description": "", "default_environment": None, "max_hosts": 0}),
    "execution_environments": (
        "execution_environment",
        {"description": "", "organization": None, "image": "", "credential": None, "pull": ""},
    ),
    "credential_types": (
        "credential_type",
        {"description": "", "kind": "", "inputs": {}, "injectors": {}, "managed": False},
    ),
    "credentials": ("credential", {"description": "", "organization": None, "credential_type": None, "inputs": {}}),
    "projects": (
        "project",
        {
            "description": "", "organization": None, "scm_type": "", "scm_url": "", "scm_branch": "", "scm_refspec": "",
            "credential": None, "scm_update_on_launch": False, "local_path": "", "scm_revision": "", "timeout": 0,
            "default_environment": None, "allow_override": False, "scm_clean": False,
            "scm_delete_on_update": False, "scm_track_submodules": False, "scm_update_cache_timeout": 0,
        },
    ),
    "inventories": (
        "inventory",
        {"description": "", "organization": None, "kind": "", "host_filter": None, "variables": ""},
    ),
    "inventory_sources": (
        "inventory_source",
        {
            "description": "", "inventory": None, "source": "", "source_path": "", "source_vars": "", "limit": "",
            "source_project": None, "execution_environment": None, "overwrite": False, "overwrite_vars": False,
            "update_on_launch": False, "update_cache_timeout": 0, "verbosity": 1, "timeout": 0, "scm_branch": "",
        },
    ),
    "job_templates": (
        "job_template",
        {
            "description": "", "organization": None, "job_type": "run", "inventory": None, "project": None,
            "playbook": "", "forks": 0, "limit": "", "verbosity": 0, "extra_vars": "", "job_tags": "", "skip_tags": "",
            "timeout": 0, "use_fact_cache": False, "execution_environment": None, "survey_enabled": False,
            "become_enabled": False, "diff_mode": False, "allow_simultaneous": False, "job_slice_count": 1,
            **{"ask_%s_on_launch" % name: False for name in PROMPTS.split()},
        },
    ),
    "workflow_job_templates": (
        "workflow_job_template",
        {
            "description": "", "organization": None, "extra_vars": "", "survey_enabled": False, "limit": None,
            "allow_simultaneous": False, "inventory": None,
            **{"ask_%s_on_launch" % name: False for name in "inventory labels limit skip_tags tags variables".split()},
        },
    ),
    "workflow_job_template_nodes": (
        "workflow_job_template_node",
        {
            "workflow_job_template": None, "unified_job_template": None, "identifier": "", "job_type": None,
            "limit": None, "extra_data": {}, "type": "workflow_job_template_node", "all_parents_must_converge": False,
        },
    ),
    "workflow_approval_templates": ("workflow_approval_template", {"description": "", "timeout": 0}),
    "schedules": (
        "schedule",
        {"description": "", "rrule": "", "enabled": True, "unified_job_template": None, "extra_data": {}},
    ),
}  # fmt: skip
RELATED = {
    "job_templates": ["credentials", "labels"],
    "inventories": ["input_inventories"],
    "workflow_job_template_nodes": ["success_nodes", "always_nodes", "failure_nodes"],
}
OF_CONSTRUCTED = {"source_vars", "update_cache_timeout", "limit", "verbosity"}
UNIFIED = ("job_templates", "workflow_job_templates", "projects", "inventory_sources")
RRULE = re.compile(r"DTSTART(;TZID=[A-Za-z_/]+)?:\d{8}T\d{6}Z?[ \n]RRULE:(?=.*FREQ=)(?=.*INTERVAL=\d)\S+")
TYPES = ("text", "textarea", "password", "integer", "float", "multiplechoice", "multiselect")


class Refused(Exception):
    """(status, answer)"""


class Api:
    """The objects, and what each request does. `writes` are the requests that changed something."""

    def __init__(self, playbooks: Path) -> None:
        self.playbooks = playbooks
        self.objects: dict[str, dict[int, Data]] = {kind: {} for kind in KINDS}
        self.links: dict[tuple[str, int, str], list[int]] = {}
        self.surveys: dict[tuple[str, int], Data] = {}
        self.writes: list[str] = []
        self.number = 0

    def named(self, kind: str, name: str) -> Data:
        return next(one for one in self.objects[kind].values() if name in (one.get("name"), one.get("identifier")))

    def linked(self, kind: str, name: str, relation: str, other: str = "") -> list[str]:
        """Names of the objects that one is linked with."""
        ids = self.links.get((kind, self.named(kind, name)["id"], relation), [])
        found = [self.objects[other or kind][number] for number in ids]
        return [one.get("identifier") or one["name"] for one in found]

    def answer(self, method: str, path: str, query: Data, body: t.Any) -> tuple[int, t.Any]:
        parts = path.strip("/").split("/")
        assert parts[:2] == ["api", "v2"], path
        kind, rest = parts[2], parts[3:]
        if kind == "tokens":
            return (201, {"id": 1, "token": TOKEN}) if method == "POST" else (204, None)
        if kind == "unified_job_templates":
            every = [one for name in UNIFIED for one in self.objects[name].values()]
            return 200, listed([self.shown(one) for one in every if fits(one, query)])
        if kind not in KINDS:
            raise Refused(404, {"detail": "Not found."})
        if not rest:
            if method == "POST":
                return 201, self.create(kind, body)
            return 200, listed([self.shown(one) for one in self.objects[kind].values() if fits(one, query)])
        number = int(rest[0])
        if number not in self.objects[kind]:
            raise Refused(404, {"detail": "Not found."})
        if len(rest) == 1:
            return 200, self.change(kind, number, body) if method == "PATCH" else self.shown(self.objects[kind][number])
        return self.below(method, kind, number, rest[1], body)

    def below(self, method: str, kind: str, number: int, what: str, body: t.Any) -> tuple[int, t.Any]:
        if what == "survey_spec" and kind in ("job_templates", "workflow_job_templates"):
            if method == "POST":
                judge_survey(body)
                self.wrote("survey_spec", self.objects[kind][number]["name"])
                self.surveys[kind, number] = copy.deepcopy(body)
                return 200, {}
            return 200, self.surveys.get((kind, number), {})
        if what == "create_approval_template" and kind == "workflow_job_template_nodes":
            made = self.create("workflow_approval_templates", body)
            self.objects[kind][number]["unified_job_template"] = made["id"]
            return 201, made
        if what not in RELATED.get(kind, ()):
            raise Refused(404, {"detail": "Not found."})
        links = self.links.setdefault((kind, number, what), [])
        if method == "POST":
            self.wrote(what, self.objects[kind][number].get("name") or self.objects[kind][number]["identifier"])
            (links.remove if body.get("disassociate") else links.append)(int(body["id"]))
            return 204, None
        other = kind if what in ("input_inventories", *RELATED["workflow_job_template_nodes"]) else what
        return 200, listed([self.shown(self.objects[other][one]) for one in links])

    def create(self, kind: str, body: Data) -> Data:
        type_, defaults = KINDS[kind]
        self.judge(kind, body, {})
        self.number += 1
        own = {"id": self.number, "type": type_, "url": "/api/v2/%s/%d/" % (kind, self.number)}
        self.objects[kind][self.number] = one = {**copy.deepcopy(defaults), **body, **own}
        self.wrote(kind, one.get("name") or one["identifier"])
        if kind == "inventories" and one["kind"] == "constructed":
            source = {
                "name": "Auto-created source for: " + one["name"],
                "inventory": own["id"],
                "source": "constructed",
            }
            # AWX itself makes this one.
            self.number += 1
            url = "/api/v2/inventory_sources/%d/" % self.number
            self.objects["inventory_sources"][self.number] = {
                **KINDS["inventory_sources"][1], **source, "id": self.number, "type": "inventory_source", "url": url,
                "update_on_launch": True, "overwrite": True,
            }  # fmt: skip
        return self.shown(one)

    def change(self, kind: str, number: int, body: Data) -> Data:
        one = self.objects[kind][number]
        differing = {key for key, value in body.items() if one.get(key) != value}
        if kind == "inventory_sources" and one["source"] == "constructed" and not differing <= OF_CONSTRUCTED:
            raise Refused(400, {"error": "Cannot change %s of a constructed source." % (differing - OF_CONSTRUCTED)})
        self.judge(kind, body, one)
        if differing:
            self.wrote(kind, one.get("name") or one["identifier"])
            one.update(body)
        return self.shown(one)

    def judge(self, kind: str, body: Data, former: Data) -> None:
        """Refused for what AWX would not take."""
        unknown = set(body) - set(KINDS[kind][1]) - {"name"}
        if unknown:
            raise Refused(400, {field: ["Unknown field of %s." % kind] for field in unknown})
        for field, value in body.items():
            if value is None and KINDS[kind][1].get(field, "") is not None:
                raise Refused(400, {field: ["This field may not be null."]})
        one = {**KINDS[kind][1], **former, **body}
        if kind == "credential_types":
            judge_injectors(one)
        if kind == "credentials":
            fields = self.objects["credential_types"][one["credential_type"]]["inputs"]["fields"]
            if not set(one["inputs"]) <= {field["id"] for field in fields}:
                raise Refused(400, {"inputs": ["Unknown input."]})
        if kind == "job_templates":
            if not (self.playbooks / one["playbook"]).is_file():
                raise Refused(400, {"playbook": ["Playbook not found for project."]})
            if not isinstance(one["job_slice_count"], int) or one["job_slice_count"] < 1:
                raise Refused(400, {"job_slice_count": ["Ensure this value is at least 1."]})
            if one["extra_vars"]:
                assert isinstance(json.loads(one["extra_vars"]), dict)
        if kind == "schedules" and not RRULE.fullmatch(one["rrule"]):
            raise Refused(400, {"rrule": ["DTSTART, FREQ and INTERVAL are needed."]})
        if kind == "inventory_sources" and one["source_vars"]:
            assert isinstance(yaml.safe_load(one["source_vars"]), dict)
        if kind == "projects" and not (one["scm_url"] if one["scm_type"] else one["local_path"]):
            raise Refused(400, {"__all__": ["SCM URL or local path is required."]})

    def shown(self, one: Data) -> Data:
        """As the API gives it: links, and no secret."""
        shown = {**copy.deepcopy(one), "related": {"survey_spec": one["url"] + "survey_spec/"}, "summary_fields": {}}
        if one["type"] == "credential":
            fields = self.objects["credential_types"][one["credential_type"]]["inputs"]["fields"]
            secret = {field["id"] for field in fields if field.get("secret")}
            shown["inputs"] = {key: HIDDEN if key in secret else value for key, value in one["inputs"].items()}
        if one["type"] == "workflow_job_template_node" and one["unified_job_template"]:
            if one["unified_job_template"] in self.objects["workflow_approval_templates"]:
                address = "/api/v2/workflow_approval_templates/%d/" % one["unified_job_template"]
                shown["related"]["unified_job_template"] = address
        return shown

    def wrote(self, kind: str, name: str) -> None:
        self.writes.append("%s %s" % (kind, name))


def listed(found: list[Data]) -> Data:
    return {"count": len(found), "next": None, "previous": None, "results": found}


def fits(one: Data, query: Data) -> bool:
    either = {key[4:]: value for key, value in query.items() if key.startswith("or__")}
    plain = {key: value for key, value in query.items() if not key.startswith("or__")}
    if either and not any(str(one.get(key)) == value for key, value in either.items()):
        return False
    return all(str(one.get(key)) == value for key, value in plain.items())


def judge_injectors(one: Data) -> None:
    """AWX renders the templates with the fields and the name of the file; any other name is refused."""
    names = {field["id"]: "x" for field in one["inputs"]["fields"]}
    if not all(field.get("type") in ("string", "boolean") for field in one["inputs"]["fields"]):
        raise Refused(400, {"inputs": ["A field has no type."]})
    if "file" in one["injectors"]:
        names["tower"] = {"filename": "/f"}  # type: ignore[assignment]
    for part in one["injectors"].values():
        for text in part.values():
            try:
                jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(text).render(names)
            except jinja2.TemplateError as exc:
                raise Refused(400, {"injectors": [str(exc)]}) from exc


def judge_survey(body: Data) -> None:
    """What AWX asks of a survey."""
    if sorted(body) != ["description", "name", "spec"] or not body["spec"]:
        raise Refused(400, {"error": "name, description and spec are needed"})
    variables = [question["variable"] for question in body["spec"]]
    if len(set(variables)) != len(variables):
        raise Refused(400, {"error": "a variable is asked for twice"})
    for question in body["spec"]:
        default, type_ = question.get("default"), question["type"]
        if not question.get("question_name") or type_ not in TYPES or not isinstance(question["required"], bool):
            raise Refused(400, {"error": "question %r" % question})
        if not isinstance(default, str) or not all(isinstance(question[key], int) for key in ("min", "max")):
            raise Refused(400, {"error": "a value of %r has the wrong type" % question})
        if type_ == "multiplechoice" and default not in question["choices"]:
            raise Refused(400, {"error": "default of %s is no choice" % question["variable"]})


class Server:
    """The API on a port of this machine, as a context."""

    def __init__(self, api: Api) -> None:
        self.api = api
        lock = threading.Lock()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                pass

            def handle_one(self) -> None:
                url = urllib.parse.urlsplit(self.path)
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else {}
                login = "Basic " + base64.b64encode(("%s:%s" % (USER, PASSWORD)).encode()).decode()
                if self.headers.get("Authorization") not in (login, "Bearer " + TOKEN):
                    status, answer = 401, {"detail": "Authentication credentials were not provided."}
                else:
                    try:
                        with lock:
                            status, answer = api.answer(
                                self.command, url.path, dict(urllib.parse.parse_qsl(url.query)), body
                            )
                    except Refused as exc:
                        status, answer = exc.args
                data = b"" if answer is None else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.send_header("X-API-Product-Name", "AWX")
                self.send_header("X-API-Product-Version", "24.6.1")
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = do_DELETE = handle_one

        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)

    @property
    def environment(self) -> dict[str, str]:
        """What the modules of awx.awx read."""
        return {
            "CONTROLLER_HOST": "http://127.0.0.1:%d" % self._http.server_address[1],
            "CONTROLLER_USERNAME": USER,
            "CONTROLLER_PASSWORD": PASSWORD,
        }

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._http.shutdown()
        self._http.server_close()
