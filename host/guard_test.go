package host

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
	"salvor/rescue"
	"salvor/test/must"
	"salvor/wire/agent"
	wire "salvor/wire/host"
)

// TestAnswersOfGuests: what a guest writes reaches no log and no result as it is.
func TestAnswersOfGuests(t *testing.T) {
	for name, c := range map[string]struct {
		line string
		want string // fingerprint, error and host key
		fail bool
	}{
		"a fingerprint":             {`{"version": 1, "fingerprint": "SHA256:abc", "host_key": "ssh-ed25519 AAAA"}`, "SHA256:abc  ssh-ed25519 AAAA", false},
		"an error":                  {`{"version": 1, "error": "no room"}`, " no room ", false},
		"an error with an escape":   {`{"version": 1, "error": "a\u001b[2Jb"}`, ` "a\x1b[2Jb" `, false},
		"a host key with an escape": {`{"version": 1, "fingerprint": "SHA256:abc", "host_key": "ssh\u001b"}`, "SHA256:abc  ", false},
		"a long host key":           {`{"version": 1, "fingerprint": "SHA256:abc", "host_key": "` + strings.Repeat("A", 2000) + `"}`, "SHA256:abc  ", false},
		"another version":           {`{"version": 99, "fingerprint": "SHA256:abc"}`, "", true},
		"nothing":                   {`{"version": 1}`, "", true},
		"noise of a boot":           {`[    0.000000] Linux version 6.1`, "", true},
		"an escape":                 {`{"version": 1, "fingerprint": "SHA256:\u001b[2J"}`, "", true},
		"a long fingerprint":        {`{"version": 1, "fingerprint": "` + strings.Repeat("A", 201) + `"}`, "", true},
	} {
		a, err := parseAnswer([]byte(c.line))
		switch {
		case c.fail && !problem.Is(err, problem.Invalid):
			t.Errorf("%s: %+v, %v", name, a, err)
		case !c.fail && (err != nil || a.Fingerprint+" "+a.Error+" "+a.HostKey != c.want):
			t.Errorf("%s: %+v, %v; want %q", name, a, err, c.want)
		}
	}
}

// TestPlacesOfDisks: no name of a disk or of a file leads out of its store, or to a file that the store has for itself.
func TestPlacesOfDisks(t *testing.T) {
	const server = "0dd1e5c4-0000-4000-8000-00000000000a"
	s := &diskStore{Store: Store{Name: "local", Dir: "/store"}}
	for _, c := range []struct {
		disk compute.SpecDisk
		want string
	}{
		{compute.SpecDisk{Name: "vda"}, "/store/" + server + "/vda.raw"},
		{compute.SpecDisk{Name: "vda", File: "old/disk.raw"}, "/store/old/disk.raw"},
		{compute.SpecDisk{Name: "vda", File: "../disk.raw"}, ""},
		{compute.SpecDisk{Name: "vda", File: "/etc/passwd"}, ""},
		{compute.SpecDisk{Name: "vda", File: markerFile}, ""},
		{compute.SpecDisk{Name: "../vda"}, ""},
		{compute.SpecDisk{Name: ""}, ""},
		{compute.SpecDisk{Name: strings.Repeat("a", 65)}, ""},
	} {
		path, err := s.place(server, c.disk)
		if path != c.want || (c.want == "") != problem.Is(err, problem.Invalid) {
			t.Errorf("disk %q in the file %q: %q, %v", c.disk.Name, c.disk.File, path, err)
		}
	}
}

