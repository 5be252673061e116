// Copyright (c) 2026 The rebellions.npu authors
// SPDX-License-Identifier: GPL-3.0-or-later

// cdi-validate FILE...: JSON-schema and semantic validation of CDI specs.
package main

import (
	"fmt"
	"os"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/schema"
)

func main() {
	rc := 0
	sch := schema.BuiltinSchema()
	for _, f := range os.Args[1:] {
		err := sch.ValidateFile(f)
		if err == nil {
			_, err = cdi.ReadSpec(f, 0)
		}
		if err != nil {
			rc = 1
			fmt.Printf("%s: INVALID: %v\n", f, err)
			continue
		}
		fmt.Printf("%s: valid\n", f)
	}
	os.Exit(rc)
}
