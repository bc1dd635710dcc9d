//go:build e2e

package agent

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf16"

	"salvor/boot/media"
	image "salvor/boot/ramdisk"
	"salvor/test/must"
	wire "salvor/wire/agent"
	"salvor/wire/ironic"
)

const (
	gib      = 1 << 30
	diskSize = 5 * gib
	proof    = "deployed-by-salvor"
	// tenantData lies where no metadata are: only the drive's own erasure takes it away.
	tenantData = "secret of a tenant "
)

// tool runs a program of the test.
func tool(t *testing.T, in, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(in)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v (make prove-packages): %s", name, args, err, out)
	}
	return string(out)
}

// system is an image of a whole disk as a distribution makes it for UEFI: its loader is
// in a folder of its own, named by BOOTX64.CSV, and not at the removable path. What it
// boots is our own kernel, which says the proof.
func system(t *testing.T, dir string) []byte {
	t.Helper()
	work := t.TempDir()
	esp, disk := filepath.Join(work, "esp"), filepath.Join(work, "disk")
	write := func(name string, b []byte) string {
		file := filepath.Join(work, name)
		must.OK(t, os.WriteFile(file, b, 0o600))
		return file
	}
	m := must.Get(image.ReadManifest(dir))(t)
	base := must.Get(os.Open(filepath.Join(dir, image.FileUKI)))(t)
	defer base.Close()
	uki := must.Get(media.NewImage(base, m.Files[image.FileUKI].Layout()))(t)
	opened := must.Get(uki.Open("console=ttyS0 panic=-1 proof=" + proof))(t)
	loader := make([]byte, opened.Size())
	must.Get(opened.ReadAt(loader, 0))(t)
	var csv []byte
	for _, u := range utf16.Encode([]rune("\ufeffshimx64.efi,Lab System,,the system\n")) {
		csv = binary.LittleEndian.AppendUint16(csv, u)
	}
	tool(t, "", "mkfs.vfat", "-C", "-F", "32", esp, fmt.Sprint(100<<10))
	tool(t, "", "mmd", "-i", esp, "::/EFI", "::/EFI/labsystem")
	tool(t, "", "mcopy", "-i", esp, write("csv", csv), "::/EFI/labsystem/BOOTX64.CSV")
	tool(t, "", "mcopy", "-i", esp, write("loader", loader), "::/EFI/labsystem/shimx64.efi")
	tool(t, "", "truncate", "-s", "128M", disk)
	tool(t, "label: gpt\nstart=2048, size=100MiB, type=uefi\nsize=8MiB, type=linux\n", "sfdisk", "-q", disk)
	tool(t, "", "dd", "if="+esp, "of="+disk, "bs=1M", "seek=1", "conv=notrunc", "status=none")
	tool(t, "", "qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-c", disk, disk+".qcow2")
	b := must.Get(os.ReadFile(disk + ".qcow2"))(t)
	return b
}

// guest is a UEFI machine with a disk for a system and an NVMe drive with data on it.
type guest struct {
	disk, nvme, vars string
	port             int
}

func newGuest(t *testing.T) *guest {
	t.Helper()
	dir := t.TempDir()
	g := &guest{disk: filepath.Join(dir, "disk"), nvme: filepath.Join(dir, "nvme"), vars: filepath.Join(dir, "vars"), port: freePort(t)}
	vars, err := os.ReadFile("/usr/share/OVMF/OVMF_VARS_4M.fd")
	if err != nil {
		t.Fatalf("%v (package ovmf)", err)
	}
	must.OK(t, os.WriteFile(g.vars, vars, 0o600))
	for file, size := range map[string]int64{g.disk: diskSize, g.nvme: gib} {
		must.OK(t, os.WriteFile(file, nil, 0o600))
		must.OK(t, os.Truncate(file, size))
	}
	tool(t, "label: gpt\nsize=100MiB\n", "sfdisk", "-q", g.nvme)
	tool(t, "", "mke2fs", "-q", "-t", "ext4", "-E", "offset=1048576", g.nvme, "64M")
	tool(t, strings.Repeat(tenantData, 1000), "dd", "of="+g.nvme, "bs=1M", "seek=500", "conv=notrunc", "status=none")
	return g
}

// start powers it on; the channel is closed once it is off.
func (g *guest) start(t *testing.T, more ...string) (func() string, <-chan struct{}) {
	t.Helper()
	output, off := &console{}, make(chan struct{})
	args := []string{"-machine", "q35,accel=tcg", "-cpu", "max", "-m", "768", "-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio",
		"-drive", "if=pflash,unit=0,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd", "-drive", "if=pflash,unit=1,format=raw,file=" + g.vars,
		"-drive", "if=none,id=a,format=raw,cache=unsafe,file=" + g.disk, "-device", "virtio-blk-pci,drive=a,serial=SYSTEM-1",
		"-drive", "if=none,id=b,format=raw,cache=unsafe,file=" + g.nvme, "-device", "nvme,drive=b,serial=DATA-1",
		"-netdev", fmt.Sprintf("user,id=n0,hostfwd=tcp:127.0.0.1:%d-:9999", g.port), "-device", "virtio-net-pci,netdev=n0,mac=" + testMAC + ",romfile="}
	qemu := exec.Command("qemu-system-x86_64", append(args, more...)...)
	qemu.Stdout, qemu.Stderr = output, output
	must.OK(t, qemu.Start())
	go func() {
		_ = qemu.Wait()
		close(off)
	}()
	t.Cleanup(func() { _ = qemu.Process.Kill(); <-off })
	return func() string {
		output.mu.Lock()
		defer output.mu.Unlock()
		return output.text.String()
	}, off
}

