package kit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

// TerminalWidth is the width of the terminal that w is; 0 if it is none.
func TerminalWidth(w any) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	if !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width == 0 {
		return 80
	}
	return width
}

// PromptPassword reads a line from a terminal without showing it.
func PromptPassword(in *os.File, out io.Writer, prompt string) (string, error) {
	fd := int(in.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", errors.New("standard input is no terminal")
	}
	fmt.Fprint(out, prompt)
	defer fmt.Fprintln(out)
	// ReadPassword switches the echo on again, but not when a signal ends the program.
	defer OnInterrupt(func() {
		_ = term.Restore(fd, before)
		fmt.Fprintln(out)
	})()
	line, err := term.ReadPassword(fd)
	return string(line), err
}

// OnInterrupt has something done before an interrupt ends the program. The function that
// it returns ends that.
func OnInterrupt(do func()) func() {
	signals, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
			do()
			os.Exit(StatusInterrupted)
		case <-ended:
		}
	}()
	return func() {
		signal.Stop(signals)
		close(ended)
	}
}
