package fleet

import (
	"bufio"
	"encoding/csv"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"salvor/test/must"
	"salvor/test/program"
)

// TestOperatorsHour enrols 50 machines of a file, finds those that are broken, mends them, and rescues, changes and retires others, each by a line.
func TestOperatorsHour(t *testing.T) {
	s := rescuable(t)
	cli := program.CLI{URL: s.URL}
	file, password := machinesOfSim(t, s)
	commands := 0
	do := func(want int, words ...string) string {
		t.Helper()
		commands++
		out, err := cli.Try(t, append(words, "--url", s.URL)...)
		if (err != nil) != (want != 0) {
			t.Fatalf("salvor %s: %v", strings.Join(words, " "), err)
		}
		return out
	}
	names := func(words ...string) []string {
		t.Helper()
		return strings.Fields(cli.Run(t, append([]string{"node", "list", "-c", "name", "-f", "value"}, words...)...))
	}
	if dry := do(0, "node", "import", file, "--driver-info-file", "redfish_password="+password, "--dry-run"); strings.Count(dry, ": new, with 1 port") != 50 {
		t.Errorf("the dry run says %s", dry)
	}
	do(0, "node", "import", file, "--driver-info-file", "redfish_password="+password)
	do(1, "node", "manage", "--where", "state=enroll", "--wait")
	broken := strings.Fields(do(0, "node", "list", "--where", "state=enroll", "-o", "value", "-c", "name"))
	if want := []string{"sim-8-000007", "sim-8-000017", "sim-8-000027"}; !slices.Equal(broken, want) {
		t.Fatalf("the broken machines are %v, want %v", broken, want)
	}
	do(0, "node", "set", "--where", "driver=redfish", "--driver-info-file", "redfish_password="+password)
	do(0, "node", "manage", "--where", "state=enroll", "--wait")
	do(0, "node", "adopt", "--where", "state=manageable", "--wait")
	do(0, "node", "maintenance", "set", "--where", "extra.rack=3", "--reason", "a new switch")
	if got := names("--maintenance"); len(got) != 10 || got[0] != "sim-8-000030" {
		t.Errorf("in maintenance are %v, want the ten of rack 3", got)
	}
	do(0, "node", "maintenance", "unset", "--where", "extra.rack=3")
	do(0, "node", "rescue", "sim-8-00001?", "--rescue-password-file", password, "--wait")
	if got := names("--where", "state=rescue", "--where", "name=sim-8-00001*"); len(got) != 10 {
		t.Errorf("in rescue are %v, want ten", got)
	}
	do(0, "node", "unrescue", "--where", "state=rescue", "--wait")
	do(0, "node", "undeploy", "sim-8-00004[5-9]", "--wait")
	do(0, "node", "delete", "sim-8-00004[5-9]")
	if got := names("--where", "state=active"); len(got) != 45 || len(names()) != 45 {
		t.Errorf("%d nodes are active of %d, want 45", len(got), len(names()))
	}
	if commands > 15 {
		t.Errorf("the hour took %d commands, want 15 or less", commands)
	}
	t.Logf("%d commands", commands)
}

// machinesOfSim runs 50 simulated machines that no control plane knows, and gives a file of them with their racks, and a file with the password of
// their BMCs. Three machines have another password in their row.
func machinesOfSim(t *testing.T, s *program.Server) (file, password string) {
	t.Helper()
	dir := t.TempDir()
	words := []string{"--nodes", "50", "--seed", "8", "--url", s.URL}
	sim := exec.CommandContext(t.Context(), program.Path(t, "salvor-lab"), append([]string{"sim", "--boot-time", "50ms", "--heartbeat", "1s"}, words...)...)
	said := bufio.NewScanner(must.Get(sim.StderrPipe())(t))
	must.OK(t, sim.Start())
	t.Cleanup(func() {
		_ = sim.Process.Signal(os.Interrupt)
		_ = sim.Wait()
	})
	for said.Scan() && !strings.HasPrefix(said.Text(), "enrolled:") {
	}
	go func() {
		for said.Scan() {
		}
	}()
	cli := program.CLI{URL: s.URL}
	table := must.Get(csv.NewReader(strings.NewReader(cli.Run(t, "node", "export", "-f", "csv"))).ReadAll())(t)
	name := slices.Index(table[0], "name")
	table[0] = append(table[0], "extra.rack", "driver_info.redfish_password", "automated_clean")
	for i, row := range table {
		if i == 0 {
			continue
		}
		number := must.Get(strconv.Atoi(row[name][len("sim-8-"):]))(t)
		wrong := ""
		if number%10 == 7 && number < 30 {
			wrong = "another"
		}
		table[i] = append(row, strconv.Itoa(number/10), wrong, "no")
	}
	if _, said := rehearse(t, s, "--nodes", "50", "--seed", "8", "--clean"); !strings.Contains(said, "50 nodes removed") {
		t.Fatalf("the nodes are still there: %s", said)
	}
	file, password = filepath.Join(dir, "racks.csv"), filepath.Join(dir, "password")
	f := must.Get(os.Create(file))(t)
	must.OK(t, csv.NewWriter(f).WriteAll(table))
	must.OK(t, f.Close())
	must.OK(t, os.WriteFile(password, []byte("simulated\n"), 0o600))
	return file, password
}
