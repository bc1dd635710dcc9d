package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// The hidden parts of the program that a lab runs: words that follow Spec.Program.
const (
	hiddenInit    = "init"      // DIR: pid 1 of the namespaces
	hiddenWorld   = "world"     // DIR: the lab itself
	hiddenChassis = "chassis"   // DIR MACHINE MC VERB ...: chassis program of an IPMI BMC
	hiddenExec    = "exec-in"   // DIR PROGRAM ARGS...: run a program inside
	hiddenHost    = "host-init" // DIR: pid 1 of a VM host's namespaces
)

// HiddenWords are the first arguments that Hidden handles.
var HiddenWords = []string{hiddenInit, hiddenWorld, hiddenChassis, hiddenExec, hiddenHost}

// Hidden runs one of the lab's own parts if args (without the program's name) ask for one, and tells
// its exit status. A program that calls Up, a test too, gives it its first arguments behind
// Spec.Program before it does anything else.
func Hidden(args []string) (status int, handled bool) {
	if len(args) < 2 {
		return 0, false
	}
	var err error
	switch args[0] {
	case hiddenInit:
		status, err = runInit(args[1])
	case hiddenWorld:
		err = runWorld(args[1])
	case hiddenChassis:
		if len(args) < 3 {
			return 0, false
		}
		err = runChassis(args[1], args[2], args[3:])
	case hiddenHost:
		err = runHost(args[1])
	case hiddenExec:
		status, err = (&Lab{dir: args[1]}).Exec(context.Background(), Command{
			Args: args[2:], Env: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		})
	default:
		return 0, false
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		return 1, true
	}
	return status, true
}

// runChassis asks the lab on behalf of ipmi_sim and prints the answer.
func runChassis(dir, machine string, args []string) error {
	answer, err := (&Lab{dir: dir}).ask(context.Background(), controlRequest{Op: opChassis, Machine: machine, Args: args})
	if err != nil {
		return err
	}
	_, err = os.Stdout.WriteString(answer.Output)
	return err
}
