package node

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"salvor/boot/netboot"
	"salvor/diagnose"
	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
	"salvor/test/debian"
	"salvor/test/must"
)

// bootWays are the boot methods by firmware mode, each with the files that the firmware asks for on its way into a ramdisk or to its volumes.
var bootWays = []struct {
	name  string
	plan  metal.BootPlan
	files []string
}{
	{"virtual media, BIOS", metal.BootPlan{Method: metal.BootMedia, FirmwareMode: "bios"}, []string{"isolinux.bin", "ldlinux.c32", "vmlinuz", "initrd"}},
	{"virtual media, UEFI", metal.BootPlan{Method: metal.BootMedia, FirmwareMode: "uefi"}, []string{"linuxx64.efi.stub", "vmlinuz", "initrd"}},
	{"virtual media, mode not known", metal.BootPlan{Method: metal.BootMedia}, []string{"isolinux.bin", "ldlinux.c32", "linuxx64.efi.stub", "vmlinuz", "initrd"}},
	{"virtual media, Secure Boot", metal.BootPlan{Method: metal.BootMedia, FirmwareMode: "uefi", SecureBoot: true}, []string{"shimx64.efi.signed", "gcdx64.efi.signed", "vmlinuz", "initrd"}},
	{"HTTP boot", metal.BootPlan{Method: metal.BootHTTP, FirmwareMode: "uefi"}, []string{"linuxx64.efi.stub", "vmlinuz", "initrd"}},
	{"HTTP boot, Secure Boot", metal.BootPlan{Method: metal.BootHTTP, FirmwareMode: "uefi", SecureBoot: true}, []string{"shimx64.efi.signed", "gcdx64.efi.signed", "vmlinuz", "initrd"}},
	{"PXE, BIOS", metal.BootPlan{Method: metal.BootIPXE, FirmwareMode: "bios"}, []string{"undionly.kpxe", "vmlinuz", "initrd"}},
	{"PXE, UEFI", metal.BootPlan{Method: metal.BootIPXE, FirmwareMode: "uefi"}, []string{"snponly.efi", "vmlinuz", "initrd"}},
	{"PXE, mode not known", metal.BootPlan{Method: metal.BootIPXE}, []string{"undionly.kpxe", "snponly.efi", "vmlinuz", "initrd"}},
	{"volumes, BIOS", metal.BootPlan{Method: metal.BootIPXE, FirmwareMode: "bios", Volumes: true}, []string{"undionly.kpxe"}},
	{"volumes, UEFI", metal.BootPlan{Method: metal.BootIPXE, FirmwareMode: "uefi", Volumes: true}, []string{"snponly.efi"}},
	{"volumes, mode not known", metal.BootPlan{Method: metal.BootIPXE, Volumes: true}, []string{"undionly.kpxe", "snponly.efi"}},
}

// fileBoot boots in a way, from the files of a directory.
type fileBoot struct {
	volumeBoot
	way metal.BootPlan
	dir string
}

func (f fileBoot) Plan(n *metal.Node, r driver.Ramdisk) (*metal.BootPlan, error) {
	plan, err := f.bench.Plan(n, r)
	plan.Method, plan.FirmwareMode, plan.SecureBoot = f.way.Method, f.way.FirmwareMode, f.way.SecureBoot
	plan.Kernel, plan.Ramdisk = filepath.Join(f.dir, "vmlinuz"), filepath.Join(f.dir, "initrd")
	return plan, err
}

func (f fileBoot) PlanVolumes(n *metal.Node, ports []*metal.Port, v metal.VolumePlan, number int64) (*metal.BootPlan, error) {
	plan, err := f.volumeBoot.PlanVolumes(n, ports, v, number)
	plan.FirmwareMode = f.way.FirmwareMode
	return plan, err
}

// noPlans is a store of boot plans that nobody asks.
type noPlans struct{ netboot.Plans }

