// Package examine looks at all disks of the machine that the ramdisk runs in, and changes no byte of them. It sets each disk read-only and lays
// an overlay in memory over it. Journals replay in the overlays, arrays and volumes are assembled on them, and rules read what is mounted.
// Checkers of the examined system run in a sandbox over the same overlays, unless the request forbids that.
// The package must not know HTTP endpoints, tokens, or how the server was found.
package examine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"salvor/agent/disk"
	"salvor/agent/efi"
	"salvor/agent/sandbox"
	"salvor/diagnose"
	"salvor/problem"
)

const (
	// workDir is a tmpfs while an examination runs: it holds the overlays and the mount points.
	workDir = "/run/salvor/examine"
	// keptDir is a tmpfs while a session is open: it holds the overlays of a repair.
	keptDir = "/run/salvor/repair"
	// lockFile is held by the one examination that runs or the session that is open, readOnlyFile lists the devices that one has set read-only.
	lockFile     = "/run/salvor/examine-lock"
	readOnlyFile = "/run/salvor/examine-readonly"
	// overlayShare is the part of the free memory that all overlays together may take.
	overlayShare = 4
	// MaxAnswer bounds an Examination as JSON, in bytes.
	MaxAnswer = 1 << 20
)

// Key opens LUKS containers. It is not printed, and Run overwrites it with zeros when it ends.
type Key []byte

// Format masks the key under every verb of fmt.
func (Key) Format(s fmt.State, _ rune) { fmt.Fprint(s, "******") }

// LogValue masks the key in logs.
func (Key) LogValue() slog.Value { return slog.StringValue("******") }

// Request says what an examination needs to know from outside of the machine.
type Request struct {
	// NetworkData is the network_data.json that the control plane knows for the machine; may be empty.
	NetworkData json.RawMessage
	// Now is the time by the control plane's clock; the zero time: the machine's own clock is taken.
	Now time.Time
	// Keys are tried on every LUKS container.
	Keys []Key
	// KeysByUUID are tried on the container of a UUID, in lower case, before Keys.
	KeysByUUID map[string][]Key
	// Rules are asked about each system that is found.
	Rules []diagnose.Rule
	// OnlyRead: no program of an examined system runs.
	OnlyRead bool
	Log      *slog.Logger
}

// ClearKeys overwrites all keys with zeros.
func (r Request) ClearKeys() {
	for _, k := range r.Keys {
		clear(k)
	}
	for _, keys := range r.KeysByUUID {
		for _, k := range keys {
			clear(k)
		}
	}
}

// examinationRun is the state of one run.
type examinationRun struct {
	Request
	tools    toolRunner
	kernel   *kernelLog
	errors   *kernelLog      // is read for errors of disks alone
	unread   map[string]bool // paths of disks that do not give a sector
	devices  []*device
	disks    []*examinedDisk
	arrays   []diagnose.Array
	groups   []diagnose.VolumeGroup
	checks   []diagnose.Check
	physical int  // volumes of LVM that were looked at
	scanned  bool // the kernel has forgotten the devices of btrfs that are no overlays
	gaps     []diagnose.Gap
	places   int                      // mount points made so far, for their names
	mounts   int                      // mounts that exist
	volumes  map[string][]btrfsVolume // of each btrfs, by the path of its device
	closers  []io.Closer              // what is open on mounted file systems and devices
	loops    map[string]bool          // names (loop1) of the loop devices over the overlays of this run
	// session is set where the disks of a session are examined or mended, instead of the machine's own.
	session *OverlaySession
	// mending: file systems of the wanted roots are mounted writable, and arrays are started so.
	mending bool
	wanted  map[string]bool   // devices of the roots to mend
	mounted map[string]bool   // nodes of what is mounted writable
	roots   map[string]string // mount points of the roots, by their devices
	runner  *sandbox.Runner   // of programs of the systems; nil until one is asked
}

// device is a block device of the machine with the node by which it is read: of its overlay, or of what lies on overlays.
type device struct {
	diagnose.Device
	node string
	// at is where its file system is mounted by itself; empty where it is not.
	at string
	// member is the UUID_SUB of a btrfs, which each of its devices has for itself.
	member string
	// disk is the path of the disk that it lies on, the first one of several.
	disk string
}

// examinedDisk is one disk with its overlay.
type examinedDisk struct {
	diagnose.ExaminedDisk
	overlays []string // names of device-mapper devices
	written  int64    // by the kernel's count at the beginning
}

// Run examines the machine. A second run at the same time is problem.Conflict. What a run left that was killed is taken down first.
func Run(ctx context.Context, r Request) (*diagnose.Examination, error) {
	defer r.ClearKeys()
	if r.Log == nil {
		r.Log = slog.New(slog.DiscardHandler)
	}
	lock, err := takeLock()
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	return examineOnce(ctx, r, nil)
}

