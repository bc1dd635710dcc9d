//go:build e2e

package evacuate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"salvor/lab"
	"salvor/test/evacuate/journal"
	"salvor/test/must"
)

// takeSnapshot has the guest write to an overlay, as backup tools do.
func takeSnapshot(f *foreignScene) string {
	f.Helper()
	f.round++
	overlay := fmt.Sprintf("%s.ov%d", f.disk, f.round)
	f.virsh("snapshot-create-as", f.guest, "s", "--disk-only", "--no-metadata", "--diskspec", "vda,file="+overlay)
	return overlay
}

// pivot has the guest go on in a copy of its disk, as administrators do who move disks.
func pivot(f *foreignScene) string {
	f.Helper()
	f.round++
	moved := fmt.Sprintf("%s.moved%d", f.disk, f.round)
	f.virsh("blockcopy", f.guest, "vda", "--dest", moved, "--format", "raw", "--transient-job", "--wait", "--pivot")
	return moved
}

// movedDisk is the row of a tool that has the guest go on in another file. Starts go on there. What would leave the file behind refuses.
func movedDisk(move func(*foreignScene) string) func(*foreignScene) {
	return func(f *foreignScene) {
		f.file = move(f)
		f.awaitWhy(f.file)
		refuses := []string{f.file, "virsh block", f.guest}
		cell := func(operation string, words []string, run func() (string, refusal)) {
			before := f.written()
			f.cell(operation, words, run, func() {
				f.keepsWrites(before)
				if source := f.source("vda"); source != f.file {
					f.Errorf("%s, then %s: the guest uses %s, want %s", f.row, operation, source, f.file)
				}
			})
		}
		cell("stop and start", nil, f.stopAndStart)
		cell("crash", nil, f.killed("KILL"))
		cell("SIGTERM of QEMU", nil, f.killed("TERM"))
		cell("hard reboot", nil, f.hardReboot)
		cell("drain", refuses, f.drain)
		cell("live move", refuses, f.moveLive)
		cell("cold move", refuses, f.moveCold)
		cell("rebuild", refuses, f.rebuild)
		cell("rescue and unrescue", nil, f.rescue)
		cell("evacuation", refuses, f.evacuate)
		before := f.written()
		f.mend()
		f.file = f.disk
		f.keepsWrites(before)
		f.file = move(f)
		f.awaitWhy(f.file)
		f.remove()
	}
}

// mend runs the command that `why` prints, and waits until salvor sees nothing of others any more.
func (f *foreignScene) mend() {
	f.Helper()
	out := f.CLI("why", "server:"+f.server)
	command := regexp.MustCompile(`virsh block\S+ [^\n(”]*`).FindString(out)
	if command == "" {
		f.Fatalf("`why` prints no command of virsh:\n%s", out)
	}
	f.virsh(strings.Fields(command)[1:]...)
	f.Await("the disk is where salvor made it", func() bool {
		out, err := f.TryCLI("", "why", "server:"+f.server)
		return err == nil && f.source("vda") == f.disk && !strings.Contains(out, "virsh")
	})
	f.forgetFiles()
}

// forgetFiles removes what tools of others have left beside the disk.
func (f *foreignScene) forgetFiles() {
	f.Helper()
	for _, file := range must.Get(filepath.Glob(f.disk + ".[om]*"))(f) {
		f.lay(os.RemoveAll(file))
	}
}

