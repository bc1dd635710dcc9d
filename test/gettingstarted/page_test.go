// Package gettingstarted walks docs/getting-started.md word by word against a machine of the lab: it types the commands of the page, and
// compares what they print with the page.
package gettingstarted

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"salvor/test/must"
)

// step is a command of a page with the output that the page shows.
type step struct {
	line    int // of the command in the page
	command string
	shows   []string
}

// stepsOf reads the blocks of a page that are fenced as "console". A command follows the prompt "$ ", the lines that continue it follow "> ".
func stepsOf(page string) (steps []step, err error) {
	inside := false
	for i, line := range strings.Split(strings.TrimSuffix(page, "\n"), "\n") {
		last := len(steps) - 1
		switch {
		case strings.HasPrefix(line, "```"):
			if inside = line == "```console"; inside {
				steps = append(steps, step{line: -1}) // output before the first prompt belongs to no command
			}
		case !inside:
		case strings.HasPrefix(line, "$ "):
			steps = append(steps, step{line: i + 1, command: line[2:]})
		case strings.HasPrefix(line, "> ") && steps[last].shows == nil && steps[last].line > 0:
			steps[last].command += "\n" + line[2:]
		case steps[last].line < 0:
			return nil, fmt.Errorf("line %d: output without a command: %s", i+1, line)
		default:
			steps[last].shows = append(steps[last].shows, line)
		}
	}
	var out []step
	for _, s := range steps {
		if s.line > 0 {
			out = append(out, s)
		}
	}
	return out, nil
}

// compare compares an output with what the page shows. A line "..." stands for any lines, and "..." inside a line for any text.
func compare(shows []string, printed string) error {
	pattern := "^"
	for _, line := range shows {
		if line == "..." {
			pattern += `(?:.*\n)*?`
			continue
		}
		pattern += strings.ReplaceAll(regexp.QuoteMeta(strings.TrimRight(line, " ")), `\.\.\.`, `.*`) + `\n`
	}
	lines := strings.Split(strings.TrimRight(strings.ReplaceAll(printed, "\r", ""), "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	text := strings.TrimPrefix(strings.Join(lines, "\n")+"\n", "\n")
	if !regexp.MustCompile(pattern + "$").MatchString(text) {
		return fmt.Errorf("the page shows\n%s\nbut it prints\n%s", strings.Join(shows, "\n"), text)
	}
	return nil
}

func readSteps(t *testing.T) []step {
	t.Helper()
	b := must.Get(os.ReadFile("../../docs/getting-started.md"))(t)
	steps := must.Get(stepsOf(string(b)))(t)
	return steps
}

// TestPageIsRead: each prompt of the page is a step, and each substitution of the walk stands in the page.
func TestPageIsRead(t *testing.T) {
	steps, all := readSteps(t), ""
	for _, s := range steps {
		all += s.command + "\n" + strings.Join(s.shows, "\n") + "\n"
	}
	if len(steps) < 10 {
		t.Errorf("%d steps", len(steps))
	}
	for _, s := range substitutions {
		if !strings.Contains(all, s.page) {
			t.Errorf("%q is substituted and does not stand in the page", s.page)
		}
	}
	for command := range notRun {
		if !strings.Contains(all, command+"\n") {
			t.Errorf("%q is left out and does not stand in the page", command)
		}
	}
}

func TestStepsOf(t *testing.T) {
	steps, err := stepsOf("text\n```console\n$ cat <<END\n> a\n> END\na\n> quoted\n$ true\n```\n```\n$ not walked\n```\n")
	if err != nil || len(steps) != 2 || steps[0].command != "cat <<END\na\nEND" || strings.Join(steps[0].shows, "|") != "a|> quoted" || steps[1].line != 8 {
		t.Errorf("%+v: %v", steps, err)
	}
	if _, err := stepsOf("```console\noutput\n$ true\n```\n"); err == nil {
		t.Error("output without a command is taken")
	}
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		shows, prints string
		same          bool
	}{
		{"a\nb", "a\nb\n", true}, {"a\nb", "a\n", false}, {"a", "a\nb\n", false}, {"a\n...", "a\nb\nc\n", true}, {"a\n...", "a\n", true},
		{"...\nb", "a\nb\n", true}, {"...\nx\n...", "a\nb\n", false}, {"m1 ... s", "m1  4 s  \n", true}, {"m1 ... s", "m1\ns\n", false},
		{"", "", true}, {"...", "", true}, {"a.c", "abc\n", false}, {"...\nready", "waits\r\nready\r\n", true},
	} {
		var shows []string
		if c.shows != "" {
			shows = strings.Split(c.shows, "\n")
		}
		if err := compare(shows, c.prints); (err == nil) != c.same {
			t.Errorf("%q and %q: %v", c.shows, c.prints, err)
		}
	}
}
