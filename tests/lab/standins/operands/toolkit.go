// Copyright (c) 2026 The rebellions.npu authors
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const cri = `[plugins."io.containerd.grpc.v1.cri"]`

// toolkit writes the specification of the driver's libraries and tools, turns CDI on where it is off, and answers the
// three probes. It runs for containerd alone.
func toolkit() error {
	prefix := "RBLN_CTK_DAEMON_"
	host, root := setting(prefix+"HOST_ROOT", "/host"), setting(prefix+"DRIVER_ROOT", "/")
	inside := setting(prefix+"CONTAINER_LIBRARY_PATH", "/usr/lib/x86_64-linux-gnu")
	path := setting(prefix+"CDI_SPEC_DIR", "/var/run/cdi") + "/rbln.yaml"
	pause, err := time.ParseDuration(setting(prefix+"REFRESH_INTERVAL", "60s"))
	if err != nil {
		return err
	}
	if len(os.Args) < 3 || os.Args[1] != "--runtime" || os.Args[2] != "containerd" {
		return fmt.Errorf("not for the runtime of %v", os.Args[1:])
	}
	if err := os.WriteFile("/run/rbln/toolkit.pid", []byte(fmt.Sprintf(`{"pid":%d}`, os.Getpid())), 0o644); err != nil {
		return err
	}
	var started atomic.Bool
	answer := func(always bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if !always && !started.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}
	}
	for place, always := range map[string]bool{"/live": true, "/ready": false, "/startup": false} {
		http.HandleFunc(place, answer(always))
	}
	go func() { log.Fatal(http.ListenAndServe(":"+setting(prefix+"HEALTH_PORT", "8080"), nil)) }()
	hook, err := os.ReadFile("/usr/local/bin/rbln-cdi-hook")
	if err != nil {
		return err
	}
	if err := os.WriteFile(host+"/usr/local/bin/rbln-cdi-hook", hook, 0o755); err != nil {
		return err
	}
	files := libraries(host, root)
	if len(files) == 0 {
		return fmt.Errorf("no librbln below %s", filepath.Join(host, root))
	}
	if err := specify(path, root, inside, files); err != nil {
		return err
	}
	if err := turnOn(host); err != nil {
		return err
	}
	started.Store(true)
	signals := ended()
	for {
		select {
		case <-signals:
			if os.Getenv(prefix+"NO_CLEANUP_ON_EXIT") != "true" {
				os.Remove(path)
			}
			return os.Remove("/run/rbln/toolkit.pid")
		case <-time.After(pause):
			now := libraries(host, root)
			if len(now) > 0 && !reflect.DeepEqual(now, files) {
				log.Printf("another driver: %v", now)
				files = now
				if err := specify(path, root, inside, files); err != nil {
					return err
				}
			}
		}
	}
}

// libraries are paths below the driver's root of what a container gets.
func libraries(host, root string) []string {
	var found []string
	for _, pattern := range []string{"usr/lib/x86_64-linux-gnu/librbln-*.so*", "usr/bin/rbln-smi"} {
		paths, _ := filepath.Glob(filepath.Join(host, root, pattern))
		for _, path := range paths {
			if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
				found = append(found, strings.TrimPrefix(path, filepath.Join(host, root)))
			}
		}
	}
	return found
}

// specify writes the form for Kubernetes as the vendor does: hooks have their name in lower case. Libraries are in the
// folder `inside` of a container, tools where they are below the driver's root.
func specify(path, root, inside string, files []string) error {
	var mounts []map[string]any
	for _, file := range files {
		place := filepath.Join("/", file)
		if strings.Contains(file, "/lib/") {
			place = filepath.Join(inside, filepath.Base(file))
		}
		mounts = append(mounts, map[string]any{
			"hostPath": filepath.Join(root, file), "containerPath": place, "options": []string{"ro", "nosuid", "nodev", "bind"},
		})
	}
	hook := map[string]any{
		"hookname": "createContainer", "path": "/usr/local/bin/rbln-cdi-hook", "env": []string{}, "timeout": nil,
		"args": []string{"rbln-cdi-hook", "update-ldcache", "--folder", inside},
	}
	edits := map[string]any{"mounts": mounts, "hooks": []any{hook}}
	text, err := json.Marshal(map[string]any{
		"cdiVersion": "0.5.0", "kind": "rebellions.ai/npu", "devices": []any{
			map[string]any{"name": "all", "containerEdits": edits}, map[string]any{"name": "runtime", "containerEdits": edits},
		},
	})
	if err != nil {
		return err
	}
	part := filepath.Join(filepath.Dir(path), ".rbln.yaml.part")
	if err := os.WriteFile(part, text, 0o644); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// turnOn edits a configuration of version 2 that leaves CDI off, and ends containerd, which its unit starts again.
func turnOn(host string) error {
	path := host + "/etc/containerd/config.toml"
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text := string(raw)
	if !strings.Contains(text, cri+"\n") || strings.Contains(text, "enable_cdi = true") {
		return nil
	}
	text = strings.Replace(text, cri+"\n", cri+"\n  enable_cdi = true\n", 1)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	socket := os.Getenv("RBLN_CTK_DAEMON_SOCKET")
	connection, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer connection.Close()
	raws, err := connection.(*net.UnixConn).SyscallConn()
	if err != nil {
		return err
	}
	var peer *syscall.Ucred
	if failed := raws.Control(func(fd uintptr) {
		peer, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); failed != nil || err != nil {
		return fmt.Errorf("%v %v", failed, err)
	}
	log.Printf("containerd is process %d: restarted", peer.Pid)
	if err := syscall.Kill(int(peer.Pid), syscall.SIGHUP); err != nil {
		return err
	}
	for range 60 {
		time.Sleep(time.Second)
		if again, err := net.Dial("unix", socket); err == nil {
			return again.Close()
		}
	}
	return fmt.Errorf("%s does not answer again", socket)
}
