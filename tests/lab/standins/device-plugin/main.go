// Copyright (c) 2026 The rebellions.npu authors
// SPDX-License-Identifier: GPL-3.0-or-later

// npu-device-plugin: the lab's stand-in for the vendor's device plugin. It speaks the kubelet's device plugin protocol
// (v1beta1): one device for each rblnN that is a character device, healthy while its sysfs status is 0.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"regexp"
	"sort"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

var (
	devDir    = flag.String("dev", "/dev", "folder with the rblnN nodes of the host")
	classDir  = flag.String("class", "/sys/class/rebellions", "folder with rblnN/status of the host")
	pluginDir = flag.String("plugins", v1.DevicePluginPath, "the kubelet's device-plugins folder")
	resource  = flag.String("resource", "rebellions.ai/npu", "resource name")
	runtime   = flag.String("cdi-device", "rebellions.ai/npu=runtime", "CDI device that brings libraries and tools; empty: none")
	inject    = flag.String("cdi", "field", "how the CDI device is asked for: field | annotation")
	device    = regexp.MustCompile(`^rbln(0|[1-9][0-9]*)$`)
)

const socket = "rebellions-npu.sock"

type plugin struct {
	v1.UnimplementedDevicePluginServer
}

func deviceHealth(name string) string {
	raw, err := os.ReadFile(filepath.Join(*classDir, name, "status"))
	if err != nil || strings.TrimSpace(string(raw)) != "0" {
		return v1.Unhealthy
	}
	return v1.Healthy
}

func numa(name string) *v1.TopologyInfo {
	raw, err := os.ReadFile(filepath.Join(*classDir, name, "device", "numa_node"))
	node := strings.TrimSpace(string(raw))
	if err != nil || node == "" || strings.HasPrefix(node, "-") {
		return nil
	}
	var id int64
	for _, digit := range node {
		id = id*10 + int64(digit-'0')
	}
	return &v1.TopologyInfo{Nodes: []*v1.NUMANode{{ID: id}}}
}

func scan() (devices []*v1.Device) {
	entries, err := os.ReadDir(*devDir)
	if err != nil {
		log.Print(err)
	}
	for _, entry := range entries {
		if !device.MatchString(entry.Name()) || entry.Type()&os.ModeCharDevice == 0 {
			continue
		}
		devices = append(devices, &v1.Device{ID: entry.Name(), Health: deviceHealth(entry.Name()), Topology: numa(entry.Name())})
	}
	sort.Slice(devices, func(a, b int) bool { return devices[a].ID < devices[b].ID })
	return devices
}

func (plugin) GetDevicePluginOptions(context.Context, *v1.Empty) (*v1.DevicePluginOptions, error) {
	return &v1.DevicePluginOptions{}, nil
}

func (plugin) ListAndWatch(_ *v1.Empty, stream v1.DevicePlugin_ListAndWatchServer) error {
	var last []string
	for first := true; ; first = false {
		devices := scan()
		now := []string{}
		for _, d := range devices {
			now = append(now, d.ID+"="+d.Health)
		}
		if first || !reflect.DeepEqual(now, last) {
			log.Printf("devices: %s", strings.Join(now, " "))
			if err := stream.Send(&v1.ListAndWatchResponse{Devices: devices}); err != nil {
				return err
			}
			last = now
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

func node(host, inside string) *v1.DeviceSpec {
	return &v1.DeviceSpec{HostPath: host, ContainerPath: inside, Permissions: "rw"}
}

// logged writes to a file in /tmp when groups of devices are made, and ends the program where it cannot, as the vendor's
// library does.
func logged(line string) {
	file, err := os.OpenFile(filepath.Join(os.TempDir(), "npu-device-plugin.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = file.WriteString(line + "\n")
		file.Close()
	}
	if err != nil {
		log.Fatal(err)
	}
}

func (plugin) Allocate(_ context.Context, request *v1.AllocateRequest) (*v1.AllocateResponse, error) {
	answer := &v1.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		log.Printf("allocate %v", container.DevicesIds)
		logged(strings.Join(container.DevicesIds, ","))
		one := &v1.ContainerAllocateResponse{Envs: map[string]string{"RBLN_DEVICES": strings.Join(container.DevicesIds, ",")}}
		for _, id := range container.DevicesIds {
			one.Devices = append(one.Devices, node("/dev/"+id, "/dev/"+id))
		}
		if info, err := os.Stat(filepath.Join(*devDir, "rsd0")); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			one.Devices = append(one.Devices, node("/dev/rsd0", "/dev/rsd0"))
		}
		switch {
		case *runtime == "":
		case *inject == "annotation":
			one.Annotations = map[string]string{"cdi.k8s.io/npu-device-plugin": *runtime}
		default:
			one.CdiDevices = []*v1.CDIDevice{{Name: *runtime}}
		}
		answer.ContainerResponses = append(answer.ContainerResponses, one)
	}
	return answer, nil
}

func inode(path string) uint64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Sys().(*syscall.Stat_t).Ino
}

// serve runs until the kubelet restarts (its socket changes, and it removes ours).
func serve() error {
	own := filepath.Join(*pluginDir, socket)
	os.Remove(own)
	listener, err := net.Listen("unix", own)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	v1.RegisterDevicePluginServer(server, plugin{})
	go server.Serve(listener)
	defer server.Stop()
	kubelet := filepath.Join(*pluginDir, "kubelet.sock")
	client, err := grpc.NewClient("unix://"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	before := inode(kubelet)
	_, err = v1.NewRegistrationClient(client).Register(ctx, &v1.RegisterRequest{
		Version: v1.Version, Endpoint: socket, ResourceName: *resource, Options: &v1.DevicePluginOptions{},
	})
	if err != nil {
		return err
	}
	log.Printf("registered %s", *resource)
	ours := inode(own)
	for inode(kubelet) == before && inode(own) == ours {
		time.Sleep(time.Second)
	}
	log.Print("the kubelet's socket changed: registering again")
	return nil
}

// probes answers the kubelet's gRPC probes on $HEALTHCHECK_PORT, as the vendor's plugin does, by the service "liveness".
func probes() {
	port := os.Getenv("HEALTHCHECK_PORT")
	if port == "" {
		return
	}
	listener, err := net.Listen("tcp", ":"+port)
	if err != nil {
		log.Fatal(err)
	}
	service := health.NewServer()
	service.SetServingStatus("liveness", grpc_health_v1.HealthCheckResponse_SERVING)
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, service)
	log.Fatal(server.Serve(listener))
}

func main() {
	flag.Parse()
	go probes()
	go func() {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
		<-signals
		os.Remove(filepath.Join(*pluginDir, socket))
		os.Exit(0)
	}()
	for {
		if err := serve(); err != nil {
			log.Print(err)
		}
		time.Sleep(time.Second)
	}
}
