// Package storage is the contract for what serves volumes over iSCSI: who may log in, who is
// logged in, and what is exported. It knows volumes, initiators and targets by their names only;
// it knows no store, no server and no host. Below it tgt (Linux SCSI target) and hook (a command).
package storage

import "context"

// Export is where an initiator finds a volume.
type Export struct {
	VolumeID string `json:"volume_id"`
	// Portal is ADDRESS:PORT.
	Portal string `json:"portal"`
	IQN    string `json:"iqn"`
	LUN    int    `json:"lun"`
}

// Session is a connection of an initiator to a target.
type Session struct {
	Target    string `json:"target"`
	Initiator string `json:"initiator"`
	Address   string `json:"address,omitempty"`
}

// Storage serves volumes. Every method reads first and repeats harmlessly; a server that does not answer is
// problem.Unavailable, which is no evidence of anything.
type Storage interface {
	// Allow lets an initiator log in to a target, beside those that may already. A target that let everybody in lets in only those
	// that are named from then on.
	Allow(ctx context.Context, target, initiator string) error
	// Revoke takes these initiators' leave away on every target and drops their connections. It returns only when it has read back
	// that none remains; until then, or if one may still come back as anybody, it is an error.
	Revoke(ctx context.Context, initiators ...string) error
	// Sessions lists the connections there are.
	Sessions(ctx context.Context) ([]Session, error)
}

// Excluder is a Storage that can take single initiators off a target.
type Excluder interface {
	// Exclude takes the initiators for which isStale is true off the target's list, and drops their connections. It returns nil only after
	// it has read back that none remains. It may be repeated. problem.NotFound: there is no such target.
	Exclude(ctx context.Context, target string, isStale func(initiator string) bool) error
}

// Exporter makes targets for volumes.
type Exporter interface {
	// Export makes the volume reachable for the initiator and nobody else, and tells where. It repeats harmlessly.
	Export(ctx context.Context, volumeID, initiator string) (Export, error)
	// Unexport takes it back; what is not exported is no error.
	Unexport(ctx context.Context, volumeID, initiator string) error
}
