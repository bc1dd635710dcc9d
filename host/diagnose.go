package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
	"salvor/wire/agent"
)

const (
	// helperSocket is the channel of the helper that examines a server.
	helperSocket = "examine.sock"
	// helperBoot is how long the helper's agent may take to answer. Without hardware virtualization a busy host takes half a minute.
	helperBoot = 3 * time.Minute
	// leaseLook is how often the leases of the disks are looked at during an examination.
	leaseLook = time.Second
)

// diagnose examines the disks of a guest that is off, or in rescue. The guest cannot start meanwhile: its order waits, or ends this one.
func (w *orderExecution) diagnose(ctx context.Context) (compute.Result, error) {
	none := compute.Result{}
	if w.args.InRescue {
		return w.examineInRescue(ctx)
	}
	examiner, able := w.Hypervisor.(hypervisor.Examiner)
	if !able {
		return none, problem.Unsupportedf("the hypervisor of this host examines no disks")
	}
	spec, err := w.spec()
	if err != nil {
		return none, err
	}
	if spec.Rescue == nil || spec.Rescue.Image == nil || spec.Rescue.RamdiskImage == nil {
		return none, problem.Invalidf("diagnose server %s: the order names no kernel and ramdisk", w.order.ServerID)
	}
	if err := w.isOff(ctx); err != nil {
		return none, err
	}
	local := *spec
	local.Disks = slices.DeleteFunc(slices.Clone(spec.Disks), func(d compute.SpecDisk) bool { return d.VolumeID != "" })
	if len(local.Disks) == 0 {
		return none, problem.Unsupportedf("server %s has no disk on this host", w.order.ServerID)
	}
	d := hypervisor.Domain{Spec: local, ChannelPath: w.path(helperSocket)}
	if d.Paths, err = w.stores.paths(&local); err != nil {
		return none, err
	}
	g, err := w.guest(ctx, w.order.ServerID)
	if err != nil {
		return none, err
	}
	useGuestDisks(&d, g)
	release, err := w.fetchHelper(ctx, &d)
	if err != nil {
		return none, err
	}
	defer release()
	return w.examine(ctx, examiner, d)
}

// examineInRescue has the agent of the guest's rescue system examine all disks that the guest has.
func (w *orderExecution) examineInRescue(ctx context.Context) (result compute.Result, err error) {
	g, err := w.guest(ctx, w.order.ServerID)
	switch {
	case err != nil:
		return result, err
	case g == nil || g.Power != compute.PowerOn:
		return result, problem.Conflictf("the rescue system of server %s does not run", w.order.ServerID)
	}
	result.Examination, err = askExamination(ctx, w.path(channelFile), "the rescue system", w.examineParams())
	return result, err
}

// examineParams are what an agent is told for an examination.
func (w *orderExecution) examineParams() agent.ExamineParams {
	return agent.ExamineParams{Now: w.args.Now, OnlyRead: w.args.OnlyRead, NetworkData: w.networkData(), LUKSKeys: w.secret.LUKSKeys, LUKSKeysByUUID: w.secret.LUKSKeysByUUID}
}

// fetchHelper has the kernel and the ramdisk of a helper here until release is called.
func (w *orderExecution) fetchHelper(ctx context.Context, d *hypervisor.Domain) (release func(), err error) {
	report := func(text string) { w.progress(ctx, w.order, "%s", text) }
	kernel, releaseKernel, err := w.images.get(ctx, *d.Rescue.Image, report)
	if err != nil {
		return nil, fmt.Errorf("the kernel that examines disks: %w", err)
	}
	ramdisk, releaseRamdisk, err := w.images.get(ctx, *d.Rescue.RamdiskImage, report)
	if err != nil {
		releaseKernel()
		return nil, fmt.Errorf("the ramdisk that examines disks: %w", err)
	}
	d.RescueImage, d.RescueRamdisk = kernel, ramdisk
	return func() { releaseRamdisk(); releaseKernel() }, nil
}

