package compute

import (
	"strings"
	"time"
)

// consoleStart begins the line that a host writes into the console log of a server before it starts the server.
const consoleStart = "salvor: the host starts the server at "

// ConsoleStartLine is the line that divides the console log of a server where its host starts it.
func ConsoleStartLine(at time.Time) string {
	return "\n" + consoleStart + at.UTC().Format(time.RFC3339) + "\n"
}

// ConsoleSinceStart is what a console log has of the newest start of its server. The log joins the texts of all starts, and those of rescue systems are
// among them. found is false where no host has marked a start, as hosts of former releases do not.
func ConsoleSinceStart(log string) (since string, at time.Time, found bool) {
	i := strings.LastIndex("\n"+log, "\n"+consoleStart)
	if i < 0 {
		return "", at, false
	}
	line, since, _ := strings.Cut(log[i:], "\n")
	at, err := time.Parse(time.RFC3339, strings.TrimSpace(strings.TrimPrefix(line, consoleStart)))
	return since, at, err == nil
}
