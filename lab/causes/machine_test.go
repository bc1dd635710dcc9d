//go:build causes || e2e

package causes

import (
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"salvor/test/must"
	"salvor/test/program"
)

// emulatedCPU has what Debian asks of a processor. QEMU carries out "rep stosb" and a fifth level of page tables slowly, and a kernel uses both where
// the processor has them.
const emulatedCPU = "max,-erms,-fsrm,-la57"

// drives attaches the disks of a folder.
func drives(dir string, l Layout) []string {
	args := []string{"-device", "virtio-scsi-pci,id=bus,addr=8"} // the bus of the machine that examines: a repair lets the system have its drivers alone
	for n := range l.Disks {
		id := fmt.Sprintf("disk%d", n)
		args = append(args, "-drive", "if=none,format=qcow2,id="+id+",file="+disk(dir, n), "-device", fmt.Sprintf("scsi-hd,bus=bus.0,lun=%d,drive=%s,serial=%s,bootindex=%d", n, id, id, n))
	}
	return args
}

// emptyVariables are those of a machine that was never started.
const emptyVariables = "/usr/share/OVMF/OVMF_VARS_4M.fd"

// uefi starts by UEFI, with variables in that file.
func uefi(vars string) []string {
	return []string{"-drive", "if=pflash,unit=0,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd",
		"-drive", "if=pflash,unit=1,format=raw,file=" + vars}
}

// machine is one QEMU. Its console is its standard input and output.
type machine struct {
	cmd      *exec.Cmd
	keyboard io.WriteCloser
	exited   chan struct{}
	console  program.Buffer
	errors   bytes.Buffer
}

// start runs QEMU. Its console is logged in the folder of the corpus under that name.
func (c *corpus) start(t *testing.T, name string, args []string) *machine {
	t.Helper()
	m := &machine{exited: make(chan struct{})}
	m.cmd = exec.Command(c.qemu, append([]string{"-nodefaults", "-display", "none", "-no-reboot", "-machine", "q35,accel=tcg", "-cpu", emulatedCPU,
		"-chardev", "stdio,id=console,signal=off,logfile=" + filepath.Join(c.dir, "console-"+name+".log"), "-serial", "chardev:console"}, args...)...)
	m.keyboard = must.Get(m.cmd.StdinPipe())(t)
	m.cmd.Stdout, m.cmd.Stderr = &m.console, &m.errors
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must.OK(t, m.cmd.Start())
	go func() {
		m.cmd.Wait()
		close(m.exited)
	}()
	return m
}

// stop cuts the power.
func (m *machine) stop() {
	m.cmd.Process.Kill()
	<-m.exited
}

// await waits until the console shows a text. The other text, if any, is an early end.
func (m *machine) await(limit time.Duration, text, failure string) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(limit); ; {
		shown := m.console.String()
		switch {
		case strings.Contains(shown, text):
			return nil
		case failure != "" && strings.Contains(shown, failure):
			return fmt.Errorf("it says %q", failure)
		case time.Now().After(until):
			return fmt.Errorf("no %q within %v", text, limit)
		}
		select {
		case <-m.exited:
			if strings.Contains(m.console.String(), text) {
				return nil
			}
			return fmt.Errorf("the machine ended without %q", text)
		case <-tick.C:
		}
	}
}

func (m *machine) tail() string {
	shown := m.console.String()
	return m.errors.String() + shown[max(0, len(shown)-6000):]
}
