package main

import "github.com/spf13/cobra"

// textFormat is the -f of a command that prints a text for people, or JSON.
type textFormat string

// flag defines -f. more says what is special about the JSON; empty: nothing is.
func (f *textFormat) flag(cmd *cobra.Command, more string) {
	cmd.Flags().StringVarP((*string)(f), "format", "f", "text", "text (or table) or json"+more)
}

// check refuses any other format as wrong usage.
func (f textFormat) check(cmd *cobra.Command) error {
	if f != "text" && f != "table" && f != "json" {
		return usageErrorf(cmd, "-f %s: want text or json", string(f))
	}
	return nil
}

func (f textFormat) isJSON() bool { return f == "json" }
