// Copyright (c) 2026 The rebellions.npu authors
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// offer is one resource of the kubelet: what is there now, and what a container gets.
type offer struct {
	v1.UnimplementedDevicePluginServer
	scan  func() ([]*v1.Device, error)
	grant func(ids []string) (*v1.ContainerAllocateResponse, error)
}

func (o offer) GetDevicePluginOptions(context.Context, *v1.Empty) (*v1.DevicePluginOptions, error) {
	return &v1.DevicePluginOptions{}, nil
}

func (o offer) ListAndWatch(_ *v1.Empty, stream v1.DevicePlugin_ListAndWatchServer) error {
	for {
		devices, err := o.scan()
		if err != nil {
			log.Print(err)
			devices = nil
		}
		if err := stream.Send(&v1.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-time.After(2 * time.Second):
		}
	}
}

func (o offer) Allocate(_ context.Context, request *v1.AllocateRequest) (*v1.AllocateResponse, error) {
	answer := &v1.AllocateResponse{}
	for _, one := range request.ContainerRequests {
		given, err := o.grant(one.DevicesIds)
		if err != nil {
			log.Print(err)
			return nil, err
		}
		answer.ContainerResponses = append(answer.ContainerResponses, given)
	}
	return answer, nil
}

// serve registers the resource and returns when it is to be registered again: the kubelet made its socket anew.
func (o offer) serve(folder, resource string) error {
	own := filepath.Join(folder, strings.ReplaceAll(resource, "/", "-")+".sock")
	os.Remove(own)
	listener, err := net.Listen("unix", own)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	v1.RegisterDevicePluginServer(server, o)
	go server.Serve(listener)
	defer server.Stop()
	client, err := grpc.NewClient("unix://"+v1.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	request := &v1.RegisterRequest{
		Version: v1.Version, Endpoint: filepath.Base(own), ResourceName: resource, Options: &v1.DevicePluginOptions{},
	}
	if _, err := v1.NewRegistrationClient(client).Register(ctx, request); err != nil {
		return err
	}
	log.Printf("registered %s", resource)
	for {
		time.Sleep(time.Second)
		if _, err := os.Stat(own); err != nil {
			return nil
		}
	}
}

func (o offer) forever(folder, resource string) error {
	if err := probes(); err != nil {
		return err
	}
	go func() { <-ended(); os.Exit(0) }()
	for {
		if err := o.serve(folder, resource); err != nil {
			log.Print(err)
		}
		time.Sleep(time.Second)
	}
}

func node(inside, host string) *v1.DeviceSpec {
	return &v1.DeviceSpec{ContainerPath: inside, HostPath: host, Permissions: "rw"}
}

// devicePlugin asks rbln-smi, makes a group for each container and names the libraries by a CDI annotation.
func devicePlugin() error {
	known := map[string]npu{}
	o := offer{}
	o.scan = func() ([]*v1.Device, error) {
		found, err := devices()
		var made []*v1.Device
		for _, one := range found {
			known[one.Device] = one
			health := v1.Unhealthy
			if one.Status == "normal" {
				health = v1.Healthy
			}
			made = append(made, &v1.Device{ID: one.Device, Health: health})
		}
		return made, err
	}
	o.grant = func(ids []string) (*v1.ContainerAllocateResponse, error) {
		var chosen []npu
		for _, id := range ids {
			chosen = append(chosen, known[id])
		}
		rsd, err := group(chosen)
		if err != nil {
			return nil, err
		}
		given := &v1.ContainerAllocateResponse{
			Annotations: map[string]string{"cdi.k8s.io/rebellions.ai_npu": "rebellions.ai/npu=runtime"},
			Devices:     []*v1.DeviceSpec{node("/dev/rsd0", rsd)},
		}
		for _, id := range ids {
			given.Devices = append(given.Devices, node("/dev/"+id, "/dev/"+id))
		}
		return given, nil
	}
	if os.Getenv("USE_GENERIC_RESOURCE_NAME") != "true" {
		return fmt.Errorf("only for the generic resource name")
	}
	return o.forever(os.Getenv("KUBELET_DEVICE_PLUGIN_PATH"), "rebellions.ai/npu")
}

// sandboxPlugin offers the functions at vfio-pci, by their IOMMU group.
func sandboxPlugin() error {
	groups := func() map[string]string {
		found := map[string]string{}
		paths, _ := filepath.Glob("/sys/bus/pci/devices/*")
		for _, path := range paths {
			vendor, _ := os.ReadFile(path + "/vendor")
			driver, _ := os.Readlink(path + "/driver")
			iommu, _ := os.Readlink(path + "/iommu_group")
			if strings.TrimSpace(string(vendor)) == "0x1eff" && filepath.Base(driver) == "vfio-pci" && iommu != "" {
				found[filepath.Base(path)] = "/dev/vfio/" + filepath.Base(iommu)
			}
		}
		return found
	}
	o := offer{}
	o.scan = func() ([]*v1.Device, error) {
		var made []*v1.Device
		for address, path := range groups() {
			if _, err := os.Stat(path); err == nil {
				made = append(made, &v1.Device{ID: address, Health: v1.Healthy})
			}
		}
		sort.Slice(made, func(a, b int) bool { return made[a].ID < made[b].ID })
		return made, nil
	}
	o.grant = func(ids []string) (*v1.ContainerAllocateResponse, error) {
		given := &v1.ContainerAllocateResponse{Devices: []*v1.DeviceSpec{node("/dev/vfio/vfio", "/dev/vfio/vfio")}}
		for _, id := range ids {
			path := groups()[id]
			given.Devices = append(given.Devices, node(path, path))
		}
		return given, nil
	}
	return o.forever(v1.DevicePluginPath, "rebellions.ai/RBLN-CA22_PF")
}
