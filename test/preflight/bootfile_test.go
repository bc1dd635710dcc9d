package preflight

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/boot/netboot"
	"salvor/test/debian"
	"salvor/test/must"
	"salvor/test/program"
)

// bootWay is a way in which firmware gets a boot image, with the loaders of which the image is made.
type bootWay struct {
	name, boot string // boot is the boot interface
	node       object
	bend       func(path string, answer object) int // what the BMC answers otherwise
	loaders    []string
}

var (
	uefi     = object{"properties": object{"capabilities": "boot_mode:uefi"}}
	bootWays = []bootWay{
		{"media, BIOS", "redfish-virtual-media", object{"properties": object{"capabilities": "boot_mode:bios"}}, nil, []string{"isolinux.bin", "ldlinux.c32"}},
		{"media, UEFI", "redfish-virtual-media", uefi, nil, []string{"linuxx64.efi.stub"}},
		{"media, mode not known", "redfish-virtual-media", nil, hidesMode, []string{"isolinux.bin", "ldlinux.c32", "linuxx64.efi.stub"}},
		{"media, Secure Boot", "redfish-virtual-media", uefi, enforces, []string{"shimx64.efi.signed", "gcdx64.efi.signed"}},
		{"HTTP, UEFI", "http", uefi, nil, []string{"linuxx64.efi.stub"}},
		{"HTTP, Secure Boot", "http", uefi, enforces, []string{"shimx64.efi.signed", "gcdx64.efi.signed"}},
	}
	// bootOperations are what boots a ramdisk, with the interface at which validate tells of it.
	bootOperations = []broken{
		{target: "rescue", at: "rescue"},
		{target: "rebuild", at: "deploy"},
		{target: "provide", at: "deploy", node: object{"automated_clean": true}},
		{target: "clean", at: "deploy", ask: steps("clean", step("deploy", "made_here", nil), nil)},
		{target: "service", at: "deploy", ask: steps("service", step("deploy", "made_here", nil), nil)},
		{target: "inspect", at: "inspect", node: object{"inspect_interface": "agent"}},
	}
)

// withoutLoaders starts the program where no boot loader is installed.
func withoutLoaders(t *testing.T) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a mount namespace needs root")
	}
	hidden := []string{}
	l := netboot.DebianLoaders
	for _, file := range []string{l.Isolinux, l.Ldlinux, l.Stub, l.Shim, l.Grub} {
		if _, err := os.Stat(file); err == nil {
			hidden = append(hidden, "mount -t tmpfs none "+filepath.Dir(file))
		}
	}
	return newWorld(t, "unshare", "-m", "sh", "-e", "-c", strings.Join(append(hidden, `exec "$@"`), "; "), "sh")
}

// set makes a directory with a kernel, a ramdisk and all loaders except those spoiled by the function, and gives what the records of a
// node name them by.
func (w *world) set(t *testing.T, loaders []string, spoil func(file string) bool) object {
	t.Helper()
	name := fmt.Sprintf("images/set-%d", macs.Add(1))
	installed := map[string]string{"isolinux.bin": netboot.DebianLoaders.Isolinux, "ldlinux.c32": netboot.DebianLoaders.Ldlinux, "linuxx64.efi.stub": netboot.DebianLoaders.Stub}
	w.write(t, name+"/vmlinuz", string(signedKernel(t)))
	w.write(t, name+"/initrd", "ramdisk")
	for _, file := range loaders {
		if spoil != nil && spoil(filepath.Join(w.dir, name, file)) {
			continue
		}
		text := []byte("stands for " + file)
		if from := installed[file]; from != "" {
			text = must.Get(os.ReadFile(from))(t)
		}
		w.write(t, name+"/"+file, string(text))
	}
	out := object{}
	for _, use := range []string{"rescue", "deploy"} {
		out[use+"_kernel"], out[use+"_ramdisk"] = "$DIR/"+name+"/vmlinuz", "$DIR/"+name+"/initrd"
	}
	return out
}