// addedDisk is the row of a disk that somebody added with virsh: it stays at the guest, and keeps the guest at its host.
func addedDisk(f *foreignScene) {
	more := filepath.Join(f.store, "more.img")
	makeVolume(f.T, more)
	defer os.Remove(more)
	f.virsh("attach-disk", f.guest, more, "vdb", "--driver", "qemu", "--subdriver", "raw", "--cache", "none", "--config")
	f.CLI("server", "reboot", "--hard", f.server, "--wait")
	f.awaitWhy(more)
	f.file = more
	cell := func(operation string, words []string, run func() (string, refusal)) {
		before := f.written()
		f.cell(operation, words, run, func() {
			f.keepsWrites(before)
			if source := f.source("vdb"); source != more {
				f.Errorf("%s, then %s: the disk is %q, want %s", f.row, operation, source, more)
			}
		})
	}
	refuses := []string{more, "virsh detach-disk " + f.guest + " vdb --persistent"}
	cell("stop and start", nil, f.stopAndStart)
	cell("crash", nil, f.killed("KILL"))
	cell("hard reboot", nil, f.hardReboot)
	cell("drain", refuses, f.drain)
	cell("live move", refuses, f.moveLive)
	cell("rebuild", refuses, f.rebuild)
	cell("rescue and unrescue", refuses[1:], f.rescue) // the rescue system needs the place of the disk
	cell("evacuation", refuses, f.evacuate)
	f.remove()
	if _, err := os.Stat(more); err != nil {
		f.Errorf("%s, then removal: a file that salvor did not make: %v", f.row, err)
	}
}

// standsStill has salvor do all that a guest which stands still must refuse, because its memory would be lost.
func (f *foreignScene) standsStill(stays func()) {
	f.Helper()
	for _, o := range []struct {
		name string
		run  func() (string, refusal)
	}{
		{"stop and start", f.stop}, {"drain", f.drain}, {"live move", f.moveLive}, {"cold move", f.moveCold}, {"rebuild", f.rebuild}, {"rescue and unrescue", f.rescue},
	} {
		f.cell(o.name, []string{f.id}, o.run, stays)
	}
}

// managedSave is the row of a guest whose memory somebody else saved (virsh managedsave, libvirt-guests): nothing gives the memory up without a word.
func managedSave(f *foreignScene) {
	save := func() []journal.Run {
		f.Helper()
		// For 30 s after the return of a host salvor takes a guest that is saved for one that its end saved, and lets it go on.
		f.Await("the saved guest is shown", func() bool {
			if f.virsh("domstate", f.guest) == "running" {
				f.virsh("managedsave", f.guest)
			}
			return f.Show("server", f.server)["status"] == "SUSPENDED"
		})
		return f.written()
	}
	saved := func() {
		f.Helper()
		if state := f.virsh("domstate", f.guest); state != "shut off" || !strings.Contains(f.virsh("dominfo", f.guest), "Managed save:   yes") {
			f.Errorf("%s: the guest is %s, and its memory is not saved any more", f.row, state)
		}
	}
	before := save()
	f.standsStill(saved)
	f.cell("resume", nil, func() (string, refusal) { return f.try("server", "resume", f.server, "--wait") }, func() { f.keepsMemory(before) })
	before = save()
	f.cell("power cut of its host", nil, func() (string, refusal) {
		f.do(f.at, lab.HostOff)
		f.do(f.at, lab.HostOn)
		f.is("ACTIVE")
		return "", nil
	}, func() { f.keepsMemory(before) })
	before = save()
	f.cell("hard reboot", nil, func() (string, refusal) {
		_, refused := f.hardReboot()
		return f.newest("memory"), refused
	}, func() { f.keepsWrites(before); f.wantEvent("memory") })
	before = save()
	f.cell("evacuation", nil, f.evacuate, func() { f.keepsWrites(before); f.wantEvent("memory") })
	save()
	f.remove()
}

// wantEvent wants a word in the newest events.
func (f *foreignScene) wantEvent(word string) {
	f.Helper()
	if f.newest(word) == "" {
		f.Errorf("%s: no event says %q:\n%s", f.row, word, f.events(20))
	}
}

// fill takes all room in the disk store away, and waits until QEMU has paused the guest.
func (f *foreignScene) fill() {
	f.Helper()
	// The guest's next blocks are holes, so that its next writes need room.
	_, n := f.journalOf(f.file)
	at := (journal.EntryAt(n+500) + 4095) / 4096 * 4096
	disk := must.Get(os.OpenFile(f.file, os.O_WRONLY, 0))(f)
	const punchHole, keepSize = 2, 1
	f.lay(errors.Join(syscall.Fallocate(int(disk.Fd()), punchHole|keepSize, at, 8<<20), disk.Close()))
	f.fillStore()
	f.Await("QEMU pauses the guest", func() bool { return strings.Contains(f.virsh("domstate", "--reason", f.guest), "I/O error") })
	f.is("PAUSED")
}