// TestDisksAreProven: a file is a server's disk by the proof beside it alone, and an empty disk replaces nothing.
func TestDisksAreProven(t *testing.T) {
	const server, other = "0dd1e5c4-0000-4000-8000-00000000000a", "0dd1e5c4-0000-4000-8000-00000000000b"
	path := filepath.Join(t.TempDir(), "vda.raw")
	image := func(digest string) *compute.SpecImage { return &compute.SpecImage{Digest: digest} }
	if there, err := hasFinishedDisk(path, server, compute.SpecDisk{Name: "vda"}); there || err != nil {
		t.Errorf("no disk: %v, %v", there, err)
	}
	must.OK(t, os.WriteFile(path, []byte("data"), 0o600))
	if there, err := hasFinishedDisk(path, server, compute.SpecDisk{Name: "vda"}); there || !problem.Is(err, problem.Conflict) {
		t.Errorf("a disk without a proof: %v, %v", there, err)
	}
	must.OK(t, os.WriteFile(path+".json", mustEncodeJSON(diskProof{Server: server, Disk: "vda", Image: "sha256:a"}), 0o600))
	for name, c := range map[string]struct {
		server string
		disk   compute.SpecDisk
		want   bool
	}{
		"its own":                  {server, compute.SpecDisk{Name: "vda"}, true},
		"its own, of its image":    {server, compute.SpecDisk{Name: "vda", Image: image("sha256:a")}, true},
		"its own of another image": {server, compute.SpecDisk{Name: "vda", Image: image("sha256:b")}, false},
		"another disk":             {server, compute.SpecDisk{Name: "vdb"}, false},
		"another server's":         {other, compute.SpecDisk{Name: "vda"}, false},
	} {
		if there, err := hasFinishedDisk(path, c.server, c.disk); there != c.want || problem.Is(err, problem.Conflict) == c.want {
			t.Errorf("%s: %v, %v", name, there, err)
		}
	}
	if err := emptyDisk(path, compute.SpecDisk{Name: "vda", SizeGiB: 1}); !errors.Is(err, os.ErrExist) || string(must.Get(os.ReadFile(path))(t)) != "data" {
		t.Errorf("an empty disk in the place of another: %v", err)
	}
	if err := emptyDisk(path+".new", compute.SpecDisk{Name: "vda"}); !problem.Is(err, problem.Invalid) {
		t.Errorf("an empty disk of no size: %v", err)
	}
}

// TestOrdersThatEndOthers: a later order ends an earlier one where an owner changed, where the server goes, or where the earlier one only examines.
func TestOrdersThatEndOthers(t *testing.T) {
	for _, c := range []struct {
		next, earlier compute.Order
		want          bool
	}{
		{compute.Order{Verb: compute.SetPower, Epoch: 2}, compute.Order{Verb: compute.Prepare, Epoch: 1}, true},
		{compute.Order{Verb: compute.SetPower, Epoch: 1}, compute.Order{Verb: compute.Prepare, Epoch: 1}, false},
		{compute.Order{Verb: compute.Remove, Epoch: 1}, compute.Order{Verb: compute.Prepare, Epoch: 1}, true},
		{compute.Order{Verb: compute.Remove, Epoch: 1}, compute.Order{Verb: compute.Remove, Epoch: 1}, false},
		{compute.Order{Verb: compute.Remove, Epoch: 1}, compute.Order{Verb: compute.Prepare, Epoch: 2}, false},
		{compute.Order{Verb: compute.SetPower, Epoch: 1}, compute.Order{Verb: compute.Diagnose, Epoch: 1}, true},
		{compute.Order{Verb: compute.Diagnose, Epoch: 1}, compute.Order{Verb: compute.Diagnose, Epoch: 1}, false},
	} {
		if got := supersedesOrder(&c.next, &c.earlier); got != c.want {
			t.Errorf("%s of epoch %d ends %s of epoch %d: %v, want %v", c.next.Verb, c.next.Epoch, c.earlier.Verb, c.earlier.Epoch, got, c.want)
		}
	}
}

// TestExaminationsAreNotJournaled: texts of a guest's disks do not come to lie on those of its host.
func TestExaminationsAreNotJournaled(t *testing.T) {
	for verb, want := range map[compute.Verb]bool{compute.Diagnose: false, compute.Console: false, compute.Look: false, compute.ListQuarantine: false, compute.SetPower: true, compute.Remove: true, compute.RestoreDisk: true} {
		if got := isJournaled(verb); got != want {
			t.Errorf("%s is journaled: %v, want %v", verb, got, want)
		}
	}
}

// TestOrdersShowNoSecret: an order whose secret is not understood does not show the secret in its error.
func TestOrdersShowNoSecret(t *testing.T) {
	order := mustEncodeJSON(compute.Order{ID: uuid.NewString(), ServerID: uuid.NewString()})
	if _, err := parseOrder(wire.Order{Order: order, Secret: json.RawMessage(`{"hash": ["hunter2"]}`)}); !problem.Is(err, problem.Invalid) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v", err)
	}
	for _, o := range []compute.Order{{ServerID: uuid.NewString()}, {ID: uuid.NewString()}, {ID: uuid.NewString(), ServerID: "../../etc"}} {
		if _, err := parseOrder(wire.Order{Order: mustEncodeJSON(o)}); !problem.Is(err, problem.Invalid) {
			t.Errorf("order %q of server %q: %v", o.ID, o.ServerID, err)
		}
	}
}