// signedKernel is a program for UEFI whose header names a signature.
func signedKernel(t *testing.T) []byte {
	t.Helper()
	text := must.Get(os.ReadFile(netboot.DebianLoaders.Stub))(t)
	directory := text[binary.LittleEndian.Uint32(text[0x3c:])+4+20+112+4*8:]
	binary.LittleEndian.PutUint32(directory, uint32(len(text)))
	binary.LittleEndian.PutUint32(directory[4:], 8)
	return append(text, 8, 0, 0, 0, 0, 2, 2, 0)
}

// of puts a way to boot into an operation.
func (b bootWay) of(op broken, info object) broken {
	node := object{"boot_interface": b.boot}
	maps.Copy(node, b.node)
	maps.Copy(node, op.node)
	op.node, op.info = node, info
	op.bend = b.bend
	return op
}

// enforces is a BMC whose machine's firmware enforces Secure Boot.
func enforces(path string, answer object) int {
	if strings.HasSuffix(path, "/SecureBoot") {
		answer["SecureBootEnable"] = true
	}
	return http.StatusOK
}

// hidesMode is a BMC that does not tell the mode of the firmware.
func hidesMode(_ string, answer object) int {
	if boot, ok := answer["Boot"].(object); ok {
		delete(boot, "BootSourceOverrideMode")
	}
	return http.StatusOK
}

// TestMissingBootLoaders: for each boot method, firmware mode and operation, each loader that the boot needs is missing, empty, a directory or
// for another architecture: the API, validate and the doctor refuse in the same sentence, and the machine goes on as it was. Loaders
// that the firmware does not need are not asked for.
func TestMissingBootLoaders(t *testing.T) {
	for file, pkg := range map[string]string{netboot.DebianLoaders.Stub: "systemd-boot-efi", netboot.DebianLoaders.Isolinux: "isolinux", netboot.DebianLoaders.Ldlinux: "syslinux-common"} {
		debian.File(t, file, pkg)
	}
	w := withoutLoaders(t)
	cli := program.CLI{URL: w.URL}
	defects := map[string]func(file string) bool{
		"missing":     func(string) bool { return true },
		"empty":       func(file string) bool { return os.WriteFile(file, nil, 0o644) == nil },
		"a directory": func(file string) bool { return os.Mkdir(file, 0o755) == nil },
		"for another architecture": func(file string) bool {
			text, err := os.ReadFile(netboot.DebianLoaders.Stub)
			if err == nil {
				binary.LittleEndian.PutUint16(text[binary.LittleEndian.Uint32(text[0x3c:])+4:], 0xaa64)
				err = os.WriteFile(file, text, 0o644)
			}
			return err == nil
		},
	}
	cases := 0
	t.Run("all", func(t *testing.T) {
		for _, way := range bootWays {
			t.Run(way.name+"/whole", func(t *testing.T) {
				t.Parallel()
				id := w.enroll(t, newMachine(t, way.bend), way.of(bootOperations[0], w.set(t, way.loaders, nil)))
				shown := w.must(t, "GET", "/v1/nodes/"+id+"/validate", nil)
				for _, at := range []string{"rescue", "deploy"} {
					if one, _ := shown[at].(object); one["result"] != true {
						t.Errorf("validate shows at %s: %v", at, one)
					}
				}
			})
			for i, file := range way.loaders {
				for defect, spoil := range defects {
					for j, op := range bootOperations {
						if j > 0 && (i > 0 || defect != "missing") || defect == "for another architecture" && !strings.Contains(file, ".efi") {
							continue // one operation is enough for the rest
						}
						cases++
						t.Run(fmt.Sprintf("%s/%s %s/%s", way.name, file, defect, op.target), func(t *testing.T) {
							t.Parallel()
							c := way.of(op, w.set(t, way.loaders, func(at string) bool { return filepath.Base(at) == file && spoil(at) }))
							c.want = file
							said := w.refusesThrice(t, cli, c)
							if why := "the firmware mode of the node is not known"; strings.Contains(said, why) != strings.Contains(way.name, "not known") {
								t.Errorf("the sentence is %q", said)
							}
						})
					}
				}
			}
		}
	})
	t.Logf("%d ways to boot, %d cases", len(bootWays), cases)
}
