package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// blankSize is the size of a blank disk: room for a small system, sparse until written.
const blankSize = 2 << 30

// diskIdentity is what outsiders can check a tenant system by.
type diskIdentity struct {
	Marker  string
	HostKey string // public ssh key, as known_hosts wants it: type and base64
}

// makeDisk makes the disk of a machine; boot is the boot half of a tenant disk.
func makeDisk(ctx context.Context, m machineSpec, boot string) (diskIdentity, error) {
	path := filesOf(m.Name).Disk
	if m.Disk == BlankDisk {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err != nil {
			return diskIdentity{}, fmt.Errorf("disk of %s: %w", m.Name, err)
		}
		if err := errors.Join(f.Truncate(blankSize), f.Close()); err != nil {
			return diskIdentity{}, fmt.Errorf("disk of %s: %w", m.Name, err)
		}
		return diskIdentity{}, nil
	}
	id, err := makeTenantDisk(ctx, m, boot, path)
	if err != nil {
		return diskIdentity{}, fmt.Errorf("tenant disk of %s: %w", m.Name, err)
	}
	return id, nil
}

func makeTenantDisk(ctx context.Context, m machineSpec, boot, path string) (diskIdentity, error) {
	work, err := os.MkdirTemp(m.Name, "root-*")
	if err != nil {
		return diskIdentity{}, err
	}
	defer os.RemoveAll(work)
	if err := os.Chmod(work, 0o755); err != nil {
		return diskIdentity{}, err
	}
	id, err := writeTenantTree(ctx, m, work)
	if err != nil {
		return diskIdentity{}, err
	}
	if err := copyFile(path, boot); err != nil {
		return diskIdentity{}, err
	}
	if err := os.Truncate(path, rootStart+rootSize); err != nil {
		return diskIdentity{}, err
	}
	_, err = runForOutput(ctx, "", "/usr/sbin/mke2fs", "-q", "-F", "-t", "ext4", "-L", "tenant", "-d", work,
		"-E", fmt.Sprintf("offset=%d,lazy_itable_init=1,lazy_journal_init=1", rootStart), path, fmt.Sprintf("%dk", rootSize/1024))
	return id, err
}

// writeTenantTree fills a directory with the tenant's root file system.
func writeTenantTree(ctx context.Context, m machineSpec, root string) (diskIdentity, error) {
	for _, dir := range []string{
		"bin", "sbin", "usr/bin", "usr/sbin", "etc/dropbear", "etc/acpi/PWRF", "dev", "proc", "sys", "run", "tmp", "mnt", "root", "var/lib", "var/log",
	} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return diskIdentity{}, err
		}
	}
	id := diskIdentity{Marker: filepath.Base(m.Name) + "-" + randomHex(8)}
	if err := writeTenantFiles(root, id); err != nil {
		return diskIdentity{}, err
	}
	if err := installBusybox(ctx, root); err != nil {
		return diskIdentity{}, err
	}
	key, err := installDropbear(ctx, root)
	id.HostKey = key
	return id, err
}

// writeTenantFiles writes the tenant's own files: accounts, identity, and what it starts.
func writeTenantFiles(root string, id diskIdentity) error {
	for name, text := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
		"etc/group":  "root:x:0:\n",
		"etc/shells": "/bin/sh\n",
		"etc/marker": id.Marker + "\n",
		// A hash that no password is known for: nobody chose one.
		"etc/shadow":             "root:" + forgottenHash() + ":19700:0:99999:7:::\n",
		"etc/nsswitch.conf":      "passwd: files\nshadow: files\ngroup: files\n",
		"etc/acpi/PWRF/00000080": "#!/bin/sh\nexec /bin/busybox poweroff\n",
		"root/.keep":             "",
	} {
		mode := os.FileMode(0o644)
		switch {
		case name == "etc/shadow":
			mode = 0o600
		case strings.HasPrefix(name, "etc/acpi"):
			mode = 0o755
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), mode); err != nil {
			return err
		}
	}
	for name, from := range map[string]string{"etc/inittab": "inittab", "etc/rc": "rc", "etc/udhcpc": "udhcpc"} {
		text, err := tenantFS.ReadFile("tenant/" + from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(root, name), text, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// forgottenHash looks like a sha512 crypt of a password, but is of none.
func forgottenHash() string {
	const alphabet = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	random := make([]byte, 16+86)
	rand.Read(random)
	for i, b := range random {
		random[i] = alphabet[b%64]
	}
	return "$6$" + string(random[:16]) + "$" + string(random[16:])
}

func installBusybox(ctx context.Context, root string) error {
	if err := copyProgram(root, busybox); err != nil {
		return err
	}
	applets, err := runForOutput(ctx, "", busybox, "--list-full")
	if err != nil {
		return err
	}
	for _, applet := range strings.Fields(string(applets)) {
		link := filepath.Join(root, applet)
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(busybox, link); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// installDropbear brings the ssh server with its libraries, and a host key of this disk's own,
// whose public half it returns.
func installDropbear(ctx context.Context, root string) (string, error) {
	const server = "/usr/sbin/dropbear"
	libs, err := runForOutput(ctx, "", "ldd", server)
	if err != nil {
		return "", err
	}
	files := []string{server}
	for _, word := range strings.Fields(string(libs)) {
		if strings.HasPrefix(word, "/") {
			files = append(files, word)
		}
	}
	for _, file := range files {
		if err := copyProgram(root, file); err != nil {
			return "", err
		}
	}
	key := filepath.Join(root, "etc/dropbear/dropbear_ed25519_host_key")
	out, err := runForOutput(ctx, "", "dropbearkey", "-t", "ed25519", "-f", key)
	if err != nil {
		return "", err
	}
	for _, line := range strings.Split(string(out), "\n") {
		if fields := strings.Fields(line); len(fields) >= 2 && fields[0] == "ssh-ed25519" {
			return fields[0] + " " + fields[1], nil
		}
	}
	return "", errors.New("dropbearkey printed no public key")
}

// copyProgram copies a file of this machine to the same place in the tree.
func copyProgram(root, file string) error {
	to := filepath.Join(root, file)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