func (f *foreignScene) ballast() string { return filepath.Join(f.store, "ballast") }

func (f *foreignScene) fillStore() {
	f.Helper()
	ballast := must.Get(os.OpenFile(f.ballast(), os.O_CREATE|os.O_WRONLY, 0o600))(f)
	defer ballast.Close()
	var size int64
	for chunk := int64(64 << 20); chunk >= 4096; { // as long as there is room
		if err := syscall.Fallocate(int(ballast.Fd()), 0, size, chunk); err != nil {
			chunk /= 2
			continue
		}
		size += chunk
	}
}

func (f *foreignScene) makeRoom() {
	f.Helper()
	f.lay(os.Remove(f.ballast()))
}

// ioError is the row of a store that is full: QEMU pauses the guest, which keeps its memory until there is room.
func ioError(f *foreignScene) {
	f.fill()
	before := f.written()
	paused := func() {
		f.Helper()
		if state := f.virsh("domstate", "--reason", f.guest); !strings.Contains(state, "I/O error") {
			f.Errorf("%s: the guest is %s", f.row, state)
		}
	}
	f.standsStill(paused)
	f.cell("room again", nil, func() (string, refusal) {
		f.makeRoom()
		f.is("ACTIVE")
		return f.newest("there is room"), nil
	}, func() { f.keepsMemory(before) })
	// The next try to let it go on is a minute later: a user need not wait for that.
	f.fill()
	before = f.written()
	f.cell("unpause", nil, func() (string, refusal) {
		f.makeRoom()
		return f.try("server", "unpause", f.server, "--wait")
	}, func() { f.keepsMemory(before) })
	// Those that boot anew have the room back at the end only: the boot pauses too, and goes on.
	again := func(operation string, run func() (string, refusal)) {
		f.fill()
		before = f.written()
		f.cell(operation, nil, func() (string, refusal) {
			said, refused := run()
			if _, err := os.Stat(f.ballast()); err == nil {
				f.makeRoom()
			}
			f.Await("another boot writes", func() bool {
				if f.Show("server", f.server)["status"] == "PAUSED" {
					f.try("server", "unpause", f.server)
				}
				e, n := f.journalOf(f.file)
				return n > 0 && e.Boot != before[len(before)-1].Boot
			})
			return said, refused
		}, func() { f.keepsWrites(before) })
	}
	again("hard reboot", f.hardReboot)
	again("crash", func() (string, refusal) { f.signalQEMU("KILL"); return "started again", nil })
	again("evacuation", func() (string, refusal) {
		from := f.at
		plan := f.lose(from)
		f.CLI("evacuate", "run", from)
		f.awaitWhy("no space left on device") // the lease of its disk cannot be written, so the destination tries again
		f.makeRoom()
		f.Await("the server has moved", func() bool {
			return f.hostOf(f.server) != from && f.Show("server", f.server)["OS-EXT-STS:task_state"] == nil
		})
		f.restore(from)
		return f.moved(plan), nil
	})
	f.fill()
	f.remove()
	f.makeRoom()
}

// uefiMark is the value of a variable that somebody enrolled, and uefiVariable its name.
const uefiMark, uefiVariable = "what someone enrolled", "Boot5A17"

