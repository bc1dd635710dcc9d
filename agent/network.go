package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"salvor/agent/network"
	"salvor/problem"
)

// networkReadyFile tells the ramdisk's init that ssh has addresses to listen on.
const networkReadyFile = "run/salvor/network"

// Network is the step after Run: the tenant's network, by the plan that Run left. Once ssh can be started, the ramdisk's init finds networkReadyFile;
// Network goes on while something of the network may still come.
func Network(ctx context.Context, root string, log *slog.Logger) error {
	if err := Allowed(root); err != nil {
		return err
	}
	if root != "" {
		// A directory of its own does not keep the NICs of a machine in use safe.
		own, err := os.Readlink("/proc/self/ns/net")
		first, errFirst := os.Readlink("/proc/1/ns/net")
		if err != nil || errFirst != nil || own == first {
			return problem.Forbiddenf("refused: --root wants a network namespace of its own: this one is the machine's")
		}
	}
	setup := network.Setup{Root: root, Log: log, Ready: func() error {
		return os.WriteFile(filepath.Join("/", root, networkReadyFile), nil, 0o644)
	}}
	return setup.Run(ctx)
}
