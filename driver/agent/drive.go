package agent

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"

	"salvor/problem"
)

// maxDrive bounds a config drive on its way to the agent, in bytes of base64.
const maxDrive = 8 << 20

// driveLabel is how a system finds its config drive.
const driveLabel = "config-2"

// memoryDir is where secrets may lie as files for a moment without touching a disk.
const memoryDir = "/dev/shm"

// configDrive brings the stored drive into the form that agents take: a URL, or base64 of a gzipped image.
func configDrive(nodeID string, stored json.RawMessage) (string, error) {
	if len(stored) == 0 || string(stored) == "null" {
		return "", nil
	}
	var text string
	if json.Unmarshal(stored, &text) == nil {
		if len(text) > maxDrive {
			return "", problem.Invalidf("it takes %d bytes; at most %d reach an agent: give a URL instead", len(text), maxDrive)
		}
		return text, nil
	}
	files, err := driveFiles(nodeID, stored)
	if err != nil {
		return "", err
	}
	image, err := driveImage(files)
	if err != nil {
		return "", err
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(image); err != nil {
		return "", err
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	text = base64.StdEncoding.EncodeToString(packed.Bytes())
	if len(text) > maxDrive {
		return "", problem.Invalidf("it takes %d bytes packed; at most %d reach an agent", len(text), maxDrive)
	}
	return text, nil
}

// driveFiles are the files of a drive that was given as an object, by path.
func driveFiles(nodeID string, stored json.RawMessage) (map[string][]byte, error) {
	var o struct {
		Meta    map[string]any  `json:"meta_data"`
		Network json.RawMessage `json:"network_data"`
		Vendor  json.RawMessage `json:"vendor_data"`
		User    json.RawMessage `json:"user_data"`
	}
	if err := json.Unmarshal(stored, &o); err != nil {
		return nil, problem.Invalidf("it is neither a string nor an object with meta_data, user_data, network_data and vendor_data")
	}
	if o.Meta == nil {
		o.Meta = map[string]any{}
	}
	// A system takes another uuid for another machine, and starts from anew.
	if o.Meta["uuid"] == nil {
		o.Meta["uuid"] = nodeID
	}
	meta, err := json.Marshal(o.Meta)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"openstack/latest/meta_data.json": meta}
	for name, raw := range map[string]json.RawMessage{"network_data.json": o.Network, "vendor_data2.json": o.Vendor} {
		if len(raw) > 0 && string(raw) != "null" {
			files["openstack/latest/"+name] = raw
		}
	}
	if len(o.User) > 0 && string(o.User) != "null" {
		var text string
		if json.Unmarshal(o.User, &text) != nil {
			text = string(o.User) // an object is its own JSON
		}
		files["openstack/latest/user_data"] = []byte(text)
	}
	return files, nil
}

// driveImage makes an ISO 9660 file system of the files.
func driveImage(files map[string][]byte) ([]byte, error) {
	parent := memoryDir
	if _, err := os.Stat(parent); err != nil {
		parent = ""
	}
	dir, err := os.MkdirTemp(parent, "config-drive-")
	if err != nil {
		return nil, problem.Unavailablef("make it: %w", err)
	}
	defer os.RemoveAll(dir)
	work := filepath.Join(dir, "files")
	if err := os.Mkdir(work, 0o700); err != nil {
		return nil, problem.Unavailablef("make it: %w", err)
	}
	var size int64
	for _, content := range files {
		size += int64(len(content))
	}
	disk, err := file.CreateFromPath(filepath.Join(dir, "drive.iso"), size+1<<20)
	if err != nil {
		return nil, problem.Unavailablef("make it: %w", err)
	}
	defer disk.Close()
	fs, err := iso9660.Create(disk, 0, 0, 2048, work)
	if err != nil {
		return nil, problem.Unavailablef("make it: %w", err)
	}
	if err := fs.Mkdir("openstack/latest"); err != nil {
		return nil, problem.Unavailablef("make it: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := writeInto(fs, name, files[name]); err != nil {
			return nil, problem.Unavailablef("make it: %s: %w", name, err)
		}
	}
	if err := fs.Finalize(iso9660.FinalizeOptions{RockRidge: true, VolumeIdentifier: driveLabel}); err != nil {
		return nil, problem.Unavailablef("make it: %w", err)
	}
	image, err := os.ReadFile(filepath.Join(dir, "drive.iso"))
	if err != nil {
		return nil, problem.Unavailablef("make it: %w", err)
	}
	return image, nil
}

func writeInto(fs *iso9660.FileSystem, name string, content []byte) error {
	f, err := fs.OpenFile(name, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(f, bytes.NewReader(content))
	if err == nil && n != int64(len(content)) {
		err = fmt.Errorf("only %d of %d bytes were taken", n, len(content))
	}
	return err
}
