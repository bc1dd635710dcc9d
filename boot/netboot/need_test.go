package netboot

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/pin/tftp/v3"

	"salvor/boot/media"
	"salvor/metal"
	"salvor/test/fixture"
	"salvor/test/must"
)

// bootWays are the ways in which firmware boots, each with the files that it cannot do without.
var bootWays = []struct {
	name     string
	plan     metal.BootPlan
	needs    []string // boot loaders
	optional []string // taken where they are there
}{
	{"virtual media, BIOS", metal.BootPlan{Method: metal.BootMedia, FirmwareMode: "bios"}, []string{"isolinux.bin", "ldlinux.c32"}, []string{"linuxx64.efi.stub"}},
	{"virtual media, UEFI", metal.BootPlan{Method: metal.BootMedia, FirmwareMode: "uefi"}, []string{"linuxx64.efi.stub"}, []string{"isolinux.bin", "ldlinux.c32"}},
	{"virtual media, mode not known", metal.BootPlan{Method: metal.BootMedia}, []string{"isolinux.bin", "ldlinux.c32", "linuxx64.efi.stub"}, nil},
	{"virtual media, Secure Boot", metal.BootPlan{Method: metal.BootMedia, FirmwareMode: "uefi", SecureBoot: true}, []string{"shimx64.efi.signed", "gcdx64.efi.signed"}, []string{"isolinux.bin", "ldlinux.c32"}},
	{"HTTP boot", metal.BootPlan{Method: metal.BootHTTP, FirmwareMode: "uefi"}, []string{"linuxx64.efi.stub"}, nil},
	{"HTTP boot, mode not known", metal.BootPlan{Method: metal.BootHTTP}, []string{"linuxx64.efi.stub"}, nil},
	{"HTTP boot, Secure Boot", metal.BootPlan{Method: metal.BootHTTP, FirmwareMode: "uefi", SecureBoot: true}, []string{"shimx64.efi.signed", "gcdx64.efi.signed"}, []string{"isolinux.bin"}},
	{"PXE, BIOS", metal.BootPlan{Method: metal.BootIPXE, FirmwareMode: "bios"}, []string{"undionly.kpxe"}, []string{"snponly.efi"}},
	{"PXE, UEFI", metal.BootPlan{Method: metal.BootIPXE, FirmwareMode: "uefi"}, []string{"snponly.efi"}, []string{"undionly.kpxe"}},
	{"PXE, mode not known", metal.BootPlan{Method: metal.BootIPXE}, []string{"undionly.kpxe", "snponly.efi"}, nil},
	{"volumes, BIOS", metal.BootPlan{Method: metal.BootIPXE, FirmwareMode: "bios", Volumes: true}, []string{"undionly.kpxe"}, []string{"snponly.efi"}},
	{"volumes, UEFI", metal.BootPlan{Method: metal.BootIPXE, FirmwareMode: "uefi", Volumes: true}, []string{"snponly.efi"}, []string{"undionly.kpxe"}},
}

// defects are what may be wrong with a file.
var defects = []struct {
	name  string
	spoil func(t *testing.T, file string)
}{
	{"missing", func(*testing.T, string) {}},
	{"empty", func(t *testing.T, file string) { write(t, file, "") }},
	{"a directory", func(t *testing.T, file string) { must.OK(t, os.Mkdir(file, 0o755)) }},
	{"a pipe", func(t *testing.T, file string) { must.OK(t, syscall.Mkfifo(file, 0o644)) }},
	{"a link in a circle", func(t *testing.T, file string) { must.OK(t, os.Symlink(filepath.Base(file), file)) }},
	{"a link to nothing", func(t *testing.T, file string) { must.OK(t, os.Symlink(file+".none", file)) }},
	{"too large", func(t *testing.T, file string) { write(t, file, ""); must.OK(t, os.Truncate(file, maxLoader+1)) }},
	{"of another architecture", func(t *testing.T, file string) { write(t, file, string(programFor(t, 0xaa64))) }},
}

// programFor is a program for UEFI of an architecture.
func programFor(t *testing.T, machine uint16) []byte {
	t.Helper()
	text := must.Get(os.ReadFile(DebianLoaders.Stub))(t)
	binary.LittleEndian.PutUint16(text[binary.LittleEndian.Uint32(text[0x3c:])+4:], machine)
	return text
}

// needBench serves a plan with boot loaders of its own.
type needBench struct {
	*site
	loaders string
	tftp    string
	mu      sync.Mutex
	refused []metal.BootRefusal
}

