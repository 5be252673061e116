// Copyright (c) 2026 The rebellions.npu authors
// SPDX-License-Identifier: GPL-3.0-or-later

// cdi-validate [-library] FILE...: JSON-schema and semantic validation of CDI specs; -library asks the parser alone.
package main

import (
	"flag"
	"fmt"
	"os"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/schema"
)

func main() {
	library := flag.Bool("library", false, "do not apply the JSON schema")
	flag.Parse()
	rc := 0
	sch := schema.BuiltinSchema()
	for _, f := range flag.Args() {
		var err error
		if !*library {
			err = sch.ValidateFile(f)
		}
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
