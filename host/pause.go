package host

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"

	"salvor/compute"
)

// roomToGoOn is the room in bytes that a file system must have before a guest goes on after an I/O error. Less room on a small file system is
// enough: a twentieth of its size.
const roomToGoOn = 256 << 20

// addRoom tells of a guest that an I/O error has paused which of its disks have no room, and whether all have room again. A disk that is no file says
// nothing. The text has no figure, because a control plane that gets another text changes the server's row and adds an event.
func (a *Agent) addRoom(ctx context.Context, g *compute.Guest) {
	if g.Power != compute.PowerPaused || g.Pause.Reason != compute.PausedByIOError {
		return
	}
	var texts []string
	looked := 0
	for _, disk := range g.Disks {
		enough, err := a.hasRoom(ctx, disk.File)
		switch {
		case err != nil:
			texts = append(texts, fmt.Sprintf("%s: %v", disk.Name, err))
		case !enough:
			g.Pause.Full = true
			texts = append(texts, disk.Name+": there is no room in "+a.placeOf(disk.File))
		default:
			looked++
		}
	}
	g.Pause.Disks, g.Pause.HasRoom = strings.Join(texts, ", "), len(texts) == 0 && looked > 0
}

// placeOf names where a file lies.
func (a *Agent) placeOf(file string) string {
	if s := a.storeWith(file); s != nil {
		return "disk store " + s.Name
	}
	return filepath.Dir(file)
}

// hasRoom tells whether the file system of a file has enough room for a guest to go on.
func (a *Agent) hasRoom(ctx context.Context, file string) (bool, error) {
	fs, err := withFileTimeout(ctx, a, file, func() (fs syscall.Statfs_t, err error) { err = syscall.Statfs(file, &fs); return fs, err })
	if err != nil {
		return false, err
	}
	size := uint64(fs.Bsize)
	return fs.Bavail*size >= max(1, min(roomToGoOn, fs.Blocks*size/20)), nil
}