func newNeedBench(t *testing.T, plan metal.BootPlan) *needBench {
	t.Helper()
	b := &needBench{site: newSite(t), loaders: t.TempDir()}
	node := b.plans.node
	plan.Path, plan.BootNumber, plan.MACs, plan.Params, plan.URL = node.Plan.Path, node.Plan.BootNumber, node.Plan.MACs, node.Plan.Params, "http://192.0.2.1"
	if !plan.Volumes {
		plan.Kernel, plan.Ramdisk = node.Plan.Kernel, node.Plan.Ramdisk
	}
	node.Plan = &plan
	write(t, filepath.Join(b.dir, "kernel"), string(signedKernel(t)))
	at := func(name string) string { return filepath.Join(b.loaders, name) }
	for _, from := range []string{DebianLoaders.Stub, DebianLoaders.Isolinux, DebianLoaders.Ldlinux} {
		write(t, at(filepath.Base(from)), string(must.Get(os.ReadFile(from))(t)))
	}
	for _, name := range []string{"shimx64.efi.signed", "gcdx64.efi.signed", "snponly.efi"} {
		write(t, at(name), string(programFor(t, 0x8664)))
	}
	write(t, at("undionly.kpxe"), "stands for iPXE")
	b.server = must.Get(New(Config{
		Plans: b.plans, Token: testTokenOf, Roots: []string{b.dir}, TFTPDir: b.loaders, Interfaces: []Interface{{Name: "none0", Mode: Proxy}},
		Loaders: Loaders{Stub: at("linuxx64.efi.stub"), Isolinux: at("isolinux.bin"), Ldlinux: at("ldlinux.c32"), Shim: at("shimx64.efi.signed"), Grub: at("gcdx64.efi.signed")},
		Refused: func(_ context.Context, _ *metal.Node, r metal.BootRefusal) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.refused = append(b.refused, r)
		},
	}))(t)
	b.site.Config.Handler = b.server.Handler()
	conn := must.Get(net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = b.server.serveTFTP(ctx, conn, 1500) }()
	t.Cleanup(func() { cancel(); conn.Close(); <-ended; b.server.images.close() })
	b.tftp = conn.LocalAddr().String()
	return b
}

// signedKernel is a kernel whose header names a signature.
func signedKernel(t *testing.T) []byte {
	t.Helper()
	text := programFor(t, 0x8664)
	directory := text[binary.LittleEndian.Uint32(text[0x3c:])+4+20+112+4*8:]
	binary.LittleEndian.PutUint32(directory, uint32(len(text)))
	binary.LittleEndian.PutUint32(directory[4:], 8)
	return append(text, 8, 0, 0, 0, 0, 2, 2, 0)
}

// told tells whether a refusal of a file was told.
func (b *needBench) told(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.refused, func(r metal.BootRefusal) bool { return r.File == name })
}

// boot asks for what the firmware of the plan asks for, and gives why it did not get it.
func (b *needBench) boot(t *testing.T) string {
	t.Helper()
	b.mu.Lock()
	b.refused = nil
	b.mu.Unlock()
	plan := b.plans.node.Plan
	if plan.Method == metal.BootIPXE {
		for _, name := range b.server.networkLoaders(plan.FirmwareMode) {
			client := must.Get(tftp.NewClient(b.tftp))(t)
			from, err := client.Receive(testPath+"/"+name, "octet")
			if err == nil {
				_, err = from.WriteTo(&bytes.Buffer{})
			}
			if err != nil { // the machine hears of it first
				fixture.Poll(t, name+" is told", func() bool { return b.told(name) })
			} else if b.told(name) {
				t.Errorf("%s is given over TFTP, and told as refused", name)
			}
		}
	}
	for _, name := range plan.FirmwareFiles() {
		if plan.Volumes {
			continue // its script is made of the targets
		}
		resp, body := b.get(t, name)
		if b.told(name) != (resp.StatusCode != 200) {
			t.Errorf("%s: status %d with %.40q; want it told as refused if the status is not 200, told: %v", name, resp.StatusCode, body, b.told(name))
		}
	}
	b.mu.Lock()
	refused := slices.Clone(b.refused)
	b.mu.Unlock()
	if len(refused) == 0 {
		return ""
	}
	if r := refused[0]; !r.Final {
		t.Errorf("%s: the refusal is not final: %s", r.File, r.Why)
	}
	return refused[0].Why
}

