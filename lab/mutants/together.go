package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Most mutants change one function. All such mutants of a package are compiled into one test program. Each changed function has a
// changed copy beside it, and calls the copy if the environment names the mutant. So a package is compiled and linked once, not once
// for each mutant.

// mutantVariable is the environment variable that names the mutant of a test program; empty: it runs without a mutant.
const mutantVariable = "SALVOR_TEST_MUTANT"

// together gives changed sources, by path below root, and the ids of the mutants in them. Those mutants can be chosen when the tests
// run. The others must be compiled one by one.
func together(root string, rows []mutant) (sources map[string]string, ids map[string]bool, err error) {
	sources, ids = map[string]string{}, map[string]bool{}
	byFile := map[string][]mutant{}
	for _, m := range rows {
		if m.equivalent == "" {
			byFile[m.file] = append(byFile[m.file], m)
		}
	}
	for file, mutants := range byFile {
		source, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			continue // the rows are stale, and say so
		}
		text, taken, pkg, err := combine(string(source), mutants)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", file, err)
		}
		if len(taken) == 0 {
			continue
		}
		sources[file] = text
		sources[filepath.Join(filepath.Dir(file), "chosen_mutant.go")] = "package " + pkg + "\n\nimport \"os\"\n\nvar chosenMutant = os.Getenv(\"" + mutantVariable + "\")\n"
		for _, id := range taken {
			ids[id] = true
		}
	}
	return sources, ids, nil
}

// insertion is text that is put into a source at a place.
type insertion struct {
	at   int
	text string
}

// combine puts the copies into one source. It tells which mutants it took, and the name of the package.
func combine(source string, mutants []mutant) (text string, taken []string, pkg string, err error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, "", source, parser.SkipObjectResolution)
	if err != nil {
		return "", nil, "", err
	}
	offset := func(p token.Pos) int { return set.Position(p).Offset }
	var insertions []insertion
	var copies strings.Builder
	for _, m := range mutants {
		changed, err := m.apply(source)
		if err != nil {
			continue
		}
		from := strings.Index(source, strings.TrimSuffix(m.old, "\n"))
		to := from + len(strings.TrimSuffix(m.old, "\n"))
		for _, d := range tree.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil || offset(fn.Pos()) > from || offset(fn.End()) < to {
				continue
			}
			call, ok := callOf(fn, m.id)
			if !ok {
				break
			}
			body := changed[offset(fn.Pos()) : offset(fn.End())+len(changed)-len(source)]
			renamed, ok := rename(body, fn.Name.Name, m.id)
			if !ok {
				break
			}
			copies.WriteString("\n" + renamed + "\n")
			insertions = append(insertions, insertion{offset(fn.Body.Lbrace) + 1, "if chosenMutant == \"" + m.id + "\" {" + call + "};"})
			taken = append(taken, m.id)
		}
	}
	slices.SortStableFunc(insertions, func(a, b insertion) int { return b.at - a.at })
	for _, i := range insertions {
		source = source[:i.at] + i.text + source[i.at:]
	}
	return source + copies.String(), taken, tree.Name.Name, nil
}

// callOf is a call of the changed copy with the function's own parameters; false: one of these has no name.
func callOf(fn *ast.FuncDecl, id string) (string, bool) {
	var args []string
	name := copyName(fn.Name.Name, id)
	if fn.Recv != nil {
		of := fn.Recv.List[0].Names
		if len(of) == 0 || of[0].Name == "_" {
			return "", false
		}
		name = of[0].Name + "." + name
	}
	for _, p := range fn.Type.Params.List {
		if len(p.Names) == 0 {
			return "", false
		}
		for _, n := range p.Names {
			if n.Name == "_" {
				return "", false
			}
			arg := n.Name
			if _, variadic := p.Type.(*ast.Ellipsis); variadic {
				arg += "..."
			}
			args = append(args, arg)
		}
	}
	call := name + "(" + strings.Join(args, ", ") + ")"
	if fn.Type.Results == nil {
		return call + "; return", true
	}
	return "return " + call, true
}

func copyName(name, id string) string { return name + "_" + id }

// rename gives the function in body another name; false: body is no single function of that name.
func rename(body, name, id string) (string, bool) {
	const head = "package p\n"
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, "", head+body, parser.SkipObjectResolution)
	if err != nil || len(tree.Decls) != 1 {
		return "", false
	}
	fn, ok := tree.Decls[0].(*ast.FuncDecl)
	if !ok || fn.Name.Name != name {
		return "", false
	}
	end := set.Position(fn.Name.End()).Offset - len(head)
	return body[:end-len(name)] + copyName(name, id) + body[end:], true
}
