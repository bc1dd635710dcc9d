package agent

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"

	"salvor/boot/media"
	"salvor/problem"
)

const (
	// driveNetworkFile is where a config drive says how its system's network is set up.
	driveNetworkFile = "openstack/latest/network_data.json"
	// driveMetaFile is where it names the public keys of its system's owner.
	driveMetaFile = "openstack/latest/meta_data.json"
	// maxDriveImage bounds the unpacked image of a config drive, and maxDriveNetwork each of those files, in bytes.
	maxDriveImage   = 64 << 20
	maxDriveNetwork = 1 << 20
)

// driveNetwork is the network_data.json of a stored config drive: of an object, or of a gzipped ISO image in base64. It is nil where the
// drive has none, or is a URL.
func driveNetwork(stored json.RawMessage) (json.RawMessage, error) {
	data, err := driveFile(stored, driveNetworkFile)
	if len(data) == 0 || err != nil {
		return nil, err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil {
		return nil, problem.Invalidf("the config drive's %s is no JSON object", driveNetworkFile)
	}
	return data, nil
}

// driveKeys are the public ssh keys that a stored config drive names, in the order of their names.
func driveKeys(stored json.RawMessage) ([]string, error) {
	data, err := driveFile(stored, driveMetaFile)
	if len(data) == 0 || err != nil {
		return nil, err
	}
	var meta struct {
		Keys map[string]string `json:"public_keys"`
	}
	if err := json.Unmarshal(data, &meta); err != nil {
		return nil, problem.Invalidf("the config drive's %s names no public keys", driveMetaFile)
	}
	var keys []string
	for _, name := range slices.Sorted(maps.Keys(meta.Keys)) {
		keys = append(keys, strings.TrimSpace(meta.Keys[name]))
	}
	return keys, nil
}

// driveFile reads a file of a stored config drive; nil where the drive lacks it, or is a URL.
func driveFile(stored json.RawMessage, name string) ([]byte, error) {
	if len(stored) == 0 || string(stored) == "null" {
		return nil, nil
	}
	var text string
	if json.Unmarshal(stored, &text) != nil {
		files, err := driveFiles("", stored)
		return files[name], err
	}
	if strings.Contains(text, "://") {
		return nil, nil
	}
	image, err := unpackDrive(text)
	if err != nil {
		return nil, err
	}
	data, err := media.ReadISOFile(image, name, maxDriveNetwork)
	if err != nil && !problem.Is(err, problem.NotFound) {
		return nil, problem.New(problem.KindOf(err), "the config drive: %w", err)
	}
	return data, nil
}

// unpackDrive gives the image of a drive in base64.
func unpackDrive(text string) ([]byte, error) {
	if len(text) > maxDrive {
		return nil, problem.Invalidf("the config drive takes %d bytes; at most %d are read", len(text), maxDrive)
	}
	packed, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		return nil, problem.Invalidf("the config drive is no base64")
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, problem.Invalidf("the config drive is not gzipped")
	}
	image, err := io.ReadAll(io.LimitReader(z, maxDriveImage+1))
	if err != nil || len(image) > maxDriveImage {
		return nil, problem.Invalidf("the config drive cannot be unpacked into %d bytes", maxDriveImage)
	}
	return image, nil
}
