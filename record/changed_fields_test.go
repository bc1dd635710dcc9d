package record

import (
	"strings"
	"testing"
)

type shelf struct {
	Record
	Name, Owner string
	VCPUs       int
	Tags        []string
	Metadata    map[string]string
	inner       int
}

// TestChangedNames: an event names each field and each key that differs, and no value. A clone shares neither maps nor lists with its record.
func TestChangedNames(t *testing.T) {
	old := &shelf{Record: Record{ID: "1", Version: 3}, Name: "a", Tags: []string{"canary"}, Metadata: map[string]string{"same": "canary", "gone": "canary", "new": "canary"}}
	now := cloneFields(old)
	now.Version, now.Owner, now.VCPUs, now.inner = 4, "canary", 2, 1
	now.Tags[0] = "x"
	delete(now.Metadata, "gone")
	now.Metadata["new"], now.Metadata["b\x1b[31m"] = "canary2", "canary"
	if got, want := (FieldNames{}).Updated(old, now), "updated: metadata/b?[31m, metadata/gone, metadata/new, owner, tags, vcpus"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := (FieldNames{Unnamed: []string{"Owner", "Tags", "Metadata"}, Names: map[string]string{"VCPUs": "processors"}}).Updated(old, now), "updated: processors"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := (FieldNames{}).Updated(&shelf{}, &shelf{Tags: []string{}, Metadata: map[string]string{}}); got != "updated: nothing differs" {
		t.Errorf("empty lists are told as %q", got)
	}
	names := make([]string, 25)
	for i := range names {
		names[i] = strings.Repeat("n", 200)
	}
	if got := ListNames(names); len(got) > 2000 || !strings.HasSuffix(got, " and 5 more") {
		t.Errorf("many long names are told as %q", got)
	}
}
