package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/agent/examine"
	"salvor/agent/step"
	"salvor/diagnose"
	"salvor/problem"
	"salvor/test/must"
	wire "salvor/wire/agent"
)

// TestExamineIsForRamdisks: elsewhere nothing is examined, and no key stays in the params.
func TestExamineIsForRamdisks(t *testing.T) {
	a := &Agent{config: Config{Root: t.TempDir()}}
	raw, named := json.RawMessage(`["b3BlbnNlc2FtZQ==","YmFybGV5"]`), json.RawMessage(`{"0dd1e5c4-0000-4000-8000-00000000000a":["b3BlbnNlc2FtZQ=="]}`)
	_, err := a.examineOrder().Run(t.Context(), step.Params{"now": json.RawMessage(`"2026-11-26T06:00:00Z"`), "network_data": json.RawMessage(`null`), "luks_keys": raw, "luks_keys_by_uuid": named})
	if !problem.Is(err, problem.Forbidden) {
		t.Errorf("outside of a ramdisk: %v", err)
	}
	if strings.Trim(string(raw)+string(named), "\x00") != "" {
		t.Errorf("the keys are still in the params: %q %q", raw, named)
	}
}

func TestExamineRefuses(t *testing.T) {
	a := &Agent{config: Config{Root: t.TempDir()}}
	many, _ := json.Marshal(make([]string, diagnose.MaxLUKSKeys+1))
	long, _ := json.Marshal([][]byte{make([]byte, diagnose.MaxLUKSKey+1)})
	for name, params := range map[string]step.Params{
		"many keys": {"luks_keys": many}, "a long key": {"luks_keys": long}, "an empty key": {"luks_keys": json.RawMessage(`[""]`)}, "no list": {"luks_keys": json.RawMessage(`"x"`)}, "many keys of a UUID": {"luks_keys_by_uuid": json.RawMessage(`{"a":` + string(many) + `}`)}, "an empty key of a UUID": {"luks_keys_by_uuid": json.RawMessage(`{"a":[""]}`)}, "no base64": {"luks_keys": json.RawMessage(`["!"]`)},
		"a word in place of true": {"only_read": json.RawMessage(`"yes"`)}, "no time": {"now": json.RawMessage(`"soon"`)}, "no object": {"network_data": json.RawMessage(`[1]`)},
	} {
		if _, err := a.examineOrder().Run(t.Context(), params); !problem.Is(err, problem.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestExamineOnlyReads: the command's only_read reaches the examination, over HTTP and over the channel of a host.
func TestExamineOnlyReads(t *testing.T) {
	for _, onlyRead := range []bool{true, false} {
		raw := must.Get(json.Marshal(onlyRead))(t)
		if r := must.Get(examineRequest(step.Params{"only_read": raw}))(t); r.OnlyRead != onlyRead {
			t.Errorf("examineRequest reads only_read %s as %v", raw, r.OnlyRead)
		}
		u := &Unlock{Examiner: func(_ context.Context, r examine.Request) (*diagnose.Examination, error) {
			if r.OnlyRead != onlyRead {
				t.Errorf("the channel's only_read %s is %v in the examination", raw, r.OnlyRead)
			}
			return &diagnose.Examination{}, nil
		}}
		must.Get(u.examineDisks(t.Context(), wire.ExamineParams{OnlyRead: onlyRead}))(t)
	}
	if r := must.Get(examineRequest(step.Params{}))(t); r.OnlyRead {
		t.Error("without only_read, examineRequest lets no program run")
	}
}

// TestKeysAreCleared: keys that are refused are handed out with the error, so that they are overwritten too.
func TestKeysAreCleared(t *testing.T) {
	keys, byUUID, err := luksKeys(step.Params{"luks_keys": json.RawMessage(`["b3BlbnNlc2FtZQ==",""]`), "luks_keys_by_uuid": json.RawMessage(`{"a":["b3BlbnNlc2FtZQ=="]}`)})
	if !problem.Is(err, problem.Invalid) || len(keys) != 2 || string(keys[0]) != "opensesame" || string(byUUID["a"][0]) != "opensesame" {
		t.Fatalf("%d keys, %d by UUID, %v", len(keys), len(byUUID), err)
	}
	examine.Request{Keys: keys, KeysByUUID: byUUID}.ClearKeys()
	if strings.Trim(string(keys[0])+string(byUUID["a"][0]), "\x00") != "" {
		t.Error("a key is not overwritten")
	}
}

// TestKeyFiles: what a person gives in the rescue system is read byte by byte, for each container or for one.
func TestKeyFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	must.OK(t, os.WriteFile(path, []byte("line\n\x00"), 0o600))
	keys, byUUID, err := Examination{KeyFiles: []string{path, "0DD1E5C4=" + path}}.readKeys()
	if err != nil || len(keys) != 1 || string(keys[0]) != "line\n\x00" || len(byUUID["0dd1e5c4"]) != 1 {
		t.Errorf("%d keys, %d by UUID, %v", len(keys), len(byUUID), err)
	}
	must.OK(t, os.WriteFile(path, make([]byte, diagnose.MaxLUKSKey+1), 0o600))
	if err := (Examination{KeyFiles: []string{path}}).Run(t.Context(), io.Discard); !problem.Is(err, problem.Invalid) {
		t.Errorf("a large file: %v", err)
	}
	if err := (Examination{KeyFiles: []string{filepath.Join(dir, "none")}}).Run(t.Context(), io.Discard); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
