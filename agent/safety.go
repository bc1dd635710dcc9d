package agent

import (
	"bytes"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"syscall"

	"salvor/problem"
)

const (
	tmpfsMagic = 0x01021994
	ramfsMagic = 0x858458f6
	// firstPIDNamespace is the inode number of the namespace that the kernel boots with.
	firstPIDNamespace = "pid:[4026531836]"
)

// Allowed tells whether the agent may change the tree at root. Started by mistake on
// a machine that is in use it would set root's password there; so without a
// directory of its own it wants to see the root of an initramfs, and process 1 in it.
func Allowed(root string) error {
	if root != "" {
		return allowedDirectory(root)
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs("/", &fs); err != nil {
		return fmt.Errorf("look at the root file system: %w", err)
	}
	if fs.Type != tmpfsMagic && fs.Type != ramfsMagic {
		return problem.Forbiddenf("refused: the root file system is on a disk (type %#x), this is no rescue ramdisk; --root DIR runs the agent inside a directory", fs.Type)
	}
	own, err := os.Stat("/")
	if err != nil {
		return fmt.Errorf("look at the root file system: %w", err)
	}
	first, err := os.Stat("/proc/1/root/.")
	if err != nil {
		return problem.Forbiddenf("refused: the root of process 1 cannot be seen: %w", err)
	}
	if !os.SameFile(own, first) {
		return problem.Forbiddenf("refused: process 1 has another root: this is a container or a chroot, no rescue ramdisk")
	}
	if space, err := os.Readlink("/proc/self/ns/pid"); err != nil || space != firstPIDNamespace {
		return problem.Forbiddenf("refused: this is a container (%s), no rescue ramdisk", space)
	}
	return nil
}

func allowedDirectory(root string) error {
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return problem.Invalidf("--root: %w", err)
	}
	given, err := os.Stat(real)
	if err != nil {
		return problem.Invalidf("--root: %w", err)
	}
	if !given.IsDir() {
		return problem.Invalidf("--root %s: not a directory", root)
	}
	if top, err := os.Stat("/"); err != nil || os.SameFile(given, top) {
		return problem.Forbiddenf("refused: --root %s is the machine's own root", root)
	}
	return nil
}

// macs are the Ethernet addresses of the machine's NICs, up or down.
func (a *Agent) macs() ([]string, error) {
	if len(a.config.MACs) > 0 {
		return a.config.MACs, nil
	}
	nics, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list NICs: %w", err)
	}
	var macs []string
	for _, nic := range nics {
		if nic.Flags&net.FlagLoopback == 0 && len(nic.HardwareAddr) == 6 && !bytes.Equal(nic.HardwareAddr, make([]byte, 6)) {
			macs = append(macs, nic.HardwareAddr.String())
		}
	}
	if len(macs) == 0 {
		return nil, problem.Unavailablef("list NICs: no Ethernet NIC is there (yet)")
	}
	return macs, nil
}

// ownAddress is the address from which the server is reached: the one by which the
// server reaches the agent. No packet is sent.
func (a *Agent) ownAddress() (net.IP, error) {
	server, err := url.Parse(a.session.api.Endpoint())
	if err != nil {
		return nil, err
	}
	port := server.Port()
	if port == "" {
		port = server.Scheme
	}
	conn, err := net.Dial("udp", net.JoinHostPort(server.Hostname(), port))
	if err != nil {
		return nil, problem.Unavailablef("find own address towards %s: %w", server.Host, err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).IP, nil
}

func callbackURL(scheme string, address net.IP, port int) string {
	return scheme + "://" + net.JoinHostPort(address.String(), fmt.Sprint(port))
}