// bootDirectory makes a directory with all files of all ways to boot, and the check of plans by the server that gives them to firmware.
func bootDirectory(t *testing.T) (string, func(context.Context, *metal.BootPlan, string) error) {
	t.Helper()
	l, dir := netboot.DebianLoaders, t.TempDir()
	write := func(name string, text []byte) { must.OK(t, os.WriteFile(filepath.Join(dir, name), text, 0o600)) }
	for _, from := range []string{l.Stub, l.Isolinux, l.Ldlinux} {
		write(filepath.Base(from), must.Get(os.ReadFile(from))(t))
	}
	stub := must.Get(os.ReadFile(l.Stub))(t)
	for _, name := range []string{"shimx64.efi.signed", "gcdx64.efi.signed", "snponly.efi"} {
		write(name, stub)
	}
	write("undionly.kpxe", []byte("stands for iPXE"))
	write("initrd", []byte("stands for a ramdisk"))
	directory := stub[binary.LittleEndian.Uint32(stub[0x3c:])+4+20+112+4*8:] // a kernel whose header names a signature
	binary.LittleEndian.PutUint32(directory, uint32(len(stub)))
	binary.LittleEndian.PutUint32(directory[4:], 8)
	write("vmlinuz", append(stub, 8, 0, 0, 0, 0, 2, 2, 0))
	at := func(path string) string { return filepath.Join(dir, filepath.Base(path)) }
	server := must.Get(netboot.New(netboot.Config{Plans: noPlans{}, Roots: []string{dir}, TFTPDir: dir, Interfaces: []netboot.Interface{{Name: "none0", Mode: netboot.Proxy}},
		Loaders: netboot.Loaders{Stub: at(l.Stub), Isolinux: at(l.Isolinux), Ldlinux: at(l.Ldlinux), Shim: at("shimx64.efi.signed"), Grub: at("gcdx64.efi.signed")}}))(t)
	return dir, func(ctx context.Context, plan *metal.BootPlan, cpuArch string) error {
		return server.CheckPlan(ctx, plan, cpuArch, true)
	}
}

// touchable is all of the machine that an operation could have changed.
func (b *bench) touchable() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprint(b.power, b.running, b.device, b.media, b.networks, b.volume, b.systemOn)
}

// TestEachMissingBootFile: for each boot method, firmware mode and operation, each file that the firmware will ask for is missing in turn. The API, validate,
// the doctor and the first action refuse in the same sentence, and the machine is as it was. So does a diagnosis, which boots its machine by a rescue. A node
// that boots from its volumes needs a ramdisk for all operations but its deployments and the end of a rescue.
func TestEachMissingBootFile(t *testing.T) {
	t.Parallel()
	for file, pkg := range map[string]string{netboot.DebianLoaders.Stub: "systemd-boot-efi", netboot.DebianLoaders.Isolinux: "isolinux", netboot.DebianLoaders.Ldlinux: "syslinux-common"} {
		debian.File(t, file, pkg)
	}
	for _, way := range bootWays {
		operations := append(slices.Clone(ramdiskOperations), deployOperation)
		if way.plan.Volumes {
			operations = append(operations, unrescueOperation)
		}
		for _, w := range operations {
			files := way.files
			if way.plan.Volumes && !w.image { // the node boots from its volumes, and a ramdisk for this operation
				files = append(slices.Clone(files), "vmlinuz", "initrd")
			}
			t.Run(way.name+"/"+w.name, func(t *testing.T) {
				t.Parallel()
				dir, check := bootDirectory(t)
				b := workingBench(t, w)
				at := "bench"
				if way.plan.Volumes {
					agent := b.agent
					b, at = newVolumeBench(t, w.from), "volumes"
					b.con.AutomatedClean, b.agent = true, agent
					change(t, b, func(n *metal.Node) { n.Interfaces["inspect"] = "ramdisk" })
				}
				b.con.drivers["bench"].Boot[at] = fileBoot{volumeBoot{b}, way.plan, dir}
				b.con.CheckPlan = check
				b.con.Readable = func(file string) error {
					if _, err := os.Stat(file); filepath.Dir(file) == dir && err != nil {
						return problem.Invalidf("%w", err)
					}
					return nil
				}
				if reasons := b.refusals(t, w); reasons != "" {
					t.Fatalf("with all files: want no reason, got %s", reasons)
				}
				b.run(t)
				for _, file := range files {
					hidden := filepath.Join(dir, file)
					must.OK(t, os.Rename(hidden, hidden+".hidden"))
					b.refusedEverywhere(t, w, file)
					if w.name == "rescue" {
						b.diagnosisRefused(t, w, file)
					}
					must.OK(t, os.Rename(hidden+".hidden", hidden))
				}
			})
		}
	}
}

// deployOperation is the first deployment of a node.
var deployOperation = ramdiskOperation{"deploy", metal.Available, metal.DeployFailed, func(t *testing.T, b *bench) { b.start(t, metal.Deploy) }, driver.Provisioning, false, true}

// unrescueOperation leads a node back to its volumes, and needs no ramdisk.
var unrescueOperation = ramdiskOperation{"unrescue", metal.Rescue, metal.UnrescueFailed, func(t *testing.T, b *bench) { b.start(t, metal.Unrescue) }, driver.Tenant, false, true}

