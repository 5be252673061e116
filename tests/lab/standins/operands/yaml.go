// Copyright (c) 2026 The rebellions.npu authors
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

type edits struct {
	Mounts []map[string]any `json:"mounts"`
	Hooks  []map[string]any `json:"hooks"`
}

// runtimeDevice reads a CDI specification as the vendor's DRA driver does: the name of a hook is under "hookname" alone.
func runtimeDevice(raw []byte) (map[string]any, error) {
	var spec struct {
		Kind    string `json:"kind"`
		Devices []struct {
			Name  string `json:"name"`
			Edits edits  `json:"containerEdits"`
		} `json:"devices"`
	}
	if err := yaml.Unmarshal(raw, &spec); err != nil {
		return nil, err
	}
	for _, device := range spec.Devices {
		if spec.Kind != "rebellions.ai/npu" || device.Name != "runtime" {
			continue
		}
		found := map[string]any{"mounts": device.Edits.Mounts}
		var hooks []map[string]any
		for _, hook := range device.Edits.Hooks {
			if hook["hookname"] == nil {
				return nil, fmt.Errorf(`invalid hook name ""`)
			}
			hooks = append(hooks, map[string]any{"hookName": hook["hookname"], "path": hook["path"], "args": hook["args"]})
		}
		if len(hooks) > 0 {
			found["hooks"] = hooks
		}
		return found, nil
	}
	return nil, fmt.Errorf("no device runtime")
}
