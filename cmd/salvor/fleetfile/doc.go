// Package fleetfile reads and writes the machines of a file: CSV, or JSON and YAML in the form that "baremetal create FILE" takes. Each
// mistake in a file is told with its line. The package asks no API: what a control plane has is told to it.
package fleetfile
