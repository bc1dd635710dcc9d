// Command guest is the only program of a guest that proves where it runs. It writes a journal to each disk that has the head of one, and
// prints this on the serial line. Outside of a guest it makes and reads such disks.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"salvor/test/evacuate/journal"
)

// pace is the time between two entries.
const pace = 20 * time.Millisecond

func main() {
	if os.Getpid() != 1 {
		if err := outside(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "journal:", err)
			os.Exit(1)
		}
		return
	}
	if err := run(); err != nil {
		fmt.Println("JOURNAL ends:", err)
	}
	// The end of the first process would be a kernel's panic, and a new boot: an honest end is silence.
	select {}
}

// outside does one of: make DISK, last DISK (prints boot id and counter), check DISK (prints what each boot wrote).
func outside(args []string) error {
	if len(args) != 2 {
		return errors.New("want make, last or check, and a disk image")
	}
	disk, err := os.OpenFile(args[1], os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer disk.Close()
	switch args[0] {
	case "make":
		head := make([]byte, journal.Sector)
		journal.Head(head)
		if _, err := disk.WriteAt(head, journal.Start); err != nil {
			return err
		}
		return disk.Truncate(journal.Size)
	case "last":
		e, n, err := journal.Last(disk)
		if n > 0 {
			fmt.Println(e.Boot, e.Counter)
		}
		return err
	case "check":
		runs, err := journal.Check(disk)
		for _, r := range runs {
			fmt.Printf("boot %s: %d entries from entry %d on\n", r.Boot, r.Entries, r.First)
		}
		return err
	}
	return fmt.Errorf("%q: want make, last or check", args[0])
}

func run() error {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	boot, err := uuid.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	found := map[string]bool{}
	failed := make(chan error)
	for turn := time.NewTicker(100 * time.Millisecond); ; { // a disk may be attached at any time
		disks, err := filepath.Glob("/sys/block/vd*")
		if err != nil {
			return err
		}
		for _, d := range disks {
			name := filepath.Base(d)
			if found[name] {
				continue
			}
			w, err := open("/dev/"+name, boot)
			if err != nil {
				fmt.Println("JOURNAL", name, err)
				continue
			}
			found[name] = true
			if w != nil {
				fmt.Printf("JOURNAL %s boot %s begins at entry %d\n", name, boot, w.Next())
				go func() { failed <- write(name, w) }()
			}
		}
		select {
		case err := <-failed:
			return err
		case <-turn.C:
		}
	}
}

// open is nil for a disk without a journal.
func open(path string, boot uuid.UUID) (*journal.Writer, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_DIRECT|unix.O_SYNC|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	disk := os.NewFile(uintptr(fd), path)
	// Memory of the kernel's own giving begins at a page, as devices that go past caches want it.
	buf, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	switch _, err := disk.ReadAt(buf[:journal.Sector], journal.Start); {
	case errors.Is(err, io.EOF), err == nil && !journal.IsHead(buf):
		return nil, disk.Close() // too small for one, or without one
	case err != nil:
		return nil, err
	}
	return journal.NewWriter(disk, boot, buf)
}

func write(name string, w *journal.Writer) error {
	slept := false
	for turn := time.NewTicker(pace); ; <-turn.C {
		if err := w.Write(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if w.Done()%50 == 0 {
			fmt.Printf("JOURNAL %s counter %d\n", name, w.Done())
		}
		if slept || w.Done()%10 != 0 {
			continue
		}
		switch sleep, err := w.SleepAsked(); {
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		case sleep:
			slept = true // once a boot
			fmt.Printf("JOURNAL %s suspends to RAM at counter %d\n", name, w.Done())
			if err := os.WriteFile("/sys/power/state", []byte("mem"), 0); err != nil {
				fmt.Println("JOURNAL", name, err)
			}
		}
	}
}
