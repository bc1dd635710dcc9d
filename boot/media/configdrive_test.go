package media

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"salvor/problem"
	"salvor/test/debian"
	"salvor/test/must"
)

// TestConfigDriveReadsBack: foreign programs find the label and each file of a config drive, by its own name in small letters and capitals.
func TestConfigDriveReadsBack(t *testing.T) {
	large := bytes.Repeat(noise(9, 1<<20-1), 65)[:64<<20] // no two sectors of it are alike
	want := map[string][]byte{
		"openstack/latest/meta_data.json": []byte(`{"uuid": "x"}`), "openstack/latest/user_data": large, "openstack/latest/vendor_data2.json": nil,
		"openstack/content/0000": []byte("first"), "ec2/latest/meta-data.json": []byte("{}"), "openstack/" + strings.Repeat("Long-Name_", 3): []byte("long"), "top": []byte("top"),
	}
	image := must.Get(ConfigDrive(want))(t)
	if again, err := ConfigDrive(want); err != nil || !bytes.Equal(again, image) {
		t.Errorf("the same files gave other bytes: %v", err)
	}
	path := filepath.Join(t.TempDir(), "drive.iso")
	must.OK(t, os.WriteFile(path, image, 0o600))
	out, err := exec.Command(debian.Program(t, "blkid", "util-linux"), "-p", "-o", "export", path).CombinedOutput()
	if words := strings.Fields(string(out)); err != nil || !slices.Contains(words, "LABEL=config-2") || !slices.Contains(words, "TYPE=iso9660") {
		t.Errorf("blkid: %v: %s", err, out)
	}
	dir, found := debian.ExtractISO(t, path), 0
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		if got := readFile(t, dir, name); !bytes.Equal(got, want[name]) {
			t.Errorf("%s: %d bytes, want %d", name, len(got), len(want[name]))
		}
		found++
		return nil
	})
	if err != nil || found != len(want) {
		t.Errorf("%d files of %d, %v", found, len(want), err)
	}
	if packed, err := PackConfigDrive(map[string][]byte{"../evil": nil}); !problem.Is(err, problem.Invalid) {
		t.Errorf("a name that leads out of the drive: %d bytes, %v", len(packed), err)
	}
}

// TestReadISOFile: a file is found in the drives of other programs, whichever kinds of names they write.
func TestReadISOFile(t *testing.T) {
	const name = "openstack/latest/network_data.json"
	from := t.TempDir()
	must.OK(t, os.MkdirAll(filepath.Join(from, "openstack/latest"), 0o700))
	files := []string{name, "openstack/latest/empty"}
	for i := range 99 { // a directory of several sectors
		files = append(files, "openstack/latest/another-long-name-"+string(rune('a'+i/10))+string(rune('a'+i%10)))
	}
	for _, file := range files {
		text := file
		if strings.HasSuffix(file, "empty") {
			text = ""
		}
		must.OK(t, os.WriteFile(filepath.Join(from, file), []byte(text), 0o600))
	}
	images := map[string][]byte{}
	for _, options := range []string{"-J -r", "-r", "-J -iso-level 1", "-iso-level 3"} {
		path := filepath.Join(t.TempDir(), "drive.iso")
		args := append([]string{"-as", "mkisofs", "-V", "config-2", "-quiet", "-o", path}, strings.Fields(options)...)
		// Without -r xorriso would add Rock Ridge by itself.
		if !strings.Contains(options, "-r") {
			args = append([]string{"-rockridge", "off"}, args...)
		}
		if out, err := exec.Command(debian.Program(t, "xorriso", "xorriso"), append(args, from)...).CombinedOutput(); err != nil {
			t.Fatalf("xorriso %s: %v: %s", options, err, out)
		}
		images[options] = readFile(t, "/", path)
	}
	own := must.Get(ConfigDrive(map[string][]byte{name: []byte(name), "openstack/latest/empty": nil}))(t)
	images["our own"] = own
	for kind, image := range images {
		if got, err := ReadISOFile(image, name, len(name)); err != nil || string(got) != name {
			t.Errorf("%s: %q, %v", kind, got, err)
		}
		if got, err := ReadISOFile(image, "openstack/latest/empty", 1); err != nil || len(got) != 0 {
			t.Errorf("%s: the empty file is %q, %v", kind, got, err)
		}
		for _, missing := range []string{"openstack/latest/network_data.jso", "openstack/2012-08-10/network_data.json", "network_data.json"} {
			if _, err := ReadISOFile(image, missing, 100); !problem.Is(err, problem.NotFound) {
				t.Errorf("%s: %s: %v", kind, missing, err)
			}
		}
		for why, call := range map[string]func() ([]byte, error){
			"a file above the limit": func() ([]byte, error) { return ReadISOFile(image, name, len(name)-1) },
			"a directory":            func() ([]byte, error) { return ReadISOFile(image, "openstack/latest", 1<<20) },
			"a cut image":            func() ([]byte, error) { return ReadISOFile(image[:17*isoSector], name, 100) },
			"no image":               func() ([]byte, error) { return ReadISOFile(make([]byte, len(image)), name, 100) },
		} {
			if got, err := call(); !problem.Is(err, problem.Invalid) {
				t.Errorf("%s: %s: %d bytes, %v", kind, why, len(got), err)
			}
		}
	}
}
