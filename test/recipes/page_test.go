package recipes

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// check is what fails where a place is left out: a test of a package, or its build where test is empty.
type check struct{ pkg, test string }

func (c check) String() string {
	if c.test == "" {
		return "go build " + c.pkg
	}
	return c.test + " in " + c.pkg
}

// place is one item of a recipe.
type place struct {
	at        string   // as the page writes it
	file      string   // its path below the module
	symbols   []string // the declarations that are edited; none: the file is new
	forgotten check
	edit      string
}

var (
	itemStart = regexp.MustCompile(`^\d+\. `)
	itemHead  = regexp.MustCompile("^\\d+\\. ((?:`[^`]+`, )*`[^`]+`): ")
	codeSpan  = regexp.MustCompile("`([^`]+)`")
	tellsTest = regexp.MustCompile("If you forget it, `(Test[^`]+)` in `([^`]+)` fails(,|\\.)")
	tellsMake = regexp.MustCompile("If you forget it, `go build ([^`]+)` fails\\.")
)

// parsePlaces reads the numbered list below a heading of the page.
func parsePlaces(page, heading string, names map[string]string) ([]place, error) {
	_, section, found := strings.Cut(page, "\n## "+heading+"\n")
	if after, ok := strings.CutPrefix(page, "## "+heading+"\n"); ok {
		section, found = after, true
	}
	if !found {
		return nil, fmt.Errorf("docs/adding.md has no heading %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var items []string
	for line := range strings.Lines(section) {
		switch line = strings.TrimRight(line, "\n"); {
		case itemStart.MatchString(line):
			items = append(items, line)
		case strings.HasPrefix(line, "   ") && len(items) > 0:
			items[len(items)-1] += " " + strings.TrimSpace(line)
		}
	}
	var all []place
	for _, item := range items {
		p, err := parsePlace(item, names)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func parsePlace(item string, names map[string]string) (p place, err error) {
	head := itemHead.FindStringSubmatch(item)
	if head == nil {
		return p, fmt.Errorf("docs/adding.md: an item must begin with its file, and a colon: %s", item)
	}
	var spans []string
	for _, m := range codeSpan.FindAllStringSubmatch(head[1], -1) {
		spans = append(spans, m[1])
	}
	p.at, p.file, p.symbols = strings.Join(spans, " "), spans[0], spans[1:]
	p.file = replaceNames(p.file, names)
	if m := tellsTest.FindStringSubmatch(item); m != nil {
		p.forgotten = check{pkg: m[2], test: m[1]}
	} else if m := tellsMake.FindStringSubmatch(item); m != nil {
		p.forgotten = check{pkg: m[1]}
	} else if !strings.Contains(item, "No test tells you if you forget it.") {
		return p, fmt.Errorf("docs/adding.md: %s: no word of what fails if you forget it", p.at)
	}
	p.forgotten.test = replaceNames(p.forgotten.test, names)
	return p, nil
}

func replaceNames(text string, names map[string]string) string {
	for placeholder, name := range names {
		text = strings.ReplaceAll(text, placeholder, name)
	}
	return text
}

// parseSections reads "-- place --" and what follows it.
func parseSections(text string) map[string]string {
	all, at := map[string]string{}, ""
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, "-- "); ok {
			at = strings.TrimSuffix(strings.TrimSpace(name), " --")
			all[at] = ""
			continue
		}
		if at != "" {
			all[at] += line
		}
	}
	return all
}

// fill gives each place its edit, and refuses lists that differ.
func fill(places []place, sections map[string]string, file string, names map[string]string) error {
	for i := range places {
		edit, ok := sections[places[i].at]
		if !ok {
			return fmt.Errorf("%s: docs/adding.md lists the place, and %s does not fill it", places[i].at, file)
		}
		places[i].edit = replaceNames(edit, names)
	}
	for _, at := range keys(sections) {
		if !slices.ContainsFunc(places, func(p place) bool { return p.at == at }) {
			return fmt.Errorf("%s: %s changes the place, and docs/adding.md does not list it", at, file)
		}
	}
	return nil
}

// applyEdit changes a source by hunks with a blank line between them: lines after "-" go, lines after "+" come, lines after a space stay.
func applyEdit(source, file string, symbols []string, edit string) (string, error) {
	used := map[string]bool{}
	for hunk := range strings.SplitSeq(edit, "\n\n") {
		var before, after strings.Builder
		for line := range strings.Lines(strings.TrimSuffix(hunk, "\n") + "\n") {
			switch line[0] {
			case ' ':
				before.WriteString(line[1:])
				after.WriteString(line[1:])
			case '-':
				before.WriteString(line[1:])
			case '+':
				after.WriteString(line[1:])
			default:
				return "", fmt.Errorf("%s: a line of an edit begins with %q: %s", file, line[0], line)
			}
		}
		if n := strings.Count(source, before.String()); n != 1 {
			return "", fmt.Errorf("%s has these lines %d times, not once:\n%s", file, n, before.String())
		}
		at := strings.Index(source, before.String())
		if strings.HasSuffix(file, ".go") {
			symbol, err := symbolAt(source, file, symbols, at)
			if err != nil {
				return "", err
			}
			used[symbol] = true
		}
		source = source[:at] + after.String() + source[at+before.Len():]
	}
	for _, symbol := range symbols {
		if !used[symbol] {
			return "", fmt.Errorf("%s: nothing is changed in %s", file, symbol)
		}
	}
	return source, nil
}

// symbolAt finds which of the symbols is declared around an offset. A symbol is a function, Type.Method, a type, a variable, a constant, or a
// type of which constants are declared there; "import" is the list of imports.
func symbolAt(source, file string, symbols []string, offset int) (string, error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, source, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	declared := map[string]bool{}
	for _, d := range tree.Decls {
		for _, name := range declaredNames(d) {
			declared[name] = true
			inside := set.Position(d.Pos()).Offset <= offset && offset < set.Position(d.End()).Offset
			if inside && (slices.Contains(symbols, name) || name == "import") {
				return name, nil
			}
		}
	}
	for _, symbol := range symbols {
		if !declared[symbol] {
			return "", fmt.Errorf("%s declares no %s", file, symbol)
		}
	}
	return "", fmt.Errorf("%s: an edit is not inside %s", file, strings.Join(symbols, " or "))
}

// exists tells what of a place is not in the tree. Files with a placeholder are to be made.
func (p place) exists(root string) error {
	if !strings.Contains(p.file, "<") {
		source, err := os.ReadFile(filepath.Join(root, p.file))
		if err != nil {
			return err
		}
		for _, symbol := range p.symbols {
			if !declares(string(source), p.file, symbol) {
				return fmt.Errorf("%s declares no %s", p.file, symbol)
			}
		}
	}
	if test, _, _ := strings.Cut(p.forgotten.test, "/"); test != "" {
		files, err := filepath.Glob(filepath.Join(root, p.forgotten.pkg, "*_test.go"))
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(files, func(file string) bool {
			source, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(source), "\nfunc "+test+"(t *testing.T)")
		}) {
			return fmt.Errorf("%s has no test %s", p.forgotten.pkg, test)
		}
	}
	return nil
}

func declares(source, file, symbol string) bool {
	tree, err := parser.ParseFile(token.NewFileSet(), file, source, parser.SkipObjectResolution)
	return err == nil && slices.ContainsFunc(tree.Decls, func(d ast.Decl) bool { return slices.Contains(declaredNames(d), symbol) })
}

func declaredNames(d ast.Decl) (all []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		receiver := d.Recv.List[0].Type
		if star, ok := receiver.(*ast.StarExpr); ok {
			receiver = star.X
		}
		if name, ok := receiver.(*ast.Ident); ok {
			return []string{name.Name + "." + d.Name.Name}
		}
	case *ast.GenDecl:
		if d.Tok == token.IMPORT {
			return []string{"import"}
		}
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				all = append(all, spec.Name.Name)
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					all = append(all, name.Name)
				}
				if of, ok := spec.Type.(*ast.Ident); ok {
					all = append(all, of.Name)
				}
			}
		}
	}
	return all
}
