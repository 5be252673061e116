// Copyright (c) 2026 The rebellions.npu authors
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// driverManager frees the node for another driver: it looks at its node, unloads a driver that is loaded, and takes the
// mount of its files away.
func driverManager() error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	name := os.Getenv("NODE_NAME")
	node, err := client.CoreV1().Nodes().Get(context.Background(), name, meta.GetOptions{})
	if err != nil {
		return err
	}
	if os.Getenv("OPERATOR_NAMESPACE") == "" {
		return fmt.Errorf("no OPERATOR_NAMESPACE")
	}
	out, err := exec.Command("/opt/npu-lab/driver.sh", "remove").CombinedOutput()
	log.Printf("node %s of kernel %s: %s", name, node.Status.NodeInfo.KernelVersion, out)
	return err
}
