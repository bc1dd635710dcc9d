package main

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"salvor/test/sentence"
)

// TestHelpSentences holds what --help says to sentences that nobody has to read twice.
func TestHelpSentences(t *testing.T) {
	commands := 0
	check := func(where, text string) {
		for _, s := range sentence.OfText(text) {
			if sentence.IsLong(s) || sentence.IsHeadless(s) {
				t.Errorf("%s: %q has more than %d words or begins with a clause", where, s, sentence.MostWords)
			}
		}
	}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		commands++
		check(c.CommandPath(), c.Short)
		check(c.CommandPath(), c.Long)
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { check(c.CommandPath()+" --"+f.Name, f.Usage) })
		for _, below := range c.Commands() {
			walk(below)
		}
	}
	walk(newRootCommand())
	if commands < 200 {
		t.Errorf("only %d commands were found", commands)
	}
}
