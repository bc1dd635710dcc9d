package compute

import (
	"fmt"
	"slices"
	"time"

	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
)

// PauseReason is why a guest that should run stands still, although nobody asked salvor for that. All but SavedOutside and
// SavedToFile are libvirt's words.
type PauseReason string

const (
	// PausedByIOError: QEMU stopped the guest because a disk could not be read or written, usually because a file system of the host is full.
	PausedByIOError PauseReason = "ioerror"
	// PausedByUser: an administrator suspended it on its host (virsh suspend).
	PausedByUser PauseReason = "user"
	// PausedBySleep: its own system suspended to RAM.
	PausedBySleep PauseReason = "pmsuspended"
	// PausedByWatchdog and PausedByPanic: a device of the guest found its system hung or in panic.
	PausedByWatchdog PauseReason = "watchdog"
	PausedByPanic    PauseReason = "crashed"
	// PausedBySnapshot: somebody put it back to a snapshot of a paused guest (virsh snapshot-revert).
	PausedBySnapshot PauseReason = "from-snapshot"
	// PausedByPostcopy: a post-copy migration failed that somebody else began (virsh migrate --postcopy). A part of its memory is at the other host, where it
	// ran on: it must not go on here with the rest.
	PausedByPostcopy PauseReason = "postcopy-failed"
	// PausedUnknown: libvirt tells no reason, or one that this release does not know.
	PausedUnknown PauseReason = "unknown"
	// SavedOutside: its memory was saved to its host's disk (virsh managedsave, libvirt-guests).
	SavedOutside PauseReason = "saved"
	// SavedToFile: its memory was saved to a file that somebody named (virsh save). To the hypervisor the guest is off: the next start gives that memory up.
	SavedToFile PauseReason = "saved-to-file"
)

// GuestPause is why a guest stands still. The zero value: it runs, salvor stopped it, or libvirt stops it for a moment.
type GuestPause struct {
	Reason PauseReason `json:"reason,omitempty"`
	// Disks, of PausedByIOError, is the host's text on the disks that have no room: "vda: there is no room in disk store shared". It names stores and
	// paths, so Describe quotes it, and no figure, because a server whose text differs gets a new event.
	Disks string `json:"disks,omitempty"`
	// Full, of PausedByIOError: a file system that holds a disk has no room.
	Full bool `json:"full,omitempty"`
	// HasRoom, of PausedByIOError: all files of its disks lie where there is room, so it may go on. Servers do not keep it.
	HasRoom bool `json:"has_room,omitempty"`
}

// bounded is the pause as a server keeps it.
func (p GuestPause) bounded() GuestPause {
	return GuestPause{Reason: p.Reason, Disks: cut(p.Disks), Full: p.Full}
}

// Describe says in words why the guest stands still. It accuses nobody: salvor itself may have suspended or saved the guest, and have lost the answer.
func (p GuestPause) Describe() string {
	switch p.Reason {
	case PausedByIOError:
		if p.Disks != "" {
			return "I/O error of its disks: " + problem.Quote(p.Disks)
		}
		return "I/O error of its disks"
	case PausedByUser:
		return "suspended on its host"
	case PausedBySleep:
		return "its own system suspended to RAM"
	case PausedByWatchdog:
		return "its watchdog found its system hung"
	case PausedByPanic:
		return "its system is in panic"
	case PausedBySnapshot:
		return "put back to a snapshot on its host, and paused since then"
	case PausedByPostcopy:
		return "a post-copy migration failed, so a part of its memory lies on another host; virsh migrate --postcopy-resume completes it, and a hard reboot gives the memory up"
	case PausedUnknown:
		return "paused on its host; the hypervisor does not tell why"
	case SavedOutside:
		return "its memory was saved on its host"
	case SavedToFile:
		return "its memory was saved to a file on its host (virsh save); virsh restore goes on with that memory, and a start gives it up"
	}
	return fmt.Sprintf("%.40q", string(p.Reason))
}

// Continue is the action of the Compute API that lets a guest go on which stands still for the reason.
func (p GuestPause) Continue() Action {
	if p.Reason == SavedToFile {
		return Start // with new memory
	}
	switch p.Reason {
	case SavedOutside, PausedBySleep:
		return Resume
	case PausedByPostcopy:
		return RebootHard // with new memory
	}
	return Unpause
}

