package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"salvor/problem"
)

// The exit statuses of the client commands; 0 means done, or reached.
const (
	statusFailed   = 1
	statusUsage    = 2
	statusTimedOut = 3
	// statusBroken is that of salvor serve where another start cannot help before a person did: a wrong configuration or key, a damaged
	// database. systemd knows it by RestartPreventExitStatus; it is EX_CONFIG of sysexits(3).
	statusBroken = 78
	// statusInterrupted is what shells make of SIGINT.
	statusInterrupted = 130
)

// statusError is an error that knows its exit status.
type statusError struct {
	err    error
	status int
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

// ExitCode is what main hands to the shell.
func (e *statusError) ExitCode() int { return e.status }

func withStatus(status int, err error) error {
	if err == nil {
		return nil
	}
	return &statusError{err: err, status: status}
}

// forGood gives what salvor serve ended with its status.
func forGood(err error) error {
	if problem.Is(err, problem.Invalid) {
		return withStatus(statusBroken, err)
	}
	return err
}

// usageErrorf is an error in how a command was written: one line, and the exit status 2.
func usageErrorf(cmd *cobra.Command, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return withStatus(statusUsage, fmt.Errorf("%w; see: %s --help", err, cmd.CommandPath()))
}

// markUsageErrors gives every command of a tree its exit status: an error that a command itself
// returns is a failure unless it says otherwise, every other one is wrong usage (main
// sees to that). A group of commands gets an answer to a word that it does not know.
func markUsageErrors(cmd *cobra.Command) *cobra.Command {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var invalid *pflag.InvalidValueError
		var why notAllowedError
		if errors.As(err, &invalid) && errors.As(err, &why) {
			err = refusedWord("--"+invalid.GetFlag().Name, invalid.GetValue(), why)
		}
		return usageErrorf(cmd, "%w%s", err, similarFlags(cmd, err))
	})
	cmd.SuggestionsMinimumDistance = 2
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usageErrorf(cmd, "%w; want %s", argumentError(cmd, args, err), strings.TrimSuffix(cmd.UseLine(), " [flags]"))
			}
			return nil
		}
	}
	switch run := cmd.RunE; {
	case run != nil:
		cmd.PreRunE = checkGivenFlags
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			err := run(cmd, args)
			return withStatus(statusOf(err), err)
		}
	case cmd.HasSubCommands():
		cmd.Args, cmd.RunE = cobra.ArbitraryArgs, unknownWord
	}
	for _, c := range cmd.Commands() {
		markUsageErrors(c)
	}
	return cmd
}

// checkGivenFlags refuses a command whose flags are too few, or contradict each other. cobra does so too, without naming the help.
func checkGivenFlags(cmd *cobra.Command, _ []string) error {
	if err := cmp.Or(cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups()); err != nil {
		return usageErrorf(cmd, "%w", err)
	}
	return nil
}

// unknownWord is what a group of commands does by itself.
func unknownWord(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	hint := didYouMean(cmd, args[0])
	if hint == "" && len(cmd.Commands()) <= mostListed {
		var names []string
		for _, c := range cmd.Commands() {
			names = append(names, c.Name())
		}
		hint = "; want one of " + strings.Join(names, ", ")
	}
	if len(args) > 1 {
		if i := slices.IndexFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == args[1] }); i >= 0 { // salvor node power NODE off
			hint = "; want " + cmd.CommandPath() + " " + args[1] + " " + args[0]
		}
	}
	return usageErrorf(cmd, "unknown command %q of %s%s", args[0], cmd.CommandPath(), hint)
}

// argumentError says which argument is missing, or which is too many. cobra's own text counts them.
func argumentError(cmd *cobra.Command, args []string, err error) error {
	if !strings.Contains(err.Error(), "arg(s)") {
		return err
	}
	words := strings.Fields(cmd.Use)[1:]
	if at := len(args); at < len(words) {
		return fmt.Errorf("%s is missing", strings.Trim(words[at], "[]."))
	}
	return fmt.Errorf("unexpected argument %q", args[len(words)])
}

// mostListed is how many commands of a group are listed when none is similar to what was typed; of more, the help is named only.
const mostListed = 12

func didYouMean(cmd *cobra.Command, word string) string {
	if near := cmd.SuggestionsFor(word); len(near) > 0 {
		return "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return ""
}

// similarFlags names the flags that resemble an unknown one, by cobra's measure for commands.
func similarFlags(cmd *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return ""
	}
	flags := &cobra.Command{SuggestionsMinimumDistance: 2}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			flags.AddCommand(&cobra.Command{Use: "--" + f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	return didYouMean(flags, "--"+unknown.GetSpecifiedName())
}

// statusOf finds the exit status in an error that was wrapped on its way.
func statusOf(err error) int {
	var e *statusError
	if errors.As(err, &e) {
		return e.status
	}
	return statusFailed
}