// TestJournalKeepsTheNewestEpoch: an order of an owner who has lost the server is not carried out, whatever comes between.
func TestJournalKeepsTheNewestEpoch(t *testing.T) {
	j := must.Get(openJournal(t.TempDir()))(t)
	server := uuid.NewString()
	order := func(epoch int64) *compute.Order {
		return &compute.Order{ID: uuid.NewString(), ServerID: server, Epoch: epoch}
	}
	first := order(2)
	if done, _, err := j.begin(first, "boot", 1); done != nil || err != nil {
		t.Fatal(done, err)
	}
	must.OK(t, j.end(first, "boot", 1, compute.Result{Fingerprint: "f"}))
	if done, began, err := j.begin(first, "boot", 9); err != nil || done == nil || done.Fingerprint != "f" || began != 1 {
		t.Errorf("an order that comes again: %+v since %d, %v", done, began, err)
	}
	if done, _, err := j.begin(first, "another boot", 9); err != nil || done != nil {
		t.Errorf("an order of a former boot: %+v, %v", done, err)
	}
	must.OK(t, j.raise(server, 5))
	if err := j.raise(server, 4); !problem.Is(err, problem.Conflict) {
		t.Errorf("an older word: %v", err)
	}
	late := order(4)
	if _, _, err := j.begin(late, "boot", 1); !problem.Is(err, problem.Conflict) || !j.stale(late) || j.stale(order(5)) {
		t.Errorf("an order of a former owner: %v", err)
	}
	if _, _, err := j.begin(&compute.Order{ID: uuid.NewString(), ServerID: "../escape"}, "boot", 1); !problem.Is(err, problem.Invalid) {
		t.Errorf("a server whose name leads out of the journal: %v", err)
	}
}

