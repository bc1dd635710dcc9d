package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"salvor/test/must"
)

// TestDocumentedCommands says that every command line of the documentation has a command, flags that it knows and those that it needs.
func TestDocumentedCommands(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d pages, %v", len(files), err)
	}
	// A span of code, or a line of a block, behind a prompt, a variable or another command.
	span := regexp.MustCompile("`[^`\n]+`")
	block := regexp.MustCompile("(?ms)^```[a-z]*\n(.*?)^```|^(?:    [^\n]*\n)+")
	found := 0
	for _, name := range append(files, "../../README.md") {
		text := must.Get(os.ReadFile(name))(t)
		var lines []string
		for _, b := range block.FindAllString(string(text), -1) {
			lines = append(lines, strings.Split(strings.ReplaceAll(b, "\\\n", " "), "\n")...)
		}
		for _, s := range span.FindAllString(block.ReplaceAllString(string(text), ""), -1) {
			lines = append(lines, strings.Trim(s, "`"))
		}
		for _, line := range lines {
			for _, words := range commandsOf(line) {
				found++
				if err := parses(words); err != nil {
					t.Errorf("%s: salvor %s: %v", filepath.Base(name), strings.Join(words, " "), err)
				}
			}
		}
	}
	if found < 150 {
		t.Errorf("only %d command lines were found", found)
	}
}

var apart = regexp.MustCompile(`\s*(?:&&|\|\||[|;])\s*|\s+#.*|\s{2,}\S.*|[<>].*`)

// commandsOf finds what a line of a shell has salvor do.
func commandsOf(line string) (out [][]string) {
	line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
	for _, part := range apart.Split(line, -1) {
		words := strings.Fields(part)
		for len(words) > 0 && (strings.Contains(words[0], "=") || words[0] == "runuser" || words[0] == "-u" || words[0] == "--" || words[0] == "sudo" || len(words) > 1 && words[1] == "--") {
			words = words[1:]
		}
		if len(words) < 2 || words[0] != "salvor" && words[0] != "bin/salvor" {
			continue
		}
		out = append(out, words[1:])
	}
	return out
}

// commandTree is the tree of commands that all tested lines share, because building the tree takes longer than reading a line.
var commandTree = sync.OnceValue(newRootCommand)

// findCommand returns the command that the words begin with, and the words behind the command. No flag of the command counts as given.
func findCommand(words []string) (cmd *cobra.Command, rest []string, err error) {
	cmd, rest, err = commandTree().Find(words)
	if err == nil {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Changed = false })
	}
	return cmd, rest, err
}

// parses reads the words as far as they are a command line, and not the name of a command in a sentence.
func parses(words []string) error {
	cmd, rest, err := findCommand(words)
	if err != nil {
		return err
	}
	whole := true
	for i, w := range rest {
		if strings.Contains(w, "...") {
			rest, whole = append(rest[:i:i], "x"), false // whatever else it takes
			break
		}
		rest[i] = strings.Trim(strings.ReplaceAll(w, "SECONDS", "60"), `"'[]`)
	}
	err = cmd.ParseFlags(rest)
	if err != nil && strings.Contains(err.Error(), "needs an argument") {
		err = cmd.ParseFlags(append(rest, "x")) // a flag that is only named
	}
	if err != nil && err != pflag.ErrHelp {
		return err
	}
	if !whole || len(cmd.Flags().Args()) == 0 {
		return nil // a command that is only named
	}
	return cmd.ValidateRequiredFlags()
}
