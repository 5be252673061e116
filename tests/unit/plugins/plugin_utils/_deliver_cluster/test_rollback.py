# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A new image is tried on one node; a failed one is replaced by the last good one, and is not tried again."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.capabilities import declared
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.render import build
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.apply import apply_objects
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.rollback import Rollback, images_of
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.work import ClusterWork
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.wait import Waiter
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.compare import GOOD, REFUSED
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.model import Context
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.cluster_store import Store
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs

Data = dict[str, Any]
PLUGIN, VALIDATOR = "rbln-device-plugin", "rbln-validator"
NODES = ("n1", "n2", "n3")


def plugin(tag: str, **more: Any) -> Data:
    return {"device_plugin": {"image": {"tag": tag}, **more}}


# The status of a container that ended after it was ready, and started again: the pod is ready.
ENDED = {"terminated": {"exitCode": 3, "message": "no rbln-smi"}}
RESTARTED: Data = {"name": "main", "restartCount": 1, "ready": True, "state": {"running": {}}, "lastState": ENDED}
# The same before it starts again.
LATE: list[Data] = [
    RESTARTED,
    {**RESTARTED, "restartCount": 0, "state": ENDED, "lastState": {}},
    {**RESTARTED, "restartCount": 0, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
]
# The kubelet has not told yet how it ended, or never does.
SILENT: Data = {**RESTARTED, "restartCount": 0, "lastState": {}, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}


class Kube(Store):
    """A store with a DaemonSet controller and kubelets, which act at each look. Pods of `broken` tags never start.

    `made` lists (DaemonSet, node, tag of its last container) of each pod that was made.
    """

    def __init__(self, *broken: str) -> None:
        super().__init__()
        # Seconds after which a container of the tag `late` ends and starts again.
        self.crash: dict[str, float] = {}
        self.crashed = RESTARTED
        self.broken, self.now = broken, 0.0
        self.made: list[tuple[str, str, str]] = []
        for name in NODES:
            ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"rebellions.ai/npu": "1"}}
            labels = {"rebellions.ai/npu.present": "true"}
            self._put({"kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {}, "status": ready})

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def apply(self, item: Data, force: bool, dry_run: bool) -> tuple[bool, Data]:
        before = self.items.get(self.key(item), {})
        old = before.get("spec"), before.get("spec", {}).get("template")
        answer = super().apply(item, force, dry_run)
        if item["kind"] == "DaemonSet" and not dry_run:
            live = self.items[self.key(item)]
            meta, number = live["metadata"], "deprecated.daemonset.template.generation"
            meta.setdefault("uid", meta["name"])
            meta["generation"] = meta.get("generation", 0) + (old[0] != live["spec"])
            count = int(meta["annotations"].get(number, 0)) + (old[1] != live["spec"]["template"])
            meta["annotations"][number] = str(count)
        return answer

    def sets(self) -> list[Data]:
        return [item for item in self.items.values() if item["kind"] == "DaemonSet"]

    def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> Data | None:
        if kind == "DaemonSet":
            self.work()
        return super().get(api_version, kind, name, namespace)

    def list(self, api_version: str, kind: str, *more: Any, **given: Any) -> list[Data]:
        if kind in ("Pod", "DaemonSet", "ControllerRevision"):
            self.work()
        if kind == "ControllerRevision":
            return [
                {
                    "metadata": {
                        "labels": {"controller-revision-hash": _hash(item)},
                        "ownerReferences": [{"uid": item["metadata"]["uid"], "controller": True}],
                    },
                    "revision": 1,
                }
                for item in self.sets()
            ]
        return super().list(api_version, kind, *more, **given)

    def work(self) -> None:
        for item in self.sets():
            name, namespace = item["metadata"]["name"], item["metadata"]["namespace"]
            fresh = ready = 0
            for node in NODES:
                key = ("Pod", namespace, "%s-%s" % (name, node))
                pod = self.items.get(key)
                stale = pod is not None and pod["metadata"]["labels"]["controller-revision-hash"] != _hash(item)
                if pod is None or (stale and item["spec"]["updateStrategy"]["type"] == "RollingUpdate"):
                    pod = self.items[key] = self.pod(item, node, key[2])
                if pod["started"] + self.crash.get(pod["tag"], 1e9) <= self.now:
                    pod["status"]["containerStatuses"] = [self.crashed]
                fresh += pod["metadata"]["labels"]["controller-revision-hash"] == _hash(item)
                ready += pod["status"]["conditions"][0]["status"] == "True"
            item["status"] = {
                "observedGeneration": item["metadata"]["generation"],
                "desiredNumberScheduled": len(NODES),
                "updatedNumberScheduled": fresh,
                "numberReady": ready,
                "numberAvailable": ready,
            }

    def pod(self, item: Data, node: str, name: str) -> Data:
        images = list(images_of(item).values())
        self.made.append((item["metadata"]["name"], node, images[-1].rpartition(":")[2]))
        bad = any(image.endswith(self.broken) for image in images) if self.broken else False
        labels = {
            **item["spec"]["template"]["metadata"]["labels"],
            "controller-revision-hash": _hash(item),
            "pod-template-generation": item["metadata"]["annotations"]["deprecated.daemonset.template.generation"],
        }
        waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
        return {
            "kind": "Pod",
            "started": self.now,
            "tag": self.made[-1][2],
            "metadata": {
                "name": name,
                "namespace": item["metadata"]["namespace"],
                "labels": labels,
                "ownerReferences": [{"uid": item["metadata"]["uid"]}],
            },
            "spec": {"nodeName": node},
            "status": {
                "conditions": [{"type": "Ready", "status": "False" if bad else "True"}],
                "containerStatuses": [{"name": "main", "state": waiting}] if bad else [],
            },
        }

    def images(self, name: str) -> set[str]:
        """The tags that the pods of a DaemonSet were made of last."""
        return set({node: tag for one, node, tag in self.made if one == name}.values())

    def noted(self, name: str, key: str) -> Any:
        text = self.items[("DaemonSet", "rbln-system", name)]["metadata"]["annotations"].get(key)
        return json.loads(text) if text else None


def _hash(item: Data) -> str:
    return hashlib.sha256(json.dumps(item["spec"]["template"], sort_keys=True).encode()).hexdigest()[:8]


def run(kube: Kube, dry_run: bool = False, stop: bool = False, npus: int = 1, **given: Any) -> list[str]:
    """What a run does to the cluster, and what it tells the hosts; with `stop` it dies before the trial.

    Each of its two nodes has so many usable NPUs.
    """
    kube.writes.clear()
    typed: Any = inputs(**{"rollback": True, "wait_timeout": 30, "wait_delay": 2, **given})
    served = declared(typed)
    records: Any = {name: {"node": name, "error": "", "expected": npus} for name in NODES[:2]}
    rollback = Rollback(kube, typed, records, dry_run, lambda line: None, lambda: kube.now, kube.sleep)  # type: ignore[arg-type]
    objects = rollback.prepare(build(Context(typed, served)))
    failures = apply_objects(kube, objects, typed, served, dry_run).failures  # type: ignore[arg-type]
    if stop or dry_run:
        return [problem["text"] for problem in rollback.problems]
    final = rollback.try_out(objects, failures)
    if final is not None:
        objects = final
        apply_objects(kube, objects, typed, served, False)  # type: ignore[arg-type]
    waited = Waiter(kube, typed, records, objects, failures, lambda: kube.now, kube.sleep).run()  # type: ignore[arg-type]
    rollback.remember(objects, waited)
    return [problem["text"] for problem in [*rollback.problems, *waited["problems"]]]


def good(kube: Kube) -> str:
    """The image of the template that is noted as good."""
    image: str = kube.noted(PLUGIN, GOOD)["spec"]["containers"][0]["image"]
    return image


def installed(*broken: str) -> Kube:
    kube = Kube(*broken)
    assert run(kube, **plugin("v1")) == []
    kube.made.clear()
    return kube


def test_a_good_image_goes_to_one_node_and_then_to_all_and_is_the_next_good_one() -> None:
    kube = installed()
    assert good(kube).endswith(":v1")
    assert run(kube, **plugin("v2")) == []
    assert [one for one in kube.made if one[0] == PLUGIN] == [(PLUGIN, node, "v2") for node in NODES]
    assert good(kube).endswith(":v2") and kube.noted(PLUGIN, REFUSED) is None
    strategy = kube.items[("DaemonSet", "rbln-system", PLUGIN)]["spec"]["updateStrategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}}
    assert (run(kube, **plugin("v2")), kube.writes) == ([], [])


def test_a_bad_image_reaches_one_node_and_the_good_one_is_put_back() -> None:
    kube = installed("bad")
    (text,) = run(kube, **plugin("bad"))
    assert text.startswith("rolled back: rbln-device-plugin: ") and ":bad did not become ready: " in text
    assert "on node n1" in text and "no such image" in text and ":v1 runs again." in text
    assert text.count("Next: ") == 1 and "rbln_operands_rollback_retry: true" in text
    assert kube.made == [(PLUGIN, "n1", "bad"), (PLUGIN, "n1", "v1")]
    assert good(kube).endswith(":v1")


def test_what_came_with_a_bad_image_goes_back_with_it() -> None:
    """Else the old image would run everywhere with the new arguments, which nobody has tried."""
    kube = installed("bad")
    (text,) = run(kube, **plugin("bad", args=["--new"], env={"LOG": "debug"}))
    assert text.startswith("rolled back: ") and kube.made == [(PLUGIN, "n1", "bad"), (PLUGIN, "n1", "v1")]
    run(kube, **plugin("bad", args=["--new"], env={"LOG": "debug"}))
    assert len(kube.made) == 2 and "--new" not in json.dumps(kube.sets())


def test_a_refused_image_is_not_tried_again_unless_asked_for() -> None:
    kube = installed("bad")
    run(kube, **plugin("bad"))
    kube.made.clear()
    for dry_run in (False, True):
        (text,) = run(kube, dry_run, **plugin("bad"))
        assert text.startswith("refused: rbln-device-plugin: ") and "was rolled back before: " in text
        assert "no such image" in text and (kube.made, kube.writes) == ([], [])
    (text,) = run(kube, rollback_retry=True, **plugin("bad"))
    assert text.startswith("rolled back: ") and [one[2] for one in kube.made] == ["bad", "v1"]
    assert run(kube, **plugin("v2")) == [] and len(kube.noted(PLUGIN, REFUSED)) == 1
    assert run(kube, **plugin("v1")) == []
    kube.made.clear()
    (text,) = run(kube, **plugin("bad"))
    assert text.startswith("refused: ") and kube.made == []


def test_every_refused_image_is_remembered_until_it_passes() -> None:
    kube = installed("bad", "worse")
    run(kube, **plugin("bad"))
    run(kube, **plugin("worse"))
    kube.made.clear()
    for tag in ("bad", "worse", "bad"):
        (text,) = run(kube, **plugin(tag))
        assert text.startswith("refused: ") and ":%s was rolled back before: " % tag in text and kube.made == []
    kube.broken = ("worse",)
    assert run(kube, rollback_retry=True, **plugin("bad")) == [] and good(kube).endswith(":bad")
    (text,) = run(kube, **plugin("worse"))
    assert text.startswith("refused: ") and [one["images"] for one in kube.noted(PLUGIN, REFUSED)] == [
        {**one["images"], "device-plugin": "docker.io/rebellions/k8s-device-plugin:worse"}
        for one in kube.noted(PLUGIN, REFUSED)
    ]
    # As a release before has noted it.
    annotations = kube.items[("DaemonSet", "rbln-system", PLUGIN)]["metadata"]["annotations"]
    annotations[REFUSED] = json.dumps(kube.noted(PLUGIN, REFUSED)[0])
    assert run(kube, **plugin("worse"))[0].startswith("refused: ")


@pytest.mark.parametrize("note", ["{", "7", "[7]", '[{"images": 7}]', '{"reason": "x"}'])
def test_a_note_of_refused_images_that_cannot_be_read_counts_as_none(note: str) -> None:
    kube = installed("bad")
    kube.items[("DaemonSet", "rbln-system", PLUGIN)]["metadata"]["annotations"][REFUSED] = note
    assert run(kube, **plugin("bad"))[0].startswith("rolled back: ") and len(kube.noted(PLUGIN, REFUSED)) == 1


def test_a_container_with_a_probe_is_not_watched() -> None:
    kube = Kube()

    def exporter(tag: str) -> Data:
        return {"metrics_exporter": {"enabled": True, "image": {"tag": tag}, "service": {"enabled": False}}}

    assert run(kube, **exporter("v1")) == []
    kube.crash, start = {"late": 9.0}, kube.now
    assert run(kube, **exporter("late")) == [] and kube.now - start < 9
    assert kube.images("rbln-metrics-exporter") == {"late"}


def test_a_container_whose_end_is_not_told_has_no_code() -> None:
    kube = installed()
    kube.crash, kube.crashed = {"late": 9}, SILENT
    (text,) = run(kube, **plugin("late"))
    assert "container main ended after it was ready: CrashLoopBackOff. " in text and text.count("Next: ") == 1


@pytest.mark.parametrize("status", LATE)
@pytest.mark.parametrize(("after", "back"), [(9, True), (60, False)])
def test_a_container_without_a_probe_that_ends_late_is_not_ready(after: float, back: bool, status: Data) -> None:
    """It is ready as soon as it has started: the second look finds it running again."""
    kube = installed()
    kube.crash, kube.crashed = {"late": after}, status
    told = run(kube, **plugin("late"))
    if not back:
        assert told == [] and kube.images(PLUGIN) == {"late"}
        return
    (text,) = told
    assert (
        text.startswith("rolled back: ") and "container main ended with code 3 after it was ready: no rbln-smi" in text
    )
    assert "on node n1" in text and "--previous" in text and text.count("Next: ") == 1
    assert kube.made == [(PLUGIN, "n1", "late"), (PLUGIN, "n1", "v1")] and kube.images(PLUGIN) == {"v1"}


def test_a_repaired_image_passes_when_it_is_tried_again() -> None:
    kube = installed("bad")
    run(kube, **plugin("bad"))
    kube.broken = ()
    assert run(kube, rollback_retry=True, **plugin("bad")) == [] and kube.images(PLUGIN) == {"bad"}


def test_a_run_that_died_in_the_trial_is_taken_up() -> None:
    kube = installed("bad")
    run(kube, stop=True, **plugin("bad"))
    assert kube.made == []
    # The pod was replaced, and then the run died.
    kube.items.pop(("Pod", "rbln-system", PLUGIN + "-n2"))
    kube.work()
    (text,) = run(kube, **plugin("bad"))
    assert "on node n2" in text and kube.made == [(PLUGIN, "n2", "bad"), (PLUGIN, "n2", "v1")]


def test_a_run_that_died_in_its_first_trial_is_taken_up_though_nothing_was_noted_before() -> None:
    kube = Kube("bad")
    run(kube, rollback=False, **plugin("v1"))
    run(kube, stop=True, **plugin("bad"))
    kube.made.clear()
    (text,) = run(kube, **plugin("bad"))
    assert text.startswith("rolled back: ") and ":v1 runs again." in text
    assert kube.made == [(PLUGIN, "n1", "bad"), (PLUGIN, "n1", "v1")]


def test_a_refused_image_that_runs_well_by_now_stays() -> None:
    """Without the input it was put on all nodes, and it works: the input alone must not replace it."""
    kube = installed("bad")
    run(kube, **plugin("bad"))
    kube.broken = ()
    run(kube, rollback=False, **plugin("bad"))
    kube.made.clear()
    assert (run(kube, True, **plugin("bad")), run(kube, **plugin("bad")), kube.made) == ([], [], [])
    assert good(kube).endswith(":bad") and kube.noted(PLUGIN, REFUSED) is None


def test_what_runs_well_is_put_back_and_not_an_image_noted_long_ago() -> None:
    kube = installed("bad")
    run(kube, rollback=False, **plugin("v2"))
    (text,) = run(kube, **plugin("bad"))
    assert ":v2 runs again." in text and kube.images(PLUGIN) == {"v2"} and good(kube).endswith(":v2")


def test_images_that_a_webhook_names_anew_are_no_new_images() -> None:
    kube = Kube("bad")

    def mutated(item: Data) -> Data:
        spec = json.dumps(item.get("spec")).replace("docker.io/", "mirror.example/")
        return {**item, "spec": json.loads(spec)} if item["kind"] == "DaemonSet" else item

    kube.keep = mutated
    for _time in range(3):
        assert run(kube, **plugin("v1")) == []
    assert kube.writes == [] and {one[2] for one in kube.made} >= {"v1"} and len(kube.made) == len(set(kube.made))
    (text,) = run(kube, **plugin("bad"))
    assert "k8s-device-plugin:v1 runs again." in text and kube.images(PLUGIN) == {"v1"}
    kube.made.clear()
    assert run(kube, **plugin("v1")) == [] and kube.made == []


def test_a_node_without_usable_npus_tries_the_image_too() -> None:
    kube = installed("bad")
    # Their nodes offer one NPU nevertheless, which the wait after the trial finds wrong.
    text, *_more = run(kube, npus=0, **plugin("bad"))
    assert text.startswith("rolled back: ") and kube.made == [(PLUGIN, "n1", "bad"), (PLUGIN, "n1", "v1")]


def test_a_controller_that_does_not_look_is_told_while_it_is_waited_for() -> None:
    kube = installed("bad")
    kube.work = lambda: None  # type: ignore[method-assign]
    (text, *_more) = run(kube, **plugin("bad"))
    assert "the controller has not seen the change" in text and "the controller has not seen it" in kube.waited[0]


def test_after_one_that_failed_no_other_image_is_tried() -> None:
    kube = installed("bad")
    validator = {"validator": {"source": "image", "image": {"tag": "1"}}}
    assert run(kube, **validator) == []
    kube.made.clear()
    first, second = run(kube, validator={"source": "image", "image": {"tag": "bad"}}, **plugin("v2"))
    assert first.startswith("rolled back: rbln-validator: ")
    assert second.startswith("rolled back: rbln-device-plugin: ") and "was not tried, because rbln-validator" in second
    assert {one[0] for one in kube.made} == {VALIDATOR} and kube.noted(PLUGIN, REFUSED) is None


def test_check_mode_foretells_the_new_image_and_writes_nothing() -> None:
    kube = installed("bad")
    assert (run(kube, True, **plugin("bad")), kube.writes, kube.made) == ([], [], [])


def test_check_mode_shows_a_trial_as_the_one_change_that_it_is() -> None:
    kube = installed()

    def whole(tag: str, dry_run: bool) -> Any:
        typed: Any = inputs(rollback=True, wait_timeout=30, wait_delay=1, **plugin(tag))
        return ClusterWork(kube, typed, [], dry_run).present()  # type: ignore[arg-type]

    whole("v1", False)
    told, real = whole("v2", True), whole("v2", False)
    assert kube.images(PLUGIN) == {"v2"} and "failed" not in real
    assert (told["changed"], told["objects"], told["diff"]) == (True, real["objects"], real["diff"])
    assert [one["after_header"] for one in real["diff"]] == ["DaemonSet rbln-system/rbln-device-plugin (changed)"]
    # What is noted as good at the end of a run is no change of it.
    kube.items[("DaemonSet", "rbln-system", PLUGIN)]["metadata"]["annotations"].pop(GOOD)
    assert [whole("v2", dry_run)["changed"] for dry_run in (True, False)] == [False, False]
    assert good(kube).endswith(":v2")


def test_without_the_input_nothing_is_noted_or_tried() -> None:
    kube = Kube("bad")
    run(kube, rollback=False, **plugin("v1"))
    assert kube.noted(PLUGIN, GOOD) is None
    run(kube, rollback=False, **plugin("bad"))
    assert kube.images(PLUGIN) == {"bad"}


def test_images_that_run_well_are_good_without_a_note() -> None:
    """The input is new: the images of before it are put back too."""
    kube = Kube("bad")
    run(kube, rollback=False, **plugin("v1"))
    (text,) = run(kube, **plugin("bad"))
    assert text.startswith("rolled back: ") and kube.images(PLUGIN) == {"v1"}


def test_nothing_is_tried_where_nothing_is_good() -> None:
    kube = Kube("bad", "worse")
    run(kube, **plugin("bad"))
    text = "; ".join(run(kube, **plugin("worse")))
    assert "rolled back" not in text and "no such image" in text and kube.images(PLUGIN) == {"worse"}


@pytest.mark.parametrize(
    "note",
    [
        "{",
        "[]",
        '{"spec": 7}',
        '{"spec": {"containers": [7]}}',
        '{"spec": {"containers": [{"name": "a", "image": "a b"}]}}',
    ],
)
def test_a_note_that_names_no_images_counts_as_none(note: str) -> None:
    kube = installed("bad")
    live = kube.items[("DaemonSet", "rbln-system", PLUGIN)]
    live["metadata"]["annotations"][GOOD] = note
    (text,) = run(kube, **plugin("bad"))
    assert ":v1 runs again" in text and kube.images(PLUGIN) == {"v1"}


def test_an_image_without_a_digest_is_not_put_back_where_each_must_have_one() -> None:
    kube = installed()
    digest = {"digest": "sha256:" + "7" * 64}
    given = {"require_digest": True, "helper_image": digest, "device_plugin": {"image": digest}}
    assert run(kube, **given) == []
    assert "OnDelete" not in json.dumps(kube.items[("DaemonSet", "rbln-system", PLUGIN)]["spec"]["updateStrategy"])
    assert "@" in good(kube)


def test_what_is_replaced_by_hand_is_left_out() -> None:
    kube = installed("bad")
    by_hand = plugin("bad", update_strategy={"type": "OnDelete"})
    assert run(kube, **by_hand) == [] and kube.made == []


def test_a_trial_needs_the_wait() -> None:
    with pytest.raises(NpuError, match="rbln_operands_rollback is true and rbln_operands_wait is false"):
        inputs(rollback=True, wait=False)
