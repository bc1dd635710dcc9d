//go:build e2e

// Package demos runs the demonstrations, which are scripts, as tests. A script ends with status 0 only if each of its proofs held.
package demos

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"salvor/lab/odd"
)

// limit bounds a demonstration. The longest takes three minutes on two cores, without the packages that it downloads.
const limit = 12 * time.Minute

// runMachine is runScript for a demonstration with one QEMU, beside which another one may run.
func runMachine(t *testing.T, script, choice string, environment ...string) {
	t.Helper()
	t.Parallel()
	runScript(t, script, choice, environment...)
}

// runScript runs a script of test/, with what chooses its kind.
func runScript(t *testing.T, script, choice string, environment ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "test/"+script)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "DEMO="+choice)
	cmd.Env = append(cmd.Env, environment...)
	// SIGTERM lets the script take its machines down.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	timer := time.AfterFunc(limit, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer timer.Stop()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("DEMO=%s test/%s: want status 0 within %v, got %v\n%s", choice, script, limit, err, out)
	}
}

func TestDemoForgotten(t *testing.T) { runMachine(t, "demo.sh", "forgotten") }
func TestDemoIPMI(t *testing.T)      { runMachine(t, "demo.sh", "ipmi") }
func TestDemoUEFI(t *testing.T)      { runMachine(t, "demo.sh", "uefi") }
func TestDemoUEFIMedia(t *testing.T) { runMachine(t, "demo.sh", "uefi-media") }
func TestDemoServer(t *testing.T)    { runScript(t, "demo-vm.sh", "uefi") }
func TestDemoEvacuate(t *testing.T)  { runScript(t, "demo-evacuate.sh", "") }
func TestDemoRepair(t *testing.T)    { runMachine(t, "demo-repair.sh", "") }
func TestDemoConsole(t *testing.T)   { runMachine(t, "demo-console.sh", "") }

// TestDemoOddBMCs rescues a real machine behind each of the ten oddest BMCs and puts the machine back. Virtual media boots half of the
// machines, UEFI HTTP boot the others.
func TestDemoOddBMCs(t *testing.T) {
	for i, oddities := range odd.OddestBMCs(10) {
		var lines []string
		for _, o := range oddities {
			lines = append(lines, o.String())
		}
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Logf("the BMC is odd by:\n%s", strings.Join(lines, "\n"))
			runMachine(t, "demo.sh", []string{"forgotten", "uefi"}[i%2], "ODD="+strings.Join(lines, "\n"))
		})
	}
}
