// Command salvor-lab shows salvor on machines that are not there.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"salvor/cmd/salvor/kit"
	"salvor/lab/try"
	"salvor/version"
)

func main() {
	// The first interrupt cancels what runs, so that it can tidy up; the second ends the program.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := newRootCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "salvor-lab:", kit.PrintableLines(err.Error())) // an error may quote a BMC or a user
		os.Exit(kit.ExitStatus(err))
	}
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use: "salvor-lab", Short: "Try salvor, and rehearse: simulated fleets, and virtual machines behind BMCs",
		SilenceUsage: true, SilenceErrors: true, Version: version.Current().String(),
	}
	root.SetVersionTemplate("salvor-lab {{.Version}}\n")
	root.AddCommand(newTryCommand(), newSimCommand(), newLabCommand(), kit.NewManCommand())
	return kit.MarkUsageErrors(root)
}

func newTryCommand() *cobra.Command {
	c := try.Config{Out: os.Stdout}
	cmd := &cobra.Command{
		Use: "try", Short: "Run salvor with simulated machines and servers until Ctrl-C", Args: cobra.NoArgs,
		Long: `A control plane starts with simulated machines, two VM hosts with servers, some faults, and a diagnosis that found something.
It needs no root, no virtual machines and no other packages, listens on the loopback interface only, and leaves nothing behind.`,
		Example: "  salvor-lab try\n  salvor-lab try --machines 500",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if c.Program == "" {
				if c.Program, err = findProgram(); err != nil {
					return err
				}
			}
			return try.Run(cmd.Context(), c)
		},
	}
	cmd.Flags().StringVar(&c.Program, "salvor", "", "`path` of the program salvor (default: beside salvor-lab, or in $PATH)")
	cmd.Flags().StringVar(&c.Address, "listen", "", "`ADDRESS:PORT` of the API (default 127.0.0.1:6385, or a free port where that is taken)")
	cmd.Flags().IntVar(&c.Machines, "machines", 40, "how many machines")
	return cmd
}

// findProgram finds salvor as the person would call it.
func findProgram() (string, error) {
	if own, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(own), "salvor")
		if _, err := os.Stat(beside); err == nil {
			if wd, err := os.Getwd(); err == nil {
				if short, err := filepath.Rel(wd, beside); err == nil && len(short) < len(beside) {
					return short, nil
				}
			}
			return beside, nil
		}
	}
	path, err := exec.LookPath("salvor")
	if err != nil {
		return "", errors.New("the program salvor is neither beside salvor-lab nor in $PATH; name it with --salvor")
	}
	return path, nil
}
