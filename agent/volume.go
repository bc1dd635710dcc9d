package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"salvor/problem"
	wire "salvor/wire/agent"
)

// volumesFile is where the end of a rescue leaves the machine's volumes, mode 0600, for the step
// after the network.
const volumesFile = "run/salvor/volumes"

const (
	maxAgentVolumes = 128
	attachTimeout   = 30 * time.Second
)

// writeVolumes keeps the volumes that finalize named until there is a network to reach them by.
func writeVolumes(root string, volumes []wire.Volume) error {
	if len(volumes) == 0 {
		return nil
	}
	if len(volumes) > maxAgentVolumes {
		return problem.Invalidf("%d volumes; at most %d are attached", len(volumes), maxAgentVolumes)
	}
	text, err := json.Marshal(volumes)
	if err != nil {
		return err
	}
	path := filepath.Join(root, "/", volumesFile)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// Volumes attaches the volumes that finalize named, and without any the one that firmware says it booted
// from. It tries each and tells at the end which could not be attached.
func Volumes(ctx context.Context, root string, log *slog.Logger) error {
	if err := Allowed(root); err != nil {
		return err
	}
	path := filepath.Join(root, "/", volumesFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return runIscsistart(ctx, "-b")
	}
	if err != nil {
		return err
	}
	// It holds secrets, and is of no use twice.
	_ = os.Remove(path)
	var volumes []wire.Volume
	if err := json.Unmarshal(text, &volumes); err != nil {
		return fmt.Errorf("read the volumes: %w", err)
	}
	// All at once: a dead path must not hold up the others.
	failed := make([]error, len(volumes))
	var running sync.WaitGroup
	for i, v := range volumes {
		running.Go(func() {
			if err := attachVolume(ctx, v); err != nil {
				failed[i] = fmt.Errorf("attach %s at %s: %w", v.Target, v.Host, err)
				return
			}
			log.Info("volume attached", "target", v.Target, "portal", v.Host)
		})
	}
	running.Wait()
	return errors.Join(failed...)
}

// attachVolume logs in by one path. The secrets stand on a command line that only root of this ramdisk can read.
func attachVolume(ctx context.Context, v wire.Volume) error {
	host := v.Host
	if net.ParseIP(host) == nil {
		found, err := net.DefaultResolver.LookupHost(ctx, host)
		if err != nil || len(found) == 0 {
			return fmt.Errorf("find its address: %w", err)
		}
		host = found[0]
	}
	// The portal group is only part of the session's name: one target's portals may share it.
	args := []string{"-i", v.Initiator, "-t", v.Target, "-g", "1", "-a", host, "-p", strconv.Itoa(v.Port)}
	for _, o := range []struct{ flag, value string }{
		{"-u", v.Username}, {"-w", v.Password}, {"-U", v.MutualUsername}, {"-W", v.MutualPassword},
	} {
		if o.value != "" {
			args = append(args, o.flag, o.value)
		}
	}
	return runIscsistart(ctx, args...)
}

func runIscsistart(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	if err := os.MkdirAll("/run/lock/iscsi", 0o755); err != nil {
		return err
	}
	// Without a bound it tries a portal that refuses for minutes.
	args = append(args, "-P", "node.session.initial_login_retry_max=2", "-P", "node.conn[0].timeo.login_timeout=5")
	out, err := exec.CommandContext(ctx, "iscsistart", args...).CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("iscsistart: %w: %.200s", err, lines[len(lines)-1])
	}
	return nil
}
