package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"salvor/problem"
)

// folderNames keeps the sorted names of the files in folders, so that a look at many disks reads each folder once.
type folderNames map[string][]string

// beside are the files in the folder of a disk whose names begin as that of the disk does.
func (f folderNames) beside(path string) (out []string, err error) {
	dir := filepath.Dir(path)
	names, known := f[dir]
	if !known {
		folder, err := os.Open(dir)
		if err != nil {
			return nil, err
		}
		defer folder.Close()
		if names, err = folder.Readdirnames(-1); err != nil {
			return nil, err
		}
		slices.Sort(names)
		f[dir] = names
	}
	begins := strings.TrimSuffix(filepath.Base(path), ".raw") // libvirt names a snapshot of vda.raw vda.NAME
	at, _ := slices.BinarySearch(names, begins)
	for ; at < len(names) && strings.HasPrefix(names[at], begins); at++ {
		if file := filepath.Join(dir, names[at]); file != path {
			out = append(out, file)
		}
	}
	return out, nil
}

// laterOverlay finds the overlay over a disk that was written to last; empty: there is none that was written to after the disk. The host that
// ran the guest may have died, or have been cut off, before it could tell of a snapshot. A backup tool that merged a snapshot may leave its overlay,
// but then the disk is the newer file. Hosts mount a store at different places, so the names of files are compared without their folders.
func laterOverlay(path string, folders folderNames) (string, error) {
	disk, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	files, err := folders.beside(path)
	if err != nil {
		return "", err
	}
	below := map[string]string{}
	for _, file := range files {
		switch base, err := backingFile(file); {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return "", err
		case base != "":
			below[file] = filepath.Base(base)
		}
	}
	found, last := "", disk.ModTime()
	for file := range below {
		if !liesOver(file, filepath.Base(path), below) {
			continue
		}
		if written, err := lastWrite(file); err != nil {
			return "", err
		} else if !written.Before(last) {
			found, last = file, written
		}
	}
	return found, nil
}

// liesOver tells whether a file is based on the file named base, maybe by way of others.
func liesOver(file, base string, below map[string]string) bool {
	for range maxChain {
		next, based := below[file]
		if !based || next == base {
			return based
		}
		file = filepath.Join(filepath.Dir(file), next)
	}
	return false
}

// lastWrite is the zero time for a file that is not there any more.
func lastWrite(file string) (time.Time, error) {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// refusalOfOverlay is Conflict where a disk is not what its guest used last.
func refusalOfOverlay(server, name, path string, folders folderNames) error {
	overlay, err := laterOverlay(path, folders)
	if err != nil || overlay == "" {
		return err
	}
	return problem.Conflictf("disk %[1]s of server %[2]s: %[3]s is an overlay over it (an external snapshot) and was written to later, so the writes since then would be lost. "+
		"Bring the host of the server back and end the snapshot there: virsh blockcommit salvor-%[2]s %[1]s --active --pivot --wait. If nothing in it is needed, remove it", name, server, overlay)
}
