package api

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"salvor/access"
	"salvor/problem"
)

const (
	policyTurn     = time.Second
	policyMaxBytes = 1 << 20
)

// PolicyFile is the file of [oslo_policy]policy_file, whose rules go over the defaults. It is read again when it changes.
type PolicyFile struct {
	path  string
	known func(rule string) bool
	log   *slog.Logger
	rules access.Rules
	stamp os.FileInfo
	// Changed is told the names of the rules that a new state of the file changed; nil: nobody is told.
	Changed func(ctx context.Context, rules []string) error
}

// NewPolicyFile reads a file; one that is not good is Invalid. known tells of names of rules of other services than Ironic whether
// requests are held to them: others are warned of.
func NewPolicyFile(path string, known func(rule string) bool, log *slog.Logger) (*PolicyFile, error) {
	f := &PolicyFile{path: path, known: known, log: log}
	return f, f.read()
}

// Rules are those of the file, now and later.
func (f *PolicyFile) Rules() *access.Rules { return &f.rules }

func (f *PolicyFile) read() error {
	file, err := os.Open(f.path)
	if err != nil {
		return problem.Invalidf("[oslo_policy]policy_file: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return problem.Invalidf("[oslo_policy]policy_file: %w", err)
	}
	f.stamp = info
	b, err := io.ReadAll(io.LimitReader(file, policyMaxBytes+1))
	if err == nil && len(b) > policyMaxBytes {
		err = fmt.Errorf("it is larger than %d bytes", policyMaxBytes)
	}
	var warnings []string
	if err == nil {
		warnings, err = f.rules.Read(string(b), f.known)
	}
	if err != nil {
		return problem.Invalidf("[oslo_policy]policy_file %s: %w", f.path, err)
	}
	for _, w := range warnings {
		f.log.Warn(w, "file", f.path)
	}
	return nil
}

// Run reads the file again when it changes, until ctx ends.
func (f *PolicyFile) Run(ctx context.Context) {
	ticker := time.NewTicker(policyTurn)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			f.refresh(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (f *PolicyFile) refresh(ctx context.Context) {
	info, err := os.Stat(f.path)
	if err != nil || os.SameFile(info, f.stamp) && info.ModTime().Equal(f.stamp.ModTime()) && info.Size() == f.stamp.Size() {
		return // a file that is gone for a moment is being replaced
	}
	f.stamp = info // said once of one state of the file
	if err := f.read(); err != nil {
		f.log.Error("the new policy file cannot be used: the rules of before stay", "error", err)
		return
	}
	f.log.Info("policy file read", "file", f.path)
	if f.Changed == nil {
		return
	}
	if err := f.Changed(ctx, f.rules.Changed()); err != nil {
		f.log.Error("the change of the policy file is missing in the timeline", "file", f.path, "error", err)
	}
}
