package netboot

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"salvor/boot/media"
	"salvor/metal"
	"salvor/problem"
	"salvor/test/debian"
	"salvor/test/must"
)

type site struct {
	*httptest.Server
	plans    *plans
	server   *Server
	dir      string
	log      *bytes.Buffer
	progress []string
}

// newSite serves a plan whose kernel and ramdisk lie in a directory of its own.
func newSite(t testing.TB) *site {
	t.Helper()
	s := &site{plans: &plans{node: testNode()}, dir: t.TempDir(), log: &bytes.Buffer{}}
	s.plans.node.Plan.Kernel, s.plans.node.Plan.Ramdisk = filepath.Join(s.dir, "kernel"), filepath.Join(s.dir, "ramdisk")
	write(t, s.plans.node.Plan.Kernel, strings.Repeat("kernel ", 5000))
	write(t, s.plans.node.Plan.Ramdisk, strings.Repeat("ramdisk", 9001))
	srv, err := New(Config{Plans: s.plans, Token: testTokenOf, Roots: []string{s.dir}, Client: http.DefaultClient,
		ConfigDrive: func(_ context.Context, n *metal.Node) ([]byte, error) { return []byte("drive of " + n.ID), nil }, Log: slog.New(slog.NewTextHandler(s.log, nil)),
		RecordProgress: func(_ *metal.Node, what string) {
			s.plans.mu.Lock()
			defer s.plans.mu.Unlock()
			s.progress = append(s.progress, what)
		}})
	if err != nil {
		t.Fatal(err)
	}
	s.server, s.Server = srv, httptest.NewServer(srv.Handler())
	t.Cleanup(func() { s.Close(); srv.images.close() })
	return s
}

func write(t testing.TB, path, text string) {
	t.Helper()
	must.OK(t, os.WriteFile(path, []byte(text), 0o600))
}

// do asks without cleaning the path, as an attacker would.
func (s *site) do(t *testing.T, method, path string, header ...string) (*http.Response, []byte) {
	t.Helper()
	req := must.Get(http.NewRequest(method, s.URL, nil))(t)
	req.URL.Opaque = path
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp := must.Get(s.Client().Transport.RoundTrip(req))(t)
	defer resp.Body.Close()
	body := must.Get(io.ReadAll(resp.Body))(t)
	return resp, body
}

func (s *site) get(t *testing.T, name string, header ...string) (*http.Response, []byte) {
	t.Helper()
	return s.do(t, http.MethodGet, metal.FilePrefix+testPath+"/"+name, header...)
}

func TestFilesOfAPlan(t *testing.T) {
	s := newSite(t)
	resp, body := s.get(t, "boot.ipxe")
	if resp.StatusCode != 200 || !bytes.HasPrefix(body, []byte("#!ipxe\nkernel --name kernel kernel ")) || !bytes.Contains(body, []byte(" ipa-agent-token="+testToken+" ||")) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if resp.Header.Get("Cache-Control") != "no-store" {
		t.Error(resp.Header)
	}
	for name, want := range map[string]string{"kernel": strings.Repeat("kernel ", 5000), "ramdisk": strings.Repeat("ramdisk", 9001)} {
		if resp, body := s.get(t, name); resp.StatusCode != 200 || string(body) != want {
			t.Errorf("%s: %d, %d bytes", name, resp.StatusCode, len(body))
		}
	}
	resp, body = s.do(t, http.MethodHead, metal.FilePrefix+testPath+"/kernel")
	if resp.StatusCode != 200 || resp.ContentLength != 35000 || len(body) != 0 {
		t.Errorf("HEAD: %d, %d bytes", resp.StatusCode, resp.ContentLength)
	}
	if strings.Join(s.progress, ",") != "fetching boot.ipxe,fetching kernel,fetching ramdisk" && len(s.progress) != 3 {
		t.Errorf("seen %q", s.progress)
	}
	if s.log.Len() > 0 {
		t.Errorf("logged %s", s.log)
	}
}

