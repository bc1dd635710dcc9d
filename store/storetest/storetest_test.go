package storetest_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"salvor/metal"
	"salvor/store/storetest"
	"salvor/test/must"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

func TestSQLite(t *testing.T) { storetest.Run(t, storetest.CopiedSQLite) }

func TestPostgres(t *testing.T) { storetest.Run(t, storetest.CopiedPostgres) }

// TestEveryTableIsTested: the contract of stores has a case for each table of records of metal.Store, and storetest.Run knows each case.
func TestEveryTableIsTested(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var all strings.Builder
	for _, file := range files {
		source := must.Get(os.ReadFile(file))(t)
		all.Write(source)
	}
	of := reflect.TypeFor[metal.Store]()
	for i := range of.NumMethod() {
		m := of.Method(i)
		if m.Type.NumIn() > 0 || m.Type.NumOut() != 1 || m.Type.Out(0).Kind() != reflect.Interface {
			continue
		}
		if !strings.Contains(all.String(), "b.s."+m.Name+"()") {
			t.Errorf("no case of storetest uses the table %s", m.Name)
		}
	}
	mentioned := map[string]int{}
	for _, name := range regexp.MustCompile(`\btest\w+`).FindAllString(all.String(), -1) {
		mentioned[name]++
	}
	for _, m := range regexp.MustCompile(`(?m)^func (test\w+)\(b \*testEnv\)`).FindAllStringSubmatch(all.String(), -1) {
		if mentioned[m[1]] < 2 {
			t.Errorf("storetest.Run does not know the case %s", m[1])
		}
	}
}
