package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"salvor/agent/step"
	"salvor/problem"
	"salvor/secret"
	"salvor/test/must"
	wire "salvor/wire/agent"
	"salvor/wire/ironic"
)

// ordered are endpoints with a few orders; release lets the slow one end.
func ordered(t *testing.T) (c *commandServer, release chan struct{}, kicks *atomic.Int32) {
	t.Helper()
	release, kicks = make(chan struct{}), &atomic.Int32{}
	c = newCommands(secret.New(testToken), "salvor-agent/9", time.Unix(5, 0), func(wire.FinalizeParams) error { return nil })
	c.ctx, c.kick = t.Context(), func() { kicks.Add(1) }
	c.orders = map[string]step.Order{
		"standby.slow": {Background: true, Params: []string{"x"}, Run: func(ctx context.Context, _ step.Params) (any, error) {
			select {
			case <-release:
			case <-ctx.Done():
			}
			return wire.Text{Result: "slow: done"}, nil
		}},
		"standby.sync":  {Params: []string{}, Run: func(context.Context, step.Params) (any, error) { return nil, nil }},
		"clean.panic":   {Background: true, Run: func(context.Context, step.Params) (any, error) { panic("hostile") }},
		"clean.version": {Background: true, Run: func(context.Context, step.Params) (any, error) { return nil, &step.Mismatch{} }},
		"clean.wrong":   {Run: func(context.Context, step.Params) (any, error) { return nil, problem.Invalidf("no") }},
		"clean.broken":  {Run: func(context.Context, step.Params) (any, error) { return nil, errors.New("ouch") }},
	}
	return c, release, kicks
}

func TestRecent(t *testing.T) {
	r := &recentLog{}
	for i := range 40000 {
		must.Get(r.Write([]byte("line " + strings.Repeat("x", i%30) + "\n")))(t)
	}
	if b := r.bytes(); len(b) > maxRecent || len(b) < maxRecent/2 || !strings.HasPrefix(string(b), "line ") {
		t.Errorf("%d bytes, %.20q", len(b), b)
	}
}

func order(t *testing.T, c *commandServer, name, params, query string) (int, wire.Result) {
	t.Helper()
	status, body := ask(c, "POST", "/v1/commands/?agent_token="+testToken+query, `{"name":"`+name+`","params":`+params+`}`)
	var result wire.Result
	if status == 200 {
		if err := json.Unmarshal([]byte(body), &result); err != nil {
			t.Fatalf("%s: %s", name, body)
		}
	} else {
		var fault wire.Fault
		_ = json.Unmarshal([]byte(body), &fault)
		result.Status = fault.String
	}
	return status, result
}

func TestOrders(t *testing.T) {
	c, release, kicks := ordered(t)
	status, running := order(t, c, "standby.slow", `{"x":1}`, "&wait=false")
	if status != 200 || running.Status != wire.Running || running.Name != "slow" || running.Error != nil {
		t.Fatalf("%d %+v", status, running)
	}
	for _, name := range []string{"standby.sync", wire.FinalizeRescue} {
		if status, r := order(t, c, name, `{}`, ""); status != 409 || !strings.Contains(r.Status, "Agent is busy: executing command standby.slow") {
			t.Errorf("%s while another runs: %d %s", name, status, r.Status)
		}
	}
	asked := make(chan string, 1)
	go func() {
		_, body := ask(c, "GET", "/v1/commands/"+running.ID+"?wait=true&agent_token="+testToken, "")
		asked <- body
	}()
	close(release)
	body := <-asked
	for end := time.Now().Add(20 * time.Second); kicks.Load() == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	if !strings.Contains(body, `"command_status":"SUCCEEDED"`) || !strings.Contains(body, `"command_result":{"result":"slow: done"}`) || kicks.Load() != 1 {
		t.Errorf("%s, %d heartbeats wanted", body, kicks.Load())
	}
	for name, want := range map[string]struct{ status, kind, text string }{
		"standby.sync":  {wire.Succeeded, "", ""},
		"clean.panic":   {wire.Failed, wire.ErrCommand, "hostile"},
		"clean.version": {wire.CleanVersionMismatch, wire.ErrVersion, "list them again"},
		"clean.wrong":   {wire.Failed, wire.ErrParams, "no"},
		"clean.broken":  {wire.Failed, wire.ErrCommand, "ouch"},
	} {
		status, r := order(t, c, name, `{}`, "&wait=true")
		if status != 200 || r.Status != want.status || (r.Error == nil) != (want.kind == "") || (r.Error != nil && (r.Error.Type != want.kind || !strings.Contains(r.Error.Details, want.text))) {
			t.Errorf("%s: %d %+v %+v", name, status, r, r.Error)
		}
	}
	if _, r := order(t, c, "standby.sync", `{"new":1}`, ""); r.Status != wire.Failed || r.Error.Type != "TypeError" {
		t.Errorf("unknown parameter: %+v", r)
	}
	if status, r := order(t, c, "standby.dance", `{}`, ""); status != 400 || !strings.Contains(r.Status, "Unknown command") {
		t.Errorf("unknown command: %d %s", status, r.Status)
	}
	if status, _ := order(t, c, "standby.slow", `{"x":"`+strings.Repeat("x", 2*maxCommand)+`"}`, ""); status != 200 {
		t.Errorf("a command with a config drive: %d", status)
	}
	var list wire.CommandList
	if _, body := ask(c, "GET", "/v1/commands/?agent_token="+testToken, ""); json.Unmarshal([]byte(body), &list) != nil || len(list.Commands) != 8 || list.Commands[0].ID != running.ID {
		t.Errorf("list of %d", len(list.Commands))
	}
}