// conversation sends commands to the agent in the guest.
type conversation struct {
	t    *testing.T
	http *http.Client
	base string
}

func (g *guest) talk(t *testing.T, ca string) *conversation {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(ca))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "10.0.2.15"}, DisableKeepAlives: true}
	return &conversation{t, &http.Client{Transport: transport, Timeout: 90 * time.Second}, fmt.Sprintf("https://127.0.0.1:%d/v1/commands/", g.port)}
}

// do runs a command to its end and wants it to succeed.
func (c *conversation) do(name string, params any) wire.Result {
	raw, err := json.Marshal(params)
	if err != nil {
		c.t.Error(err)
	}
	body, err := json.Marshal(wire.Command{Name: name, Params: raw})
	if err != nil {
		c.t.Error(err)
	}
	result := c.send(http.MethodPost, c.base+"?agent_token="+testToken, body)
	for deadline := time.Now().Add(3 * time.Minute); result.Status == wire.Running && time.Now().Before(deadline); {
		result = c.send(http.MethodGet, c.base+result.ID+"?wait=true&agent_token="+testToken, nil)
	}
	if result.Status != wire.Succeeded {
		c.t.Errorf("%s: %s %+v", name, result.Status, result.Error)
	}
	return result
}

func (c *conversation) send(method, url string, body []byte) (result wire.Result) {
	req, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		c.t.Error(err)
		return result
	}
	answer, err := c.http.Do(req)
	if err != nil {
		c.t.Errorf("command: %v", err)
		return result
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&result); err != nil || answer.StatusCode != 200 {
		c.t.Errorf("command: %d %v", answer.StatusCode, err)
	}
	return result
}

func configDrive(t *testing.T, content []byte) string {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(content); err != nil || z.Close() != nil {
		t.Fatal("gzip")
	}
	return base64.StdEncoding.EncodeToString(packed.Bytes())
}

// TestDeploy inspects, cleans and deploys a machine by the real ramdisk, as Ironic
// does, and boots what was written by the entry that the agent left in the firmware.
func TestDeploy(t *testing.T) {
	dir := ramdiskDir(t)
	packed := system(t, dir)
	sum := sha256.Sum256(packed)
	inspections := make(chan wire.Inspection, 5)
	files := http.NewServeMux()
	files.HandleFunc("GET /system.qcow2", func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(packed))
	})
	files.HandleFunc("POST /v1/continue_inspection", func(w http.ResponseWriter, r *http.Request) {
		var found wire.Inspection
		if err := json.NewDecoder(r.Body).Decode(&found); err != nil {
			t.Error(err)
		}
		inspections <- found
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte(`{"uuid":"` + testNode + `"}`))
	})
	server := httptest.NewServer(files)
	defer server.Close()
	drive := bytes.Repeat([]byte("a config drive\n"), 4096)
	f, g := newIronic(t), newGuest(t)
	var once sync.Once
	f.onHeartbeat = func(_ string, heartbeat ironic.Heartbeat) {
		once.Do(func() {
			deployBy(g.talk(t, heartbeat.AgentVerifyCA), guestURL(t, server.URL)+"/system.qcow2", hex.EncodeToString(sum[:]), configDrive(t, drive))
		})
	}
	begun := time.Now()
	output, off := g.start(t, "-kernel", filepath.Join(dir, image.FileKernel), "-initrd", filepath.Join(dir, image.FileInitramfs), "-append",
		"console=ttyS0 quiet panic=-1 ipa-api-url="+guestURL(t, f.server.URL)+" ipa-inspection-collectors=default,pci-devices ipa-inspection-callback-url="+guestURL(t, server.URL)+"/v1/continue_inspection")
	select {
	case <-off:
	case <-time.After(4 * time.Minute):
		t.Fatalf("not deployed; console:\n%s", output())
	}
	t.Logf("deployed %v after power on", time.Since(begun).Round(100*time.Millisecond))
	inspected(t, <-inspections)
	checkDisks(t, g, drive)
	if t.Failed() {
		t.Fatalf("console:\n%s", output())
	}
	begun = time.Now()
	output, _ = g.start(t)
	for deadline := time.Now().Add(2 * time.Minute); !strings.Contains(output(), proof); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("what was deployed does not boot; console:\n%s", output())
		}
	}
	t.Logf("the deployed system runs %v after power on", time.Since(begun).Round(100*time.Millisecond))
}

