package step

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"salvor/agent/disk"
	"salvor/agent/image"
	"salvor/boot/media"
	"salvor/problem"
	"salvor/test/debian"
	"salvor/test/must"
	wire "salvor/wire/agent"
)

const (
	mebi     = 1 << 20
	diskSize = 128 * mebi
)

// machine is a directory with two disks: one of 128 MiB that says it has 8 GiB, and a
// smaller one with data.
type machine struct {
	t     *testing.T
	root  string
	hands *Runner
	files map[string][]byte
	url   string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, root: t.TempDir(), files: map[string][]byte{}}
	m.write("sys/block/sda/size", "16777216")
	m.write("sys/block/sda/device/model", "Big")
	m.write("sys/block/sdb/size", "2097152")
	m.write("sys/block/sdb/device/model", "Small")
	m.write("dev/sda", strings.Repeat("old data", 3*mebi/8))
	m.write("dev/sdb", strings.Repeat("old data", 3*mebi/8))
	must.OK(t, os.Truncate(m.path("dev/sda"), diskSize))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, ok := m.files[strings.TrimPrefix(r.URL.Path, "/")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(b)
	}))
	t.Cleanup(server.Close)
	m.url = server.URL + "/"
	m.hands = &Runner{Root: m.root, Version: "9", HTTP: image.Client(nil), Memory: 64 * mebi, Log: slog.New(slog.DiscardHandler),
		Ready: func(context.Context) error { return nil }}
	return m
}

func (m *machine) path(name string) string { return filepath.Join(m.root, name) }

func (m *machine) write(name, content string) {
	m.t.Helper()
	must.OK(m.t, os.MkdirAll(filepath.Dir(m.path(name)), 0o755))
	must.OK(m.t, os.WriteFile(m.path(name), []byte(content), 0o644))
}

func (m *machine) node(text string) { m.knowNode(`{"uuid":"n",` + text + `}`) }

func (m *machine) knowNode(text string) {
	m.t.Helper()
	must.OK(m.t, m.hands.SetNode(json.RawMessage(text), ImagePolicy{}))
}

// run runs an order by its name.
func (m *machine) run(name string, params any) (any, error) {
	m.t.Helper()
	raw := must.Get(json.Marshal(params))(m.t)
	var p Params
	must.OK(m.t, json.Unmarshal(raw, &p))
	order, ok := m.hands.Orders()[name]
	if !ok {
		m.t.Fatalf("no order %s", name)
	}
	return order.Run(context.Background(), p)
}

func (m *machine) step(family, name string, args any) (any, error) {
	return m.run(family+".execute_"+family+"_step", map[string]any{"step": map[string]any{"step": name, "args": args}, "node": map[string]any{"uuid": "n"}})
}

func (m *machine) table(name string) *disk.Table {
	m.t.Helper()
	d := must.Get(disk.OpenRead(m.root, name))(m.t)
	defer d.Close()
	table := must.Get(disk.ReadTable(d, d.Size(), d.Sector()))(m.t)
	return table
}

// system is an image with a table; data is in its second partition.
func (m *machine) system(script string) wire.Image {
	m.t.Helper()
	file := filepath.Join(m.t.TempDir(), "image")
	must.OK(m.t, os.WriteFile(file, nil, 0o600))
	must.OK(m.t, os.Truncate(file, 12*mebi))
	if script != "" {
		cmd := exec.Command(debian.Program(m.t, "sfdisk", "fdisk"), "-q", file)
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			m.t.Fatalf("sfdisk: %v (package fdisk): %s", err, out)
		}
	}
	b := must.Get(os.ReadFile(file))(m.t)
	copy(b[10*mebi:], "the system")
	return m.serve("system", b)
}

func (m *machine) serve(name string, b []byte) wire.Image {
	m.files[name] = b
	sum := sha256.Sum256(b)
	return wire.Image{ID: name, URLs: []string{m.url + name}, HashAlgo: "sha256", HashValue: hex.EncodeToString(sum[:]), DiskFormat: "raw"}
}

