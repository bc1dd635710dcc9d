package redfish

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"salvor/driver"
	"salvor/driver/drivertest"
	"salvor/lab/personality"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
	"salvor/test/must"
)

// foreignBMC is a BMC with the habits of a vendor: rules look at each change before the BMC does.
type foreignBMC struct {
	*drivertest.BMC
	// like is whose table of facts stands before the BMC; empty: none.
	like  personality.Name
	plain http.Handler // the BMC with its table
	// refuse gives the status and the message id with which a change is refused, and the arguments of that message; 0: it is not.
	refuse func(method, path string, body map[string]any) (status int, id string, args []string)
	// show changes what a resource reads.
	show func(path string, doc map[string]any)

	mu     sync.Mutex
	writes []string // METHOD PATH BODY of each change that was taken
	// attributes are those of an iDRAC; nil: it is none.
	attributes map[string]any
	// keepsAttributes: the iDRAC takes orders about its attributes and does not follow them.
	keepsAttributes bool
	// rename serves resources under other paths.
	rename map[string]string
}

const attributesPath = "/redfish/v1/Managers/bmc/Attributes"

func (f *foreignBMC) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && f.attributes != nil && r.URL.Path == attributesPath {
		_ = json.NewEncoder(w).Encode(map[string]any{"Attributes": f.attributes})
		return
	}
	if r.Method == http.MethodGet {
		f.read(w, r)
		return
	}
	text, _ := io.ReadAll(r.Body)
	var body map[string]any
	_ = json.Unmarshal(text, &body)
	if f.refuse != nil {
		if status, id, args := f.refuse(r.Method, r.URL.Path, body); status != 0 {
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"@Message.ExtendedInfo": []any{map[string]any{"MessageId": id, "Message": "no: " + id, "MessageArgs": args}}}})
			return
		}
	}
	if f.attributes != nil && r.URL.Path == attributesPath {
		if !f.keepsAttributes {
			maps.Copy(f.attributes, body["Attributes"].(map[string]any))
		}
		return
	}
	write := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/redfish/v1") + " " + string(text)
	r.Body = io.NopCloser(bytes.NewReader(text))
	out := httptest.NewRecorder()
	f.plain.ServeHTTP(out, r)
	if out.Code < 300 {
		f.mu.Lock()
		f.writes = append(f.writes, write)
		f.mu.Unlock()
	}
	maps.Copy(w.Header(), out.Header())
	w.WriteHeader(out.Code)
	_, _ = w.Write(out.Body.Bytes())
}

func (f *foreignBMC) read(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if other, ok := f.rename[path]; ok {
		r.URL.Path = other
	}
	if f.show == nil {
		f.plain.ServeHTTP(w, r)
		return
	}
	out := httptest.NewRecorder()
	f.plain.ServeHTTP(out, r)
	var doc map[string]any
	if json.Unmarshal(out.Body.Bytes(), &doc) == nil {
		f.show(path, doc)
	}
	w.WriteHeader(out.Code)
	_ = json.NewEncoder(w).Encode(doc)
}

func (f *foreignBMC) taken() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.writes)
}

func startForeign(t *testing.T, f *foreignBMC) *metal.Node {
	t.Helper()
	f.init(t)
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return node(server.URL)
}

// startForeignInMemory is startForeign for a test in a bubble of testing/synctest. The driver reaches the BMC under ctx.
func startForeignInMemory(t *testing.T, f *foreignBMC) (ctx context.Context, n *metal.Node) {
	t.Helper()
	f.init(t)
	network := drivertest.NewNetwork(f)
	t.Cleanup(network.Close)
	return driver.WithDial(t.Context(), network.Dial), node(network.URL)
}

func (f *foreignBMC) init(t *testing.T) {
	bmc := drivertest.NewBMC("admin", password)
	f.BMC, f.plain = bmc, personality.Redfish(f.like, bmc)
	t.Cleanup(bmc.Release)
}

