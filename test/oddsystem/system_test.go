//go:build causes

package oddsystem

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"salvor/test/must"
)

//go:embed testdata/install
var installScript string

//go:embed testdata/truth
var truthScript string

// installation is a way in which a system is installed.
type installation struct {
	name, suite string
	packages    []string
	// other is the name of the installation whose files are other versions of this one's.
	other string
	owner string
}

var installations = []installation{
	{"debian-12", "bookworm", []string{"ifupdown", "isc-dhcp-client"}, "debian-13", "alice"},
	{"debian-13", "trixie", []string{"systemd-resolved", "dbus", "libpam-systemd"}, "debian-12", "root"},
	{"debian-12-netplan", "bookworm", []string{"netplan.io", "network-manager", "dbus", "libpam-systemd"}, "debian-13", "alice"},
}

const ownerPassword = "correct horse"

// commonPackages are those of all installations.
var commonPackages = []string{"linux-image-cloud-amd64", "grub-pc-bin", "grub2-common", "openssh-server", "systemd-sysv", "sudo", "initramfs-tools", "login", "passwd", "util-linux",
	"iproute2", "cron", "kmod", "e2fsprogs", "nftables", "zstd", "procps", "udev"}

// image is the name of the file with the installation's disk.
func (i installation) image() string {
	return i.name + "-" + digestOf(installScript, i, commonPackages) + ".img"
}

// digest names the installation and the questions to its programs.
func (i installation) digest() string {
	return digestOf(i.image(), truthScript, machineArguments, containerScript)
}

func digestOf(parts ...any) string {
	sum := sha256.Sum256([]byte(fmt.Sprint(parts...)))
	return hex.EncodeToString(sum[:6])
}

// chosen are the installations whose names SALVOR_ODD_SYSTEMS matches; it is a regular expression.
func chosen() []installation {
	named := regexp.MustCompile(os.Getenv("SALVOR_ODD_SYSTEMS"))
	return slices.DeleteFunc(slices.Clone(installations), func(i installation) bool { return !named.MatchString(i.name) })
}

// rootStart is where the first partition of an image begins, in bytes.
const rootStart = 1 << 20

// world is the folder of systems and results.
type world struct {
	dir string
	// roots has the mount point of each installation, read-only.
	roots map[string]string
	// strace is what the script of questions runs below; empty but while touchedByPrograms runs.
	strace []string
	// boots has room for the machines that start at once.
	boots chan struct{}
}

// newWorld installs what is not installed yet, and mounts all systems. A run that was killed may have left mounts behind.
func newWorld(t *testing.T, dir string) *world {
	t.Helper()
	w := &world{dir: dir, roots: map[string]string{}, boots: make(chan struct{}, bootsAtOnce)}
	must.OK(t, os.MkdirAll(dir, 0o755))
	w.unmountAll(t)
	t.Cleanup(func() { w.unmountAll(t) })
	key := filepath.Join(dir, "owner_key")
	if _, err := os.Stat(key); err != nil {
		run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
	}
	for _, i := range chosen() {
		image := filepath.Join(dir, i.image())
		if _, err := os.Stat(image); err != nil {
			w.install(t, i, image)
		}
		w.roots[i.name] = filepath.Join(dir, "mounts", i.name)
		must.OK(t, os.MkdirAll(w.roots[i.name], 0o755))
		run(t, "mount", "-o", fmt.Sprintf("ro,noload,loop,offset=%d", rootStart), image, w.roots[i.name])
	}
	return w
}

func (w *world) install(t *testing.T, i installation, image string) {
	t.Helper()
	archive := filepath.Join(w.dir, i.name+".tar")
	if _, err := os.Stat(archive); err != nil {
		packages := strings.Join(append(i.packages, commonPackages...), ",")
		args := []string{"--quiet", "--variant=apt", "--format=tar", "--aptopt=Apt::Install-Recommends false", "--dpkgopt=force-unsafe-io", "--include=" + packages}
		run(t, "mmdebstrap", append(args, i.suite, archive+".new")...)
		must.OK(t, os.Rename(archive+".new", archive))
	}
	script := filepath.Join(w.dir, "install")
	must.OK(t, os.WriteFile(script, []byte(installScript), 0o600))
	run(t, "unshare", "--mount", "bash", script, archive, image+".new", i.name, filepath.Join(w.dir, "owner_key.pub"))
	must.OK(t, os.Rename(image+".new", image))
}

// unmountAll unmounts whatever is mounted below the folder, the newest first.
func (w *world) unmountAll(t *testing.T) {
	t.Helper()
	var below []string
	for _, line := range strings.Split(string(must.Get(os.ReadFile("/proc/self/mounts"))(t)), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], w.dir+"/") {
			below = append([]string{fields[1]}, below...)
		}
	}
	for _, place := range below {
		if err := unix.Unmount(place, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", place, err)
		}
	}
}

// overlay is a system with a layer of its own above the installed one.
type overlay struct {
	dir, place string
}

// newOverlay lays a layer over an installation. The caller removes it.
func (w *world) newOverlay(i installation) (*overlay, error) {
	dir, err := os.MkdirTemp(w.dir, "change-")
	if err != nil {
		return nil, err
	}
	o := &overlay{dir, filepath.Join(dir, "root")}
	// The layer lies in memory.
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1g"); err != nil {
		return nil, err
	}
	for _, name := range []string{"root", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return nil, err
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", w.roots[i.name], filepath.Join(dir, "upper"), filepath.Join(dir, "work"))
	return o, unix.Mount("overlay", o.place, "overlay", 0, options)
}

func (o *overlay) remove() error {
	_ = unix.Unmount(o.place, unix.MNT_DETACH)
	_ = unix.Unmount(o.dir, unix.MNT_DETACH)
	return os.Remove(o.dir)
}

// systemFS are the files of an installation. SALVOR_ODD_OTHER names a folder with those of one that is not installed yet.
func (w *world) systemFS(t *testing.T, name string) fs.FS {
	t.Helper()
	place := w.roots[name]
	if place == "" {
		place = os.Getenv("SALVOR_ODD_OTHER")
	}
	root := must.Get(os.OpenRoot(place))(t)
	t.Cleanup(func() { root.Close() })
	return root.FS()
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	began := time.Now()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%.4000s", name, args, err, out)
	}
	if took := time.Since(began); took > time.Minute {
		t.Logf("%s took %.0f s", name, took.Seconds())
	}
}
