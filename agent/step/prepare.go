package step

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"salvor/agent/disk"
	"salvor/agent/efi"
	"salvor/agent/image"
	"salvor/problem"
	wire "salvor/wire/agent"
)

const (
	idle  = 60 * time.Second
	pause = 5 * time.Second
	edge  = 1 << 20
)

func asTyped(err error, has *interface{ CommandType() string }) bool { return errors.As(err, has) }

func (h *Runner) writer() image.Writer {
	_, permit := h.known()
	return image.Writer{
		HTTP: h.HTTP, Memory: h.Memory, MD5: permit.MD5, Formats: permit.Formats, Log: h.Log, Idle: idle, Pause: pause,
	}
}

// prepareOrder is standby.prepare_image.
func (h *Runner) prepareOrder(ctx context.Context, p Params) (any, error) {
	text, err := h.prepare(ctx, p)
	if err != nil {
		return nil, withErrorType(wire.ErrDeployment, err)
	}
	return wire.Text{Result: "prepare_image: " + text}, nil
}

// writeStep is the deploy step write_image.
func (h *Runner) writeStep(ctx context.Context, args Params) (any, error) {
	return h.prepareOrder(ctx, args)
}

// prepare writes image and config drive. What fails on the way leaves a disk that does
// not boot.
func (h *Runner) prepare(ctx context.Context, p Params) (string, error) {
	var info wire.Image
	var drive string
	if err := errors.Join(p.Get("image_info", &info), p.Get("configdrive", &drive)); err != nil {
		return "", err
	}
	if drive == "" {
		drive = info.ConfigDrive
	}
	writer := h.writer()
	if err := writer.Check(info); err != nil {
		return "", err
	}
	content, err := readDrive(ctx, writer, drive)
	if err != nil {
		return "", err
	}
	found, err := h.target(ctx)
	if err != nil {
		return "", err
	}
	d, err := disk.Open(h.Root, found.Name)
	if err != nil {
		return "", err
	}
	defer d.Close()
	if content, err = mountable(content, d.Sector()); err != nil {
		return "", err
	}
	began := time.Now()
	h.Log.Info("writing image", "image", info.ID, "disk", found.Name, "bytes", found.Size)
	if err := writer.Write(ctx, info, d); err != nil {
		return "", err
	}
	if err := fitPartitionTable(d, content); err != nil {
		err = fmt.Errorf("image %s on %s: %w", info.ID, found.Name, err)
		return "", errors.Join(err, d.Zero(0, edge), d.Zero(d.Size()-edge, edge), d.Sync())
	}
	id, err := diskIdentifier(d)
	if err != nil {
		return "", err
	}
	d.Reread()
	h.mu.Lock()
	h.rootID = id
	h.mu.Unlock()
	h.Log.Info("image written", "image", info.ID, "disk", found.Name, "took", time.Since(began).Round(time.Millisecond))
	return fmt.Sprintf("image (%s) written to device %s root_uuid=%s", info.ID, found.Name, id), nil
}

// fitPartitionTable makes the image's partition table fit the disk and adds the config drive.
func fitPartitionTable(d *disk.Device, content []byte) error {
	table, err := disk.ReadTable(d, d.Size(), d.Sector())
	if err != nil {
		return err
	}
	if len(table.Partitions) == 0 {
		return problem.Conflictf("no valid partition table on the disk after the image was written: it is no image of a whole disk, or is made for sectors of another size than %d", d.Sector())
	}
	if err := table.MoveBackup(d); err != nil {
		return err
	}
	if content != nil {
		if err := writeDrive(d, table, content); err != nil {
			return err
		}
	}
	return d.Sync()
}

// diskIdentifier is the signature in the first sector, which Ironic takes for a root UUID
// of whole-disk images.
func diskIdentifier(d *disk.Device) (string, error) {
	b := make([]byte, 4)
	if _, err := d.ReadAt(b, 440); err != nil {
		return "", err
	}
	return fmt.Sprintf("0x%08x", binary.LittleEndian.Uint32(b)), nil
}

func (h *Runner) partitionUUIDs(context.Context, Params) (any, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rootID == "" {
		return map[string]string{}, nil
	}
	return map[string]string{"root uuid": h.rootID}, nil
}

// bootloader is image.install_bootloader. Images bring their loader along: what is
// left is to tell UEFI of it; a BIOS reads the first sector and needs nothing.
func (h *Runner) bootloader(ctx context.Context, p Params) (any, error) {
	var order wire.BootloaderParams
	err := errors.Join(p.Get("target_boot_mode", &order.TargetMode), p.Get("ignore_bootloader_failure", &order.IgnoreFailure))
	if err != nil {
		return nil, err
	}
	if !efi.Booted(h.Root) {
		text := "this machine was booted by BIOS, which starts the disk by its first sector: nothing to install"
		if order.TargetMode == "uefi" {
			text = "this ramdisk was booted by BIOS and cannot write UEFI's boot entries: the machine will start the disk's removable path"
		}
		h.Log.Info(text)
		return wire.Text{Result: "install_bootloader: " + text}, nil
	}
	text, err := h.installEntry(ctx)
	if err != nil && order.IgnoreFailure != nil && *order.IgnoreFailure {
		h.Log.Warn("boot entry not written; going on, as ordered", "error", err)
		return wire.Text{Result: "install_bootloader: failed, ignored as ordered: " + err.Error()}, nil
	}
	if err != nil {
		return nil, withErrorType(wire.ErrCommand, fmt.Errorf("install the boot entry: %w", err))
	}
	h.Log.Info(text)
	return wire.Text{Result: "install_bootloader: " + text}, nil
}

// installEntry says in words what starts the disk from now on. Firmware that takes no
// entry is no failure where it finds the system without one.
func (h *Runner) installEntry(ctx context.Context) (string, error) {
	found, err := h.target(ctx)
	if err != nil {
		return "", err
	}
	d, err := disk.OpenRead(h.Root, found.Name)
	if err != nil {
		return "", err
	}
	defer d.Close()
	table, err := disk.ReadTable(d, d.Size(), d.Sector())
	if err != nil {
		return "", err
	}
	entry, err := efi.Install(h.Root, d, table, d.Sector())
	switch {
	case err == nil:
		return fmt.Sprintf("boot entry Boot%04X (%s) starts %s of %s", entry.Number, entry.Label, entry.Path, found.Name), nil
	case problem.Is(err, problem.NotFound):
		return "", &typedError{wire.ErrNoDevice, err}
	case !problem.Is(err, problem.Invalid) && efi.Removable(d, table):
		h.Log.Warn("the firmware takes no boot entry", "error", err)
		return fmt.Sprintf("no boot entry could be written (%v): the firmware will start the removable path of %s", err, found.Name), nil
	}
	return "", err
}
