package system

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// shellEnds are the lines of start files at which the sessions of an account end at once; nil where they do not end.
type shellEnds struct {
	atTerminal, forCommands *config.ShellEnd
}

// maxShellEnds bounds the accounts whose start files are read.
const maxShellEnds = 64

// findShellEnds follows the start files of a shell: those of a login at a terminal, and those of a command over ssh, for which bash reads its files too.
func findShellEnds(tree *diagnose.Tree, a *config.Account) shellEnds {
	var out shellEnds
	shell := path.Base(config.FirstText(a.Shell, "/bin/sh"))
	isBash := shell == "bash"
	if !isBash && !slices.Contains([]string{"sh", "dash", "ash", "ksh"}, shell) || a.Home == "" {
		return out
	}
	mentions := func(file, what string) bool {
		text, err := tree.Read(file)
		return err == nil && bytes.Contains(text, []byte(what))
	}
	own := path.Join(a.Home, ".profile")
	if isBash {
		own = config.FirstText(config.FirstExisting(tree, path.Join(a.Home, ".bash_profile"), path.Join(a.Home, ".bash_login")), own)
	}
	bashrc, system := path.Join(a.Home, ".bashrc"), "/etc/bash.bashrc" // which no shell of RHEL reads
	login := []string{"/etc/profile"}
	if isBash && mentions("/etc/profile", "bash.bashrc") {
		login = append(login, system)
	}
	login = append(login, own)
	if isBash && mentions(own, ".bashrc") {
		login = append(login, bashrc)
	}
	find := func(file string) *config.ShellEnd {
		if strings.HasPrefix(file, "/etc/") { // the files of all accounts: once, whatever lies in a home
			return diagnose.Once(tree, "shell end "+file, func() *config.ShellEnd { return config.FindShellEnd(tree, file, "") })
		}
		return config.FindShellEnd(tree, file, a.Home)
	}
	for _, file := range login {
		if end := find(file); end != nil && end.Interactive {
			out.atTerminal = end
			break
		}
	}
	if !isBash {
		return out
	}
	for _, file := range []string{system, bashrc} {
		if end := find(file); end != nil && end.Commands {
			out.forCommands = end
			break
		}
	}
	return out
}
