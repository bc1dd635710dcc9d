package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"golang.org/x/sys/unix"
)

// terminalWidth is the width of the terminal that w is; 0 if it is none.
func terminalWidth(w any) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return 80
	}
	return int(size.Col)
}

// promptPassword reads a line from a terminal without showing it.
func promptPassword(in *os.File, out io.Writer, prompt string) (string, error) {
	fd := int(in.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return "", errors.New("standard input is no terminal")
	}
	fmt.Fprint(out, prompt)
	quiet := *before
	quiet.Lflag &^= unix.ECHO
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &quiet); err != nil {
		return "", fmt.Errorf("switch the echo off: %w", err)
	}
	restore := func() {
		_ = unix.IoctlSetTermios(fd, unix.TCSETS, before)
		fmt.Fprintln(out)
	}
	defer restore()
	defer onInterrupt(restore)()
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.TrimRight(line, "\r\n"), nil
}

// onInterrupt has something done before an interrupt ends the program. The function that
// it returns ends that.
func onInterrupt(do func()) func() {
	signals, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, os.Interrupt, unix.SIGTERM)
	go func() {
		select {
		case <-signals:
			do()
			os.Exit(statusInterrupted)
		case <-ended:
		}
	}()
	return func() {
		signal.Stop(signals)
		close(ended)
	}
}
