package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestPrintedCommands finds every command line in the texts of the program and of its console. Each must be a command, with flags that it
// knows. The tests of remedies check whether the state of its subject admits it.
func TestPrintedCommands(t *testing.T) {
	judged := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (slices.Contains([]string{".git", "test", "tools", "bin", "build"}, d.Name()) || d.Name() == "lab" && path == "../../lab") {
			if err == nil {
				err = fs.SkipDir
			}
			return err
		}
		var texts []string
		switch {
		case strings.HasSuffix(path, "_test.go"):
		case strings.HasSuffix(path, ".go"):
			if texts, err = stringsOf(path); err != nil {
				return err
			}
		case strings.HasSuffix(path, ".js"), strings.HasSuffix(path, ".html"):
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			texts = []string{regexp.MustCompile(`\$\{[^}]*\}`).ReplaceAllString(string(b), "X")}
		}
		for _, text := range texts {
			for _, line := range commandsInText(text) {
				if judged[line] {
					continue
				}
				judged[line] = true
				if err := isCommand(strings.Fields(line)); err != nil {
					t.Errorf("%s: salvor %s: %v\n%s", strings.TrimPrefix(path, "../../"), line, err, text)
				}
			}
		}
		return nil
	})
	if err != nil || len(judged) < 250 {
		t.Errorf("%d command lines were found: %v", len(judged), err)
	}
}

// formatVerb matches a verb of fmt.
var formatVerb = regexp.MustCompile(`%(\[\d+\])?[-+# 0]*(\.?\d*)[a-zA-Z]`)

// stringsOf lists the string constants of a file. It joins the parts of each sum, and writes X for parts that are not constant and for
// verbs of fmt.
func stringsOf(path string) (out []string, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		return nil, err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		text, whole := constant(e)
		if whole && strings.Contains(text, "salvor ") {
			out = append(out, formatVerb.ReplaceAllString(text, "X"))
		}
		return !whole
	})
	return out, nil
}

// constant reads a string or a sum of strings; false: it is neither.
func constant(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, one := constant(e.X)
		right, other := constant(e.Y)
		if e.Op != token.ADD || !one && !other {
			return "", false
		}
		if !one {
			left = "X"
		}
		if !other {
			right = "X"
		}
		return left + right, true
	case *ast.ParenExpr:
		return constant(e.X)
	}
	return "", false
}

// printedCommand matches a command line up to the end of its sentence, comment or quotation.
var printedCommand = regexp.MustCompile("(?:^|[^-/\\w.@])salvor ([a-z][^\\n\"`#;,()<>\\\\:]*)")

// notACommand matches words that follow the program's name in prose, where they begin no command.
var notACommand = regexp.MustCompile(`^(may|itself|by|would|makes|keeps|is|has|that|will|on|to|as|says|key|seal|token 1|site plans|rescue|quarantines|repeats|boots|said|process|agent|lab BMC|ended|cannot|does|can|puts)\b`)

func commandsInText(text string) (out []string) {
	for _, m := range printedCommand.FindAllStringSubmatch(text, -1) {
		line, _, _ := strings.Cut(m[1], " --X") // a flag, or more, that is put in
		if notACommand.MatchString(line) || strings.HasPrefix(line, "db copy copied") || strings.HasPrefix(line, "node X ") || line == "port create 52" {
			continue // a sentence, a verb that is put in, and a MAC, which a colon cuts
		}
		out = append(out, strings.TrimRight(line, ". '"))
	}
	return out
}

// isCommand tells whether the words begin with a whole command, and whether it knows the flags behind.
func isCommand(words []string) error {
	cmd, rest, err := findCommand(words)
	if err == nil && !cmd.Runnable() && len(rest) > 0 && regexp.MustCompile(`^[a-z-]+$`).MatchString(rest[0]) {
		err = fmt.Errorf("%s has no command %s", cmd.CommandPath(), rest[0])
	}
	if err != nil {
		return err
	}
	return parses(words)
}
