package serve

import (
	"log/slog"

	"golang.org/x/sys/unix"

	"salvor/api"
	"salvor/config"
)

// newConnections shares the open files of the process out: an eighth of them for the strangers of each listener, another eighth for known
// sources, and three quarters for all connections. What is left is for hosts, the database, BMCs, agents and files.
func newConnections(c config.Limits, log *slog.Logger) *api.Connections {
	files := 1024
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil {
		files = int(min(limit.Cur, 1<<20))
	}
	door := files / 8
	if c.AllConnections > 0 {
		door = min(door, c.AllConnections)
	}
	return api.NewConnections(api.ConnectionConfig{
		PerSource: c.Connections, PerListener: door, All: files / 4 * 3, Proxies: c.Proxies, Log: log,
	})
}
