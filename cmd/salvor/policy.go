package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"salvor/access"
	"salvor/api/image"
	"salvor/api/native"
	"salvor/api/nova"
	"salvor/api/volume"
	"salvor/problem"
)

const (
	policyTurn     = time.Second
	policyMaxBytes = 1 << 20
)

// policyFile is the file of [oslo_policy]policy_file.
type policyFile struct {
	path  string
	rules access.Rules
	stamp os.FileInfo
}

// policy is what tokens are held to.
func (p *program) policy() access.Policy {
	c := p.cfg.Policy
	out := access.Policy{EnforceScope: c.EnforceScope, OldDefaults: !c.EnforceNewDefaults}
	if c.ServiceElevated {
		out.ServiceProject = c.ServiceProject
	}
	if p.rules != nil {
		out.Rules = &p.rules.rules
	}
	return out
}

// readPolicy reads the policy file, if there shall be one; it is before any door is made.
func (p *program) readPolicy() error {
	if p.cfg.Policy.File == "" {
		return nil
	}
	p.rules = &policyFile{path: p.cfg.Policy.File}
	return p.rules.read(p.log)
}

func (f *policyFile) read(log *slog.Logger) error {
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
		warnings, err = f.rules.Read(string(b), func(name string) bool {
			return nova.HasRule(name) || volume.HasRule(name) || image.HasRule(name) || native.HasRule(name)
		})
	}
	if err != nil {
		return problem.Invalidf("[oslo_policy]policy_file %s: %w", f.path, err)
	}
	for _, w := range warnings {
		log.Warn(w, "file", f.path)
	}
	return nil
}

// watchPolicy reads the policy file again when it changes.
func (p *program) watchPolicy(ctx context.Context) error {
	if p.rules == nil {
		return nil
	}
	ticker := time.NewTicker(policyTurn)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		f := p.rules
		info, err := os.Stat(f.path)
		if err != nil || os.SameFile(info, f.stamp) && info.ModTime().Equal(f.stamp.ModTime()) && info.Size() == f.stamp.Size() {
			continue // a file that is gone for a moment is being replaced
		}
		f.stamp = info // said once of one state of the file
		if err := f.read(p.log); err != nil {
			p.log.Error("the new policy file cannot be used: the rules of before stay", "error", err)
			continue
		}
		p.log.Info("policy file read", "file", f.path)
	}
}
