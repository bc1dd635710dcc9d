package repair

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"salvor/agent/efi"
	"salvor/problem"
	"salvor/repair"
)

// applySettings carries the settings of the firmware out, and says in a sentence for each that it is done. Where one fails it puts the boot order
// back as it was, and says which settings stay. boot-device is not one of them: the control plane sets it.
func applySettings(root string, settings []repair.Setting, now time.Time) ([]string, error) {
	var done []repair.Setting
	var out []string
	for _, s := range settings {
		if s.Kind == repair.BootDevice {
			continue
		}
		if err := applySetting(root, s, now); err != nil {
			err = fmt.Errorf("set %s: %w", s.Kind, err)
			for _, former := range slices.Backward(done) {
				err = errors.Join(err, revertSetting(root, former))
			}
			return nil, err
		}
		done = append(done, s)
		out = append(out, string(s.Kind)+": done")
	}
	return out, nil
}

// revertSetting puts back what was set before another setting failed.
func revertSetting(root string, s repair.Setting) error {
	if s.Kind != repair.BootOrder || s.Before == "" {
		return problem.Conflictf("%s was set before and stays so; it does not keep the machine from its former boot", s.Kind)
	}
	order, err := parseOrder(s.Before)
	if err == nil {
		err = efi.SetOrder(root, order)
	}
	if err != nil {
		return fmt.Errorf("put the boot order %s back: %w", s.Before, err)
	}
	return nil
}

func applySetting(root string, s repair.Setting, now time.Time) error {
	switch s.Kind {
	case repair.BootOrder:
		order, err := parseOrder(s.After)
		if err != nil {
			return err
		}
		return efi.SetOrder(root, order)
	case repair.BootEntry:
		fields := strings.SplitN(s.After, ",", 4)
		if len(fields) != 4 || !strings.HasPrefix(fields[3], `\`) || len(s.After) > 1024 {
			return problem.Invalidf("%q is no boot entry", s.After)
		}
		number, err := strconv.ParseUint(fields[0], 16, 16)
		if err != nil {
			return problem.Invalidf("%q is no number of a boot entry", fields[0])
		}
		return efi.SetEntry(root, uint16(number), fields[1], fields[2], fields[3])
	case repair.Clock:
		return setHardwareClock(now.UTC())
	}
	return problem.Unsupportedf("%q is no setting of the firmware", s.Kind)
}

// parseOrder reads numbers of boot entries, such as 0003,0001.
func parseOrder(text string) ([]uint16, error) {
	var out []uint16
	for _, field := range strings.Split(text, ",") {
		n, err := strconv.ParseUint(field, 16, 16)
		if err != nil || len(out) == 512 {
			return nil, problem.Invalidf("%.80q is no boot order", text)
		}
		out = append(out, uint16(n))
	}
	return out, nil
}

// setHardwareClock gives the machine's clock a time, in UTC.
func setHardwareClock(now time.Time) error {
	f, err := os.OpenFile("/dev/rtc0", os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return problem.Unavailablef("the kernel shows no hardware clock: %w", err)
	}
	defer f.Close()
	t := unix.RTCTime{Sec: int32(now.Second()), Min: int32(now.Minute()), Hour: int32(now.Hour()), Mday: int32(now.Day()), Mon: int32(now.Month()) - 1, Year: int32(now.Year()) - 1900}
	if err := unix.IoctlSetRTCTime(int(f.Fd()), &t); err != nil {
		return fmt.Errorf("set the hardware clock: %w", err)
	}
	return nil
}
