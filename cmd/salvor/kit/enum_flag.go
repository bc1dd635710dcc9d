package kit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// enumFlag is the value of a flag that takes one word of a closed set. The default may be a word that is not in the set, such as none.
type enumFlag[T ~string] struct {
	value   *T
	initial T
	allowed []T
}

func (f *enumFlag[T]) String() string { return string(*f.value) }

// Type is string, so that pflag's GetString reads the flag.
func (f *enumFlag[T]) Type() string { return "string" }

func (f *enumFlag[T]) Set(typed string) error {
	if T(typed) != f.initial && !slices.Contains(f.allowed, T(typed)) {
		return notAllowedError(f.choices())
	}
	*f.value = T(typed)
	return nil
}

func (f *enumFlag[T]) choices() []string {
	out := make([]string, len(f.allowed))
	for i, choice := range f.allowed {
		out[i] = string(choice)
	}
	return out
}

// notAllowedError is why a word is refused: it is none of these.
type notAllowedError []string

func (e notAllowedError) Error() string { return "want one of " + strings.Join(e, ", ") }

// AddEnumFlag defines a flag that takes one of the allowed words, and completes them. value gets it; nil: GetString alone reads it.
func AddEnumFlag[T ~string](cmd *cobra.Command, value *T, name string, initial T, usage string, allowed ...T) {
	if value == nil {
		value = new(T)
	}
	*value = initial
	f := &enumFlag[T]{value, initial, allowed}
	cmd.Flags().Var(f, name, usage)
	CompleteFlag(cmd, name, f.choices)
}

// CheckAllowed refuses a value that is none of those allowed. what is the flag or the argument, as it is written.
func CheckAllowed(cmd *cobra.Command, what, value string, allowed []string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return UsageErrorf(cmd, "%w", refusedWord(what, value, notAllowedError(allowed)))
}

func refusedWord(what, value string, why notAllowedError) error {
	return fmt.Errorf("%s %q: %w", what, value, why)
}