// verbOf is how the API asks for an operation.
func verbOf(w ramdiskOperation) metal.Verb {
	return map[string]metal.Verb{"rescue": metal.ToRescue, "unrescue": metal.Unrescue, "rebuild": metal.Rebuild, "deploy": metal.Deploy, "clean": metal.Clean, "provide": metal.Provide, "inspect": metal.Inspect, "service": metal.Service}[w.name]
}

// atTheDoor is the API's part of the control plane, with the drivers' part of its checks.
func (b *bench) atTheDoor() *metal.Nodes {
	return metal.NewNodes(b.store, b.store, b.key, metal.NewDirectory(b.store, b.con.Now, 0, 0), metal.Options{RestrictLookup: true, Checker: b.con}, b.con.Now)
}

// refusals are the reasons of the doctor against an operation that have to do with boot files.
func (b *bench) refusals(t *testing.T, w ramdiskOperation) string {
	t.Helper()
	_, all, err := b.atTheDoor().CheckAll(t.Context(), b.node, metal.RunbookFilter{})
	must.OK(t, err)
	kind := map[string]string{"rebuild": "deploy"}[w.name]
	if kind == "" {
		kind = w.name
	}
	var found []string
	for _, one := range all {
		for _, r := range one.Reasons {
			if string(one.Kind) == kind && (strings.Contains(r.Text, "firmware") || strings.Contains(r.Text, "cannot be given to the machine")) {
				found = append(found, r.Text)
			}
		}
	}
	return strings.Join(found, "; ")
}

// refusedEverywhere wants the sentence of the doctor, which names the file, of the API, of validate and of the first action.
func (b *bench) refusedEverywhere(t *testing.T, w ramdiskOperation, file string) {
	t.Helper()
	before := b.touchable()
	sentence := b.refusals(t, w)
	if !strings.Contains(sentence, file) {
		t.Errorf("%s is missing: the doctor says %q", file, sentence)
		return
	}
	args := metal.ProvisionArgs{ServiceSteps: []byte(`[{}]`)}
	switch w.name {
	case "rescue":
		args = metal.ProvisionArgs{RescuePassword: secret.New("let me in")}
	case "clean":
		args = metal.ProvisionArgs{CleanSteps: []byte(`[{"interface":"deploy","step":"erase_devices"}]`)}
	}
	if err := b.atTheDoor().Provision(t.Context(), b.node, verbOf(w), w.name, args, record.Asker{}); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), sentence) {
		t.Errorf("%s is missing: the API says %v, want %s", file, err, sentence)
	}
	shown := must.Get(b.atTheDoor().Validate(t.Context(), b.node))(t)
	told := false
	for _, v := range shown {
		told = told || !v.OK && strings.Contains(v.Reason, sentence)
	}
	if !told {
		t.Errorf("%s is missing: validate shows %+v, want %s", file, shown, sentence)
	}
	w.ask(t, b)
	n := b.until(t, w.failed)
	if !strings.Contains(n.LastError, sentence) || n.Plan != nil || n.Maintenance || n.PowerState != metal.PowerOn {
		t.Errorf("%s is missing: the first action says %q, power %s, plan %v, maintenance %t; want %s", file, n.LastError, n.PowerState, n.Plan, n.Maintenance, sentence)
	}
	if after := b.touchable(); after != before {
		t.Errorf("%s is missing: the machine was touched: %s, before %s", file, after, before)
	}
	change(t, b, func(n *metal.Node) {
		n.ProvisionState, n.TargetProvision, n.LastError = w.from, w.from.Info().Target, ""
	})
}

// diagnosisRefused wants the report of a diagnosis with a reboot to say the sentence of the doctor, and the machine to be as it was.
func (b *bench) diagnosisRefused(t *testing.T, rescue ramdiskOperation, file string) {
	t.Helper()
	before, sentence := b.touchable(), b.refusals(t, rescue)
	must.Get(b.nodes.Diagnose(t.Context(), b.node, metal.DiagnoseArgs{Reboot: true}, record.Asker{}))(t)
	b.ends(t)
	d, n := b.diagnosis(t), b.stored(t)
	if sentence == "" || !strings.Contains(gapsOf(d), sentence) || d.Report.Verdict.Outcome != diagnose.NothingFound {
		t.Errorf("%s is missing: the diagnosis says %s with the gaps %q, want %q", file, d.Report.Verdict.Outcome, gapsOf(d), sentence)
	}
	if after := b.touchable(); after != before || n.ProvisionState != metal.Active || n.Rescue != nil {
		t.Errorf("%s is missing: the diagnosis left the node %s and the machine %s, want active and %s", file, n.ProvisionState, after, before)
	}
}
