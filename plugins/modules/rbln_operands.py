#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_operands
short_description: One act on the cluster part of an installation with Rebellions NPUs
version_added: 0.1.0
description:
  - Single acts of the role P(rebellions.npu.rbln_operands#role). Use the role, which runs them in order.
  - Runs on the controller with the Python of Ansible, asks the Kubernetes API with the credentials of the kubeconfig,
    and runs nothing on the managed host.
  - The inputs are the variables that the role documents. This module reads them itself.
author:
  - The rebellions.npu authors (@rebellions-npu)
requirements:
  - kubernetes >= 24.2.0 on the controller
  - PyYAML on the controller
options:
  act:
    description:
      - V(check) reads the inputs of a host, and fails where they are wrong. It asks no cluster.
      - V(member) reads the inputs of a host and says which cluster it belongs to.
      - V(clusters) chooses the host that acts for each cluster and checks that hosts of one cluster agree on the
        inputs.
      - V(render) writes the manifests to a file on the controller.
      - V(run) labels the node of each member of the cluster and no other, lists our objects, applies by server-side
        apply those that differ, deletes those that are no longer wanted, and, unless in check mode or switched off,
        waits until each component is ready and every node offers the NPUs of its host, or the deadline of the component
        passes.
      - V(diff) says field by field what V(run) would change, and writes nothing.
      - V(absent) removes labels and objects and proves that they are gone.
      - V(judge) turns the outcome of the cluster into success or failure of this host.
      - V(smoke) makes the smoke workload for the node of this host, V(smoke_wait) waits until it has ended, and
        V(smoke_verdict) says what its end proves.
      - V(nodes) says what the cluster says of the nodes of its members, and never fails.
    type: str
    required: true
    choices: [check, member, clusters, render, run, diff, absent, judge, smoke, smoke_wait, nodes, smoke_verdict]
  members:
    description: For V(run), V(diff), V(absent) and V(nodes) the records of the members of the cluster. V(clusters)
      reads what each host of the play has registered as C(__rbln_operands_member), V(judge) also
      C(__rbln_operands_clusters) and what the host that acts has registered as C(__rbln_operands_applied).
    type: list
    elements: dict
    default: []
  outcome:
    description: For V(smoke_verdict), the pods of the workload, its log and the warnings of the namespace.
    type: dict
    default: {}
  round:
    description: The C(round) of V(clusters), by which V(judge) knows the work that was done after it. It is returned.
    type: str
    default: ""
  features:
    description: For V(run) that follows one with RV(features), why the file of feature discovery could not be removed
      from each of these hosts; empty text where it was.
    type: dict
    default: {}
  node:
    description: For V(smoke), V(smoke_wait) and V(smoke_verdict), the node of the host. V(smoke) looks for it when it
      is empty.
    type: str
    default: ""
  fail:
    description: Whether the task fails when the act does. Otherwise RV(ok) says so, and V(judge) fails the hosts by it.
    type: bool
    default: true
extends_documentation_fragment:
  - rebellions.npu._attributes
  - rebellions.npu._attributes.writes
  - rebellions.npu._attributes.group
  - rebellions.npu._attributes.controller
attributes:
  check_mode:
    details:
      - Writes are dry runs of the API server.
  diff_mode:
    details:
      - The content of secrets is hidden.
seealso:
  - module: rebellions.npu.rbln_plan
  - module: rebellions.npu.rbln_validate
"""

EXAMPLES = r"""
- name: Bring device plugin, validator and labels to the cluster of each host
  ansible.builtin.import_role:
    name: rebellions.npu.rbln_operands

- name: Read the inputs of this host
  rebellions.npu.rbln_operands:
    act: member
  register: member

- name: Say what would change in the cluster
  rebellions.npu.rbln_operands:
    act: diff
    members: ["{{ member.member }}"]
  register: compared
"""

RETURN = r"""
member:
  description: The host as a member of its cluster; C(cluster) is empty for a host without one.
  returned: when O(act=member)
  type: dict
work:
  description: The act that does the work for the host's cluster.
  returned: when O(act=member)
  type: str
  sample: run
actors:
  description: For each host with a cluster the host that acts for it.
  returned: when O(act=clusters)
  type: dict
  sample: {npu1: npu1, npu2: npu1}
members:
  description: For each acting host the records of the members of its cluster.
  returned: when O(act=clusters)
  type: dict
round:
  description: A name of the choice of the acting hosts, another one each time.
  returned: when O(act=clusters) or O(round) is set
  type: str
clusters:
  description: The clusters of this run.
  returned: when O(act=clusters)
  type: list
  elements: str
path:
  description: The file with the manifests.
  returned: when O(act=render)
  type: str
  sample: /srv/manifests/rbln-system.yaml
objects:
  description: What happened to each object, for V(run) and V(absent).
  returned: when O(act=run) or O(act=absent)
  type: dict
  sample:
    DaemonSet rbln-system/rbln-device-plugin: created
    Namespace rbln-system: unchanged
nodes:
  description: For each host its node and how it is proven (V(input), V(name), V(address), V(claim)), the labels before
    and after, notes, the expected number of NPUs, and the error if there is one.
  returned: when O(act=run), O(act=diff) or O(act=absent)
  type: dict
features:
  description: The hosts on which feature discovery has left its file. Nothing but labels was written; remove the file
    there, and run the act again with O(features).
  returned: when O(act=run), and feature discovery has ended on a node
  type: list
  elements: str
brought:
  description: The hosts whose driver the run has brought in a container. Only a new look at them tells its version,
    which is a label of their nodes.
  returned: when O(act=run), and there are some
  type: list
  elements: str
differences:
  description: What would change, each with C(object), C(action), C(fields) of C(path), C(before) and C(after), and the
    C(error) of a dry run that was refused.
  returned: when O(act=diff)
  type: list
  elements: dict
waited:
  description: The last look at DaemonSets and nodes, with the problems that were left.
  returned: when O(act=run)
  type: dict
result:
  description: For this host the cluster, the acting host, C(ok), and, when it has not failed, objects, node, DaemonSets
    and allocatable NPUs. The message of a failure has the error.
  returned: when O(act=judge)
  type: dict
again:
  description: The hosts in RV(features) and RV(brought) of the work, which is then done once more.
  returned: when O(act=judge), and there are some
  type: dict
wanted:
  description: Whether a smoke workload runs for this host.
  returned: when O(act=smoke)
  type: bool
access:
  description: What tasks of kubernetes.core need to ask the same cluster as the same person. C(paths) of the
    kubeconfig, or C(content) when the input itself is one, C(context), and the C(user) and C(groups) to act as.
  returned: when O(act=smoke) and it runs
  type: dict
definition:
  description: The Job of the smoke workload.
  returned: when O(act=smoke) and it runs
  type: dict
ok:
  description: Whether the act has not failed; for V(smoke_verdict), whether the container of the smoke workload ended
    with code 0.
  returned: when O(act=smoke_verdict) or O(fail) is false
  type: bool
ended:
  description: Whether the smoke workload has ended within its time.
  returned: when O(act=smoke_wait)
  type: bool
pods:
  description: The pods of the smoke workload.
  returned: when O(act=smoke_wait)
  type: list
  elements: dict
events:
  description: The warnings of the namespace, where the workload has not ended.
  returned: when O(act=smoke_wait)
  type: list
  elements: dict
states:
  description: For each host its node, whether it is C(ready), C(cordoned) and C(drained), the C(taints) that keep our
    pods off, the C(allocatable) and the C(expected) NPUs, or the C(error).
  returned: when O(act=nodes)
  type: dict
log:
  description: The last lines of the log of the smoke workload. The message of a failure has its end.
  returned: when O(act=smoke_verdict) and it has not failed
  type: list
  elements: str
requests:
  description: Number of requests to the API server.
  returned: when O(act=run), O(act=diff) or O(act=absent)
  type: int
"""
