// Copyright (c) 2026 The rebellions.npu authors
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"

	resource "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// dra publishes the devices of rbln-smi once, and gives a claim its devices, their group, and what the toolkit's
// specification has for "runtime".
type dra struct {
	name, node, folder string
	npus               map[string]npu
	edits              map[string]any
}

func draDriver() error {
	d := &dra{name: os.Getenv("DRIVER_NAME"), node: os.Getenv("NODE_NAME"), folder: os.Getenv("CDI_ROOT"), npus: map[string]npu{}}
	var err error
	if d.edits, err = runtimeEdits(d.folder + "/rbln.yaml"); err != nil {
		return err
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	found, err := devices()
	if err != nil {
		return err
	}
	var offered []resource.Device
	for _, one := range found {
		d.npus[one.Device] = one
		kind, product, bus := "npu", one.Name, one.PCI.Bus
		offered = append(offered, resource.Device{
			Name: one.Device,
			Attributes: map[resource.QualifiedName]resource.DeviceAttribute{
				"type": {StringValue: &kind}, "productName": {StringValue: &product}, "pciBusID": {StringValue: &bus},
			},
		})
	}
	plugins := filepath.Join(os.Getenv("KUBELET_PLUGINS_DIRECTORY_PATH"), d.name)
	if err := os.MkdirAll(plugins, 0o750); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	helper, err := kubeletplugin.Start(ctx, d, kubeletplugin.KubeClient(client), kubeletplugin.NodeName(d.node),
		kubeletplugin.DriverName(d.name), kubeletplugin.PluginDataDirectoryPath(plugins),
		kubeletplugin.RegistrarDirectoryPath(os.Getenv("KUBELET_REGISTRAR_DIRECTORY_PATH")))
	if err != nil {
		return err
	}
	defer helper.Stop()
	if err := probes(); err != nil {
		return err
	}
	slices := []resourceslice.Slice{{Devices: offered}}
	pools := map[string]resourceslice.Pool{d.node: {Slices: slices}}
	if err := helper.PublishResources(ctx, resourceslice.DriverResources{Pools: pools}); err != nil {
		return err
	}
	<-ended()
	return nil
}

// runtimeEdits are those of the device "runtime", which must have hooks under the key that the vendor's driver reads.
func runtimeEdits(path string) (map[string]any, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	found, err := runtimeDevice(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %v", path, err)
	}
	return found, nil
}

func (d *dra) spec(uid types.UID) string {
	return fmt.Sprintf("%s/k8s.%s-npu_%s.json", d.folder, d.name, uid)
}

func (d *dra) prepare(claim *resource.ResourceClaim) kubeletplugin.PrepareResult {
	var chosen []npu
	var result kubeletplugin.PrepareResult
	kind := "k8s." + d.name + "/npu"
	for _, one := range claim.Status.Allocation.Devices.Results {
		if one.Driver != d.name {
			continue
		}
		chosen = append(chosen, d.npus[one.Device])
		result.Devices = append(result.Devices, kubeletplugin.Device{
			Requests: []string{one.Request}, PoolName: one.Pool, DeviceName: one.Device,
			CDIDeviceIDs: []string{fmt.Sprintf("%s=%s-%s", kind, claim.UID, one.Device)},
		})
	}
	rsd, err := group(chosen)
	if err != nil {
		return kubeletplugin.PrepareResult{Err: err}
	}
	var made []any
	for _, one := range chosen {
		edits := map[string]any{"deviceNodes": []any{
			map[string]any{"path": "/dev/rsd0", "hostPath": rsd}, map[string]any{"path": "/dev/" + one.Device},
		}}
		for key, value := range d.edits {
			edits[key] = value
		}
		made = append(made, map[string]any{"name": fmt.Sprintf("%s-%s", claim.UID, one.Device), "containerEdits": edits})
	}
	text, err := json.Marshal(map[string]any{"cdiVersion": "0.5.0", "kind": kind, "devices": made})
	if err == nil {
		err = os.WriteFile(d.spec(claim.UID), text, 0o644)
	}
	if err != nil {
		return kubeletplugin.PrepareResult{Err: err}
	}
	return result
}

func (d *dra) PrepareResourceClaims(_ context.Context, claims []*resource.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		results[claim.UID] = d.prepare(claim)
		log.Printf("claim %s: %v", claim.Name, results[claim.UID].Err)
	}
	return results, nil
}

func (d *dra) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		results[claim.UID] = nil
		if err := os.Remove(d.spec(claim.UID)); err != nil && !os.IsNotExist(err) {
			results[claim.UID] = err
		}
	}
	return results, nil
}

func (d *dra) HandleError(_ context.Context, err error, msg string) {
	log.Printf("%s: %v", msg, err)
}