// newRun is a run that has done nothing yet.
func newRun(r Request, s *OverlaySession) *examinationRun {
	return &examinationRun{
		Request: r, volumes: map[string][]btrfsVolume{}, loops: map[string]bool{}, tools: toolRunner{log: r.Log}, session: s,
		mounted: map[string]bool{}, roots: map[string]string{}, unread: map[string]bool{},
	}
}

// examineOnce examines the machine, or the overlays of a session. The lock is held.
func examineOnce(ctx context.Context, r Request, s *OverlaySession) (*diagnose.Examination, error) {
	began := time.Now()
	x := newRun(r, s)
	if err := x.takeDown(ctx); err != nil {
		return nil, fmt.Errorf("take down what an earlier examination left: %w", err)
	}
	answer, err := x.run(ctx)
	x.closeAll()
	// A cancelled examination is taken down too.
	if down := x.takeDown(context.WithoutCancel(ctx)); down != nil {
		r.Log.Warn("the overlays of an examination could not be taken down; the next examination tries again", "error", down)
	}
	if err != nil {
		return nil, err
	}
	for i, d := range x.disks {
		answer.Disks[i].Written = writtenBytes(d.Path) - d.written
	}
	answer.Seconds = math.Round(time.Since(began).Seconds()*10) / 10
	fitAnswer(answer)
	return answer, nil
}

// takeLock takes the lock that one examination at a time holds; the kernel releases it when its process ends.
func takeLock() (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(lockFile), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(lockFile, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, problem.Conflictf("an examination of this machine is running already: wait until it ends")
	}
	return f, nil
}

// stageTime bounds all that comes before the rules: 7 of 10 parts of the time that is left.
func stageTime(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)*7/10)
}

// OutOfTime is the reason of the gap of an examination that did not come to its end.
const OutOfTime = "the time for its examination was too short: what was not reached is not examined"

// timeIsOver says whether a loop is to end, and notes it.
func (x *examinationRun) timeIsOver(ctx context.Context) bool {
	if ctx.Err() == nil {
		return false
	}
	x.gap("the machine", OutOfTime)
	return true
}

// boundRules has rules that come after the end of ctx say nothing.
func (x *examinationRun) boundRules(ctx context.Context) []diagnose.Rule {
	rules := slices.Clone(x.Rules)
	for i, rule := range rules {
		rules[i].Look = func(s *diagnose.System) []diagnose.Finding {
			if x.timeIsOver(ctx) {
				return nil
			}
			return rule.Look(s)
		}
	}
	return rules
}

// run examines the machine. Where the time is over it returns what was found until then; a cancelled run is an error.
func (x *examinationRun) run(whole context.Context) (*diagnose.Examination, error) {
	ctx, cancel := stageTime(whole)
	defer cancel()
	var err error
	if x.kernel, err = openKernelLog(); err != nil {
		return nil, err
	}
	defer x.kernel.close()
	if x.errors, err = openKernelLog(); err != nil {
		return nil, err
	}
	defer x.errors.close()
	found, err := x.assembleAll(ctx)
	if err != nil {
		return nil, err
	}
	x.checkFileSystems(ctx)
	x.mountAll(ctx)
	answer := &diagnose.Examination{Version: diagnose.ExaminationVersion, Disks: []diagnose.ExaminedDisk{}, NotExamined: []diagnose.Gap{}, Systems: []diagnose.ExaminedSystem{}}
	base := x.facts(ctx)
	answer.Hardware = foundHardware(found, base)
	systems := x.systems(ctx, base)
	// What an overlay could not hold is known only once everything was read.
	x.dropUnreliable(x.measureOverlays(ctx), systems)
	x.addReadErrors(systems)
	answer.Systems = x.judgeSystems(whole, systems)
	if x.addReadErrors(systems) { // what the rules read has shown it
		x.judgeDisksAgain(systems, answer.Systems)
	}
	answer.NotExamined = append(answer.NotExamined, x.gaps...)
	x.measureOverlays(ctx)
	for _, d := range x.disks {
		answer.Disks = append(answer.Disks, d.ExaminedDisk)
	}
	if err := whole.Err(); errors.Is(err, context.Canceled) {
		return nil, err
	}
	return answer, nil
}

// judgeSystems asks the rules about each system.
func (x *examinationRun) judgeSystems(whole context.Context, systems []*diagnose.System) []diagnose.ExaminedSystem {
	out := []diagnose.ExaminedSystem{}
	for _, s := range systems {
		s.Gaps = x.gaps
		var findings []diagnose.Finding
		var gaps []diagnose.Gap
		var keys []string
		rules := append(x.boundRules(whole), diagnose.Rule{Files: true, Look: func(s *diagnose.System) []diagnose.Finding {
			keys = diagnose.HostKeys(s.Files)
			return nil
		}})
		x.withAsker(whole, s, func() { findings, gaps = diagnose.Run(rules, s) })
		x.gaps = append(x.gaps, gaps...)
		if findings == nil {
			findings = []diagnose.Finding{}
		}
		out = append(out, diagnose.ExaminedSystem{Root: s.Root, RootDevice: s.RootDevice, Disks: disksOfRoot(s), Name: diagnose.Excerpt(s.Release.Pretty), Findings: findings, Asked: s.Asked, HostKeys: keys})
	}
	return out
}

