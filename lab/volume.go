package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"salvor/problem"
)

// Volume is a disk image with a tenant system on it, for a storage system to export.
type Volume struct {
	Path    string `json:"path"`
	Marker  string `json:"marker"`   // identity of the system
	HostKey string `json:"host_key"` // its public ssh host key
}

// MakeVolume writes a disk image whose system boots over iSCSI: by what firmware says of the volume that it
// came from, or from the SCSI disk that a machine's own initiator shows it. stateDir as in Spec. The file must not exist.
func MakeVolume(ctx context.Context, stateDir, path string) (Volume, error) {
	return makeVolume(ctx, stateDir, path, onVolume)
}

// MakeImage writes the image of a server's disk: the system finds its root on the first virtio disk, and its address on
// a config drive. Otherwise as MakeVolume.
func MakeImage(ctx context.Context, stateDir, path string) (Volume, error) {
	return makeVolume(ctx, stateDir, path, onServer)
}

func makeVolume(ctx context.Context, stateDir, path string, kind tenantKind) (Volume, error) {
	spec, err := Spec{StateDir: stateDir}.withDefaults()
	if err != nil {
		return Volume{}, err
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return Volume{}, problem.Conflictf("volume %s: the file is there already", path)
	}
	boot, err := tenantBoot(ctx, cacheDir(spec.StateDir), kind)
	if err != nil {
		return Volume{}, err
	}
	work, err := os.MkdirTemp(filepath.Dir(path), "volume-*")
	if err != nil {
		return Volume{}, fmt.Errorf("volume %s: %w", path, err)
	}
	defer os.RemoveAll(work)
	id, err := makeTenantDisk(ctx, machineSpec{Name: work}, boot, path)
	if err != nil {
		return Volume{}, fmt.Errorf("volume %s: %w", path, err)
	}
	return Volume{Path: path, Marker: id.Marker, HostKey: id.HostKey}, nil
}
