package config

import (
	"testing"
	"testing/fstest"
	"time"

	"salvor/diagnose"
)

func treeOf(files map[string]string) *diagnose.Tree {
	base := fstest.MapFS{}
	for name, text := range files {
		base[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o755}
	}
	return diagnose.NewTree(base)
}

// TestFindLostCommand: only a command that is a program for certain is looked for, whatever the lines of a script are.
func TestFindLostCommand(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"a lost program":                {"#!/bin/sh\nset -e\niptables-restore /etc/rules\n", "iptables-restore does not exist"},
		"words of the shell":            {"#!/bin/sh\nset -e\nif test -f /etc/rules\nthen\n\tiptables-restore /etc/rules\nfi\n", ""},
		"a line that goes on, and ends": {"#!/bin/sh\nset -e\n\\\n\n", ""},
		"nothing":                       {"#!/bin/sh\n", ""},
	} {
		got := ""
		if lost := FindLostCommand(treeOf(map[string]string{"bin/sh": "", "bin/test": "", "hook": c.script}), "/hook"); lost != nil {
			got = lost.Why
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestFindShellEnd: words that open and close a block count as the first word of a command only.
func TestFindShellEnd(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want int
	}{
		"the file ends":             {"echo done\nexit 0\n", 2},
		"a block with another done": {"if [ \"$x\" = y ]; then\n  echo done\n  exit 1\nfi\necho more\n", 0},
		"two blocks":                {"for i in 1 2; do if true; then\n  exit 1\nfi; done\n", 0},
		"a function":                {"stop() {\n  exit 1\n}\necho more\n", 0},
	} {
		got := 0
		if end := FindShellEnd(treeOf(map[string]string{"home/.bashrc": c.text, "bin/echo": "", "bin/true": ""}), "/home/.bashrc", "/home"); end != nil {
			got = end.Line
		}
		if got != c.want {
			t.Errorf("%s: the shell ends in line %d, want %d", name, got, c.want)
		}
	}
}

// TestTmpfilesOfARelativeName: a home may be a relative path, and a line that removes everything below a folder is compared with it all the same.
func TestTmpfilesOfARelativeName(t *testing.T) {
	ended := make(chan bool)
	go func() {
		l := TmpfilesLine{kind: 'R', pattern: "/tmp/systemd-private-*"}
		ended <- l.names(".ssh/authorized_keys")
	}()
	select {
	case got := <-ended:
		if got {
			t.Error("a line about /tmp names .ssh/authorized_keys")
		}
	case <-time.After(10 * time.Second):
		t.Error("the comparison of a relative name does not end")
	}
}
