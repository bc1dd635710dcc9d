// Command salvor brings machines back: it serves the control plane and is its
// client and its ramdisk builder.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"salvor/cmd/salvor/kit"
	"salvor/version"
)

func main() {
	// The first interrupt cancels what runs, so that it can tidy up; the second ends the program.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := newRootCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "salvor:", kit.PrintableLines(err.Error())) // an error may quote a BMC or a user
		os.Exit(kit.ExitStatus(err))
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
	root.AddCommand(newServeCommand(), newConfigCommand(), newDBCommand(), newRamdiskCommand(), newSiteCommand(), newSecretCommand(), newTokenCommand())
	root.AddCommand(newWhyCommand(), newDiagnoseCommand(), newDiagnosisCommand(), newRepairCommand(), newEventsCommand(), newDoctorCommand(), newVersionCommand(), kit.NewManCommand())
	root.AddCommand(newNodeCommand(), newDriverCommand(), newConductorCommand())
	root.AddCommand(newResourceCommands()...)
	root.AddCommand(newMovedCommands()...)
	withHostAgent(root)
	addQuestions(root)
	addCompletion(root)
	addCompletionScripts(root)
	return kit.MarkUsageErrors(root)
}
