// Copyright (c) 2026 The rebellions.npu authors
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// smd holds the devices open as the management daemon does, and tells each caller their names and states.
func smd() error {
	nodes, _ := filepath.Glob("/dev/rbln[0-9]*")
	for _, path := range nodes {
		node, err := os.Open(path)
		if err != nil {
			return err
		}
		defer node.Close()
	}
	if len(nodes) == 0 {
		return fmt.Errorf("no /dev/rblnN")
	}
	events, err := os.Create("/var/log/rebellions/rsmd_rbln0.event")
	if err != nil {
		return err
	}
	defer events.Close()
	listener, err := net.Listen("tcp", ":"+setting("RBLN_SMD_PORT", "50051"))
	if err != nil {
		return err
	}
	go func() { <-ended(); os.Exit(0) }()
	for {
		caller, err := listener.Accept()
		if err != nil {
			return err
		}
		for _, path := range nodes {
			name := filepath.Base(path)
			status, err := os.ReadFile("/sys/class/rebellions/" + name + "/status")
			fmt.Fprintf(caller, "%s %s %v\n", name, strings.TrimSpace(string(status)), err == nil)
		}
		caller.Close()
	}
}

// exporter tells of each device that the daemon names, with the pod that the kubelet says has it.
func exporter() error {
	port := flag.Int("port", 9090, "where it listens")
	flag.Int("interval", 5, "seconds between two looks; here every request looks")
	daemon := flag.String("rbln-daemon-url", "127.0.0.1:50051", "the daemon's address")
	flag.Parse()
	client, err := grpc.NewClient("unix:///var/lib/kubelet/pod-resources/kubelet.sock",
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	http.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		if err := measure(w, *daemon, podresources.NewPodResourcesListerClient(client)); err != nil {
			log.Print(err)
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	go func() { <-ended(); os.Exit(0) }()
	return http.ListenAndServe(fmt.Sprintf(":%d", *port), nil)
}

func measure(w http.ResponseWriter, daemon string, kubelet podresources.PodResourcesListerClient) error {
	caller, err := net.DialTimeout("tcp", daemon, 2*time.Second)
	if err != nil {
		fmt.Fprintf(w, "# %v\n", err)
		return nil
	}
	defer caller.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	listed, err := kubelet.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return err
	}
	owners := map[string]string{}
	for _, pod := range listed.PodResources {
		for _, container := range pod.Containers {
			for _, given := range container.Devices {
				for _, id := range given.DeviceIds {
					owners[id] = fmt.Sprintf(`,namespace="%s",pod="%s",container="%s"`, pod.Namespace, pod.Name, container.Name)
				}
			}
		}
	}
	name := "RBLN_DEVICE_STATUS:HEALTH"
	if os.Getenv("PROMETHEUS_METRIC_NAMES") == "true" {
		name = "rbln_npu_health"
	}
	lines := bufio.NewScanner(caller)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		fmt.Fprintf(w, "%s{name=%q,hostname=%q%s} %s\n", name, words[0], os.Getenv("NODE_NAME"), owners[words[0]], words[1])
	}
	return lines.Err()
}
