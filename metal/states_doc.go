package metal

import (
	"fmt"
	"strings"
)

// StatesMarkdown prints the provision state machine for docs/states.md: a table of
// every transition and a Mermaid drawing of them.
func StatesMarkdown() string {
	var b strings.Builder
	b.WriteString("# Provision states\n\nPrinted from `metal/provision.go`; `make states` writes it again. A verb is what a user asks, an event what a job reports.\n\n")
	b.WriteString("| state | kind | target | PATCH | delete | lookup |\n|---|---|---|---|---|---|\n")
	for _, s := range States {
		kind := "passing"
		if s.Stable {
			kind = "stable"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", s.State, kind, s.Target, yesOrEmpty(s.Updatable), yesOrEmpty(s.Deletable), yesOrEmpty(s.Lookup))
	}
	b.WriteString("\n| from | verb or event | to | since | job |\n|---|---|---|---|---|\n")
	for _, t := range Transitions {
		word, since := "*"+string(t.Event)+"*", ""
		if t.Verb != "" {
			word, since = "`"+string(t.Verb)+"`", fmt.Sprintf("1.%d", t.Min)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", t.From, word, t.To, since, t.Job)
	}
	b.WriteString("\n```mermaid\nstateDiagram-v2\n")
	for _, t := range Transitions {
		word := string(t.Verb)
		if word == "" {
			word = "(" + string(t.Event) + ")"
		}
		fmt.Fprintf(&b, "    %s --> %s: %s\n", mermaidID(t.From), mermaidID(t.To), word)
	}
	b.WriteString("```\n")
	return b.String()
}

func yesOrEmpty(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

func mermaidID(s State) string {
	return strings.NewReplacer(" ", "_", "-", "_").Replace(string(s))
}
