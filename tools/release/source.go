package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// source is the tree that a release is built from.
type source struct {
	root    string
	commit  string    // the full hash, with "+changes" where the tree differs from it
	time    time.Time // of the commit; files of the release have no other time
	release string    // what the built program calls itself: the number lies in one place, version/version.go
}

func readSource(ctx context.Context, root string) (*source, error) {
	said, err := runProgram(ctx, root, nil, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return nil, fmt.Errorf("%s: a release needs a git clone, whose commit it names: %w", root, err)
	}
	hash, stamp, _ := strings.Cut(strings.TrimSpace(said), " ")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%s: the time of the commit: %w", root, err)
	}
	changes, err := runProgram(ctx, root, nil, "git", "status", "--porcelain")
	if err != nil {
		return nil, err
	}
	if changes != "" {
		hash += "+changes"
	}
	return &source{root: root, commit: hash, time: time.Unix(seconds, 0).UTC()}, nil
}

// compile builds the programs for one architecture. The linker stamps the commit instead of -buildvcs, which also stamps tags of the clone.
func (s *source) compile(ctx context.Context, dir, arch string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-tags", "otlp", "-ldflags", "-s -w -X salvor/version.commit=" + s.commit, "-o", dir + "/"}
	for _, p := range programs {
		args = append(args, "./cmd/"+p)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// What the user's environment says of the build is overridden, so that it does not change the bytes.
	env := []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off"}
	_, err = runProgram(ctx, s.root, env, "go", args...)
	return err
}

// releaseOf asks a built program which release it is.
func releaseOf(ctx context.Context, program string) (string, error) {
	said, err := runProgram(ctx, "", nil, program, "version", "-f", "json")
	if err != nil {
		return "", err
	}
	var build struct{ Release string }
	if err := json.Unmarshal([]byte(said), &build); err != nil || build.Release == "" {
		return "", fmt.Errorf("%s version: no release in %q: %w", program, said, err)
	}
	return build.Release, nil
}

// debianVersion is the version of the packages. A tree on its way to a release sorts before that release, and by the time of its commit.
func (s *source) debianVersion() string {
	number, before, isEarlier := strings.Cut(s.release, "-")
	if !isEarlier {
		return number
	}
	version := number + "~" + before
	if before == "dev" {
		hash, changes, changed := strings.Cut(s.commit, "+")
		version += s.time.Format("20060102150405") + "." + hash[:8]
		if changed {
			version += "+" + changes
		}
	}
	return version
}

// runProgram runs a program and returns what it printed.
func runProgram(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var said, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &failed
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(failed.Bytes()))
	}
	return said.String(), nil
}