func packed(t *testing.T, content []byte) string {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(content); err != nil || z.Close() != nil {
		t.Fatal("gzip")
	}
	return base64.StdEncoding.EncodeToString(out.Bytes())
}

func (m *machine) read(name string, off int64, n int) string {
	m.t.Helper()
	f := must.Get(os.Open(m.path(name)))(m.t)
	defer f.Close()
	b := make([]byte, n)
	must.Get(f.ReadAt(b, off))(m.t)
	return string(b)
}

const gpt = "label: gpt\nsize=4MiB\nsize=6MiB, type=linux\n"

func TestPrepare(t *testing.T) {
	for name, script := range map[string]string{"GPT": gpt, "MBR": "label: dos\nlabel-id: 0x0badcafe\nsize=4MiB\nsize=6MiB, type=83\n"} {
		for by, send := range map[string]func(*machine, wire.PrepareParams) (any, error){
			"command": func(m *machine, p wire.PrepareParams) (any, error) { return m.run(wire.PrepareImage, p) },
			"step":    func(m *machine, p wire.PrepareParams) (any, error) { return m.step("deploy", "write_image", p) },
			"inside": func(m *machine, p wire.PrepareParams) (any, error) {
				p.ImageInfo.ConfigDrive, p.ConfigDrive = p.ConfigDrive, ""
				return m.run(wire.PrepareImage, p)
			},
			"by URL": func(m *machine, p wire.PrepareParams) (any, error) {
				m.files["drive"], p.ConfigDrive = []byte(p.ConfigDrive+"\n"), m.url+"drive"
				return m.run(wire.PrepareImage, p)
			},
		} {
			t.Run(name+" "+by, func(t *testing.T) {
				m := newMachine(t)
				order := wire.PrepareParams{ImageInfo: m.system(script), ConfigDrive: packed(t, []byte("config drive"))}
				outcome := must.Get(send(m, order))(t)
				text, _ := json.Marshal(outcome)
				if !strings.Contains(string(text), "image (system) written to device /dev/sda root_uuid=0x") || (name == "MBR" && !strings.Contains(string(text), "0x0badcafe")) {
					t.Errorf("outcome %s", text)
				}
				table := m.table("/dev/sda")
				if len(table.Partitions) != 3 || m.read("dev/sda", 10*mebi, 10) != "the system" || m.read("dev/sda", table.Partitions[2].Start, 12) != "config drive" {
					t.Errorf("%+v", table.Partitions)
				}
				if m.read("dev/sdb", 0, 8) != "old data" {
					t.Error("the other disk was touched")
				}
			})
		}
	}
}

// TestRebuild: a config drive that the image brings, or that is there, is replaced.
func TestRebuild(t *testing.T) {
	m := newMachine(t)
	order := wire.PrepareParams{ImageInfo: m.system("label: gpt\nsize=4MiB\nsize=4MiB, name=\"data\"\nsize=1MiB, name=\"config-2\"\n"), ConfigDrive: packed(t, []byte("second"))}
	must.Get(m.run(wire.PrepareImage, order))(t)
	table := m.table("/dev/sda")
	if len(table.Partitions) != 3 || m.read("dev/sda", table.Partitions[2].Start, 7) != "second\x00" {
		t.Errorf("%+v", table.Partitions)
	}
	order.ConfigDrive = packed(t, bytes.Repeat([]byte("x"), 2*mebi))
	if _, err := m.run(wire.PrepareImage, order); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "do not fit") {
		t.Errorf("too large: %v", err)
	}
	outcome, err := m.run(wire.PartitionUUIDs, nil)
	if uuids, _ := outcome.(map[string]string); err != nil || !strings.HasPrefix(uuids["root uuid"], "0x") {
		t.Errorf("uuids %v, %v", outcome, err)
	}
}

func TestPrepareRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*machine, *wire.PrepareParams)
		kind   string
		text   string
		wiped  bool
	}{
		"no table": {func(m *machine, p *wire.PrepareParams) { p.ImageInfo = m.system("") }, wire.ErrDeployment, "no valid partition table", true},
		"broken table": {func(m *machine, p *wire.PrepareParams) {
			b := bytes.Clone(m.files["system"])
			b[600]++
			p.ImageInfo = m.serve("b", b)
		}, "", "outside|checksum", true},
		"checksum":         {func(_ *machine, p *wire.PrepareParams) { p.ImageInfo.HashValue = strings.Repeat("0", 64) }, wire.ErrChecksum, "expected 0000", true},
		"hints":            {func(m *machine, _ *wire.PrepareParams) { m.node(`"properties":{"root_device":{"serial":"x"}}`) }, wire.ErrNoDevice, "/dev/sda (serial)", false},
		"hints of request": {func(m *machine, _ *wire.PrepareParams) { m.node(`"instance_info":{"root_device":{"model":"none"}}`) }, wire.ErrNoDevice, "(model)", false},
		"bad hints":        {func(m *machine, _ *wire.PrepareParams) { m.node(`"properties":{"root_device":{"colour":"red"}}`) }, "", "colour", false},
		"skipped": {func(m *machine, _ *wire.PrepareParams) {
			m.node(`"properties":{"skip_block_devices":[{"name":"/dev/sda"}]}`)
		}, wire.ErrNoDevice, "4 GiB", false},
		"bad skip":        {func(m *machine, _ *wire.PrepareParams) { m.node(`"properties":{"skip_block_devices":["sda"]}`) }, "", "skip_block_devices", false},
		"no base64":       {func(_ *machine, p *wire.PrepareParams) { p.ConfigDrive = "!" }, "", "base64", false},
		"no gzip":         {func(_ *machine, p *wire.PrepareParams) { p.ConfigDrive = "aGVsbG8=" }, "", "gzip", false},
		"empty drive":     {func(m *machine, p *wire.PrepareParams) { p.ConfigDrive = packed(m.t, nil) }, "", "empty", false},
		"drive bomb":      {func(m *machine, p *wire.PrepareParams) { p.ConfigDrive = packed(m.t, make([]byte, driveSize+1)) }, "", "larger", false},
		"drive not there": {func(m *machine, p *wire.PrepareParams) { p.ConfigDrive = m.url + "none" }, wire.ErrDownload, "404", false},
		"no image":        {func(_ *machine, p *wire.PrepareParams) { p.ImageInfo = wire.Image{} }, "", "'id'", false},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			order := wire.PrepareParams{ImageInfo: m.system(gpt)}
			c.change(m, &order)
			_, err := m.run(wire.PrepareImage, order)
			if err == nil {
				t.Fatal("taken")
			}
			var typed interface{ CommandType() string }
			switch {
			case c.kind == "" && !problem.Is(err, problem.Invalid):
				t.Errorf("kind of %v", err)
			case c.kind != "" && (!errors.As(err, &typed) || typed.CommandType() != c.kind):
				t.Errorf("type of %v", err)
			}
			found := false
			for _, text := range strings.Split(c.text, "|") {
				found = found || strings.Contains(err.Error(), text)
			}
			if want := map[bool]string{true: strings.Repeat("\x00", 8), false: "old data"}[c.wiped]; !found || m.read("dev/sda", 512, 8) != want {
				t.Errorf("%v; the disk has %q", err, m.read("dev/sda", 512, 8))
			}
		})
	}
}

func TestErase(t *testing.T) {
	m := newMachine(t)
	outcome, err := m.step("clean", "erase_devices_metadata", nil)
	text, _ := json.Marshal(outcome)
	if err != nil || string(text) != `{"clean_result":null,"clean_step":{"step":"erase_devices_metadata"}}` {
		t.Fatalf("%s, %v", text, err)
	}
	if m.read("dev/sda", 0, 8) != strings.Repeat("\x00", 8) || m.read("dev/sdb", 0, 8) != strings.Repeat("\x00", 8) || m.read("dev/sda", 2*mebi, 8) != "old data" {
		t.Error("metadata")
	}
	zeros := map[string]any{"step": map[string]any{"step": "erase_devices"}, "node": map[string]any{"uuid": "n", "driver_internal_info": map[string]any{"agent_erase_devices_iterations": 0}}}
	if _, err := m.run(wire.ExecuteCleanStep, zeros); err != nil || strings.Trim(m.read("dev/sdb", 0, 3*mebi), "\x00") != "" {
		t.Errorf("erase_devices: %v", err)
	}
}

func TestEraseRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*machine)
		info   string
		kind   string
		text   string
	}{
		"read-only":  {func(m *machine) { m.write("sys/block/sdb/ro", "1") }, `{}`, wire.ErrErase, "read-only"},
		"skipped":    {func(m *machine) { m.write("sys/block/sdb/ro", "1") }, `{"agent_erase_skip_read_only":true,"agent_erase_devices_iterations":"0"}`, "", ""},
		"no disks":   {func(m *machine) { _ = os.RemoveAll(m.path("sys/block")) }, `{}`, wire.ErrErase, "no disk"},
		"iterations": {func(*machine) {}, `{"agent_erase_devices_iterations":"many"}`, "Invalid", "iterations"},
		"all off":    {func(*machine) {}, `{"agent_erase_devices_iterations":0,"agent_erase_devices_zeroize":false}`, wire.ErrErase, "switched off"},
		"cluster": {func(m *machine) {
			b := []byte(m.read("dev/sdb", 0, 3*mebi))
			copy(b[64<<10:], "\x01\x16\x19\x70")
			m.write("dev/sdb", string(b))
		}, `{}`, wire.ErrProtected, "GFS2"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			c.change(m)
			_, err := m.run(wire.ExecuteCleanStep, map[string]any{"step": map[string]any{"step": "erase_devices"},
				"node": map[string]any{"uuid": "n", "driver_internal_info": json.RawMessage(c.info)}})
			var typed interface{ CommandType() string }
			switch {
			case c.kind == "":
				if err != nil {
					t.Error(err)
				}
			case c.kind == "Invalid":
				if !problem.Is(err, problem.Invalid) {
					t.Error(err)
				}
			case !errors.As(err, &typed) || typed.CommandType() != c.kind || !strings.Contains(err.Error(), c.text):
				t.Errorf("%v", err)
			}
		})
	}
}

func TestSteps(t *testing.T) {
	m := newMachine(t)
	for family, want := range map[string]string{"clean": "erase_devices_metadata", "deploy": "write_image", "service": "write_image"} {
		outcome, err := m.run(family+".get_"+family+"_steps", map[string]any{"node": map[string]any{"uuid": "n"}, "ports": []any{}})
		text, _ := json.Marshal(outcome)
		var list map[string]json.RawMessage
		var steps map[string][]wire.Step
		if err != nil || json.Unmarshal(text, &list) != nil || json.Unmarshal(list[family+"_steps"], &steps) != nil || steps[manager][0].Step != want {
			t.Errorf("%s: %s, %v", family, text, err)
		}
	}
	var typed interface{ CommandType() string }
	_, err := m.step("clean", "dance", nil)
	if !errors.As(err, &typed) || typed.CommandType() != wire.ErrNoSuchStep {
		t.Errorf("unknown step: %v", err)
	}
	step := map[string]any{"step": "erase_devices_metadata"}
	var other *Mismatch
	if _, err := m.run(wire.ExecuteCleanStep, map[string]any{"step": step, "clean_version": map[string]string{"x": "1"}}); !errors.As(err, &other) {
		t.Errorf("other version: %v", err)
	}
	if m.read("dev/sdb", 0, 8) != "old data" {
		t.Error("a refused step acted")
	}
	for _, params := range []map[string]any{{"step": "x"}, {"step": map[string]any{}}, {}, {"step": step, "node": 1}, {"step": step, "node": map[string]any{"uuid": "other"}}, {"step": step, "clean_version": 5}} {
		if _, err := m.run(wire.ExecuteCleanStep, params); !problem.Is(err, problem.Invalid) && params["node"] == nil {
			t.Errorf("%v: %v", params, err)
		}
	}
}

