package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"salvor/problem"
	"salvor/secret"
	"salvor/store"
)

// keySource is where the keys that seal secrets come from: a file of ours, or a command that prints them.
type keySource struct {
	file    string
	command string // in place of file
	fresh   bool   // there was no file yet
	timeout time.Duration
}

// readKeys reads the keys of the configuration.
func (p *program) readKeys(ctx context.Context) (keySource, error) {
	c := p.cfg.Secrets
	source := keySource{file: c.KeyFile, command: c.KeyCommand, timeout: c.KeyCommandTimeout}
	if _, err := os.Stat(source.file); source.command == "" {
		source.fresh = errors.Is(err, os.ErrNotExist)
	}
	masters, err := source.read(ctx)
	if err == nil {
		p.key, err = secret.NewKey(masters...)
	}
	return source, err
}

// blamed names the key's file in the refusal of a database that is sealed with another. A key that was made for this start goes again.
func (k keySource) blamed(err error) error {
	switch {
	case !errors.Is(err, store.ErrWrongKey):
		return err
	case k.fresh:
		return errors.Join(problem.Invalidf("key file %s is not there, and the database's secrets are sealed with one: put the key file there that was used with it", k.file),
			os.Remove(k.file))
	case k.command != "":
		return problem.Invalidf("[secrets]key_command: %w", err)
	}
	return problem.Invalidf("key file %s: %w", k.file, err)
}

// maxKeyText bounds what a key file or command may say.
const maxKeyText = 64 << 10

// read gives the keys, and makes one where there is no file yet. No error of it tells what was read.
func (k keySource) read(ctx context.Context) ([][]byte, error) {
	if k.command != "" {
		return k.run(ctx)
	}
	b, err := readOrMake(k.file, func() []byte {
		text, err := secret.FormatKeys([][]byte{secret.GenerateKey()})
		if err != nil {
			panic(err) // a generated key has the right size
		}
		return text
	})
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	info, err := os.Stat(k.file)
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, problem.Invalidf("key file %s can be read by others: chmod 600 it", k.file)
	}
	masters, err := secret.ParseKeys(b)
	if err != nil {
		return nil, problem.Invalidf("key file %s: %w", k.file, err)
	}
	return masters, nil
}

// run asks the command. What it prints to its standard error is not passed on: nobody knows what it holds.
func (k keySource) run(ctx context.Context) ([][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", k.command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// What the shell started holds the pipe open when the shell is gone: the whole group ends.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("[secrets]key_command: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("[secrets]key_command: %w", err)
	}
	text, readErr := io.ReadAll(io.LimitReader(out, maxKeyText+1))
	if len(text) > maxKeyText {
		_ = cmd.Cancel()
	}
	err = cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return nil, problem.Invalidf("[secrets]key_command did not end within %s; run it by hand to see what it waits for", k.timeout)
	case len(text) > maxKeyText:
		return nil, problem.Invalidf("[secrets]key_command prints more than %d bytes: that is no key", maxKeyText)
	case err != nil || readErr != nil:
		return nil, problem.Invalidf("[secrets]key_command failed (%v); run it by hand to see why", errors.Join(err, readErr))
	}
	masters, err := secret.ParseKeys(text)
	if err != nil {
		return nil, problem.Invalidf("[secrets]key_command: what it prints: %w", err)
	}
	return masters, nil
}

// edit changes the key file: it is there before and after, whenever the power goes, and of several processes one changes it at a time.
func (k keySource) edit(ctx context.Context, change func([][]byte) [][]byte) error {
	lock, err := os.OpenFile(k.file+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("key file: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("key file: %w", err)
	}
	masters, err := k.read(ctx)
	if err != nil {
		return err
	}
	changed := change(slices.Clone(masters))
	if len(changed) == len(masters) || len(changed) == 0 {
		return nil
	}
	text, err := secret.FormatKeys(changed)
	if err != nil {
		return err
	}
	if err := replaceFile(k.file, text); err != nil {
		return fmt.Errorf("key file: %w", err)
	}
	return nil
}

// replaceFile puts another content into a private file, on the disk before it is relied on.
func replaceFile(path string, content []byte) error {
	next := path + ".new"
	if err := writeThrough(next, content); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	return syncFolder(path)
}

// syncFolder has the name of a file on the disk.
func syncFolder(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// extend makes one more key.
func (k keySource) extend(ctx context.Context) error {
	if k.command != "" {
		return problem.Conflictf("The command of [secrets]key_command gives one key only. Let it print a new one too, on a line of its own " +
			"(salvor secret key makes one), and restart every salvor serve; then ask again.")
	}
	return k.edit(ctx, func(masters [][]byte) [][]byte { return append(masters, secret.GenerateKey()) })
}

// forget drops keys from the file, and tells which of them were there. What a command prints is not ours to change.
func (k keySource) forget(ctx context.Context, ids []string) ([]string, error) {
	if k.command != "" {
		return nil, nil
	}
	masters, err := k.read(ctx)
	if err != nil {
		return nil, err
	}
	var gone []string
	for _, m := range masters {
		if id, err := secret.KeyID(m); err == nil && slices.Contains(ids, id) {
			gone = append(gone, id)
		}
	}
	if len(gone) == 0 {
		return nil, nil // a file that nobody may write is no hindrance then
	}
	return gone, k.edit(ctx, func(masters [][]byte) [][]byte {
		return slices.DeleteFunc(masters, func(m []byte) bool {
			id, err := secret.KeyID(m)
			return err == nil && slices.Contains(gone, id)
		})
	})
}
