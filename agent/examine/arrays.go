package examine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"salvor/diagnose"
)

// assembleArrays assembles the arrays of mdraid read-only, and lays an overlay over each: a journal replays there and no resync begins.
func (x *examinationRun) assembleArrays(ctx context.Context) {
	var devices []*device
	args := []string{"--examine"}
	for _, d := range x.devices {
		if d.FS == "linux_raid_member" && d.node != "" {
			devices = append(devices, d)
			args = append(args, d.node)
		}
	}
	if len(devices) == 0 {
		return
	}
	said, err := x.tools.run(ctx, nil, "mdadm", args...)
	if err != nil {
		x.gap("RAID", "%v", err)
		return
	}
	found := map[string]*arrayParts{}
	var order []string
	for _, d := range devices {
		m := readMember(said.text, d.node)
		if m.uuid == "" {
			x.gap(d.Path, "mdadm names no array of this member")
			continue
		}
		a := found[m.uuid]
		if a == nil {
			a = &arrayParts{first: m}
			found[m.uuid] = a
			order = append(order, m.uuid)
		}
		a.devices = append(a.devices, d)
		a.members = append(a.members, diagnose.ArrayMember{Path: d.Path, Events: m.events, Role: m.role})
	}
	for i, uuid := range order {
		if i < 64 && !x.timeIsOver(ctx) {
			x.assemble(ctx, i, uuid, found[uuid])
		}
	}
}

// arrayParts are the members of an array that were found.
type arrayParts struct {
	first   arrayMember
	devices []*device
	members []diagnose.ArrayMember
}

// arrayMember is what mdadm reads of one member of an array.
type arrayMember struct {
	uuid, name, level string
	wanted            int
	events            uint64
	role              string
}

var memberField = regexp.MustCompile(`(?m)^ *(Array UUID|UUID|Name|Raid Level|Raid Devices|Events|Device Role) : (.*)$`)

// readMember reads what mdadm --examine says of one of several devices: paragraphs that begin with the device and a colon. The form of
// metadata 0.90 has no name, and a table in place of the role.
func readMember(out, node string) arrayMember {
	var m arrayMember
	at := strings.Index("\n"+out, "\n"+node+":\n")
	if at < 0 {
		return m
	}
	paragraph, _, _ := strings.Cut(out[at:], "\n/dev/")
	m.role = "active"
	for _, groups := range memberField.FindAllStringSubmatch(paragraph, 50) {
		value := strings.TrimSpace(groups[2])
		first, _, _ := strings.Cut(value, " ")
		switch groups[1] {
		case "Array UUID", "UUID":
			m.uuid = first
		case "Name":
			m.name = first
		case "Raid Level":
			m.level = first
		case "Raid Devices":
			m.wanted, _ = strconv.Atoi(first)
		case "Events":
			m.events, _ = strconv.ParseUint(first, 10, 64)
		case "Device Role":
			switch {
			case strings.Contains(value, "spare"):
				m.role = "spare"
			case strings.Contains(value, "faulty"):
				m.role = "faulty"
			}
		}
	}
	return m
}

var arrayName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,32}$`)

// coverArray lays an overlay over an array. One that is mended writes to the overlays of its disks itself; no resync begins there.
func (x *examinationRun) coverArray(ctx context.Context, d *device, number int) (string, error) {
	node := fmt.Sprintf("/dev/md%d", number)
	if !x.mending {
		return x.cover(ctx, x.diskOf(d.disk), node, fmt.Sprintf("md%d", number), 512)
	}
	// Arrays without redundancy have no such file.
	err := os.WriteFile(fmt.Sprintf("/sys/block/md%d/md/sync_action", number), []byte("frozen"), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("keep the array from a resync: %w", err)
	}
	return x.showPartitions(node, 512)
}

// freeArray is the highest number of an array that is not in use.
func freeArray() int {
	for n := 127; n > 0; n-- {
		if _, err := os.Stat(fmt.Sprintf("/sys/block/md%d/md/array_state", n)); err != nil {
			return n
		}
		if b, _ := os.ReadFile(fmt.Sprintf("/sys/block/md%d/md/array_state", n)); strings.TrimSpace(string(b)) == "clear" {
			return n
		}
	}
	return 0
}