// TestFilesOfAnISO: a plan with a ready-made ISO image offers that and its config drive, and neither kernel nor script.
func TestFilesOfAnISO(t *testing.T) {
	s := newSite(t)
	p := s.plans.node.Plan
	p.ISO, p.Kernel, p.Ramdisk = filepath.Join(s.dir, "live.iso"), "", ""
	write(t, p.ISO, "the image")
	if resp, body := s.get(t, metal.BootISO, "Range", "bytes=4-"); resp.StatusCode != 206 || string(body) != "image" {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
	p.ConfigDrive = true
	if resp, body := s.get(t, metal.BootConfigDrive); resp.StatusCode != 200 || string(body) != "drive of "+s.plans.node.ID {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
	p.ConfigDrive = false
	for _, name := range []string{metal.BootScript, metal.BootKernel, metal.BootRamdisk, metal.BootEFI, metal.BootImage, metal.BootConfigDrive} {
		if resp, _ := s.get(t, name); resp.StatusCode != 404 {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
	}
	p.ISO = filepath.Join(t.TempDir(), "secret")
	write(t, p.ISO, "outside")
	if resp, body := s.get(t, metal.BootISO); resp.StatusCode != 503 || strings.Contains(string(body), "outside") {
		t.Errorf("a file outside of the directories: %d %q", resp.StatusCode, body)
	}
}

// needLoaders requires the boot loaders that images are made with.
func needLoaders(t testing.TB) {
	t.Helper()
	debian.File(t, DebianLoaders.Stub, "systemd-boot-efi")
	debian.File(t, DebianLoaders.Isolinux, "isolinux")
	debian.File(t, DebianLoaders.Ldlinux, "syslinux-common")
}

// writeSignedLoaders puts stand-ins of the signed boot loaders beside a kernel.
func writeSignedLoaders(t testing.TB, dir string) {
	t.Helper()
	for _, path := range []string{DebianLoaders.Shim, DebianLoaders.Grub} {
		write(t, filepath.Join(dir, filepath.Base(path)), "stand-in of "+filepath.Base(path))
	}
}

// TestCheckPlanOfSecureBoot names what firmware that enforces Secure Boot would refuse, and has the signed boot loaders on the CD once they are there.
func TestCheckPlanOfSecureBoot(t *testing.T) {
	needLoaders(t)
	dir := t.TempDir()
	none := Loaders{Shim: filepath.Join(dir, "none/shimx64.efi.signed"), Grub: filepath.Join(dir, "none/gcdx64.efi.signed")}
	srv := must.Get(New(Config{Plans: &plans{node: testNode()}, Roots: []string{dir}, Loaders: none}))(t)
	stub := must.Get(os.ReadFile(DebianLoaders.Stub))(t)
	kernel := filepath.Join(dir, "kernel")
	write(t, kernel, string(stub))
	check := func(kernel, cpuArch string) error {
		return srv.CheckPlan(t.Context(), &metal.BootPlan{Method: metal.BootMedia, Kernel: kernel, Ramdisk: "http://192.0.2.1/ramdisk", SecureBoot: true}, cpuArch, false)
	}
	refused := func(kernel, want string) {
		t.Helper()
		if err := check(kernel, ""); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", kernel, err, want)
		}
	}
	refused(kernel, "install the Debian packages shim-signed and grub-efi-amd64-signed")
	refused("http://192.0.2.1/kernel", "shimx64.efi.signed is not installed; gcdx64.efi.signed is not installed")
	writeSignedLoaders(t, dir)
	refused(kernel, "has no signature")
	text := filepath.Join(dir, "text")
	write(t, text, "kernel")
	refused(text, "it is no program for UEFI")
	// Its directory of certificates names its last bytes.
	coff := binary.LittleEndian.Uint32(stub[0x3c:]) + 4
	directory := stub[coff+20+112+4*8:]
	binary.LittleEndian.PutUint32(directory, uint32(len(stub)))
	binary.LittleEndian.PutUint32(directory[4:], 8)
	write(t, kernel, string(stub)+"\x08\x00\x00\x00\x00\x02\x02\x00")
	must.OK(t, check(kernel, ""))
	// Of a kernel behind a URL the header is read.
	files := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer files.Close()
	installed := Loaders{Shim: filepath.Join(dir, filepath.Base(DebianLoaders.Shim)), Grub: filepath.Join(dir, filepath.Base(DebianLoaders.Grub))}
	missing := srv
	srv = must.Get(New(Config{Plans: &plans{node: testNode()}, Loaders: installed, Client: files.Client()}))(t)
	must.OK(t, check(files.URL+"/kernel", ""))
	// The header of one whose signature lies far behind it tells enough.
	binary.LittleEndian.PutUint32(directory, maxHeader*2)
	write(t, filepath.Join(dir, "large"), string(stub)+strings.Repeat("x", maxHeader*3))
	must.OK(t, check(files.URL+"/large", ""))
	binary.LittleEndian.PutUint32(directory, uint32(len(stub)))
	refused(files.URL+"/text", "it is no program for UEFI")
	must.OK(t, check(files.URL+"/none", "x86_64")) // the origin is asked elsewhere
	binary.LittleEndian.PutUint16(stub[coff-4+4:], 0xaa64)
	write(t, filepath.Join(dir, "arm"), string(stub))
	for _, name := range []string{"arm", "none"} {
		err := check(files.URL+"/"+name, "aarch64")
		if _, loaders := os.Stat(loadersOf(media.ARM64).Shim); loaders != nil && (err == nil || !strings.Contains(err.Error(), "grub-efi-arm64-signed")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	binary.LittleEndian.PutUint16(stub[coff-4+4:], 0x8664)
	srv = missing
	write(t, kernel, string(stub)) // it was cut
	refused(kernel, "has no signature")
}

// TestSignedCD: the plan of a machine with Secure Boot gives a CD with the signed boot loaders, and none if one of them is missing.
// All others have the unified kernel image.
func TestSignedCD(t *testing.T) {
	needLoaders(t)
	s := newSite(t)
	writeSignedLoaders(t, s.dir)
	const shim, grub, uki = "stand-in of shimx64.efi.signed", "stand-in of gcdx64.efi.signed", ".cmdline"
	for _, c := range []struct {
		secure       bool
		holds, lacks []string
	}{{true, []string{shim, grub, "set params='", "console=ttyS0 ipa-agent-token=" + testToken + "  "}, []string{uki}}, {false, []string{uki}, []string{shim, grub}}} {
		s.plans.node.Plan.SecureBoot = c.secure
		resp, whole := s.get(t, "boot.iso")
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("Secure Boot %t: %d %s", c.secure, resp.StatusCode, s.log)
		}
		for _, text := range c.holds {
			if !bytes.Contains(whole, []byte(text)) {
				t.Errorf("Secure Boot %t: the CD lacks %q", c.secure, text)
			}
		}
		for _, text := range c.lacks {
			if bytes.Contains(whole, []byte(text)) {
				t.Errorf("Secure Boot %t: the CD holds %q", c.secure, text)
			}
		}
	}
	must.OK(t, os.Remove(filepath.Join(s.dir, "gcdx64.efi.signed")))
	write(t, s.plans.node.Plan.Kernel, "another kernel") // the image of the former one is kept
	s.plans.node.Plan.SecureBoot = true
	if _, err := os.Stat(DebianLoaders.Grub); err != nil {
		if resp, _ := s.get(t, "boot.iso"); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(s.log.String(), "gcdx64.efi.signed is neither beside the kernel nor installed") {
			t.Errorf("without a signed GRUB: %d %s", resp.StatusCode, s.log)
		}
	}
}

// TestCDOfARM64: the kernel's architecture chooses the boot loaders; an arm64 machine has no BIOS, so the CD has no isolinux.
func TestCDOfARM64(t *testing.T) {
	needLoaders(t)
	s := newSite(t)
	kernel := must.Get(os.ReadFile(DebianLoaders.Stub))(t)
	binary.LittleEndian.PutUint16(kernel[binary.LittleEndian.Uint32(kernel[0x3c:])+4:], 0xaa64)
	write(t, s.plans.node.Plan.Kernel, string(kernel))
	writeSignedLoaders(t, s.dir) // those of amd64
	for _, path := range []string{loadersOf(media.ARM64).Shim, loadersOf(media.ARM64).Grub} {
		write(t, filepath.Join(s.dir, filepath.Base(path)), "stand-in of "+filepath.Base(path))
	}
	if got := s.server.KernelArch(s.plans.node.Plan.Kernel); got != "aarch64" {
		t.Errorf("architecture %q", got)
	}
	s.plans.node.Plan.SecureBoot = true
	resp, whole := s.get(t, "boot.iso")
	if resp.StatusCode != http.StatusOK || !bytes.Contains(whole, []byte("stand-in of shimaa64.efi.signed")) || !bytes.Contains(whole, []byte("stand-in of gcdaa64.efi.signed")) {
		t.Errorf("%d %s", resp.StatusCode, s.log)
	}
	if bytes.Contains(whole, []byte("x64.efi.signed")) || bytes.Contains(whole, []byte("ISOLINUX")) {
		t.Error("the CD holds a boot loader of amd64")
	}
}

// An image read in pieces is the image read at once: base plus this node's parameters.
func TestImagesByRange(t *testing.T) {
	needLoaders(t)
	s := newSite(t)
	for _, name := range []string{"boot.iso", "boot.efi"} {
		resp, whole := s.get(t, name)
		if resp.StatusCode != 200 || resp.Header.Get("Accept-Ranges") != "bytes" {
			t.Fatalf("%s: %d %s: %s", name, resp.StatusCode, whole, s.log)
		}
		if !bytes.Contains(whole, []byte("console=ttyS0 ipa-agent-token="+testToken)) || !bytes.Contains(whole, []byte(strings.Repeat("ramdisk", 9001))) {
			t.Errorf("%s lacks parameters or ramdisk", name)
		}
		var pieced []byte
		for at := 0; at < len(whole); at += 50_001 {
			last := min(at+50_001, len(whole)) - 1
			resp, piece := s.get(t, name, "Range", "bytes="+strconv.Itoa(at)+"-"+strconv.Itoa(last))
			if resp.StatusCode != http.StatusPartialContent {
				t.Fatalf("%s: %d", name, resp.StatusCode)
			}
			pieced = append(pieced, piece...)
		}
		if !bytes.Equal(pieced, whole) {
			t.Errorf("%s in pieces differs", name)
		}
	}
	if resp, _ := s.do(t, http.MethodHead, metal.FilePrefix+testPath+"/boot.efi"); resp.Header.Get("Content-Type") != "application/efi" || resp.ContentLength <= 0 {
		t.Error(resp.Header)
	}
}

func TestNothingElseIsServed(t *testing.T) {
	s := newSite(t)
	write(t, filepath.Join(s.dir, "secret"), "not for you")
	for _, path := range []string{
		"/boot/", "/boot/" + testPath, "/boot/" + testPath + "/", "/boot/" + testPath + "/secret", "/boot/" + testPath + "/../secret",
		"/boot/" + testPath + "/kernel/", "/boot/" + testPath + "/%2e%2e%2fsecret", "/boot/" + testPath + "/..%2fsecret", "/boot/../" + testPath + "/kernel",
		"/boot/" + testPath[:len(testPath)-1] + "X/kernel", "/boot//kernel", "/boot/x/kernel", "/boot/" + strings.Repeat("a", 200) + "/kernel", "/kernel", "/",
		"/boot/" + testPath + "%00/kernel", "/boot/" + testPath + "/kernel%00",
	} {
		if resp, body := s.do(t, http.MethodGet, path); resp.StatusCode != 404 || string(body) != "Not Found\n" {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS", "PATCH"} {
		if resp, _ := s.do(t, method, metal.FilePrefix+testPath+"/kernel"); resp.StatusCode != 405 || resp.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d", method, resp.StatusCode)
		}
	}
}

func TestNothingIsServedAfterTheBoot(t *testing.T) {
	s := newSite(t)
	s.plans.node.BootNumber++
	for _, name := range []string{"boot.ipxe", "kernel", "ramdisk", "boot.iso", "boot.efi"} {
		if resp, body := s.get(t, name); resp.StatusCode != 404 || string(body) != "Not Found\n" {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
	}
}

// A node's record names the kernel, and users write it: it must not read the conductor's files.
func TestPlanCannotReadOtherFiles(t *testing.T) {
	s := newSite(t)
	other := filepath.Join(t.TempDir(), "secret")
	write(t, other, "not for you")
	link, pipe := filepath.Join(s.dir, "link"), filepath.Join(s.dir, "pipe")
	must.OK(t, os.Symlink(other, link))
	must.OK(t, syscall.Mkfifo(pipe, 0o600))
	for _, path := range []string{other, link, pipe, s.dir, "kernel", s.dir + "/../" + filepath.Base(filepath.Dir(other)) + "/secret", "/etc/passwd", "/dev/zero", "file:///etc/passwd", s.dir + "/absent"} {
		s.plans.node.Plan.Kernel = path
		for _, name := range []string{"kernel", "boot.efi"} {
			if resp, body := s.get(t, name); resp.StatusCode != 503 || string(body) != "Service Unavailable\n" {
				t.Errorf("%s of %q: %d %s", name, path, resp.StatusCode, body)
			}
		}
	}
	if strings.Contains(s.log.String(), testToken) {
		t.Error("the token is in the log")
	}
}

func TestBadParametersAreNotServed(t *testing.T) {
	s := newSite(t)
	s.plans.node.Plan.Params = append(s.plans.node.Plan.Params, "x\nchain http://evil.example.test")
	for _, name := range []string{"boot.ipxe", "boot.iso", "boot.efi"} {
		if resp, body := s.get(t, name); resp.StatusCode != 503 {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
	}
	if strings.Contains(s.log.String(), testToken) || !strings.Contains(s.log.String(), "n1") {
		t.Errorf("log: %s", s.log)
	}
}

func TestStoreAwayIsUnavailable(t *testing.T) {
	s := newSite(t)
	s.plans.err = problem.Unavailablef("the store is away")
	if resp, _ := s.get(t, "boot.ipxe"); resp.StatusCode != 503 {
		t.Error(resp.StatusCode)
	}
}

// A kernel by URL is fetched from there; ours is only named.
func TestKernelByURL(t *testing.T) {
	s := newSite(t)
	s.plans.node.Plan.Kernel = "http://192.0.2.9/vmlinuz"
	if _, body := s.get(t, "boot.ipxe"); !bytes.Contains(body, []byte("\nkernel --name kernel http://192.0.2.9/vmlinuz initrd=")) {
		t.Errorf("%s", body)
	}
	if resp, _ := s.get(t, "kernel"); resp.StatusCode != http.StatusFound || resp.Header.Get("Location") != "http://192.0.2.9/vmlinuz" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
}

// A replaced ramdisk must not be served from a cached image, and old images are let go.
func TestImagesFollowTheirFiles(t *testing.T) {
	s := newSite(t)
	for i := range maxImages + 3 {
		text := strings.Repeat("r", 100+i) + strconv.Itoa(i)
		tmp := filepath.Join(s.dir, "new")
		write(t, tmp, text)
		must.OK(t, os.Rename(tmp, s.plans.node.Plan.Ramdisk))
		if _, body := s.get(t, "boot.efi"); !bytes.Contains(body, []byte(text)) {
			t.Errorf("image %d is an old one", i)
		}
	}
}
