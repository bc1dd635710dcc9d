package store

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"salvor/test/must"
)

// ruled is the first step that the rule of expanding holds.
const ruled = 5

var (
	comment   = regexp.MustCompile(`(?m)--.*$`)
	expanding = []*regexp.Regexp{
		regexp.MustCompile(`^CREATE TABLE \w+ \(`),
		regexp.MustCompile(`^CREATE INDEX `),
		regexp.MustCompile(`^CREATE SEQUENCE `),
		regexp.MustCompile(`^DROP INDEX `),
		regexp.MustCompile(`^(INSERT INTO|UPDATE|SELECT setval) ?`),
		regexp.MustCompile(`^ALTER TABLE \w+ ADD COLUMN \w+ .*\bDEFAULT\b`),
		regexp.MustCompile(`^ALTER TABLE \w+ ALTER COLUMN \w+ SET DEFAULT `),
		regexp.MustCompile(`^ALTER TABLE \w+ SET \(`),
	}
	unique  = regexp.MustCompile(`^CREATE UNIQUE INDEX \w+ ON (\w+) \((\w+)`)
	created = regexp.MustCompile(`CREATE TABLE (\w+)`)
	added   = regexp.MustCompile(`ALTER TABLE (\w+) ADD COLUMN (\w+)`)
)

// TestStepsExpand: while an upgrade rolls, programs of the release before write the tables of the next one.
func TestStepsExpand(t *testing.T) {
	for _, d := range []sqlDialect{sqliteDialect, postgresDialect} {
		steps := must.Get(readSteps(migrations, d))(t)
		for i, s := range steps {
			if i > 0 && steps[i-1].Version >= s.Version {
				t.Errorf("%s: step %d stands after step %d", d.name, s.Version, steps[i-1].Version)
			}
			if s.Version < ruled || s.Contracts > 0 || strings.Contains(s.text, "-- expands: ") {
				continue
			}
			fresh := map[string]bool{}
			for _, m := range created.FindAllStringSubmatch(s.text, -1) {
				fresh[m[1]] = true
			}
			for _, m := range added.FindAllStringSubmatch(s.text, -1) {
				fresh[m[1]+"."+m[2]] = true
			}
			for text := range strings.SplitSeq(comment.ReplaceAllString(s.text, ""), ";") {
				text = strings.Join(strings.Fields(text), " ")
				if text != "" && !expands(text, fresh) {
					t.Errorf("%s: step %d (%s) does more than expand: %s", d.name, s.Version, s.Name, text)
				}
			}
		}
	}
}

func expands(text string, fresh map[string]bool) bool {
	if m := unique.FindStringSubmatch(text); m != nil {
		return fresh[m[1]] || fresh[m[1]+"."+m[2]]
	}
	for _, form := range expanding {
		if form.MatchString(text) {
			return true
		}
	}
	return false
}

