package kit

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"salvor/test/must"
)

// newTerminal gives both ends of a pseudo-terminal: what a person types and sees, and what the program has.
func newTerminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	person = os.NewFile(uintptr(fd), "ptmx")
	t.Cleanup(func() { person.Close() })
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	must.OK(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	if program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return person, program
}

// writerFunc is a function as io.Writer.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// TestPromptPassword: a password is read without being shown, and the terminal shows what is typed afterwards.
func TestPromptPassword(t *testing.T) {
	person, program := newTerminal(t)
	hasEcho := func() bool {
		state, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
		return err == nil && state.Lflag&unix.ECHO != 0
	}
	for _, want := range []string{"s3cret pässword", "s3cret pässword"} {
		var out bytes.Buffer
		prompt := writerFunc(func(b []byte) (int, error) {
			if out.Len() == 0 {
				go func() {
					for hasEcho() { // the echo goes off a moment after the prompt
						runtime.Gosched()
					}
					_, _ = io.WriteString(person, want+"\n")
				}()
			}
			return out.Write(b)
		})
		got, err := PromptPassword(program, prompt, "Password: ")
		if err != nil || got != want || out.String() != "Password: \n" || !hasEcho() {
			t.Errorf("%q, %v, echo %t; printed %q", got, err, hasEcho(), &out)
		}
	}
	must.Get(io.WriteString(person, "shown\n"))(t)
	seen := make([]byte, 100)
	n, err := person.Read(seen)
	if err != nil || bytes.Contains(seen[:n], []byte("s3cret")) || !bytes.Contains(seen[:n], []byte("shown")) {
		t.Errorf("the terminal shows %q, %v", seen[:n], err)
	}
	no, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer no.Close()
	if _, err := PromptPassword(no, io.Discard, ""); err == nil {
		t.Error("a file that is no terminal is asked for a password")
	}
}

// TestTerminalWidth: a terminal has its width, or 80 columns where it does not say; anything else has none.
func TestTerminalWidth(t *testing.T) {
	_, program := newTerminal(t)
	for columns, want := range map[uint16]int{132: 132, 0: 80} {
		must.OK(t, unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: 24}))
		if got := TerminalWidth(program); got != want {
			t.Errorf("of %d columns: %d, want %d", columns, got, want)
		}
	}
	if got := TerminalWidth(&bytes.Buffer{}); got != 0 {
		t.Errorf("a buffer: %d", got)
	}
}
