//go:build e2e

package evacuate

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"salvor/lab"
	"salvor/test/evacuate/journal"
)

// backupsOfARow is how many backups are taken beside the operations of salvor.
const backupsOfARow = 10

// restOfBackups is for how long the tool rests twice, so that the host tells that nothing is changed, and a drain moves the server.
const restOfBackups = 15 * time.Second

// backupRounds is the row of a backup tool that works while salvor moves the server: a snapshot, a copy of the disk below it, and blockcommit. Hosts are
// drained meanwhile, and one is evacuated. Each copy is sound, and the guest loses nothing.
func backupRounds(f *foreignScene) {
	f.diesAfterSnapshot()
	start, before := time.Now(), f.written()
	b := &backupTool{foreignScene: f, done: make(chan struct{})}
	go b.run()
	drains, evacuated := map[bool]int{}, map[bool]int{}
	for going := true; going; {
		select {
		case <-b.done:
			going = false
			continue
		default:
		}
		f.at = f.hostOf(f.server)
		if b.taken.Load() >= backupsOfARow/2 && len(evacuated) == 0 {
			_, refused := f.evacuate()
			evacuated[refused == nil]++
			continue
		}
		_, refused := f.drain()
		drains[refused == nil]++
		time.Sleep(time.Second) // the tool works at its own pace
	}
	for _, failure := range b.failures {
		f.Errorf("%s: %s", f.row, failure)
	}
	f.at = f.hostOf(f.server)
	_, refused := f.evacuate()
	evacuated[refused == nil]++
	f.at = f.hostOf(f.server)
	f.Await("the disk is where salvor made it", func() bool { return f.source("vda") == f.disk })
	f.keepsWrites(before)
	if drains[true] == 0 || drains[false] == 0 || evacuated[true] == 0 {
		f.Errorf("%s: drains %v, evacuations %v; want some that moved the server, and some drains that were refused", f.row, drains, evacuated)
	}
	verdict := fmt.Sprintf("goes on: %d backups, %d retries, %d entries, none lost; drains: %d moved, %d refused", b.taken.Load(), b.retries, entries(f.written()), drains[true], drains[false])
	f.cells = append(f.cells, foreignCell{f.row, "drains and evacuation", fmt.Sprintf("%s; evacuations: %d moved, %d refused", verdict, evacuated[true], evacuated[false]), time.Since(start)})
	f.remove()
}

func entries(runs []journal.Run) (n uint64) {
	for _, r := range runs {
		n += r.Entries
	}
	return n
}

// diesAfterSnapshot cuts the power of the host just after a snapshot, before the host could tell of it.
func (f *foreignScene) diesAfterSnapshot() {
	f.file = takeSnapshot(f)
	f.growsBy(f.file, 8)
	f.do(f.at, lab.HostOff)
	before := f.written()
	f.cell("evacuation just after a snapshot", []string{f.file, f.id}, f.evacuate, func() { f.keepsWrites(before) })
	f.virsh("blockcommit", f.guest, "vda", "--active", "--pivot", "--wait")
	f.file = f.disk
	f.forgetFiles()
}

// backupTool takes backups until it has so many. It works in a goroutine of its own, so it collects what goes wrong.
type backupTool struct {
	*foreignScene
	taken    atomic.Int32
	retries  int
	failures []string
	done     chan struct{}
}

func (b *backupTool) run() {
	defer close(b.done)
	for end := time.Now().Add(longest * 4); b.taken.Load() < backupsOfARow; {
		if time.Now().After(end) {
			b.failures = append(b.failures, fmt.Sprintf("only %d of %d backups were taken", b.taken.Load(), backupsOfARow))
			return
		}
		if b.backup(int(b.taken.Load()) + b.retries) {
			if n := b.taken.Add(1); n == 2 || n == 7 {
				time.Sleep(restOfBackups)
			}
		} else {
			b.retries++
			time.Sleep(500 * time.Millisecond) // the host or the guest is away
		}
	}
}

// backup takes one; false: the host or the guest was away, or something else worked on the guest.
func (b *backupTool) backup(n int) bool {
	overlay := fmt.Sprintf("%s.backup%d", b.disk, n)
	at := b.hostOf(b.server)
	if at == "" {
		return false
	}
	if out, err := b.tryVirsh(at, "snapshot-create-as", b.guest, "backup", "--disk-only", "--no-metadata", "--diskspec", "vda,file="+overlay); err != nil {
		b.Logf("backup %d: no snapshot: %v: %s", n, err, out)
		return b.merge(n, overlay) && false
	}
	copied := b.Dir + "/backup.img"
	if out, err := exec.Command("cp", "--sparse=always", b.disk, copied).CombinedOutput(); err != nil {
		b.failures = append(b.failures, fmt.Sprintf("backup %d: %v: %s", n, err, out))
	} else if disk, err := os.Open(copied); err != nil {
		b.failures = append(b.failures, err.Error())
	} else {
		if _, err := journal.Check(disk); err != nil {
			b.failures = append(b.failures, fmt.Sprintf("backup %d is not sound: %v", n, err))
		}
		disk.Close()
	}
	return b.merge(n, overlay)
}

// merge ends the snapshot wherever the guest is by now, and removes the overlay once the guest uses it no more.
func (b *backupTool) merge(n int, overlay string) bool {
	for end := time.Now().Add(2 * longest); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		at := b.hostOf(b.server)
		if at == "" {
			continue
		}
		disks, err := b.tryVirsh(at, "domblklist", b.guest)
		switch {
		case err != nil:
		case !strings.Contains(disks, overlay) && strings.Contains(disks, b.disk):
			_ = os.Remove(overlay)
			return true
		default:
			if out, err := b.tryVirsh(at, "blockcommit", b.guest, "vda", "--active", "--pivot", "--wait"); err != nil {
				b.Logf("backup %d: not merged at %s: %v: %s", n, at, err, out)
			}
		}
	}
	b.failures = append(b.failures, fmt.Sprintf("backup %d: %s was not merged", n, overlay))
	return true
}