// TestCertificateOfAnotherHost: a host takes a certificate for its own key and name, from the authority that comes with it, and no other.
func TestCertificateOfAnotherHost(t *testing.T) {
	one, other := must.Get(openIdentity(t.TempDir()))(t), must.Get(openIdentity(t.TempDir()))(t)
	defer func() { must.OK(t, errors.Join(one.close(), other.close())) }()
	encode := func(der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	authority := func() (*x509.Certificate, *ecdsa.PrivateKey, string) {
		key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
		ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
		der := must.Get(x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key))(t)
		return must.Get(x509.ParseCertificate(der))(t), key, encode(der)
	}
	ca, caKey, caText := authority()
	_, _, foreignText := authority()
	certificate := func(name string, key *ecdsa.PrivateKey) string {
		template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
		return encode(must.Get(x509.CreateCertificate(rand.Reader, template, ca, key.Public(), caKey))(t))
	}
	for name, c := range map[string]struct{ cert, ca string }{
		"nothing": {"", ""}, "no certificate": {"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", caText},
		"another host's": {certificate(other.id, other.key), caText}, "another host's name": {certificate(other.id, one.key), caText},
		"another host's key": {certificate(one.id, other.key), caText}, "another authority": {certificate(one.id, one.key), foreignText},
	} {
		if err := one.admit(c.cert, c.ca); !problem.Is(err, problem.Invalid) || one.pair.Load() != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	must.OK(t, one.admit(certificate(one.id, one.key), caText))
	if !one.certified(time.Now()) || one.certified(time.Now().Add(2*time.Hour)) {
		t.Error("its own certificate does not count while it lasts, and not after")
	}
	if _, err := openIdentity(one.dir); !problem.Is(err, problem.Conflict) {
		t.Errorf("a second agent in one state directory: %v", err)
	}
}

// TestWordsThatRemoveNothing: only the two words for it have a host remove what it has of a server.
func TestWordsThatRemoveNothing(t *testing.T) {
	for do, want := range map[string]bool{string(compute.CleanGuest): true, string(compute.CleanDisk): true, "": false, "keep": false, "DISK": false} {
		if got := isDestructiveClean(do); got != want {
			t.Errorf("%q removes: %v, want %v", do, got, want)
		}
	}
}

// TestImagesHaveWholeDigests: the name of a kept image leads nowhere, and is that of its bytes.
func TestImagesHaveWholeDigests(t *testing.T) {
	whole := "sha256:" + strings.Repeat("ab", 32)
	if name := must.Get(digestName(whole))(t); name != whole[7:] {
		t.Errorf("%q", name)
	}
	for _, digest := range []string{"", whole[7:], "md5:" + whole[7:], whole[:20], "sha256:" + strings.ToUpper(whole[7:]), whole[:69], "sha256:../../" + whole[13:], whole + "ab"} {
		if name, err := digestName(digest); !problem.Is(err, problem.Invalid) {
			t.Errorf("%q is kept as %q: %v", digest, name, err)
		}
	}
}

// TestHeldImages: an image that an order uses stays, however full the cache is.
func TestHeldImages(t *testing.T) {
	w := newWorld(t)
	c := w.config(newGuests())
	c.ImageBytes = 1500
	a := joined(t, w, c)
	fetch := func(b byte) (string, func()) {
		path, release, err := a.images.get(t.Context(), compute.SpecImage{Digest: w.images.add(bytes.Repeat([]byte{b}, 1000)), Size: 1000}, nil)
		must.OK(t, err)
		return path, release
	}
	held, releaseHeld := fetch(1)
	other, release := fetch(2)
	release()
	_, releaseLast := fetch(3)
	if !fileIsThere(held) || fileIsThere(other) {
		t.Errorf("the image in use is there: %v, the one that nobody uses: %v", fileIsThere(held), fileIsThere(other))
	}
	releaseHeld()
	releaseLast()
}

// TestUnlockNeedsACredential: a rescue system that nobody could log in to is not called unlocked.
func TestUnlockNeedsACredential(t *testing.T) {
	w := newWorld(t)
	a := joined(t, w, w.config(newGuests()))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	o := &compute.Order{ID: uuid.NewString(), ServerID: uuid.NewString(), Epoch: 1, Verb: compute.Unlock, Args: mustEncodeJSON(compute.Args{})}
	if r, err := a.do(ctx, orderTask{order: o}); !problem.Is(err, problem.Invalid) {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestOrdersClearTheirKeys: LUKS keys are zeros in memory once their order has ended, be it by an error.
func TestOrdersClearTheirKeys(t *testing.T) {
	w := newWorld(t)
	a := joined(t, w, w.config(newGuests()))
	s := compute.OrderSecret{LUKSKeys: [][]byte{[]byte("open-sesame")}, LUKSKeysByUUID: map[string][][]byte{"0dd1e5c4": {[]byte("barley")}}}
	o := &compute.Order{ID: uuid.NewString(), HostID: a.ID(), BootID: a.boot, ServerID: uuid.NewString(), Epoch: 1, Verb: compute.Diagnose, Args: mustEncodeJSON(compute.Args{})}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nothing is reported
	a.orders.carryOut(orderTask{runCtx: ctx, order: o, secret: s})
	for _, key := range append(s.LUKSKeysByUUID["0dd1e5c4"], s.LUKSKeys...) {
		if strings.Trim(string(key), "\x00") != "" {
			t.Errorf("the key %q is still in memory", key)
		}
	}
}

// TestAHeldDatabaseChangesNoWord: a control plane whose database is held does not know what was decided, so hosts keep to what they were told before.
func TestAHeldDatabaseChangesNoWord(t *testing.T) {
	w := newWorld(t)
	a := joined(t, w, w.config(newGuests()))
	answer(t, a, wire.Renewed{Hold: true, SelfFence: true})
	answer(t, a, wire.Renewed{Held: true, Stop: true})
	if last := a.lease.lastResponse; !last.Hold || last.Stop || !last.SelfFence {
		t.Errorf("after a held answer the host goes by %+v", last)
	}
	answer(t, a, wire.Renewed{})
	if last := a.lease.lastResponse; last.Hold || last.Stop || last.SelfFence {
		t.Errorf("after the release the host goes by %+v", last)
	}
}

// TestConsolesAreTrimmed: the log of a guest that writes without an end does not fill its host, and the end of the log stays.
func TestConsolesAreTrimmed(t *testing.T) {
	w := newWorld(t)
	c := w.config(newGuests())
	c.ConsoleBytes = 1000
	a := joined(t, w, c)
	id := uuid.NewString()
	log := filepath.Join(c.StateDir, "servers", id, consoleFile)
	put(t, log, []byte(strings.Repeat("x", 5000)+"end"))
	a.trimConsoles()
	if size := must.Get(os.Stat(log))(t).Size(); size != 0 {
		t.Errorf("the log has %d bytes", size)
	}
	if old := mustRead(t, filepath.Join(c.StateDir, "servers", id, oldConsole)); len(old) != 1000 || !strings.HasSuffix(string(old), "xend") {
		t.Errorf("the end of the log has %d bytes", len(old))
	}
}

// examinedSpec is a server's spec with a kernel and a ramdisk that a host has already.
func examinedSpec(t *testing.T, a *Agent, spec *compute.Spec) *compute.Spec {
	t.Helper()
	cached := func(text string) *compute.SpecImage {
		digest := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
		must.OK(t, os.WriteFile(filepath.Join(a.images.dir, digest), []byte(text), 0o600))
		return &compute.SpecImage{Digest: "sha256:" + digest, Format: "aki"}
	}
	examined := *spec
	examined.Rescue = &compute.SpecRescue{Source: rescue.Source{Kind: rescue.Kernel}, Image: cached("kernel"), RamdiskImage: cached("ramdisk")}
	return &examined
}

// TestLostLease: a host that has lost the lease of a disk examines the disk no longer, because the next owner writes there.
func TestLostLease(t *testing.T) {
	t.Parallel()
	w := newLeaseHosts(t)
	a, spec := w.host(), w.spec()
	w.run(a, spec)
	w.ok(w.order(a, compute.SetPower, spec, compute.Args{Power: compute.PowerOff}))
	a.machine.AnswerHelpers(func(d hypervisor.Domain, host net.Conn) {
		answerLines(beginsLine)(d, host)
		a.leases.drop(t.Context(), a.leases.heldAt(w.leasePath(spec)), false) // as when another host took the lease
		_ = host.SetReadDeadline(time.Now().Add(10 * leaseLook))
		if _, err := io.Copy(io.Discard, host); err != nil { // nobody ended the helper
			_, _ = host.Write([]byte(`{"version":1,"examination":{"seconds":1}}` + "\n"))
		}
	})
	unlock, _ := a.lock(spec.ServerID) // as each order that is carried out
	defer unlock()
	w.refused(w.order(a, compute.Diagnose, examinedSpec(t, a.Agent, spec), compute.Args{}, a), "another host took the lease")
	if a.machine.Helpers() != 0 {
		t.Error("the helper still reads the disk")
	}
}

// TestRunningKept: the examination of a server that runs is refused, and the server keeps the leases of its disks.
func TestRunningKept(t *testing.T) {
	t.Parallel()
	w := newLeaseHosts(t)
	a, spec := w.host(), w.spec()
	w.run(a, spec)
	unlock, _ := a.lock(spec.ServerID) // as each order that is carried out
	defer unlock()
	if r := w.order(a, compute.Diagnose, examinedSpec(t, a.Agent, spec), compute.Args{}, a); r.ErrorKind != problem.Conflict.String() || !strings.Contains(r.Error, "in use") {
		t.Errorf("the examination of a server that runs: %+v", r)
	}
	if l := w.lease(spec); l.State != leaseHeld || l.Host != a.ID() || a.leases.heldAt(w.leasePath(spec)) == nil {
		t.Errorf("the lease of the server that runs is %+v", l)
	}
}

// TestExaminationsHaveABound in the form in which they leave the host, which is larger than what an agent wrote.
func TestExaminationsHaveABound(t *testing.T) {
	text := func(b string, n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat(b, n) + `"`) }
	if _, err := compactExamination(text("x", agent.MaxExamination-2)); err != nil {
		t.Error(err)
	}
	for name, x := range map[string]json.RawMessage{"too much": text("x", agent.MaxExamination), "too much once it is escaped": text("<", agent.MaxExamination/2), "no JSON": json.RawMessage("{")} {
		if got, err := compactExamination(x); !problem.Is(err, problem.Conflict) || got != nil {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}
