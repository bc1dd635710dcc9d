package image

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"salvor/api"
)

// FuzzFormat: hostile first bytes never break the look at them.
func FuzzFormat(f *testing.F) {
	f.Add("qcow2", []byte("QFI\xfb\x00\x00\x00\x03"))
	f.Add("iso", []byte("CD001"))
	f.Add("raw", []byte("KDMV"))
	f.Fuzz(func(t *testing.T, format string, head []byte) {
		virtual, err := checkFormat(format, head)
		if err == nil && virtual < 0 || err != nil && api.Status(err) != 400 {
			t.Fatalf("%q: %d, %v", format, virtual, err)
		}
	})
}

// FuzzPatch: what is read of a patch has names and known words.
func FuzzPatch(f *testing.F) {
	f.Add([]byte(`[{"op":"add","path":"/a~1b","value":1}]`))
	f.Add([]byte(`[{"op":"remove","path":"/~"}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := readPatch(b)
		if err != nil && api.Status(err) != 400 {
			t.Fatalf("%q: %v", b, err)
		}
		for _, ch := range all {
			if err == nil && (ch.Path == "" || ch.Op != "add" && ch.Op != "replace" && ch.Op != "remove") {
				t.Fatalf("%q gives %+v", b, ch)
			}
		}
	})
}

// FuzzQuery: a list that is asked for strangely is a 400.
func FuzzQuery(f *testing.F) {
	s := &server{Config: Config{MaxLimit: 10, Log: slog.New(slog.DiscardHandler)}}
	for _, seed := range []string{"limit=1", "sort=name:asc", "created_at=gt:x", "size_min=99999999999999999999", "id=in:a,b", "os_hidden=x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		if strings.ContainsAny(query, " \r\n\x00\x7f") {
			return
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.URL.RawQuery = query
		if _, err := s.query(&api.Call{R: r, Query: r.URL.Query()}); err != nil && api.Status(err) != 400 {
			t.Fatalf("%q: %v", query, err)
		}
	})
}