// TestWhatIsCheckedIsWhatIsServed: for each way to boot and each defect of each boot loader, kernel and ramdisk, the check of the plan
// refuses exactly where the firmware would get an error, and for the same reason.
func TestWhatIsCheckedIsWhatIsServed(t *testing.T) {
	needLoaders(t)
	cases, refusals := 0, 0
	for _, way := range bootWays {
		files := append(append([]string{""}, way.needs...), way.optional...)
		if !way.plan.Volumes {
			files = append(files, "kernel", "ramdisk")
		}
		for _, file := range files {
			for _, d := range defects {
				if file == "" && d.name != "missing" || d.name == "of another architecture" && !strings.Contains(file, ".efi") {
					continue
				}
				cases++
				t.Run(fmt.Sprintf("%s/%s %s", way.name, file, d.name), func(t *testing.T) {
					b := newNeedBench(t, way.plan)
					wanted := false
					for _, name := range append(way.needs, "kernel", "ramdisk") {
						wanted = wanted || name == file
					}
					if own := file == "kernel" || file == "ramdisk"; own && (d.name == "empty" || d.name == "too large") {
						return // the conductor's own look at files tells of an empty one; these have no largest size
					} else if file != "" {
						at := filepath.Join(b.loaders, file)
						if own {
							at = filepath.Join(b.dir, file)
						}
						must.OK(t, os.Remove(at))
						d.spoil(t, at)
					}
					if own := file == "kernel" || file == "ramdisk"; own && way.plan.Method == metal.BootIPXE {
						if why := b.boot(t); why == "" {
							t.Error("the firmware is given a file that is not there")
						}
						return // the conductor's own look at files tells of it
					}
					err := b.server.CheckPlan(t.Context(), b.plans.node.Plan, "", true)
					why := b.boot(t)
					if wanted {
						refusals++
					}
					if (err != nil) != wanted || (why != "") != wanted || wanted && !strings.Contains(err.Error(), why) {
						t.Errorf("the check says %v\nthe firmware is told %q\nwanted a refusal: %t", err, why, wanted)
					}
					if wanted && !strings.Contains(err.Error(), file) {
						t.Errorf("the check does not name %s: %v", file, err)
					}
				})
			}
		}
	}
	t.Logf("%d cases, %d refused", cases, refusals)
	if b := newNeedBench(t, metal.BootPlan{Method: metal.BootMedia}); b.server.CheckPlan(t.Context(), b.plans.node.Plan, "", true) != nil {
		t.Error("a whole set is refused")
	}
}

// TestLoadersOfAURL: of a kernel behind a URL of an architecture that nobody tells, one set of loaders is enough.
func TestLoadersOfAURL(t *testing.T) {
	needLoaders(t)
	b := newNeedBench(t, metal.BootPlan{Method: metal.BootMedia, FirmwareMode: "uefi"})
	plan := b.plans.node.Plan
	plan.Kernel, plan.Ramdisk = "http://127.0.0.1:1/kernel", "http://127.0.0.1:1/ramdisk"
	must.OK(t, b.server.CheckPlan(t.Context(), plan, "", true))
	must.OK(t, os.Remove(filepath.Join(b.loaders, "linuxx64.efi.stub")))
	for _, arch := range []string{"", "x86_64"} {
		if _, err := os.Stat(loadersOf(media.ARM64).Stub); arch == "" && err == nil {
			continue
		}
		err := b.server.CheckPlan(t.Context(), plan, arch, true)
		if err == nil || !strings.Contains(err.Error(), "linuxx64.efi.stub is not installed; install the Debian package systemd-boot-efi") {
			t.Errorf("cpu_arch %q: %v", arch, err)
		}
	}
	must.OK(t, b.server.CheckPlan(t.Context(), plan, "x86_64", false)) // another server has loaders of its own
}

// TestPackagesOfLoaders: the Debian package of salvor recommends each package that brings a boot loader. The program embeds none of them.
func TestPackagesOfLoaders(t *testing.T) {
	control := string(must.Get(os.ReadFile("../../dist/debian/salvor/control"))(t))
	_, list, _ := strings.Cut(control, "\nRecommends: ")
	list, _, _ = strings.Cut(list, "\n")
	for _, arch := range []media.Arch{media.AMD64, media.ARM64} {
		recommended := strings.Split(strings.ReplaceAll(list, "@architecture@", string(arch)), ", ")
		want := []string{"ipxe"}
		for _, kind := range []imageKind{imageISO, imageBIOS, imageUEFI, imageSignedISO, imageEFI} {
			for _, l := range kind.needs(loadersOf(arch), arch) {
				want = append(want, l.pkg)
			}
		}
		for _, pkg := range want {
			if !slices.Contains(recommended, pkg) {
				t.Errorf("%s: the package recommends %q, and lacks %s", arch, recommended, pkg)
			}
		}
	}
}
