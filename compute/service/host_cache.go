package service

import (
	"time"
)

// hostCache is what this process remembers of hosts.
type hostCache struct {
	sessions hostSessions
	heard    livenessTracker
	roster   placementHosts
	flags    hostFlagsCache
	probes   probeMemory
}

func newHostCache(now time.Time) *hostCache {
	return &hostCache{sessions: newHostSessions(), heard: livenessTracker{since: now, lastSeen: map[string]lastSeen{}}}
}
