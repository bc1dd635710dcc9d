// Command salvor brings machines back: it serves the control plane and is its
// client, its lab and its ramdisk builder.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"salvor/version"
)

func main() {
	// The first interrupt cancels what runs, so that it can tidy up; the second ends the program.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := newRootCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "salvor:", printableLines(err.Error())) // an error may quote a BMC or a user
		os.Exit(exitStatus(err))
	}
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "salvor",
		Short:         "Bring machines back: rescue bare metal and virtual machines",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version.Current().String(),
	}
	root.SetVersionTemplate("salvor {{.Version}}\n")
	root.AddCommand(newServeCommand(), newConfigCommand(), newDBCommand(), newRamdiskCommand(), newLabCommand(), newSiteCommand(), newSecretCommand(), newTokenCommand())
	root.AddCommand(newWhyCommand(), newDiagnoseCommand(), newDiagnosisCommand(), newRepairCommand(), newEventsCommand(), newDoctorCommand(), newSimCommand(), newVersionCommand(), newManCommand())
	root.AddCommand(newNodeCommand(), newDriverCommand(), newConductorCommand())
	root.AddCommand(newResourceCommands()...)
	withHostAgent(root)
	addQuestions(root)
	addCompletion(root)
	addCompletionScripts(root)
	return markUsageErrors(root)
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
