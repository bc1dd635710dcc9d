package examine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"salvor/problem"
)

// setReadOnly has the kernel refuse writes to a device, and asks whether it does. The device is listed for takeDown first.
func setReadOnly(node string) error {
	f, err := os.OpenFile(node, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("set it read-only: %w", err)
	}
	defer f.Close()
	on, err := unix.IoctlGetInt(int(f.Fd()), unix.BLKROGET)
	if err != nil {
		return fmt.Errorf("%s: ask whether it is read-only: %w", node, err)
	}
	if on != 0 {
		return nil
	}
	list, err := os.OpenFile(readOnlyFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(list, node)
	if err := errors.Join(err, list.Close()); err != nil {
		return err
	}
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.BLKROSET, 1); err != nil {
		return fmt.Errorf("%s: set it read-only: %w", node, err)
	}
	if on, err := unix.IoctlGetInt(int(f.Fd()), unix.BLKROGET); err != nil || on == 0 {
		return fmt.Errorf("%s: the kernel does not set it read-only: %v", node, err)
	}
	return nil
}

// restoreWritable gives the devices back that a list of setReadOnly names. The list stays until each of them is writable or gone.
func restoreWritable(list string, setWritable func(node string) error) error {
	b, err := os.ReadFile(list)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var failed []error
	for _, node := range strings.Fields(string(b)) {
		if err := setWritable(node); err != nil {
			failed = append(failed, fmt.Errorf("%s: set it writable again: %w", node, err))
		}
	}
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	return os.Remove(list)
}

// setWritable undoes setReadOnly; a disk that has gone is no error.
func setWritable(node string) error {
	f, err := os.OpenFile(node, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.IoctlSetPointerInt(int(f.Fd()), unix.BLKROSET, 0)
}

// partitionNodes lists the kernel's own partitions of a disk.
func partitionNodes(path string) []string {
	var out []string
	names, _ := filepath.Glob(filepath.Join("/sys/class/block", filepath.Base(path), "*", "partition"))
	for _, name := range names {
		out = append(out, "/dev/"+filepath.Base(filepath.Dir(name)))
	}
	return out
}

// writtenBytes is what the kernel counts as written to and discarded from a disk since it was found.
func writtenBytes(path string) int64 {
	b, err := os.ReadFile(filepath.Join("/sys/class/block", filepath.Base(path), "stat"))
	if err != nil {
		return 0
	}
	return writtenSectors(string(b)) * 512
}

// writtenSectors reads the seventh field of a stat file, sectors written, and the fourteenth, sectors discarded.
func writtenSectors(stat string) int64 {
	fields := strings.Fields(stat)
	var sum int64
	for _, i := range []int{6, 13} {
		if i < len(fields) {
			n, _ := strconv.ParseInt(fields[i], 10, 64)
			sum += n
		}
	}
	return sum
}

func deviceSize(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	size, err := f.Seek(0, 2)
	if err == nil && size < 512 {
		err = problem.Unsupportedf("%s: it has %d bytes", path, size)
	}
	return size, err
}

// attachLoop lays a loop device over a file or a device.
func attachLoop(file *os.File, flags uint32, sector int) (string, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer control.Close()
	for range 20 {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", fmt.Errorf("get a loop device: %w", err)
		}
		node := "/dev/loop" + strconv.Itoa(n)
		loop, err := os.OpenFile(node, os.O_RDWR, 0)
		if err != nil {
			return "", err
		}
		config := unix.LoopConfig{Fd: uint32(file.Fd()), Size: uint32(sector), Info: unix.LoopInfo64{Flags: flags}}
		copy(config.Info.File_name[:], file.Name())
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &config)
		_ = loop.Close()
		if errors.Is(err, unix.EBUSY) {
			continue // somebody else took it
		}
		if err != nil {
			return "", fmt.Errorf("%s: lay it over %s: %w", node, file.Name(), err)
		}
		return node, nil
	}
	return "", errors.New("no loop device is free")
}

// mapperNode finds the kernel's node of a device-mapper device.
func mapperNode(name string) (string, error) {
	names, _ := filepath.Glob("/sys/block/dm-*/dm/name")
	for _, file := range names {
		if b, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(b)) == name {
			return "/dev/" + strings.Split(file, "/")[3], nil
		}
	}
	return "", problem.NotFoundf("the kernel knows no device %s", name)
}