// hardware puts a disk and a NIC into the tree of a ramdisk.
func hardware(t *testing.T, root string) {
	t.Helper()
	for name, content := range map[string]string{
		"sys/block/sda/size": "16777216", "sys/block/sda/serial": "S1", "dev/sda": "", "sys/class/net/eth0/address": testMAC + "\n", "sys/class/net/eth0/device/vendor": "0x1af4\n",
		"sys/class/net/lo/address": "00:00:00:00:00:00", "proc/meminfo": "MemTotal:  1024 kB\n", "proc/cpuinfo": "processor : 0\nmodel name : Z80\nflags : a b\n",
		"etc/iscsi/initiatorname.iscsi": "## comment\nInitiatorName=iqn.2026-11.lab:host\n", "sys/class/fc_host/host3/node_name": "0x20000000c9a1b2c3\n", "sys/class/fc_host/host3/port_name": "0x10000000C9A1B2C3\n",
		"sys/class/dmi/id/sys_vendor": "ACME\n", "proc/sys/kernel/hostname": "lab\n",
	} {
		path := filepath.Join(root, name)
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.OK(t, os.WriteFile(path, []byte(content), 0o644))
	}
	must.OK(t, os.Truncate(filepath.Join(root, "dev/sda"), 16<<20))
}

// TestCleanAndDeploy orders through the endpoints, as Ironic does, and locks the agent down.
func TestCleanAndDeploy(t *testing.T) {
	disk := bootable()
	sum := sha256.Sum256(disk)
	images := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(disk) }))
	defer images.Close()
	f := newIronic(t)
	a, root, _, _ := newAgent(t, f, "")
	hardware(t, root)
	locked := make(chan string, 1)
	var once sync.Once
	f.onHeartbeat = func(url string, beat ironic.Heartbeat) {
		once.Do(func() {
			for _, c := range [][3]string{
				{wire.GetCleanSteps, `{"node":{"uuid":"` + testNode + `"},"ports":[]}`, `"priority":99`},
				{wire.ExecuteCleanStep, `{"node":{"uuid":"` + testNode + `"},"ports":[],"step":{"step":"erase_devices_metadata","interface":"deploy"}}`, `"clean_result":null`},
				{wire.ExecuteDeployStep, `{"node":{"uuid":"` + testNode + `"},"ports":[],"step":{"step":"write_image","args":{"image_info":{"id":"i","urls":["` + images.URL + `"],"checksum":"` + hex.EncodeToString(sum[:]) + `","disk_format":"raw"}}}}`, "written to device /dev/sda"},
				{wire.PartitionUUIDs, `{}`, "root uuid"},
				{wire.Sync, `{}`, "null"},
				{wire.CollectLogs, `{}`, "H4sI"},
			} {
				_, result := f.command(url, beat.AgentVerifyCA, testToken, c[0], c[1])
				text, _ := json.Marshal(result["command_result"])
				if result["command_status"] != wire.Succeeded || !strings.Contains(string(text), c[2]) {
					t.Errorf("%s: %v", c[0], result)
				}
			}
			if _, result := f.command(url, beat.AgentVerifyCA, testToken, wire.PowerOff, `{}`); result["command_status"] != wire.Failed {
				t.Errorf("power off outside of a ramdisk: %v", result)
			}
			f.command(url, beat.AgentVerifyCA, testToken, wire.Lockdown, `{}`)
			locked <- strings.TrimPrefix(url, "https://")
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	address := <-locked
	for i := 0; ; i++ {
		if _, err := net.Dial("tcp", address); err != nil {
			break
		}
		if i > 500 {
			t.Fatal("the port stays open after lockdown")
		}
		time.Sleep(10 * time.Millisecond)
	}
	select {
	case err := <-ended:
		t.Fatalf("the agent ended after lockdown: %v", err)
	default:
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	if b, err := os.ReadFile(filepath.Join(root, "dev/sda")); err != nil || b[2<<20] != 'x' || b[510] != 0x55 {
		t.Errorf("the image is not on the disk: %v", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.heartbeats) < 3 {
		t.Errorf("%d heartbeats: ends of commands are not told", len(f.heartbeats))
	}
}

func TestInspection(t *testing.T) {
	f := newIronic(t)
	var mu sync.Mutex
	var posts []wire.Inspection
	statuses := []int{500, 409, 202}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var found wire.Inspection
		err := json.NewDecoder(r.Body).Decode(&found)
		mu.Lock()
		defer mu.Unlock()
		posts = append(posts, found)
		if err != nil || r.URL.Path != "/v1/continue_inspection" || r.Method != "POST" || r.Header.Get(wire.TokenHeader) != testToken {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		w.WriteHeader(statuses[min(len(posts), len(statuses))-1])
	}))
	defer server.Close()
	a, root, _, log := newAgent(t, f, "BOOTIF=01-52-54-00-AA-00-01 ipa-agent-token="+testToken+" ipa-inspection-callback-url="+server.URL+"/v1/continue_inspection ipa-inspection-collectors=default,pci-devices,lldp,logs")
	hardware(t, root)
	f.onHeartbeat = func(url string, beat ironic.Heartbeat) {
		f.command(url, beat.AgentVerifyCA, testToken, "rescue.finalize_rescue", finalizeParams(testHash))
	}
	must.OK(t, runAgent(t, a))
	if len(posts) != 3 {
		t.Fatalf("%d posts; %s", len(posts), log.String())
	}
	p := posts[2]
	all := p.Inventory
	if len(all.Interfaces) != 1 || all.Interfaces[0].MACAddress != testMAC || *all.Boot.PXEInterface != testMAC || *p.BootInterface != testMAC || all.Boot.CurrentBootMode != "bios" {
		t.Errorf("%+v", all)
	}
	if len(all.Disks) != 1 || p.RootDisk == nil || *p.RootDisk.Serial != "S1" || all.Memory.Total != 1<<20 || all.CPU.ModelName != "Z80" || len(all.CPU.Flags) != 2 || all.SystemVendor.Manufacturer != "ACME" || all.Hostname != "lab" {
		t.Errorf("%+v", all)
	}
	if i := p.Initiators; i == nil || i.IQN != "iqn.2026-11.lab:host" || len(i.FibreChannel) != 1 || i.FibreChannel[0] != (wire.FibreChannelPort{Host: "host3", WWNN: "20000000c9a1b2c3", WWPN: "10000000c9a1b2c3"}) {
		t.Errorf("initiators %+v", i)
	}
	if strings.Join(p.Configuration.Collectors, ",") != "default,pci-devices,logs" || !strings.HasPrefix(p.Logs, "H4sI") || !strings.Contains(log.String(), "collector=lldp") {
		t.Errorf("collectors %v", p.Configuration.Collectors)
	}
}

// TestInspectionRefused: what goes wrong is no reason not to be rescued.
func TestInspectionRefused(t *testing.T) {
	f := newIronic(t)
	a, root, _, log := newAgent(t, f, "ipa-inspection-collectors=default") // the fake has no such endpoint
	hardware(t, root)
	f.onHeartbeat = func(url string, beat ironic.Heartbeat) {
		f.command(url, beat.AgentVerifyCA, testToken, "rescue.finalize_rescue", finalizeParams(testHash))
	}
	if err := runAgent(t, a); err != nil || !strings.Contains(log.String(), "inspection failed") {
		t.Errorf("%v; %s", err, log.String())
	}
}
