package serve

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

const (
	// statusInterval is how often systemd gets the status where the unit has no WatchdogSec=.
	statusInterval = 30 * time.Second
	// longestClaimTurn is more than the claim loop needs for a turn when the database is slow: each of its requests ends within seconds.
	longestClaimTurn = time.Minute
)

// Liveness is what a check of the running process found.
type Liveness struct {
	Status string // one line for "systemctl status"
	Hangs  string // the part of the process that has stopped, so that only a restart helps; empty: all parts work
}

// NotifySystemd reports READY=1 to systemd, then a status and WATCHDOG=1 at half of the watchdog's time, and STOPPING=1 when ctx ends.
// WATCHDOG=1 follows a check that returned and found nothing that hangs. A check must return also when what it asks is slow or away,
// because a restart repairs neither. Without NOTIFY_SOCKET this does nothing.
func NotifySystemd(ctx context.Context, log *slog.Logger, check func(context.Context) Liveness) {
	send := func(lines ...string) bool {
		sent, err := daemon.SdNotify(false, strings.Join(lines, "\n"))
		if err != nil {
			log.Warn("systemd cannot be notified", "error", err)
		}
		return sent || err != nil
	}
	if !send(daemon.SdNotifyReady, "STATUS=serving") {
		return
	}
	defer send(daemon.SdNotifyStopping, "STATUS=stopping")
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("the watchdog of systemd is not notified", "error", err)
	}
	interval := statusInterval
	if watchdog > 0 {
		interval = watchdog / 2
	}
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for {
		found := check(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case found.Hangs != "":
			log.Error("a part of this process hangs", "part", found.Hangs, "watchdog", watchdog)
			send("STATUS=" + found.Hangs + " hangs")
		case watchdog > 0:
			send(daemon.SdNotifyWatchdog, "STATUS="+found.Status)
		default:
			send("STATUS=" + found.Status)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// liveness asks the database and looks at the claim loop. A database that is slow, away or held is a status: the probe gives up on it after
// 10 s, and after 20 s where another probe was under way. A deadlock in the store or in the runner keeps this from returning.
func (p *ControlPlane) liveness(ctx context.Context) Liveness {
	found := Liveness{Status: "serving " + strings.Join(p.cfg.Default.Roles, ", ")}
	if err := p.askDatabase(ctx); err != nil {
		found.Status = "the database does not answer"
	} else if why := p.unchangeable(); why != "" {
		found.Status = why
	}
	if p.Runner != nil && p.Runner.SinceClaim() > longestClaimTurn {
		found.Hangs = "the claim loop"
	}
	return found
}

// liveness takes the locks of the boot service. A centre that is away is a status.
func (s *siteDoor) liveness(context.Context) Liveness {
	if s.site.Away() {
		return Liveness{Status: "serving the last plans: the centre does not answer"}
	}
	return Liveness{Status: "serving"}
}
