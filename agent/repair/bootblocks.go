package repair

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/problem"
	"salvor/repair"
)

const (
	// biosBootType is the type of the partition of a GPT that holds GRUB's core image.
	biosBootType = "21686148-6449-6e6f-744e-656564454649"
	// maxBootRange bounds each range of a disk in which a loader may lie, in bytes.
	maxBootRange = 16 << 20
)

// blockRange is a range of a disk as it was before a program ran.
type blockRange struct {
	device, node   string
	offset, length int64
	sum            string
}

// bootRanges are the ranges of a disk into which a loader is installed: all before the first partition, and partitions for BIOS boot code.
func (e *systemEditor) bootRanges(device string) ([]blockRange, error) {
	i := slices.IndexFunc(e.mounted.Devices, func(d diagnose.Device) bool { return d.Path == device && d.Kind == diagnose.DiskDevice })
	if i < 0 {
		return nil, problem.Unsupportedf("%s: a program may write to the boot blocks of disks only", device)
	}
	node, err := e.node(device)
	if err != nil {
		return nil, err
	}
	first := min(e.mounted.Devices[i].Size, maxBootRange)
	var out []blockRange
	for _, d := range e.mounted.Devices {
		if d.Kind != diagnose.PartitionDevice || !slices.Contains(d.Parents, device) {
			continue
		}
		first = min(first, d.PartStart)
		if strings.EqualFold(d.PartType, biosBootType) {
			out = append(out, blockRange{device: device, node: node, offset: d.PartStart, length: min(d.Size, maxBootRange)})
		}
	}
	out = append(out, blockRange{device: device, node: node, length: first})
	for i := range out {
		if out[i].sum, err = out[i].hash(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// hash is the SHA-256 of the range as it is now, in hexadecimal.
func (r blockRange) hash() (string, error) {
	f, err := os.Open(r.node)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, r.length)
	if _, err := f.ReadAt(b, r.offset); err != nil {
		return "", fmt.Errorf("%s: read %d bytes at %d: %w", r.device, r.length, r.offset, err)
	}
	return hashText(b), nil
}

// noteRanges notes the ranges that a program has changed.
func (e *systemEditor) noteRanges(ranges []blockRange, madeBy string) error {
	for _, r := range ranges {
		after, err := r.hash()
		if err != nil {
			return err
		}
		if after == r.sum {
			continue
		}
		if len(e.blocks) >= maxChanges {
			return problem.Unsupportedf("the repair changes more than %d ranges of blocks", maxChanges)
		}
		if e.log != nil {
			e.log.lasting = fmt.Sprintf("the program %s has changed blocks of %s", madeBy, r.device)
		}
		c := repair.BlockChange{Device: r.device, Offset: r.offset, Length: r.length, Before: r.sum, After: after, MadeBy: madeBy, Findings: []string{}}
		if e.finding != "" {
			c.Findings = append(c.Findings, e.finding)
		}
		e.blocks = append(e.blocks, c)
	}
	return nil
}
