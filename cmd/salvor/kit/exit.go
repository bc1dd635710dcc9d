package kit

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
	StatusFailed   = 1
	StatusUsage    = 2
	StatusTimedOut = 3
	// StatusBroken is that of salvor serve where another start cannot help before a person did: a wrong configuration or key, a damaged
	// database. systemd knows it by RestartPreventExitStatus; it is EX_CONFIG of sysexits(3).
	StatusBroken = 78
	// StatusInterrupted is what shells make of SIGINT.
	StatusInterrupted = 130
)

// StatusError is an error that knows its exit status.
type StatusError struct {
	err    error
	Status int
}

func (e *StatusError) Error() string { return e.err.Error() }
func (e *StatusError) Unwrap() error { return e.err }

// ExitCode is what main hands to the shell.
func (e *StatusError) ExitCode() int { return e.Status }

// WithStatus gives an error the exit status that it ends the program with; nil stays nil.
func WithStatus(status int, err error) error {
	if err == nil {
		return nil
	}
	return &StatusError{err: err, Status: status}
}

// ForGood gives what salvor serve ended with its status.
func ForGood(err error) error {
	if problem.Is(err, problem.Invalid) {
		return WithStatus(StatusBroken, err)
	}
	return err
}

// UsageErrorf is an error in how a command was written: one line, and the exit status 2.
func UsageErrorf(cmd *cobra.Command, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return WithStatus(StatusUsage, fmt.Errorf("%w; see: %s --help", err, cmd.CommandPath()))
}

// MarkUsageErrors gives every command of a tree its exit status: an error that a command itself
// returns is a failure unless it says otherwise, every other one is wrong usage (main
// sees to that). A group of commands gets an answer to a word that it does not know.
func MarkUsageErrors(cmd *cobra.Command) *cobra.Command {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var invalid *pflag.InvalidValueError
		var why notAllowedError
		if errors.As(err, &invalid) && errors.As(err, &why) {
			err = refusedWord("--"+invalid.GetFlag().Name, invalid.GetValue(), why)
		}
		return UsageErrorf(cmd, "%w%s", err, similarFlags(cmd, err))
	})
	cmd.SuggestionsMinimumDistance = 2
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return UsageErrorf(cmd, "%w; want %s", argumentError(cmd, args, err), strings.TrimSuffix(cmd.UseLine(), " [flags]"))
			}
			return nil
		}
	}
	switch run := cmd.RunE; {
	case run != nil:
		cmd.PreRunE = checkGivenFlags
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			err := run(cmd, args)
			return WithStatus(StatusOf(err), err)
		}
	case cmd.HasSubCommands():
		cmd.Args, cmd.RunE = cobra.ArbitraryArgs, UnknownWord
	}
	for _, c := range cmd.Commands() {
		MarkUsageErrors(c)
	}
	return cmd
}

// checkGivenFlags refuses a command whose flags are too few, or contradict each other. cobra does so too, without naming the help.
func checkGivenFlags(cmd *cobra.Command, _ []string) error {
	if err := cmp.Or(cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups()); err != nil {
		return UsageErrorf(cmd, "%w", err)
	}
	return nil
}

// UnknownWord is what a group of commands does by itself.
func UnknownWord(cmd *cobra.Command, args []string) error {
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
	return UsageErrorf(cmd, "unknown command %q of %s%s", args[0], cmd.CommandPath(), hint)
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

// StatusOf finds the exit status in an error that was wrapped on its way.
func StatusOf(err error) int {
	var e *StatusError
	if errors.As(err, &e) {
		return e.Status
	}
	return StatusFailed
}

// ExitStatus is what the shell sees. The errors of commands bring their own; all others
// are cobra's, about how the command was written.
func ExitStatus(err error) int {
	var c interface{ ExitCode() int }
	if errors.As(err, &c) {
		return c.ExitCode()
	}
	return StatusUsage
}
