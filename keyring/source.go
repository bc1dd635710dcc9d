package keyring

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"salvor/durable"
	"salvor/problem"
	"salvor/secret"
	"salvor/store"
)

// Source is where the keys that seal secrets come from: a file of ours, or a command that prints them.
type Source struct {
	File    string
	Command string // in place of File
	Timeout time.Duration

	fresh bool // there was no file yet
}

// Open reads the keys, the one that may seal first.
func Open(ctx context.Context, s Source) (Source, *secret.Key, error) {
	if _, err := os.Stat(s.File); s.Command == "" {
		s.fresh = errors.Is(err, os.ErrNotExist)
	}
	masters, err := s.Read(ctx)
	if err != nil {
		return s, nil, err
	}
	key, err := secret.NewKey(masters...)
	return s, key, err
}

// Blamed names the key's file in the refusal of a database that is sealed with another. A key that was made for this start goes again.
func (k Source) Blamed(err error) error {
	switch {
	case !errors.Is(err, store.ErrWrongKey):
		return err
	case k.fresh:
		return errors.Join(problem.Invalidf("key file %s is not there, and the database's secrets are sealed with one: put the key file there that was used with it", k.File),
			os.Remove(k.File))
	case k.Command != "":
		return problem.Invalidf("[secrets]key_command: %w", err)
	}
	return problem.Invalidf("key file %s: %w", k.File, err)
}

// maxKeyText bounds what a key file or command may say.
const maxKeyText = 64 << 10

// Read gives the keys, and makes one where there is no file yet. No error of it tells what was read.
func (k Source) Read(ctx context.Context) ([][]byte, error) {
	if k.Command != "" {
		return k.run(ctx)
	}
	// A key that a power cut takes away takes along every secret that was sealed with it.
	b, err := durable.ReadOrMake(k.File, 0o600, func() ([]byte, error) { return secret.FormatKeys([][]byte{secret.GenerateKey()}) })
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	info, err := os.Stat(k.File)
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, problem.Invalidf("key file %s can be read by others: chmod 600 it", k.File)
	}
	masters, err := secret.ParseKeys(b)
	if err != nil {
		return nil, problem.Invalidf("key file %s: %w", k.File, err)
	}
	return masters, nil
}

// run asks the command. What it prints to its standard error is not passed on: nobody knows what it holds.
func (k Source) run(ctx context.Context) ([][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, k.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", k.Command)
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
		return nil, problem.Invalidf("[secrets]key_command did not end within %s; run it by hand to see what it waits for", k.Timeout)
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
func (k Source) edit(ctx context.Context, change func([][]byte) [][]byte) error {
	lock, err := os.OpenFile(k.File+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("key file: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("key file: %w", err)
	}
	masters, err := k.Read(ctx)
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
	if err := durable.Write(k.File, text, 0o600); err != nil {
		return fmt.Errorf("key file: %w", err)
	}
	return nil
}

// extend makes one more key.
func (k Source) extend(ctx context.Context) error {
	if k.Command != "" {
		return problem.Conflictf("The command of [secrets]key_command gives one key only. Let it print a new one too, on a line of its own " +
			"(salvor secret key makes one), and restart every salvor serve; then ask again.")
	}
	return k.edit(ctx, func(masters [][]byte) [][]byte { return append(masters, secret.GenerateKey()) })
}

// forget drops keys from the file, and tells which of them were there. What a command prints is not ours to change.
func (k Source) forget(ctx context.Context, ids []string) ([]string, error) {
	if k.Command != "" {
		return nil, nil
	}
	masters, err := k.Read(ctx)
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
