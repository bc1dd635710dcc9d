package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"salvor/problem"
)

// newMovedCommands are "salvor lab" and "salvor sim", which are commands of salvor-lab. The former names run that program for one release.
func newMovedCommands() []*cobra.Command {
	var out []*cobra.Command
	for _, word := range []string{"lab", "sim"} {
		out = append(out, &cobra.Command{
			Use: word, Short: "The former name of salvor-lab " + word, Hidden: true, DisableFlagParsing: true,
			RunE: func(_ *cobra.Command, args []string) error { return runLab(word, args) },
		})
	}
	return out
}

// runLab puts the program salvor-lab, of the folder of this one or else of $PATH, in the place of this process.
func runLab(word string, args []string) error {
	own, err := os.Executable()
	if err != nil {
		return err
	}
	path := filepath.Join(filepath.Dir(own), "salvor-lab")
	if _, err := os.Stat(path); err != nil {
		if path, err = exec.LookPath("salvor-lab"); err != nil {
			return problem.NotFoundf("\"salvor %s\" is \"salvor-lab %[1]s\" now, and the program salvor-lab is neither beside %s nor in $PATH: install the package salvor-lab, or run make build", word, own)
		}
	}
	return syscall.Exec(path, append([]string{path, word}, args...), os.Environ())
}