// examine runs the helper while this host owns the disks. The leases are free again afterwards, as those of each guest that is off.
func (w *orderExecution) examine(ctx context.Context, examiner hypervisor.Examiner, d hypervisor.Domain) (result compute.Result, err error) {
	server, files := w.order.ServerID, pathsOf(&d)
	if err := w.identity.makeDir("servers", server); err != nil {
		return result, err
	}
	if err := os.Remove(d.ChannelPath); err != nil && !errors.Is(err, os.ErrNotExist) {
		return result, err
	}
	defer os.Remove(d.ChannelPath)
	if err := w.leases.acquireAll(ctx, files, w.claim(false)); err != nil {
		return result, err
	}
	defer func() { w.leases.free(context.WithoutCancel(ctx), server, files) }()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go w.leases.watchLost(ctx, files, stop)
	err = examiner.RunHelper(ctx, d, func(ctx context.Context, limited bool) error {
		if !limited {
			w.Log.Warn("a helper runs without control groups, because libvirt uses none", "server", server)
		}
		result.Examination, err = askExamination(ctx, d.ChannelPath, "the helper guest", w.examineParams())
		return err
	})
	if lost := context.Cause(ctx); err != nil && problem.Is(lost, problem.Forbidden) {
		err = lost
	}
	return result, err
}

// watchLost stops a reader of disks when another host has taken a lease of theirs, until ctx ends.
func (d *diskLeases) watchLost(ctx context.Context, files []string, stop context.CancelCauseFunc) {
	for sleepContext(ctx, leaseLook) {
		for _, file := range files {
			if path := file + leaseSuffix; d.agent.sharedStoreWith(path) != nil && d.heldAt(path) == nil {
				stop(problem.Forbiddenf("another host took the lease of disk %s", file))
				return
			}
		}
	}
}

// askExamination has the agent of a guest examine the disks; name is what errors call the guest. Whatever comes from there may be written by the examined system.
func askExamination(ctx context.Context, socket, name string, params agent.ExamineParams) (json.RawMessage, error) {
	line, err := json.Marshal(agent.Unlock{Version: agent.ChannelVersion, Examine: &params})
	if err != nil {
		return nil, problem.Invalidf("the examination cannot be asked for: its arguments are no JSON: %w", err)
	}
	defer clear(line)
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, problem.Unavailablef("the channel of %s: %w", name, err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	// The agent reads the line when it is up.
	_ = c.SetDeadline(time.Now().Add(helperBoot))
	// The end of the line is written by itself: to append it may leave a copy of the keys.
	for _, part := range [][]byte{line, []byte("\n")} {
		if _, err := c.Write(part); err != nil {
			return nil, problem.Unavailablef("the channel of %s: %w", name, err)
		}
	}
	lines := bufio.NewScanner(c)
	lines.Buffer(make([]byte, 0, 4096), agent.MaxExamination+maxLine)
	begun := false
	for lines.Scan() {
		var answer agent.Unlocked
		if json.Unmarshal(lines.Bytes(), &answer) != nil || answer.Version != agent.ChannelVersion {
			continue // noise of a boot
		}
		switch {
		case answer.Error != "" && !begun:
			return nil, problem.Unsupportedf("the rescue ramdisk cannot examine disks (its agent answers %.200q); build it with salvor ramdisk build --profile diagnose", answer.Error)
		case answer.Error != "":
			return nil, problem.Conflictf("the agent could not examine the disks: %.300q", answer.Error)
		case len(answer.Examination) > 0:
			return compactExamination(answer.Examination)
		case answer.Examining:
			begun = true
			_ = c.SetDeadline(time.Time{}) // from now on the order's own time bounds it
		}
	}
	err = lines.Err()
	switch {
	case ctx.Err() != nil:
		return nil, problem.Unavailablef("the examination was broken off: %w", context.Cause(ctx))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, problem.Conflictf("no agent answers in %s after %s; check that the rescue ramdisk boots: rescue a server with it", name, helperBoot)
	case errors.Is(err, bufio.ErrTooLong):
		return nil, problem.Conflictf("the examination has more than %d bytes", agent.MaxExamination)
	}
	return nil, problem.Conflictf("%s ended before it had examined the disks", name)
}

// compactExamination bounds an examination in the form in which it leaves the host: escaped, which makes it larger, and without blanks.
func compactExamination(text json.RawMessage) (json.RawMessage, error) {
	text, err := json.Marshal(text)
	switch {
	case err != nil:
		return nil, problem.Conflictf("the examination is no JSON: %w", err)
	case len(text) > agent.MaxExamination:
		return nil, problem.Conflictf("the examination has %d bytes; at most %d are taken", len(text), agent.MaxExamination)
	}
	return text, nil
}
