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

// TestDataFATReadsBack: programs that share no code with us find the label and each file by its long name, whatever the size of the sectors.
func TestDataFATReadsBack(t *testing.T) {
	t.Parallel()
	want := map[string][]byte{
		"openstack/latest/meta_data.json": []byte(`{"uuid": "x"}`), "openstack/latest/network_data.json": noise(3, 5000), "openstack/latest/user_data": noise(4, 9<<20),
		"openstack/2018-08-27/meta_data.json": []byte("{}"), "openstack/content/0000": []byte("first"), "openstack/latest/vendor_data2.json": nil, "ec2/latest/meta-data.json": []byte("{}"),
		"openstack/latest/exactly13char": []byte("13"), "openstack/Größe": []byte("ß"), "TOP.TXT": []byte("top"),
		"openstack/" + strings.Repeat("long name ", 20) + "x": []byte("long"),
	}
	for i := range 40 { // short names that begin alike
		want["openstack/content/another-file-"+string(rune('a'+i/26))+string(rune('a'+i%26))] = []byte{byte(i)}
	}
	for _, sector := range []int64{512, 4096} {
		var files []File
		for name, content := range want {
			files = append(files, File{Path: name, Data: bytesBlob(content)})
		}
		volume := must.Get(DataFAT("config-2", files, sector))(t)
		raw := readAll(t, volume)
		if volume.Size()%sector != 0 {
			t.Errorf("sectors of %d bytes: the volume has %d bytes", sector, volume.Size())
		}
		path, to := filepath.Join(t.TempDir(), "drive"), t.TempDir()
		must.OK(t, os.WriteFile(path, raw, 0o600))
		if out, err := exec.Command(debian.Program(t, "mcopy", "mtools"), "-s", "-n", "-i", path, "::/", to).CombinedOutput(); err != nil {
			t.Fatalf("mcopy: %v: %s", err, out)
		}
		for name, content := range want {
			if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || !bytes.Equal(got, content) {
				t.Errorf("sectors of %d bytes: %s: want %d bytes, got %d, %v", sector, name, len(content), len(got), err)
			}
		}
		fsck(t, volume)
		out, err := exec.Command(debian.Program(t, "blkid", "util-linux"), "-p", "-o", "export", path).CombinedOutput()
		if words := strings.Fields(string(out)); err != nil || !slices.Contains(words, "LABEL=config-2") || !slices.Contains(words, "TYPE=vfat") {
			t.Errorf("sectors of %d bytes: blkid: %v: %s", sector, err, out)
		}
	}
}

func TestDataFATRefuses(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"", "/a", "a/", "a//b", "../a", "a/..", "a.", "a ", "a:b", "a\x01", "a\xff", "*", strings.Repeat("x", 256), strings.Repeat("d/", 20) + "x"} {
		if _, err := DataFAT("x", []File{{Path: path}}, 4096); !problem.Is(err, problem.Invalid) {
			t.Errorf("the path %q: %v", path, err)
		}
	}
	for _, paths := range [][]string{{"a", "a"}, {"a", "A"}, {"a", "a/b"}, {"a/b", "A/c"}} {
		if _, err := DataFAT("x", []File{{Path: paths[0]}, {Path: paths[1]}}, 4096); !problem.Is(err, problem.Invalid) {
			t.Errorf("the paths %q: %v", paths, err)
		}
	}
	for _, sector := range []int64{0, 256, 1000, 8192} {
		if _, err := DataFAT("x", nil, sector); !problem.Is(err, problem.Invalid) {
			t.Errorf("sectors of %d bytes: %v", sector, err)
		}
	}
	for _, label := range []string{"", "twelve-chars", "a b"} {
		if _, err := DataFAT(label, nil, 4096); !problem.Is(err, problem.Invalid) {
			t.Errorf("the label %q: %v", label, err)
		}
	}
}

// TestISOFiles: all files of a drive of another program are listed, by the names that Linux shows.
func TestISOFiles(t *testing.T) {
	t.Parallel()
	from := t.TempDir()
	want := map[string]string{}
	for _, name := range []string{"openstack/latest/meta_data.json", "openstack/latest/network_data.json", "openstack/content/0000", "ec2/latest/user_data"} {
		want[name] = name
		must.OK(t, os.MkdirAll(filepath.Join(from, filepath.Dir(name)), 0o700))
		must.OK(t, os.WriteFile(filepath.Join(from, name), []byte(name), 0o600))
	}
	images := map[string][]byte{}
	for _, options := range []string{"-J -r", "-r", "-J -iso-level 1", "-iso-level 3"} {
		path := filepath.Join(t.TempDir(), "drive.iso")
		args := append([]string{"-as", "mkisofs", "-V", "config-2", "-quiet", "-o", path}, strings.Fields(options)...)
		if !strings.Contains(options, "-r") {
			args = append([]string{"-rockridge", "off"}, args...)
		}
		if out, err := exec.Command(debian.Program(t, "xorriso", "xorriso"), append(args, from)...).CombinedOutput(); err != nil {
			t.Fatalf("xorriso %s: %v: %s", options, err, out)
		}
		images[options] = readFile(t, "/", path)
	}
	bytesOf := map[string][]byte{}
	for name, text := range want {
		bytesOf[name] = []byte(text)
	}
	images["our own"] = must.Get(ConfigDrive(bytesOf))(t)
	for kind, image := range images {
		files := must.Get(ISOFiles(image))(t)
		got := map[string]string{}
		for _, f := range files {
			got[f.Path] = string(readAll(t, f.Data))
		}
		if len(got) != len(want) || len(files) != len(want) {
			t.Errorf("%s: want %d files, got %v", kind, len(want), got)
		}
		for name, text := range want {
			if got[name] != text {
				t.Errorf("%s: %s: want %q, got %q", kind, name, text, got[name])
			}
		}
		for why, broken := range map[string][]byte{"cut": image[:17*isoSector], "no image": make([]byte, 40*isoSector), "empty": nil} {
			if files, err := ISOFiles(broken); !problem.Is(err, problem.Invalid) {
				t.Errorf("%s: %s: %d files, %v", kind, why, len(files), err)
			}
		}
	}
}

func FuzzISOFiles(f *testing.F) {
	image, err := ConfigDrive(map[string][]byte{"a/b": []byte("x"), "c": nil})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(image, 200, byte(1))
	f.Fuzz(func(_ *testing.T, image []byte, at int, b byte) {
		if at >= 0 && at < len(image) {
			image[at] = b
		}
		files, err := ISOFiles(image)
		if err == nil {
			_, _ = DataFAT("x", files, 4096)
		}
	})
}
