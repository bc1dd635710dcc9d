package kit

import "github.com/spf13/cobra"

// TextFormat is the -f of a command that prints a text for people, or JSON.
type TextFormat string

// Flag defines -f. more says what is special about the JSON; empty: nothing is.
func (f *TextFormat) Flag(cmd *cobra.Command, more string) {
	cmd.Flags().StringVarP((*string)(f), "format", "f", "text", "text (or table) or json"+more)
	aliasFormat(cmd)
}

// Check refuses any other format as wrong usage.
func (f TextFormat) Check(cmd *cobra.Command) error {
	if f != "text" && f != "table" && f != "json" {
		return UsageErrorf(cmd, "-f %s: want text or json", string(f))
	}
	return nil
}

func (f TextFormat) IsJSON() bool { return f == "json" }
