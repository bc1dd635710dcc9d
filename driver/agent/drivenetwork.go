package agent

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"
	"strings"

	"salvor/boot/media"
	"salvor/problem"
)

const (
	// driveNetworkFile is where a config drive says how its system's network is set up.
	driveNetworkFile = "openstack/latest/network_data.json"
	// maxDriveImage bounds the unpacked image of a config drive, and maxDriveNetwork that file, in bytes.
	maxDriveImage   = 64 << 20
	maxDriveNetwork = 1 << 20
)

// driveNetwork is the network_data.json of a stored config drive: of an object, or of a gzipped ISO image in base64. It is nil where the
// drive has none, or is a URL.
func driveNetwork(stored json.RawMessage) (json.RawMessage, error) {
	if len(stored) == 0 || string(stored) == "null" {
		return nil, nil
	}
	var data []byte
	var text string
	if json.Unmarshal(stored, &text) != nil {
		files, err := driveFiles("", stored)
		if err != nil {
			return nil, err
		}
		data = files[driveNetworkFile]
	} else if !strings.Contains(text, "://") {
		image, err := unpackDrive(text)
		if err != nil {
			return nil, err
		}
		data, err = media.ReadISOFile(image, driveNetworkFile, maxDriveNetwork)
		if err != nil && !problem.Is(err, problem.NotFound) {
			return nil, problem.New(problem.KindOf(err), "the config drive: %w", err)
		}
	}
	if len(data) == 0 {
		return nil, nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil {
		return nil, problem.Invalidf("the config drive's %s is no JSON object", driveNetworkFile)
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