func guestURL(t *testing.T, text string) string {
	u := must.Get(url.Parse(text))(t)
	return "http://10.0.2.2:" + u.Port()
}

// deployBy is the order of a real Ironic: steps, clean, write, boot entry, off.
func deployBy(c *conversation, image, sum, drive string) {
	node := map[string]any{"uuid": testNode, "properties": map[string]any{"root_device": map[string]any{"serial": "system-1"}}, "driver_internal_info": map[string]any{}}
	about := map[string]any{"node": node, "ports": []any{}}
	var list wire.StepList
	if err := json.Unmarshal(c.do(wire.GetCleanSteps, about).Outcome, &list); err != nil || len(list.Clean["SalvorHardwareManager"]) == 0 {
		c.t.Errorf("clean steps %+v, %v", list, err)
	}
	step := func(name string, args any) map[string]any {
		return map[string]any{"node": node, "ports": []any{}, "clean_version": list.Version, "step": map[string]any{"step": name, "interface": "deploy", "args": args}}
	}
	c.do(wire.ExecuteCleanStep, step("erase_devices_metadata", nil))
	c.do(wire.ExecuteCleanStep, step("erase_devices_express", nil))
	order := step("write_image", map[string]any{"configdrive": drive, "image_info": map[string]any{
		"id": "system", "urls": []string{image}, "os_hash_algo": "sha256", "os_hash_value": sum, "disk_format": "qcow2", "container_format": "bare", "stream_raw_images": true}})
	delete(order, "clean_version")
	result := c.do(wire.ExecuteDeployStep, order)
	if !strings.Contains(string(result.Outcome), "written to device /dev/vda") {
		c.t.Errorf("write_image: %s", result.Outcome)
	}
	c.do(wire.InstallBootloader, map[string]any{"root_uuid": nil, "efi_system_part_uuid": nil, "prep_boot_part_uuid": nil, "target_boot_mode": "uefi"})
	c.do(wire.Sync, map[string]any{})
	c.send(http.MethodPost, c.base+"?agent_token="+testToken, []byte(`{"name":"standby.power_off","params":{}}`))
}

func inspected(t *testing.T, found wire.Inspection) {
	t.Helper()
	all := found.Inventory
	if len(all.Disks) != 2 || found.RootDisk == nil || found.RootDisk.Name != "/dev/vda" || found.RootDisk.Size != diskSize || *found.RootDisk.Serial != "SYSTEM-1" {
		t.Errorf("disks %+v, root %+v", all.Disks, found.RootDisk)
	}
	if len(all.Interfaces) != 1 || all.Interfaces[0].MACAddress != testMAC || all.Interfaces[0].IPv4Address == nil || *all.Interfaces[0].IPv4Address != "10.0.2.15" {
		t.Errorf("interfaces %+v", all.Interfaces)
	}
	if all.Boot.CurrentBootMode != "uefi" || all.CPU.Count != 1 || all.CPU.Architecture != "x86_64" || all.Memory.Total < 500<<20 || all.SystemVendor.Manufacturer != "QEMU" || len(found.PCIDevices) < 4 || found.Error != nil {
		t.Errorf("inventory %+v", found)
	}
}

// checkDisks looks from outside: nothing is left of the data, the table is whole and
// ends at the end of the disk, and the config drive is where cloud-init looks.
func checkDisks(t *testing.T, g *guest, drive []byte) {
	t.Helper()
	if text := tool(t, "", "wipefs", "-n", g.nvme); strings.TrimSpace(text) != "" {
		t.Errorf("the data drive still has: %s", text)
	}
	if text := tool(t, "", "dd", "if="+g.nvme, "bs=1M", "skip=500", "count=1", "status=none"); strings.Contains(text, tenantData) {
		t.Error("the data drive still has the tenant's data")
	}
	if text := tool(t, "", "sfdisk", "--verify", g.disk); !strings.Contains(text, "No errors detected") || strings.Contains(text, "backup") {
		t.Errorf("sfdisk: %s", text)
	}
	var table struct {
		Table struct {
			Partitions []struct {
				Start, Size int64
				Name        string
			} `json:"partitions"`
		} `json:"partitiontable"`
	}
	if err := json.Unmarshal([]byte(tool(t, "", "sfdisk", "-J", g.disk)), &table); err != nil || len(table.Table.Partitions) != 3 {
		t.Fatalf("partitions %+v, %v", table, err)
	}
	last := table.Table.Partitions[2]
	f := must.Get(os.Open(g.disk))(t)
	defer f.Close()
	got := make([]byte, len(drive))
	if _, err := f.ReadAt(got, last.Start*512); err != nil || !bytes.Equal(got, drive) || last.Name != "config-2" || last.Size != 64<<20/512 || (last.Start+last.Size)*512 < diskSize-2<<20 {
		t.Errorf("config drive %+v, %v", last, err)
	}
}