func bootOf(body map[string]any) map[string]any { b, _ := body["Boot"].(map[string]any); return b }

// showEnabled has the boot override read one frequency always, as sushy-tools does (templates/system.json).
func showEnabled(path string, doc map[string]any) {
	if boot := bootOf(doc); boot != nil && path == drivertest.SystemPath {
		boot["BootSourceOverrideEnabled"] = "Continuous"
	}
}

const (
	cdOnce = `{"Boot":{"BootSourceOverrideEnabled":"Once","BootSourceOverrideTarget":"Cd"}}`
)

// TestForeignBMCs prepares a ramdisk behind BMCs with the habits of vendors, takes it away again, and compares what they were told.
func TestForeignBMCs(t *testing.T) {
	for _, c := range []struct {
		name    string
		foreign *foreignBMC
		// wants are the changes without the image's, in order.
		wants []string
		notes []string // a part of each note
	}{
		{
			name:    "ordinary",
			foreign: &foreignBMC{},
			wants:   []string{"insert Image Inserted WriteProtected", cdOnce, "eject", `{"Boot":{"BootSourceOverrideEnabled":"Disabled","BootSourceOverrideTarget":"None"}}`},
		},
		{
			name:    "sushy-tools",
			foreign: &foreignBMC{like: personality.SushyTools},
			wants:   []string{"insert Image Inserted WriteProtected", cdOnce, "eject", `{"Boot":{"BootSourceOverrideEnabled":"Once","BootSourceOverrideTarget":"Hdd"}}`},
			notes:   []string{`boot from Cd with frequency Once and reads “Continuous”`, `boot from Hdd with frequency Once`},
		},
		{
			name: "no way to remove the override",
			foreign: &foreignBMC{show: showEnabled, refuse: func(_, _ string, body map[string]any) (int, string, []string) {
				if boot := bootOf(body); boot != nil && boot["BootSourceOverrideTarget"] != "Cd" {
					return 500, "Base.1.0.InternalError", nil
				}
				return 0, "", nil
			}},
			wants: []string{"insert Image Inserted WriteProtected", cdOnce, "eject"},
			notes: []string{`reads “Continuous”`, "the boot override of the BMC cannot be removed"},
		},
		{
			name:    "AMI: settings resource, all three members",
			foreign: &foreignBMC{like: personality.AMI},
			wants: []string{
				"insert Image Inserted WriteProtected", `{"Boot":{"BootSourceOverrideEnabled":"Once","BootSourceOverrideMode":"UEFI","BootSourceOverrideTarget":"Cd"}}`,
				"eject", `{"Boot":{"BootSourceOverrideEnabled":"Disabled","BootSourceOverrideMode":"UEFI","BootSourceOverrideTarget":"None"}}`,
			},
		},
		{
			name: "a full body, and no word of why",
			foreign: &foreignBMC{refuse: func(_, _ string, body map[string]any) (int, string, []string) {
				if boot := bootOf(body); boot != nil && len(boot) < 3 {
					return 400, "Base.1.0.GeneralError", nil
				}
				return 0, "", nil
			}},
			wants: []string{
				"insert Image Inserted WriteProtected", `{"Boot":{"BootSourceOverrideEnabled":"Once","BootSourceOverrideMode":"UEFI","BootSourceOverrideTarget":"Cd"}}`,
				"eject", `{"Boot":{"BootSourceOverrideEnabled":"Disabled","BootSourceOverrideMode":"UEFI","BootSourceOverrideTarget":"None"}}`,
			},
		},
		{
			name:    "Nokia: names the parameters that are missing",
			foreign: &foreignBMC{refuse: refuseInsertWithout("Base.1.8.ActionParameterMissing", "TransferProtocolType", "TransferMethod")},
			wants:   []string{"insert Image Inserted TransferMethod TransferProtocolType WriteProtected", cdOnce, "eject", `{"Boot":{"BootSourceOverrideEnabled":"Disabled","BootSourceOverrideTarget":"None"}}`},
		},
		{
			name:    "Supermicro: takes the image alone, and boots it from UsbCd",
			foreign: &foreignBMC{like: personality.SupermicroX12},
			wants: []string{
				"insert Image", `{"Boot":{"BootSourceOverrideEnabled":"Once","BootSourceOverrideMode":"UEFI","BootSourceOverrideTarget":"UsbCd"}}`,
				"eject", `{"Boot":{"BootSourceOverrideEnabled":"Disabled","BootSourceOverrideMode":"UEFI","BootSourceOverrideTarget":"None"}}`,
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := c.foreign
			n := startForeign(t, f)
			m := &Media{Driver: &Driver{Locks: &driver.AddressLocks{}}, Files: files}
			ctx, notes := driver.WithNotes(t.Context())
			n.Plan = must.Get(m.Plan(n, driver.Ramdisk{Kernel: "/k", Image: "/r"}))(t)
			must.OK(t, m.PrepareRamdisk(ctx, n))
			if boot := f.Boot(); boot.Target != "Cd" || f.Image() == "" {
				t.Errorf("the BMC has %+v and %q", boot, f.Image())
			}
			must.OK(t, m.CleanUpRamdisk(ctx, n))
			if f.Image() != "" {
				t.Errorf("%q is left in the drive", f.Image())
			}
			if got := shortWrites(t, f.taken()); !slices.Equal(got, c.wants) {
				t.Errorf("the BMC took\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.wants, "\n"))
			}
			texts := notes.Texts()
			if len(texts) != len(c.notes) {
				t.Fatalf("notes %q, want %q", texts, c.notes)
			}
			for i, part := range c.notes {
				if !strings.Contains(texts[i], part) {
					t.Errorf("note %q, want %q", texts[i], part)
				}
			}
		})
	}
}

// shortWrites leaves out what differs from run to run: the URL of the image.
func shortWrites(t *testing.T, writes []string) []string {
	var out []string
	for _, w := range writes {
		parts := strings.SplitN(w, " ", 3)
		switch {
		case strings.HasSuffix(parts[1], "InsertMedia"):
			var body map[string]any
			must.OK(t, json.Unmarshal([]byte(parts[2]), &body))
			var names []string
			for name := range body {
				names = append(names, name)
			}
			slices.Sort(names)
			out = append(out, "insert "+strings.Join(names, " "))
		case strings.HasSuffix(parts[1], "EjectMedia"):
			out = append(out, "eject")
		default:
			out = append(out, parts[2])
		}
	}
	return out
}

// refuseInsertWithout demands parameters of an insertion, and names one at a time.
func refuseInsertWithout(id string, names ...string) func(string, string, map[string]any) (int, string, []string) {
	return func(_, path string, body map[string]any) (int, string, []string) {
		for _, name := range names {
			if strings.HasSuffix(path, "InsertMedia") && body[name] == nil {
				return 400, id, []string{"InsertMedia", name}
			}
		}
		return 0, "", nil
	}
}

// TestNotNow: what a BMC cannot do now is tried again by the caller, whatever its status.
func TestNotNow(t *testing.T) {
	for _, id := range []string{"iLO.2.14.InvalidOperationForSystemState", "iLO.2.14.UnableToModifyDuringSystemPOST", "Base.1.0.ResourceInUse", "Base.1.12.ServiceTemporarilyUnavailable"} {
		f := &foreignBMC{refuse: func(string, string, map[string]any) (int, string, []string) { return 400, id, nil }}
		n := startForeign(t, f)
		d := &Driver{Locks: &driver.AddressLocks{}}
		if err := d.SetPower(t.Context(), n, metal.PowerOn); !problem.Is(err, problem.Unavailable) {
			t.Errorf("%s: power on: %v, want unavailable", id, err)
		}
		if err := d.SetBootDevice(t.Context(), n, rescue.Boot{Device: "pxe"}); !problem.Is(err, problem.Unavailable) {
			t.Errorf("%s: boot device: %v, want unavailable", id, err)
		}
	}
}

// TestOneBootOnly: a BMC without a persistent override (Lenovo XCC) sets the device for the next boot, and the history says so.
func TestOneBootOnly(t *testing.T) {
	f := &foreignBMC{
		show: func(_ string, doc map[string]any) {
			if boot := bootOf(doc); boot != nil {
				boot["BootSourceOverrideEnabled@Redfish.AllowableValues"] = []string{"Once", "Disabled"}
			}
		},
		refuse: func(_, _ string, body map[string]any) (int, string, []string) {
			if bootOf(body)["BootSourceOverrideEnabled"] == "Continuous" {
				return 400, "Base.1.12.PropertyValueNotInList", []string{"Continuous", "BootSourceOverrideEnabled"}
			}
			return 0, "", nil
		},
	}
	for _, says := range []bool{true, false} { // by its allowable values, or by its refusal
		if !says {
			f.show = nil
		}
		n := startForeign(t, f)
		ctx, notes := driver.WithNotes(t.Context())
		must.OK(t, (&Driver{}).SetBootDevice(ctx, n, rescue.Boot{Device: "disk", Persistent: true}))
		if boot := f.Boot(); boot.Target != "Hdd" || boot.Enabled != "Once" || len(notes.Texts()) != 1 || !strings.Contains(notes.Texts()[0], "for one boot only") {
			t.Errorf("the BMC has %+v; notes %q", boot, notes.Texts())
		}
	}
}

// TestModeApart: the mode is changed in a request of its own where the BMC refuses it beside a target.
func TestModeApart(t *testing.T) {
	f := &foreignBMC{refuse: func(_, _ string, body map[string]any) (int, string, []string) {
		if boot := bootOf(body); boot["BootSourceOverrideMode"] != nil && len(boot) > 1 {
			return 400, "Base.1.0.PropertyValueConflict", []string{"BootSourceOverrideMode", "BootSourceOverrideTarget"}
		}
		return 0, "", nil
	}}
	n := startForeign(t, f)
	must.OK(t, (&Driver{}).SetBootDevice(t.Context(), n, rescue.Boot{Device: "pxe", Mode: "bios"}))
	if boot := f.Boot(); boot.Target != "Pxe" || boot.Mode != "Legacy" {
		t.Errorf("the BMC has %+v", boot)
	}
}

// TestNextDrive: a drive that takes no medium is left for the next one.
func TestNextDrive(t *testing.T) {
	for _, status := range []int{400, 403, 405} {
		f := &foreignBMC{
			show: func(path string, doc map[string]any) {
				if strings.HasSuffix(path, "/Floppy") { // a second CD drive, before the other
					doc["MediaTypes"] = []string{"CD"}
					doc["Actions"] = map[string]any{"#VirtualMedia.InsertMedia": map[string]any{"target": path + "/Actions/VirtualMedia.InsertMedia"}}
				}
			},
			refuse: func(_, path string, _ map[string]any) (int, string, []string) {
				if strings.Contains(path, "/Floppy/") {
					return status, "Base.1.0.GeneralError", nil
				}
				return 0, "", nil
			},
		}
		n := startForeign(t, f)
		m := &Media{Driver: &Driver{}, Files: files}
		n.Plan = must.Get(m.Plan(n, driver.Ramdisk{Kernel: "/k", Image: "/r"}))(t)
		ctx, notes := driver.WithNotes(t.Context())
		must.OK(t, m.PrepareRamdisk(ctx, n))
		if f.Image() == "" || len(notes.Texts()) != 1 || !strings.Contains(notes.Texts()[0], `the virtual drive “Floppy” takes no medium`) {
			t.Errorf("%d: image %q, notes %q", status, f.Image(), notes.Texts())
		}
	}
}
