package step

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"salvor/agent/disk"
	"salvor/problem"
	wire "salvor/wire/agent"
)

// eraseFlags are the flags of driver_internal_info by which Ironic tells how to erase.
type eraseFlags struct {
	iterations    int
	zeroize       bool
	ata, nvme     bool
	goOn          bool // overwrite where the disk's own erasure failed
	skipReadOnly  bool
	wipeClustered bool
}

const maxIterations = 100

func (h *Runner) readEraseFlags() (eraseFlags, error) {
	n, _ := h.known()
	info := n.DriverInternalInfo
	w := eraseFlags{
		iterations: 1, zeroize: infoFlag(info, "agent_erase_devices_zeroize", true),
		ata: infoFlag(info, "agent_enable_ata_secure_erase", true), nvme: infoFlag(info, "agent_enable_nvme_secure_erase", true),
		goOn:         infoFlag(info, "agent_continue_if_secure_erase_failed", infoFlag(info, "agent_continue_if_ata_erase_failed", false)),
		skipReadOnly: infoFlag(info, "agent_erase_skip_read_only", false), wipeClustered: infoFlag(info, "wipe_special_filesystems", false),
	}
	if raw, ok := info["agent_erase_devices_iterations"]; ok {
		count, err := strconv.Atoi(fmt.Sprint(raw))
		if err != nil || count < 0 || count > maxIterations {
			return w, problem.Invalidf("driver_internal_info agent_erase_devices_iterations is %v: want 0 to %d", raw, maxIterations)
		}
		w.iterations = count
	}
	return w, nil
}

func infoFlag(info map[string]any, name string, otherwise bool) bool {
	switch v := info[name].(type) {
	case bool:
		return v
	case string:
		if b, err := strconv.ParseBool(v); err == nil {
			return b
		}
	}
	return otherwise
}

// each opens every disk that may be erased and does the same to it. The first failure
// of one disk does not spare the others; all are told.
func (h *Runner) each(ctx context.Context, do func(context.Context, *disk.Device, eraseFlags) error) (any, error) {
	w, err := h.readEraseFlags()
	if err != nil {
		return nil, err
	}
	all, err := h.disks(ctx)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, &typedError{wire.ErrErase, problem.NotFoundf("no disk is there to be erased")}
	}
	var failed []error
	for _, found := range all {
		if found.ReadOnly && w.skipReadOnly {
			h.Log.Warn("read-only disk left as it is", "disk", found.Name)
			continue
		}
		began := time.Now()
		if err := h.one(ctx, found, w, do); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", found.Name, err))
			continue
		}
		h.Log.Info("disk erased", "disk", found.Name, "bytes", found.Size, "took", time.Since(began).Round(time.Millisecond))
	}
	if len(failed) > 0 {
		err := errors.Join(failed...)
		var has interface{ CommandType() string }
		if asTyped(err, &has) {
			return nil, err
		}
		return nil, &typedError{wire.ErrErase, err}
	}
	return nil, nil
}

func (h *Runner) one(ctx context.Context, found disk.Found, w eraseFlags, do func(context.Context, *disk.Device, eraseFlags) error) error {
	if found.ReadOnly {
		return problem.Conflictf("it is read-only")
	}
	d, err := disk.Open(h.Root, found.Name)
	if err != nil {
		return err
	}
	defer d.Close()
	if what := d.Special(); what != "" && !w.wipeClustered {
		return &typedError{wire.ErrProtected, problem.Conflictf("%s, which other machines may be using: set driver_internal_info wipe_special_filesystems or detach it", what)}
	}
	return do(ctx, d, w)
}

func (h *Runner) eraseMetadata(ctx context.Context, _ Params) (any, error) {
	return h.each(ctx, func(_ context.Context, d *disk.Device, _ eraseFlags) error { return d.WipeMetadata(h.Root) })
}

// eraseDevices erases all data: by the disk itself where it can, else by overwriting.
func (h *Runner) eraseDevices(ctx context.Context, _ Params) (any, error) {
	return h.each(ctx, h.eraseDevice)
}

func (h *Runner) eraseDevice(ctx context.Context, d *disk.Device, w eraseFlags) error {
	done, err := d.Purge(disk.Allow{NVMe: w.nvme, ATA: w.ata})
	switch {
	case err != nil && !w.goOn:
		return fmt.Errorf("its own erasure failed (agent_continue_if_secure_erase_failed would overwrite it instead): %w", err)
	case err != nil:
		h.Log.Warn("the disk's own erasure failed: overwriting it", "disk", d.Name(), "error", err)
	case done:
		return d.WipeMetadata(h.Root)
	}
	if w.iterations == 0 && !w.zeroize {
		return problem.Conflictf("it cannot erase itself, and overwriting is switched off (agent_erase_devices_iterations 0)")
	}
	if err := h.overwrite(ctx, d, w); err != nil {
		return err
	}
	d.Reread()
	return nil
}

// overwrite says every ten minutes how far it is: a large disk takes hours.
func (h *Runner) overwrite(ctx context.Context, d *disk.Device, w eraseFlags) error {
	var done int64
	lastReport := time.Now()
	return d.Overwrite(ctx, w.iterations, w.zeroize, func(n int64) {
		done += n
		if time.Since(lastReport) > 10*time.Minute {
			lastReport = time.Now()
			h.Log.Info("overwriting", "disk", d.Name(), "done", done, "of", d.Size()*int64(w.iterations))
		}
	})
}

// eraseExpress erases what can be erased at once, and the rest's metadata.
func (h *Runner) eraseExpress(ctx context.Context, _ Params) (any, error) {
	return h.each(ctx, func(_ context.Context, d *disk.Device, w eraseFlags) error {
		if _, err := d.Purge(disk.Allow{NVMe: w.nvme}); err != nil {
			h.Log.Warn("the disk's own erasure failed: only its metadata are wiped", "disk", d.Name(), "error", err)
		}
		return d.WipeMetadata(h.Root)
	})
}
