package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
	"salvor/test/must"
)

// TestProbeSeesAnOverlayThatNobodyToldOf: a host that died just after a snapshot did not tell of it. A destination sees the overlay beside the disk, and the
// move is refused, unless the disk was written to after the overlay.
func TestProbeSeesAnOverlayThatNobodyToldOf(t *testing.T) {
	t.Parallel()
	const earlier, later = -time.Minute, time.Minute
	type file struct {
		name    string // behind that of the disk
		base    string // likewise; another folder is the store where another host mounts it
		written time.Duration
	}
	for name, c := range map[string]struct {
		files []file
		found string
	}{
		"no overlay":                      {nil, ""},
		"overlay":                         {[]file{{".ov", "", later}}, ".ov"},
		"written at the same time":        {[]file{{".ov", "", 0}}, ".ov"},
		"merged, and left there":          {[]file{{".ov", "", earlier}}, ""},
		"overlay over an overlay":         {[]file{{".ov", "", later}, {".ov2", ".ov", 2 * later}}, ".ov2"},
		"the lower overlay is older":      {[]file{{".ov", "", earlier}, {".ov2", ".ov", later}}, ".ov2"},
		"based on something else":         {[]file{{".ov", "-other", later}}, ""},
		"based on itself":                 {[]file{{".ov", ".ov", later}}, ""},
		"a copy, which is based on none":  {[]file{{".bak", "none", later}}, ""},
		"one that was merged, one in use": {[]file{{".a", "", earlier}, {".b", "", later}}, ".b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a, _, nfs := probeAgent(t, w, newGuests())
			p := a.withDisk(t, "nfs")
			disk := must.Get(a.stores.named("nfs").place(p.ServerID, *p.Disk))(t)
			now := time.Now().Add(-time.Hour)
			must.OK(t, os.Chtimes(disk, now, now))
			for _, f := range c.files {
				if put(t, disk+f.name, []byte("raw")); f.base != "none" {
					overlay(t, disk+f.name, filepath.Join("/mnt/elsewhere", strings.TrimPrefix(disk, nfs)+f.base))
				}
				must.OK(t, os.Chtimes(disk+f.name, now.Add(f.written), now.Add(f.written)))
			}
			got := a.probes(t, p)[0]
			spec := &compute.Spec{ServerID: p.ServerID, Disks: []compute.SpecDisk{*p.Disk}}
			spec.Disks[0].Store = "nfs"
			work := &orderExecution{Agent: a, order: &compute.Order{ServerID: p.ServerID}}
			err := work.found(t.Context(), spec)
			if c.found == "" {
				if got.Sight != compute.SightSame || err != nil {
					t.Errorf("the probe tells %+v, and a move: %v; want the disk as it is", got, err)
				}
				return
			}
			for what, text := range map[string]string{"the probe": got.Text, "a move": fmt.Sprint(err)} {
				if !strings.Contains(text, disk+c.found+" is an overlay") || !strings.Contains(text, "virsh blockcommit salvor-"+p.ServerID+" vda --active --pivot --wait") {
					t.Errorf("%s says %q; want it to name %s and the command", what, text, disk+c.found)
				}
			}
			if got.Sight != compute.SightMissing || !problem.Is(err, problem.Conflict) {
				t.Errorf("the probe tells %s, and a move: %v; want missing and a Conflict", got.Sight, err)
			}
		})
	}
}

// TestTheLeaseOfAMergedOverlayGoes: a backup tool took a snapshot, merged it and removed the overlay. The lease of the overlay goes, and that of the disk
// stays. While the overlay is there its lease stays too.
func TestTheLeaseOfAMergedOverlayGoes(t *testing.T) {
	t.Parallel()
	w := newLeaseHosts(t)
	a, b, spec := w.host(), w.host(), w.spec()
	w.run(a, spec)
	disk := diskOf(w.leasePath(spec))
	put(t, disk+".ov", []byte("overlay"))
	use := func(file string) {
		t.Helper()
		a.machine.MoveDisk(spec.ServerID, "vda", hypervisor.DiskFile{Path: file, Format: "qcow2"})
		w.round(a)
		w.round(a)
	}
	there := func(want bool, what string) {
		t.Helper()
		if _, err := os.Stat(disk + ".ov" + leaseSuffix); (err == nil) != want {
			t.Errorf("%s: %v; want the lease of the overlay to be there: %v", what, err, want)
		}
	}
	use(disk + ".ov")
	there(true, "a guest in an overlay")
	use(disk)
	there(true, "a guest whose overlay was merged and is there")
	must.OK(t, os.Remove(disk+".ov"))
	w.round(a)
	w.round(a)
	there(false, "a guest whose overlay was removed")
	if l := w.lease(spec); l.Host != a.ID() || l.State != leaseHeld {
		t.Errorf("the lease of the disk is %+v, want it held", l)
	}
	w.refused(w.evacuate(b, next(spec), a), "renews its lease now")
}
