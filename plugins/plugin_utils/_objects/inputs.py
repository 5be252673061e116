# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The typed inputs of the cluster side, named without the role's prefix.

The role's argument specs say what each means.
"""

from __future__ import annotations

import typing as t

Json = dict[str, t.Any]
# Objects of Kubernetes as the inputs give them: match expressions, tolerations, environment variables, preferences.
Items = list[Json]
Texts = dict[str, t.Any]


class Image(t.TypedDict):
    registry: str
    repository: str
    tag: str
    digest: str
    pull_policy: str
    pull_secrets: list[str]


class HostPath(t.TypedDict):
    name: str
    path: str
    mount_path: str
    read_only: bool
    type: str


class Placed(t.TypedDict):
    """What every component with pods has, and the shared placement."""

    labels: Texts
    annotations: Texts
    node_selector: Texts
    node_affinity: Items
    affinity_terms: Items
    preferred_node_affinity: Items
    tolerations: Items
    priority_class: str
    update_strategy: Json


class PodInputs(Placed):
    """A component with pods."""

    enabled: bool
    image: Image
    args: list[str]
    env: Items
    resources: Json


class ContainerInputs(PodInputs):
    """A component whose main container is its own."""

    command: list[str]
    privileged: bool
    read_only_root: bool
    probes: bool
    host_paths: list[HostPath]


class ConfigFiles(t.TypedDict):
    files: Texts
    config_map: str
    directory: str


class Configured(ContainerInputs):
    """A component whose program reads files of the site."""

    config: ConfigFiles


class DevicePlugin(Configured):
    device_plugins_dir: str
    scan_interval: str
    health_port: int


class SandboxDevicePlugin(ContainerInputs):
    device_plugins_dir: str
    health_port: int


class Step(t.TypedDict):
    """An init container of the validator."""

    enabled: bool
    privileged: bool
    command: list[str]
    args: list[str]
    env: Items


class Validator(PodInputs):
    source: str
    host_tool: str
    driver: Step
    toolkit: Step
    plugin: Step
    vfio: Step


class DriverManager(t.TypedDict):
    evict_pods: bool
    image: Image
    env: Items
    resources: Json


class PoolInput(t.TypedDict):
    os_id: str
    os_version: str
    kernel: str


class Driver(ContainerInputs):
    host_root: str
    manager: DriverManager
    tag_template: str
    deploy_default: bool
    pools: list[PoolInput]
    remove_legacy: bool


class DriverInstance(Driver):
    name: str


class ContainerToolkit(ContainerInputs):
    default_runtime: str
    runtimes: list[str]
    refresh_interval: int
    health_port: int
    restart: bool
    env_from_marker: bool


class FeatureDiscovery(Configured):
    source: str
    host_tool: str
    features_dir: str
    interval: int
    oneshot: bool
    no_timestamp: bool
    fail_on_init_error: bool
    host_sys_path: str


class NodeFeatureRule(t.TypedDict):
    enabled: bool


class Smd(Configured):
    port: int
    host_ip: str


class Service(t.TypedDict):
    enabled: bool
    labels: Texts
    annotations: Texts


class ServiceMonitor(t.TypedDict):
    enabled: str
    labels: Texts
    interval: str
    honor_labels: bool


class MetricsExporter(ContainerInputs):
    port: int
    interval: int
    daemon_url: str
    host_network: bool
    prometheus_names: bool
    service: Service
    service_monitor: ServiceMonitor


class DraDriver(ContainerInputs):
    driver_name: str
    health_port: int
    extended_resource: bool
    admission_policy: bool


class VfioManager(ContainerInputs):
    source: str
    release_on_exit: bool


class RuntimeClass(t.TypedDict):
    enabled: bool
    name: str
    handler: str
    node_selector: Texts


class LabelPolicy(t.TypedDict):
    enabled: bool
    users: list[str]
    groups: list[str]


class Declared(t.TypedDict):
    """What a cluster serves, for manifests."""

    kubernetes: str
    groups: list[str]


class Takeover(t.TypedDict):
    backup_dir: str
    operator_namespace: str
    operator_deployment: str


class Smoke(t.TypedDict):
    enabled: bool
    nodes: str
    image: Image
    command: list[str]
    args: list[str]
    env: Items
    resources: Json
    user: int
    timeout: int
    log_lines: int


class Inputs(Placed):
    """All inputs; `notes` are the warnings that reading them gave."""

    state: str
    enabled: bool
    kubeconfig: str
    context: str
    node_name: str
    node_workload: str
    delivery: str
    render_dir: str
    policy_files: list[str]
    policy_ignore: list[str]
    name_prefix: str
    namespace: str
    namespace_annotations: Texts
    pod_security: str
    registry: str
    image_pull_secrets: list[str]
    pull_secret_name: str
    pull_secret_content: str
    sdk: str
    image_digests: dict[str, str]
    require_digest: bool
    http_proxy: str
    https_proxy: str
    no_proxy: str
    cluster_domain: str
    cluster_cidrs: list[str]
    ca_bundle: str
    workload: str
    kubelet_root: str
    kubelet_roots: list[str]
    capabilities: Declared
    runtime_class: RuntimeClass
    network_policy: bool
    api_server_cidrs: list[str]
    label_policy: LabelPolicy
    resource_name: str
    node_labels: bool
    require_gate: bool
    require_node_proof: bool
    helper_image: Image
    marker_dir: str
    marker_timeout: int
    device_plugin: DevicePlugin
    validator: Validator
    driver: Driver
    driver_instances: list[DriverInstance]
    container_toolkit: ContainerToolkit
    feature_discovery: FeatureDiscovery
    node_feature_rule: NodeFeatureRule
    smd: Smd
    metrics_exporter: MetricsExporter
    dra_driver: DraDriver
    vfio_manager: VfioManager
    sandbox_device_plugin: SandboxDevicePlugin
    smoke: Smoke
    force_conflicts: bool
    wait: bool
    wait_timeout: int
    wait_delay: int
    deadlines: dict[str, t.Any]
    wait_scope: str
    rollback: bool
    rollback_retry: bool
    absent_scope: str
    coexistence: str
    takeover: Takeover
    lease_timeout: int
    lease_duration: int
    notes: list[str]


# Keys of the inputs of components: of those with a container of their own, and of all.
ContainerKey = t.Literal[
    "device_plugin",
    "driver",
    "container_toolkit",
    "feature_discovery",
    "smd",
    "metrics_exporter",
    "dra_driver",
    "vfio_manager",
    "sandbox_device_plugin",
]
ComponentKey = t.Literal[ContainerKey, "validator", "node_feature_rule"]
StepKey = t.Literal["driver", "toolkit", "plugin", "vfio"]
