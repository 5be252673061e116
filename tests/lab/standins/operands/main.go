// Copyright (c) 2026 The rebellions.npu authors
// SPDX-License-Identifier: GPL-3.0-or-later

// npu-operands: the lab's stand-ins for the programs of the vendor's images, each under its own name. They ask what the
// vendor's ask of their pod (mounts, environment, sockets, tools, rights) and do with it what can be seen from outside.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

var programs = map[string]func() error{
	"rbln-ctk-daemon":            toolkit,
	"rbln-smd":                   smd,
	"rbln-metrics-exporter":      exporter,
	"rbln-device-plugin":         devicePlugin,
	"rbln-sandbox-device-plugin": sandboxPlugin,
	"npu-kubelet-plugin":         draDriver,
	"driver-manager":             driverManager,
}

func main() {
	log.SetFlags(log.Ltime)
	name := filepath.Base(os.Args[0])
	run, known := programs[name]
	if !known {
		log.Fatalf("no stand-in for %q", name)
	}
	if err := run(); err != nil {
		log.Fatalf("%s: %v", name, err)
	}
}

// ended is told of the signals by which a kubelet ends a container.
func ended() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	return signals
}

// setting is a variable of the environment, or its default.
func setting(name, standard string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return standard
}

// probes answers the kubelet's gRPC probes of the service "liveness" at $HEALTHCHECK_PORT, if it is a port.
func probes() error {
	port := os.Getenv("HEALTHCHECK_PORT")
	if port == "" || strings.HasPrefix(port, "-") {
		return nil
	}
	listener, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	service := health.NewServer()
	service.SetServingStatus("liveness", grpc_health_v1.HealthCheckResponse_SERVING)
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, service)
	go func() { log.Fatal(server.Serve(listener)) }()
	return nil
}

// npu is a device as `rbln-smi -j` tells of it.
type npu struct {
	Npu     int    `json:"npu"`
	Group   string `json:"group_id"`
	Name    string `json:"name"`
	UUID    string `json:"uuid"`
	Device  string `json:"device"`
	Status  string `json:"status"`
	Version string `json:"fw_ver"`
	PCI     struct {
		Device string `json:"dev"`
		Bus    string `json:"bus_id"`
		Numa   string `json:"numa_node"`
	} `json:"pci"`
}

// smi runs the tool where the vendor's programs look for it, the driver's own before that of the host.
func smi(args ...string) ([]byte, error) {
	for _, folder := range []string{"/usr/bin", "/run/rbln/driver/usr/bin", "/host/usr/bin", "/host/driver/usr/bin"} {
		path := folder + "/rbln-smi"
		if info, err := os.Stat(path); err != nil || info.Mode()&0o111 == 0 {
			continue
		}
		out, err := exec.Command(path, args...).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("%s %s: %v: %s", path, strings.Join(args, " "), err, out)
		}
		return out, nil
	}
	return nil, fmt.Errorf("rbln-smi is in no known place")
}

func devices(args ...string) ([]npu, error) {
	out, err := smi(append(args, "-j")...)
	if err != nil {
		return nil, err
	}
	var report struct {
		Devices []npu `json:"devices"`
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return nil, fmt.Errorf("rbln-smi: %v", err)
	}
	return report.Devices, nil
}

// logged writes to a file in /tmp, and ends the program where it cannot: so does the library of groups that the vendor's
// device plugin and DRA driver share. The other programs make no groups.
func logged(line string) {
	file, err := os.OpenFile(filepath.Join(os.TempDir(), "groups.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = file.WriteString(line + "\n")
		file.Close()
	}
	if err != nil {
		log.Fatal(err)
	}
}

// group puts the devices into a new RSD group, under the lock that the vendor's programs share, and returns its node.
func group(chosen []npu) (string, error) {
	lock, err := os.OpenFile("/var/run/rbln-rsd-group.lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	now, err := devices("-g")
	if err != nil {
		return "", err
	}
	mine, taken := map[string]bool{}, map[string]bool{}
	for _, device := range now {
		for _, one := range chosen {
			if one.Device == device.Device && device.Group != "0" {
				mine[device.Group] = true
			}
		}
	}
	for _, device := range now {
		if device.Group != "0" && !mine[device.Group] {
			taken[device.Group] = true
		}
	}
	for id := range mine {
		if _, err := smi("group", "-d", id); err != nil {
			return "", err
		}
		logged("destroyed group " + id)
	}
	var numbers []string
	for _, one := range chosen {
		numbers = append(numbers, fmt.Sprint(one.Npu))
	}
	for id := 1; ; id++ {
		if name := fmt.Sprint(id); !taken[name] {
			if _, err := smi("group", "-c", name, "-a", strings.Join(numbers, ",")); err != nil {
				return "", err
			}
			logged("created group " + name)
			return "/dev/rsd" + name, nil
		}
	}
}