func TestBootloader(t *testing.T) {
	m := newMachine(t)
	for mode, text := range map[string]string{"bios": "nothing to install", "uefi": "removable path"} {
		outcome, err := m.run(wire.InstallBootloader, map[string]any{"root_uuid": nil, "target_boot_mode": mode})
		if words, _ := outcome.(wire.Text); err != nil || !strings.Contains(words.Result, text) {
			t.Errorf("%s: %v, %v", mode, outcome, err)
		}
	}
	m.write("sys/firmware/efi/efivars/x", "")
	must.Get(m.run(wire.PrepareImage, wire.PrepareParams{ImageInfo: m.system(gpt)}))(t)
	var typed interface{ CommandType() string }
	_, err := m.run(wire.InstallBootloader, map[string]any{"root_uuid": nil})
	if !errors.As(err, &typed) || typed.CommandType() != wire.ErrNoDevice || !strings.Contains(err.Error(), "made for UEFI") {
		t.Errorf("no ESP: %v", err)
	}
	outcome, err := m.run(wire.InstallBootloader, map[string]any{"root_uuid": nil, "ignore_bootloader_failure": true})
	if words, _ := outcome.(wire.Text); err != nil || !strings.Contains(words.Result, "ignored") {
		t.Errorf("ignored: %v, %v", outcome, err)
	}
}

func FuzzDrive(f *testing.F) {
	f.Add("aGVsbG8=")
	f.Add("H4sIAAAAAAAA/ysAg9wMjQEAAAA=")
	f.Fuzz(func(t *testing.T, text string) {
		if b, err := unpackDrive(text); err == nil && (len(b) == 0 || len(b) > driveSize) {
			t.Error(len(b))
		}
	})
}

// TestDriveOfLargeSectors: an ISO 9660 becomes FAT where Linux would not mount it; all else stays as it is, or is refused in words.
func TestDriveOfLargeSectors(t *testing.T) {
	t.Parallel()
	iso := must.Get(media.ConfigDrive(map[string][]byte{"openstack/latest/meta_data.json": []byte("{}"), "openstack/latest/user_data": bytes.Repeat([]byte("u"), 9000)}))(t)
	small := must.Get(media.DataFAT(driveName, []media.File{{Path: "a"}}, 512))(t)
	fat := must.Get(io.ReadAll(small))(t)
	for _, sector := range []int64{512, 2048} {
		if got, err := mountable(iso, sector); err != nil || !bytes.Equal(got, iso) {
			t.Errorf("sectors of %d bytes: %d bytes, %v; want the image as it is", sector, len(got), err)
		}
	}
	got := must.Get(mountable(iso, 4096))(t)
	if fatSector(got) != 4096 || len(got)%4096 != 0 {
		t.Errorf("sectors of 4096 bytes: FAT with sectors of %d, %d bytes", fatSector(got), len(got))
	}
	path := filepath.Join(t.TempDir(), "drive")
	must.OK(t, os.WriteFile(path, got, 0o600))
	if out, err := exec.Command(debian.Program(t, "mtype", "mtools"), "-i", path, "::/openstack/latest/meta_data.json").Output(); err != nil || string(out) != "{}" {
		t.Errorf("mtype: %q, %v", out, err)
	}
	if got, err := mountable([]byte("something else"), 4096); err != nil || string(got) != "something else" {
		t.Errorf("no known form: %q, %v", got, err)
	}
	if got, err := mountable(nil, 4096); err != nil || got != nil {
		t.Errorf("no drive: %q, %v", got, err)
	}
	if _, err := mountable(fat, 4096); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "sectors of 512 bytes, which Linux cannot mount from the disk's sectors of 4096") {
		t.Errorf("FAT with small sectors: %v", err)
	}
	if _, err := mountable(iso[:isoVolume+isoSector+100], 4096); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "must become a FAT volume") {
		t.Errorf("a cut image: %v", err)
	}
}
