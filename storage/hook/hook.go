// Package hook is storage by a command that the operator wrote: for arrays that salvor does
// not speak to itself. It knows how to call the command and how to read its answer; what the
// command does it believes no further than the answer says, word for word.
package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"salvor/problem"
	"salvor/storage"
)

// Bounds of a call.
const (
	DefaultTimeout = 20 * time.Second
	maxAnswer      = 4 << 20
	maxWord        = 256
)

// Options say what is called. They come from the configuration alone.
type Options struct {
	// Command is the absolute path of the program; Args come before its verb.
	Command string
	Args    []string
	// Timeout bounds a call; 0: DefaultTimeout.
	Timeout time.Duration
}

// Hook is storage.Storage and storage.Exporter.
type Hook struct{ opts Options }

// New makes the storage. The program is looked at, not called.
func New(o Options) (*Hook, error) {
	if !filepath.IsAbs(o.Command) {
		return nil, problem.Invalidf("storage: hook %q: want the absolute path of a program", o.Command)
	}
	info, err := os.Stat(o.Command)
	if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
		return nil, problem.Invalidf("storage: hook %s is no program that can be run", o.Command)
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	return &Hook{opts: o}, nil
}

// call runs the command with a verb and reads its answer into to.
func (h *Hook) call(ctx context.Context, to any, verb string, args ...string) error {
	for _, a := range args {
		if a == "" || len(a) > maxWord || a[0] == '-' || strings.ContainsFunc(a, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
			return problem.Invalidf("storage hook: %s: %.100q is no name", verb, a)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, h.opts.Timeout)
	defer cancel()
	arguments := append(append([]string{}, h.opts.Args...), append([]string{verb}, args...)...)
	cmd := exec.CommandContext(ctx, h.opts.Command, arguments...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/", "LC_ALL=C"}
	answer, complaint, err := storage.Output(cmd, maxAnswer)
	command := strings.Join(append([]string{verb}, args...), " ")
	switch {
	case ctx.Err() != nil:
		return problem.Unavailablef("storage hook: %s: no answer within %s", command, h.opts.Timeout)
	case err != nil:
		return problem.Unavailablef("storage hook: %s: %s (%w)", command, complaint, err)
	}
	if err := decode(answer, to); err != nil {
		return problem.Unavailablef("storage hook: %s: its answer is not the JSON that is documented: %w", command, err)
	}
	return nil
}

func decode(answer []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(answer))
	if err := d.Decode(to); err != nil {
		return err
	}
	if d.More() {
		return fmt.Errorf("there is more behind it")
	}
	return nil
}

// Allow is storage.Storage's.
func (h *Hook) Allow(ctx context.Context, target, initiator string) error {
	var answer struct{ Allowed string }
	if err := h.call(ctx, &answer, "allow", target, initiator); err != nil {
		return err
	}
	return confirm("allow", "allowed", answer.Allowed, initiator)
}

// confirm holds an answer to naming what was done: a command that says nothing has done nothing.
func confirm(verb, field, answer, want string) error {
	if answer != want {
		return problem.Unavailablef("storage hook: %s: its answer names %.200q as %s, not %s", verb, answer, field, want)
	}
	return nil
}

// Revoke is storage.Storage's. What the command says of it is held against the sessions that it lists after that.
func (h *Hook) Revoke(ctx context.Context, initiators ...string) error {
	if len(initiators) == 0 {
		return nil
	}
	var answer struct{ Revoked []string }
	if err := h.call(ctx, &answer, "revoke", initiators...); err != nil {
		return err
	}
	for _, initiator := range initiators {
		if !slices.Contains(answer.Revoked, initiator) {
			return problem.Unavailablef("storage hook: revoke: its answer does not name %s as revoked", initiator)
		}
	}
	all, err := h.Sessions(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		if slices.Contains(initiators, s.Initiator) {
			return problem.Unavailablef("storage hook: revoke %s: it is still connected to %s", s.Initiator, s.Target)
		}
	}
	return nil
}

// Sessions is storage.Storage's.
func (h *Hook) Sessions(ctx context.Context) ([]storage.Session, error) {
	var answer struct{ Sessions *[]storage.Session }
	if err := h.call(ctx, &answer, "sessions"); err != nil {
		return nil, err
	}
	if answer.Sessions == nil {
		return nil, problem.Unavailablef("storage hook: sessions: its answer has no list of sessions")
	}
	for _, s := range *answer.Sessions {
		if s.Target == "" || s.Initiator == "" {
			return nil, problem.Unavailablef("storage hook: sessions: one names no target or no initiator")
		}
	}
	return *answer.Sessions, nil
}

// Export is storage.Exporter's.
func (h *Hook) Export(ctx context.Context, volumeID, initiator string) (storage.Export, error) {
	var e storage.Export
	if err := h.call(ctx, &e, "export", volumeID, initiator); err != nil {
		return e, err
	}
	if e.Portal == "" || e.IQN == "" || e.LUN < 0 {
		return e, problem.Unavailablef("storage hook: export %s: its answer names no portal, target and LUN", volumeID)
	}
	return e, confirm("export", "volume_id", e.VolumeID, volumeID)
}

// Unexport is storage.Exporter's.
func (h *Hook) Unexport(ctx context.Context, volumeID, initiator string) error {
	var answer struct{ Unexported string }
	if err := h.call(ctx, &answer, "unexport", volumeID, initiator); err != nil {
		return err
	}
	return confirm("unexport", "unexported", answer.Unexported, volumeID)
}
