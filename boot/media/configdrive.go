package media

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io"
)

// configDriveLabel is how a system finds its config drive.
const configDriveLabel = "config-2"

// ConfigDrive makes the ISO image of a config drive of its files, by path. The same files give the same bytes.
func ConfigDrive(files map[string][]byte) ([]byte, error) {
	var list []File
	for name, content := range files {
		list = append(list, File{Path: name, Data: bytesBlob(content)})
	}
	image, err := DataISO(configDriveLabel, list)
	if err != nil {
		return nil, err
	}
	content := make([]byte, image.Size())
	_, err = io.ReadFull(image, content)
	return content, err
}

// PackConfigDrive makes a config drive in the form that the Bare Metal API and its agents take: gzipped, in base64.
func PackConfigDrive(files map[string][]byte) (string, error) {
	image, err := ConfigDrive(files)
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
	return base64.StdEncoding.EncodeToString(packed.Bytes()), nil
}