// disksOfRoot are the paths of the disks that hold the root of a system.
func disksOfRoot(s *diagnose.System) []string {
	var out []string
	names := []string{s.Root}
	for i := 0; i < len(names); i++ {
		for j := range s.Devices {
			d := &s.Devices[j]
			if d.Path != names[i] {
				continue
			}
			if d.Kind == diagnose.DiskDevice && !slices.Contains(out, d.Path) {
				out = append(out, d.Path)
			}
			for _, parent := range d.Parents {
				if !slices.Contains(names, parent) {
					names = append(names, parent)
				}
			}
		}
	}
	return out
}

// judgeDisksAgain replaces what the rule about disks found.
func (x *examinationRun) judgeDisksAgain(systems []*diagnose.System, found []diagnose.ExaminedSystem) {
	ofDisks := slices.DeleteFunc(slices.Clone(x.Rules), func(r diagnose.Rule) bool { return !slices.Contains(r.IDs, diagnose.DiskFailing) })
	for i, s := range systems {
		again, _ := diagnose.Run(ofDisks, s)
		found[i].Findings = append(slices.DeleteFunc(found[i].Findings, func(f diagnose.Finding) bool { return f.ID == diagnose.DiskFailing }), again...)
	}
}

// assembleAll lays overlays over the disks, assembles what lies on them, and returns the disks.
func (x *examinationRun) assembleAll(ctx context.Context) ([]disk.Found, error) {
	found, err := disk.List("")
	if err != nil {
		return nil, fmt.Errorf("list the disks: %w", err)
	}
	if err := x.prepare(ctx, len(found)); err != nil {
		return nil, err
	}
	for _, d := range found {
		if x.timeIsOver(ctx) {
			break
		}
		x.addDisk(ctx, d)
	}
	// Each round may uncover what lies on what the former one assembled: LVM on LUKS on an array.
	x.assembleArrays(ctx)
	for range 3 {
		if before := len(x.devices); x.timeIsOver(ctx) || !x.openContainers(ctx) && !x.activateGroups(ctx) || before == len(x.devices) {
			break
		}
	}
	x.openContents()
	return found, nil
}

// facts are what rules are asked about besides the files and devices of a system.
func (x *examinationRun) facts(ctx context.Context) diagnose.System {
	health := x.diskHealth(ctx)
	base := diagnose.System{
		Checks: x.checks, Arrays: x.arrays, Groups: x.groups, Disks: health, Firmware: efi.State(""), NICs: listNICs("/"),
		NetworkData: x.NetworkData, Memory: totalMemory("/"), KernelArch: runtime.GOARCH, Now: x.Now, Clock: time.Now(),
	}
	base.Corrected, base.Uncorrected = memoryErrors("/")
	if base.Now.IsZero() {
		base.Now = base.Clock
	}
	return base
}

// gap notes what is not examined.
func (x *examinationRun) gap(what, format string, args ...any) {
	g := diagnose.Gap{What: what, Why: diagnose.Excerpt(fmt.Sprintf(format, args...))}
	for _, other := range x.gaps {
		if other == g {
			return
		}
	}
	x.gaps = append(x.gaps, g)
	x.Log.Info("not examined", "what", g.What, "why", g.Why)
}

// openContents opens what rules read of devices directly.
func (x *examinationRun) openContents() {
	for _, d := range x.devices {
		if f, err := os.Open(d.node); err == nil {
			x.closers = append(x.closers, f)
			d.Content = f
		}
	}
}

func (x *examinationRun) closeAll() {
	for _, c := range x.closers {
		_ = c.Close()
	}
	x.closers = nil
}

// fitAnswer drops findings from the end until the answer has at most MaxAnswer bytes: hostile files decide how much rules say.
func fitAnswer(e *diagnose.Examination) {
	for {
		b, err := json.Marshal(e)
		if err != nil || len(b) <= MaxAnswer {
			return
		}
		longest := -1
		for i := range e.Systems {
			if longest < 0 || len(e.Systems[i].Findings) > len(e.Systems[longest].Findings) {
				longest = i
			}
		}
		const why = "it holds more than an answer has room for; the rest is left out"
		switch {
		case longest >= 0 && len(e.Systems[longest].Findings) > 0:
			s := &e.Systems[longest]
			s.Findings = s.Findings[:len(s.Findings)/2]
			e.NotExamined = append(e.NotExamined, diagnose.Gap{What: strings.TrimSpace("findings of " + s.Root), Why: why})
		case len(e.NotExamined) > 100:
			e.NotExamined = append(e.NotExamined[:50], diagnose.Gap{What: "the machine", Why: why})
		case slices.ContainsFunc(e.Systems, func(s diagnose.ExaminedSystem) bool { return len(s.HostKeys) > 0 }):
			for i := range e.Systems {
				e.Systems[i].HostKeys = nil
			}
		default:
			return
		}
	}
}