// commandToContinue is the command line that lets a server go on by the action.
func commandToContinue(a Action, server string) string {
	if a == RebootHard {
		return "salvor server reboot --hard " + server
	}
	return "salvor server " + string(a) + " " + server
}

// StandsStill tells whether the server should run, and its guest stands still for a reason of its own. A rescue system that went on keeps its last reason
// in the row.
func (s *Server) StandsStill() bool {
	still := s.Power == PowerPaused || s.Power == PowerSaved || s.Power == PowerOff && s.Pause.Reason == SavedToFile
	return s.Pause.Reason != "" && s.Wanted == PowerOn && still
}

// DescribeStandstill tells why the server stands still, and the command that lets it go on; empty: it does not. Users read it, so it says
// nothing of the files of the host.
func (s *Server) DescribeStandstill() string {
	if !s.StandsStill() {
		return ""
	}
	return fmt.Sprintf("%s; first let it go on: %s", GuestPause{Reason: s.Pause.Reason}.Describe(), commandToContinue(s.Pause.Continue(), s.ID))
}

// StandStill records a guest that stands still. Wanted stays as it is: the server should run.
func (s *Server) StandStill(power Power, p GuestPause) {
	s.Power, s.Pause = power, p.bounded()
	switch {
	case s.State == Rescued && s.Rescue != nil && s.Rescue.State != rescue.Failed:
	case s.Pause.Reason == SavedToFile:
		s.State = Stopped
	case s.Pause.Continue() == Resume:
		s.State = Suspended
	default:
		s.State = Paused
	}
}

// BeginStandstill notes that a guest which ran was found to stand still. libvirt's reason is the same for a full file system and for any other I/O error, so
// this first look decides: the guest waits for room if a file system of its disks has none now.
func (s *Server) BeginStandstill(now time.Time) {
	s.StandsStillSince, s.AwaitsRoom = now.UTC(), s.Pause.Full
}

// Bounds of the tries to let a guest go on after an I/O error: the pause doubles from the first to the longest, and maxResumes tries in a row are all. They
// begin anew after the guest has run for resumeForgets, and when somebody asks salvor to let it go on or to start it.
const (
	firstResumePause   = time.Minute
	longestResumePause = time.Hour
	resumeForgets      = 3 * time.Hour
	maxResumes         = 8
)

// never is later than any time that is compared with it.
var never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// resumesInVain are the times of the tries after which the guest soon stood still again.
func (s *Server) resumesInVain() []time.Time {
	if n := len(s.Resumes); n > 0 && s.StandsStillSince.Sub(s.Resumes[n-1]) > resumeForgets {
		return nil
	}
	return s.Resumes
}

// NextResume is when salvor lets the guest go on at the earliest after an I/O error, if all its disks have room. The zero time: at once. A time in the
// year 9999: salvor does not, because the guest does not wait for room, or because all tries were in vain.
func (s *Server) NextResume() time.Time {
	tries := s.resumesInVain()
	n := len(tries)
	switch {
	case !s.AwaitsRoom || s.Power != PowerPaused || n >= maxResumes:
		return never
	case n == 0:
		return time.Time{}
	}
	return tries[n-1].Add(min(firstResumePause<<(n-1), longestResumePause))
}

// CountResume notes a try to let the guest go on.
func (s *Server) CountResume(now time.Time) {
	s.Resumes = append(slices.Clone(s.resumesInVain()), now.UTC())
}

// describeResume says whether salvor lets the guest go on by itself after an I/O error, and when.
func (s *Server) describeResume() string {
	switch next := s.NextResume(); {
	case !s.AwaitsRoom:
		return "salvor does not let it go on by itself, because no file system of its disks was full: mend the storage first"
	case len(s.resumesInVain()) >= maxResumes:
		return fmt.Sprintf("salvor let it go on %d times in vain and does not try again by itself: mend the storage first", maxResumes)
	case next.IsZero():
		return "salvor lets it go on when there is room for its disks"
	default:
		return "salvor lets it go on when there is room for its disks, at " + record.Moment(next) + " at the earliest"
	}
}
