package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"salvor/agent/image"
	"salvor/agent/step"
	"salvor/problem"
	wire "salvor/wire/agent"
)

const (
	// disksMark is made by the ramdisk's init once the drivers of disks are loaded.
	disksMark = "/run/salvor/disks"
	disksTime = 90 * time.Second
	// answerTime lets an answer out before the machine goes down.
	answerTime = time.Second
	leastSpool = 64 << 20
)

// orders are the commands besides the one that finalizes a rescue.
func (a *Agent) orders(at *agentEndpoint) (map[string]step.Order, error) {
	trust, err := a.trust()
	if err != nil {
		return nil, err
	}
	hands := &step.Runner{
		Root: a.config.Root, Version: a.config.Version, HTTP: image.Client(trust), Memory: spareMemory(), Log: a.log, Ready: a.disksReady,
	}
	if s := a.session; s.answer != nil {
		node, err := json.Marshal(s.answer.Node)
		if err != nil {
			return nil, err
		}
		var permit step.ImagePolicy
		if c := s.answer.Config; c != nil {
			permit = step.ImagePolicy{MD5: c.MD5ChecksumEnable, Formats: c.ImageFormats}
		}
		if err := hands.SetNode(node, permit); err != nil {
			return nil, err
		}
	}
	orders := hands.Orders()
	orders[wire.Sync] = step.Order{Params: []string{}, Run: func(context.Context, step.Params) (any, error) {
		unix.Sync()
		return nil, nil
	}}
	orders[wire.PowerOff] = a.ending("power off", unix.LINUX_REBOOT_CMD_POWER_OFF)
	orders[wire.RunImage] = a.ending("reboot", unix.LINUX_REBOOT_CMD_RESTART)
	orders[wire.ReadHostKey] = step.Order{Params: []string{}, Run: a.hostKey}
	orders[wire.CheckNetwork] = step.Order{Params: []string{"network_data"}, Run: a.checkNetwork}
	orders[wire.Examine] = a.examineOrder()
	maps.Copy(orders, a.repairCommands())
	orders[wire.CollectLogs] = step.Order{Params: []string{}, Run: a.collectLogs}
	orders[wire.Lockdown] = step.Order{Params: []string{}, Run: func(context.Context, step.Params) (any, error) {
		at.lock.Do(func() { close(at.locked) })
		return nil, nil
	}}
	return orders, nil
}

// ending turns the machine off or starts it again, after the answer has gone out.
func (a *Agent) ending(what string, command int) step.Order {
	return step.Order{Background: true, Params: []string{}, Run: func(ctx context.Context, _ step.Params) (any, error) {
		if err := allowedInRamdisk(a.config.Root, what); err != nil {
			return nil, err
		}
		a.log.Info("the machine goes down, as ordered", "way", what)
		unix.Sync()
		if err := sleepContext(ctx, answerTime); err != nil {
			return nil, err
		}
		if err := unix.Reboot(command); err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		return nil, nil
	}}
}

// allowedInRamdisk refuses what is done to a whole machine where the agent works below a root, or in no ramdisk.
func allowedInRamdisk(root, what string) error {
	if root != "" {
		return problem.Forbiddenf("%s: refused: the agent works below %s and not in a ramdisk", what, root)
	}
	return Allowed("")
}

// disksReady waits until the ramdisk has loaded what disks want.
func (a *Agent) disksReady(ctx context.Context) error { return awaitDisks(ctx, a.config.Root) }

// awaitDisks is disksReady of the system below root; one that is no ramdisk is ready.
func awaitDisks(ctx context.Context, root string) error {
	if root != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, disksTime)
	defer cancel()
	for {
		if _, err := os.Stat(filepath.Join("/", disksMark)); err == nil {
			return nil
		}
		if err := sleepContext(ctx, 100*time.Millisecond); err != nil {
			return problem.Unavailablef("the ramdisk has not loaded the drivers of disks within %s", disksTime)
		}
	}
}

// spareMemory is how much memory an image may take: half of what is free.
func spareMemory() int64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return leastSpool
	}
	defer f.Close()
	scanner := bufio.NewScanner(f)
	for scanner.Scan() {
		var kib int64
		if text, ok := strings.CutPrefix(scanner.Text(), "MemAvailable:"); ok {
			if _, err := fmt.Sscan(text, &kib); err == nil {
				return max(kib*1024/2, leastSpool)
			}
		}
	}
	return leastSpool
}
