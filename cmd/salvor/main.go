// Command salvor brings machines back: it serves the control plane and is its
// client, its lab and its ramdisk builder.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	if err := newRootCommand().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "salvor:", err)
		os.Exit(exitStatus(err))
	}
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "salvor",
		Short:         "Bring machines back: rescue bare metal and virtual machines",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newServeCommand(), newConfigCommand(), newRamdiskCommand(), newLabCommand())
	root.AddCommand(newNodeCommand(), newPortCommand(), newDriverCommand(), newConductorCommand())
	return strict(root)
}

// exitStatus is what the shell sees. The errors of commands bring their own; all others
// are cobra's, about how the command was written.
func exitStatus(err error) int {
	var c interface{ ExitCode() int }
	if errors.As(err, &c) {
		return c.ExitCode()
	}
	return statusUsage
}
