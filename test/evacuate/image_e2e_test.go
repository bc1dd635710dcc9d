//go:build e2e

package evacuate

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"salvor/lab"
	"salvor/test/evacuate/journal"
	"salvor/test/must"
)

// makeSystem writes the image of a server whose only program keeps a journal.
func makeSystem(t *testing.T, dir string) string {
	t.Helper()
	program := filepath.Join(dir, "guest")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w", "-o", program, "./journal/guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the guest: %v\n%s", err, out)
	}
	system := filepath.Join(dir, "system.img")
	must.OK(t, lab.MakeAppliance(t.Context(), dir, system, program, journal.Size))
	addHead(t, system)
	return system
}

// makeVolume is a disk with a journal only.
func makeVolume(t *testing.T, path string) string {
	t.Helper()
	must.OK(t, os.WriteFile(path, nil, 0o600))
	addHead(t, path)
	return path
}

func addHead(t *testing.T, path string) {
	t.Helper()
	disk := must.Get(os.OpenFile(path, os.O_RDWR, 0))(t)
	defer disk.Close()
	must.OK(t, disk.Truncate(journal.Size))
	head := make([]byte, journal.Sector)
	journal.Head(head)
	must.Get(disk.WriteAt(head, journal.Start))(t)
}