// TestStepsOfAnEngine: a file for one engine adds to the step of both, and a contraction is read from either.
func TestStepsOfAnEngine(t *testing.T) {
	files := fstest.MapFS{
		"migrations/00001_start.sql":          {Data: []byte("CREATE TABLE a (n {{serial}})")},
		"migrations/00002_more.sql":           {Data: []byte("CREATE TABLE b (w {{text}});")},
		"migrations/00002_more.postgres.sql":  {Data: []byte("-- contracts: 1\nDROP TABLE a")},
		"migrations/00003_only.postgres.sql":  {Data: []byte("SELECT 1")},
		"migrations/00010_later_word.sql":     {Data: []byte("SELECT 2")},
		"migrations/00010_later_word.txt":     {Data: []byte("not a step")},
		"migrations/nested/00011_nothing.sql": {Data: []byte("not a step")},
	}
	show := func(d sqlDialect) (out []string) {
		steps := must.Get(readSteps(files, d))(t)
		for _, s := range steps {
			out = append(out, strconv.FormatInt(s.Version, 10)+s.Name+strconv.FormatInt(s.Contracts, 10)+":"+strconv.Itoa(strings.Count(s.text, "TABLE")))
		}
		return out
	}
	if got := strings.Join(show(sqliteDialect), " "); got != "1start0:1 2more0:1 10later_word0:0" {
		t.Errorf("sqlite: %s", got)
	}
	if got := strings.Join(show(postgresDialect), " "); got != "1start0:1 2more1:2 3only0:0 10later_word0:0" {
		t.Errorf("postgres: %s", got)
	}
	for _, c := range []struct{ name, want string }{
		{"00002_again.sql", "00002_again.sql and 00002_more.sql"},
		{"00002_more_or_less.sqlite.sql", "00002_more.postgres.sql and 00002_more_or_less.sqlite.sql"},
		{"002_more.postgres.sql", "00002_more.postgres.sql and 002_more.postgres.sql"},
	} {
		again := maps.Clone(files)
		again["migrations/"+c.name] = &fstest.MapFile{Data: []byte("SELECT 3")}
		for _, d := range []sqlDialect{sqliteDialect, postgresDialect} {
			if _, err := readSteps(again, d); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %s beside the others: want an error with %q, got %v", d.name, c.name, c.want, err)
			}
		}
	}
	files["migrations/word.sql"] = &fstest.MapFile{Data: []byte("SELECT 1")}
	if _, err := readSteps(files, sqliteDialect); err == nil {
		t.Error("a file without a number passes")
	}
}

// TestServedSchemasAreListed: docs/database.md says of every step which programs may serve the database after it.
func TestServedSchemasAreListed(t *testing.T) {
	page := must.Get(os.ReadFile("../docs/database.md"))(t)
	steps := must.Get(readSteps(migrations, postgresDialect))(t)
	oldest := int64(1)
	for _, s := range steps {
		oldest = max(oldest, s.Contracts)
		row := regexp.MustCompile(`(?m)^\| ` + strconv.FormatInt(s.Version, 10) + ` \| ` + s.Name + ` \| ` + strconv.FormatInt(oldest, 10) + ` \| .+ \|$`)
		if !row.Match(page) {
			t.Errorf("docs/database.md has no row for schema %d (%s), which programs of schema %d and newer may serve", s.Version, s.Name, oldest)
		}
	}
}

// TestReleasedStepsAreUnchanged: migrations/SHA256SUMS lists each released file, and databases have the tables that those files made. A file that it
// does not list is a step of the release to come, so its number is higher. When CHANGELOG.md has no unreleased version, every file is listed.
func TestReleasedStepsAreUnchanged(t *testing.T) {
	const list = "migrations/SHA256SUMS"
	released, newest := map[string]string{}, ""
	for line := range strings.Lines(string(must.Get(os.ReadFile(list))(t))) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok || len(sum) != 2*sha256.Size {
			t.Fatalf("%s: %q is no line of sha256sum", list, line)
		}
		released[name], newest = sum, max(newest, name)
	}
	names := must.Get(filepath.Glob("migrations/*.sql"))(t)
	for _, path := range names {
		name := filepath.Base(path)
		sum := fmt.Sprintf("%x", sha256.Sum256(must.Get(os.ReadFile(path))(t)))
		want, ok := released[name]
		delete(released, name)
		number, _, _ := strings.Cut(name, "_")
		switch last, _, _ := strings.Cut(newest, "_"); {
		case ok && sum != want:
			t.Errorf("%s is released and has changed: its digest is %s, want %s. Restore the file and add a step with a higher number", path, sum, want)
		case !ok && number <= last:
			t.Errorf("%s is new, and step %s is released: give the file a higher number", path, newest)
		case !ok && !strings.Contains(string(must.Get(os.ReadFile("../CHANGELOG.md"))(t)), "\n## Unreleased"):
			t.Errorf("%s is released and %s does not list the file; run: cd store/migrations && sha256sum *.sql > SHA256SUMS", path, list)
		}
	}
	for name := range released {
		t.Errorf("migrations/%s is released and gone: restore the file", name)
	}
}
