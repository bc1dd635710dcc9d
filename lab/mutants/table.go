package main

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is one row of the table: a mistake in one file, and the tests that should notice it.
type mutant struct {
	id, file, what string
	packages       []string // as go test takes them: ./conductor/node
	run, tags      string
	short          bool
	old, new       string
	equivalent     string // why no test can notice it; such a row is not run
	line           int    // where the row begins in the table
}

// room is the directory of the file that the mutant changes.
func (m mutant) room() string { return path.Dir(m.file) }

// parseTable reads the rows of the table. Its head says what a row looks like.
func parseTable(text string) ([]mutant, error) {
	var rows []mutant
	lines := map[string]int{}
	for i, line := range strings.Split(text, "\n") {
		at := i + 1
		key, rest, _ := strings.Cut(line, " ")
		if key == "mutant" {
			id, file, _ := strings.Cut(rest, " ")
			if before, twice := lines[id]; twice {
				return nil, fmt.Errorf("line %d: mutant %s: line %d has that id too", at, id, before)
			}
			lines[id] = at
			rows = append(rows, mutant{id: id, file: file, line: at})
			continue
		}
		if line == "" || line[0] == '#' {
			continue
		}
		if len(rows) == 0 {
			return nil, fmt.Errorf("line %d: %q stands before the first mutant", at, line)
		}
		if err := rows[len(rows)-1].add(line, key, rest); err != nil {
			return nil, fmt.Errorf("line %d: mutant %s: %w", at, rows[len(rows)-1].id, err)
		}
	}
	for _, m := range rows {
		if err := m.check(); err != nil {
			return nil, fmt.Errorf("line %d: mutant %s: %w", m.line, m.id, err)
		}
	}
	return rows, nil
}

// add takes one line of a row.
func (m *mutant) add(line, key, rest string) error {
	switch {
	case line[0] == '-':
		if m.new != "" {
			return fmt.Errorf("%q: all old lines stand before the new ones", line)
		}
		m.old += line[1:] + "\n"
	case line[0] == '+':
		m.new += line[1:] + "\n"
	case key == "what":
		m.what = rest
	case key == "equivalent":
		m.equivalent = rest
	case key == "test":
		return m.readTest(rest)
	default:
		return fmt.Errorf("%q is no line of a row", line)
	}
	return nil
}

// readTest reads packages and options from the test command: ./job -run TestLease -short.
func (m *mutant) readTest(command string) error {
	words := strings.Fields(command)
	for i := 0; i < len(words); i++ {
		takesValue := words[i] == "-run" || words[i] == "-tags"
		switch {
		case takesValue && i+1 == len(words):
			return fmt.Errorf("%s has no value", words[i])
		case words[i] == "-run":
			i++
			m.run = words[i]
		case words[i] == "-tags":
			i++
			m.tags = words[i]
		case words[i] == "-short":
			m.short = true
		case strings.HasPrefix(words[i], "./"):
			m.packages = append(m.packages, words[i])
		default:
			return fmt.Errorf("%q is neither a package like ./job nor -run, -tags or -short", words[i])
		}
	}
	return nil
}

// check refuses a row that cannot be run.
func (m mutant) check() error {
	switch {
	case m.id == "" || m.file == "":
		return fmt.Errorf("a row begins with: mutant ID FILE")
	case !strings.HasSuffix(m.file, ".go") || strings.HasSuffix(m.file, "_test.go") || !filepath.IsLocal(m.file):
		return fmt.Errorf("%s is no Go source of the program", m.file)
	case m.what == "":
		return fmt.Errorf("it has no line what")
	case m.old == "":
		return fmt.Errorf("it has no old text")
	case m.old == m.new:
		return fmt.Errorf("its new text is the old one")
	case m.equivalent == "" && (len(m.packages) == 0 || m.run == ""):
		return fmt.Errorf("its line test names no package, or no -run")
	}
	return nil
}

// apply returns the source with the mistake in it. The old text must be there exactly once.
func (m mutant) apply(source string) (string, error) {
	old, changed := strings.TrimSuffix(m.old, "\n"), strings.TrimSuffix(m.new, "\n")
	switch n := strings.Count(source, old); n {
	case 1:
		return strings.Replace(source, old, changed, 1), nil
	case 0:
		return "", fmt.Errorf("the old text is not in %s", m.file)
	default:
		return "", fmt.Errorf("the old text is %d times in %s", n, m.file)
	}
}

// choose keeps the rows that the options name: by id, or by the directory of the file and those below it.
func choose(rows []mutant, ids, rooms []string) ([]mutant, error) {
	if len(ids)+len(rooms) == 0 {
		return rows, nil
	}
	missing := slices.Concat(ids, rooms)
	found := func(name string) { missing = slices.DeleteFunc(missing, func(m string) bool { return m == name }) }
	var chosen []mutant
	for _, m := range rows {
		isChosen := slices.Contains(ids, m.id)
		if isChosen {
			found(m.id)
		}
		for _, room := range rooms {
			if m.room() == room || strings.HasPrefix(m.room(), room+"/") {
				isChosen = true
				found(room)
			}
		}
		if isChosen {
			chosen = append(chosen, m)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("the table has no mutant %s", strings.Join(missing, ", "))
	}
	return chosen, nil
}