// uefiAndDevice are the rows of UEFI variables that were changed, and of a device that was added with virsh. One guest has both.
func uefiAndDevice(f *foreignScene) {
	f.CLI("server", "stop", f.server, "--wait")
	f.lay(lab.AddUEFIVariable(f.variables(), uefiVariable, []byte(uefiMark)))
	device := filepath.Join(f.Dir, "device.xml")
	f.lay(os.WriteFile(device, []byte(`<watchdog model='i6300esb' action='none'/>`), 0o600))
	f.virsh("attach-device", f.guest, device, "--config")
	f.CLI("server", "start", f.server, "--wait")
	f.growsBy(f.file, 1)
	f.awaitWhy("watchdog")
	// Each cell is one of both rows. What is lost must be told, by the plan and on the timeline.
	cell := func(operation string, run func() (string, refusal), deviceGoes string) {
		var said string
		var took time.Duration
		rows := []struct {
			row, lost string
			is        func() bool
		}{
			{"UEFI variables", "", func() bool { return strings.Contains(string(must.Get(os.ReadFile(f.variables()))(f)), uefiMark) }},
			{"device added by hand", deviceGoes, func() bool { return strings.Contains(f.virsh("dumpxml", "--inactive", f.guest), "i6300esb") }},
		}
		before := f.written()
		if operation == "rebuild" {
			before = nil // the new disk has a new journal
		}
		f.row = rows[0].row
		f.cell(operation, nil, run, func() { f.keepsWrites(before) })
		last := f.cells[len(f.cells)-1]
		said, took = last.verdict, last.took
		f.cells = f.cells[:len(f.cells)-1]
		for _, r := range rows {
			verdict := "goes on: it is kept"
			switch is := r.is(); {
			case is && r.lost != "":
				f.Errorf("%s, then %s: it is kept; want it lost, as the test was written", r.row, operation)
			case !is && r.lost == "":
				f.Errorf("%s, then %s: it is gone; said: %s", r.row, operation, said)
			case !is:
				verdict = "goes on without: " + said
				if n := strings.Count(said, r.lost); n < 2 {
					f.Errorf("%s, then %s: it is gone, and %q says %d times %q; want the plan and the timeline to say it", r.row, operation, said, n, r.lost)
				}
			}
			f.cells = append(f.cells, foreignCell{r.row, operation, verdict, took})
			took = 0
		}
	}
	cell("stop and start", f.stopAndStart, "")
	cell("crash", f.killed("KILL"), "")
	cell("hard reboot", f.hardReboot, "")
	cell("live move", f.moveLive, "")
	cell("drain", f.drain, "")
	cell("rescue and unrescue", f.rescue, "")
	cell("rebuild", func() (string, refusal) { return f.rebuildWith("uefi") }, "")
	cell("drain while it is off", func() (string, refusal) {
		f.CLI("server", "stop", f.server, "--wait")
		said, refused := f.drain()
		said += "; timeline: " + f.newest("is moved to another host")
		f.at = f.hostOf(f.server)
		f.CLI("server", "start", f.server, "--wait")
		return said, refused
	}, "watchdog")
	f.virsh("attach-device", f.guest, device, "--config")
	f.awaitWhy("watchdog")
	cell("evacuation", f.evacuate, "watchdog") // the variables lie beside the disk in the shared store too
	f.remove()
}

// variables is the file of the guest's UEFI variables.
func (f *foreignScene) variables() string {
	f.Helper()
	return filepath.Join(f.hostDir(f.at), "lib", "qemu", "nvram", f.id+"_VARS.fd")
}

// sleeping is the row of a guest whose own system suspended to RAM.
func sleeping(f *foreignScene) {
	sleep := func() []journal.Run {
		f.Helper()
		f.askForSleep([]byte("sleep"))
		f.Await("the guest suspends to RAM", func() bool { return f.virsh("domstate", f.guest) == "pmsuspended" })
		f.askForSleep(make([]byte, 5))
		f.is("SUSPENDED")
		return f.written()
	}
	before := sleep()
	asleep := func() {
		f.Helper()
		if state := f.virsh("domstate", f.guest); state != "pmsuspended" {
			f.Errorf("%s: the guest is %s", f.row, state)
		}
	}
	f.standsStill(asleep)
	f.cell("resume", nil, func() (string, refusal) { return f.try("server", "resume", f.server, "--wait") }, func() { f.keepsMemory(before) })
	f.remove()
}

// askForSleep writes where the guest looks for the wish to suspend to RAM.
func (f *foreignScene) askForSleep(what []byte) {
	f.Helper()
	disk := must.Get(os.OpenFile(f.file, os.O_WRONLY, 0))(f)
	defer disk.Close()
	must.Get(disk.WriteAt(what, journal.SleepAt))(f)
	must.OK(f, disk.Sync())
}
