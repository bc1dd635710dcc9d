package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"salvor/cmd/salvor/kit"
	"salvor/cmd/salvor/serve"
)

func TestReportFindings(t *testing.T) {
	fine := []serve.Finding{{Level: serve.LevelOK, Check: "key", Text: "is there"}, {Level: serve.LevelWarn, Check: "clock", Text: "differs", Do: "set it"}}
	var out bytes.Buffer
	if err := reportFindings(fine, "text", &out); err != nil || out.String() != "ok    key: is there\nwarn  clock: differs\n      -> set it\n" {
		t.Errorf("%v: %s", err, &out)
	}
	broken := append(fine, serve.Finding{Level: serve.LevelFail, Check: "port", Text: "is in use", Do: "choose another"})
	out.Reset()
	err := reportFindings(broken, "json", &out)
	var status *kit.StatusError
	if !errors.As(err, &status) || status.Status != kit.StatusFailed {
		t.Errorf("a failed check ends with %v", err)
	}
	var read []serve.Finding
	if err := json.Unmarshal(out.Bytes(), &read); err != nil || !slices.Equal(read, broken) {
		t.Errorf("%v: %+v", err, read)
	}
}
