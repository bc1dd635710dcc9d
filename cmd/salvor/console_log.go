package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/metal"
)

// newConsoleCommand is `salvor console`: what machines and servers wrote on their serial lines.
func newConsoleCommand() *cobra.Command {
	e, kind, lines := &kit.Endpoint{}, "", 0
	top := &cobra.Command{Use: "console", Short: "Show the consoles of nodes and servers"}
	e.Flags(top)
	log := &cobra.Command{Use: "log", Short: "Show what nodes and servers wrote to their consoles"}
	show := &cobra.Command{
		Use: "show NODE|SERVER", Short: "Show the end of a node's or server's console", Args: cobra.ExactArgs(1),
		Long:    "Show the end of a node's or server's console. Hosts keep the console of each server. The console of a node is kept while it is enabled: salvor node console enable NODE.",
		Example: "  salvor console log show web1 --lines 50\n  salvor console log show rack1-7 | tail",
		RunE: e.Run(func(c *kit.Call) error {
			text, err := readConsole(c, kind, lines)
			if err != nil {
				return err
			}
			if text == "" {
				return nil
			}
			for _, line := range lastLines(text, lines) {
				fmt.Fprintln(c.OutOrStdout(), kit.StripControlChars(strings.TrimRight(line, "\r")))
			}
			return nil
		}),
	}
	show.Flags().IntVar(&lines, "lines", 0, "only this many of the last lines; 0: all that are stored")
	kindFlag(show, &kind)
	log.AddCommand(show)
	top.AddCommand(log)
	return top
}

// lastLines are the last lines of a text; 0: all of them.
func lastLines(text string, most int) []string {
	lines := strings.Split(strings.TrimRight(text, "\r\n"), "\n")
	if most > 0 {
		lines = lines[max(0, len(lines)-most):]
	}
	return lines
}

// readConsole reads the console log of the node or server that the first argument names: both are asked for where no kind is given.
func readConsole(c *kit.Call, kind string, lines int) (string, error) {
	kind, ident, err := splitKindIdent(c.Command, c.Args[0], kind, diagnosedKinds)
	if err != nil {
		return "", err
	}
	if kind == "server" {
		server, err := serverResource.find(c, ident)
		if err != nil {
			return "", err
		}
		return readServerConsole(c, server, lines)
	}
	var log nodeConsole
	err = c.API.Ask(c.Context(), client.Native, http.MethodGet, "/nodes/"+url.PathEscape(ident)+"/console", nil, nil, &log)
	noNode := client.StatusOf(err) == http.StatusNotFound
	if err != nil && (kind == "node" || !noNode) {
		return "", err
	}
	if kind == "node" {
		return log.explained(c, ident), nil
	}
	server, err := serverResource.find(c, ident)
	switch {
	case err != nil && noNode:
		return "", err
	case err != nil:
		return log.explained(c, ident), nil
	case !noNode:
		return "", kit.UsageErrorf(c.Command, "%s is the name of a node and of a server: say which by --kind", c.Label(ident))
	}
	return readServerConsole(c, server, lines)
}

// readServerConsole asks for the console log that the host keeps.
func readServerConsole(c *kit.Call, server string, lines int) (string, error) {
	want := client.Record{}
	if lines > 0 {
		want["length"] = lines
	}
	var got struct {
		Output string `json:"output"`
	}
	err := c.API.Ask(c.Context(), client.Compute, http.MethodPost, "/servers/"+url.PathEscape(server)+"/action", nil, client.Record{"os-getConsoleOutput": want}, &got)
	return got.Output, err
}

// nodeConsole is the answer about the console of a node.
type nodeConsole struct {
	Enabled bool `json:"enabled"`
	metal.ConsoleLog
}

// explained is the text of the log. Standard error says why the console is not read now.
func (l *nodeConsole) explained(c *kit.Call, ident string) string {
	switch {
	case l.Enabled && l.Problem == "" && l.Text() == "":
		fmt.Fprintf(c.ErrOrStderr(), "The machine %s has written nothing on its serial line yet. Does its kernel have the argument console=ttyS0 (or ttyS1)?\n", c.Label(ident))
	case !l.Enabled:
		fmt.Fprintf(c.ErrOrStderr(), "The console of %s is not read now; to have it read: salvor node console enable %[1]s\n", c.Label(ident))
	case l.Problem != "":
		fmt.Fprintf(c.ErrOrStderr(), "The console of %s cannot be read now: %s\n", c.Label(ident), kit.StripControlChars(l.Problem))
	}
	return l.Text()
}
