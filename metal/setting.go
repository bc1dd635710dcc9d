package metal

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"salvor/job"
	"salvor/problem"
)

// What a machine's controller told of its firmware is kept in documents, so that the
// API answers without asking it: read on manage, after cleaning and after a change.

// Timestamps is when an entry of such a document was first read, and when it was last found changed.
type Timestamps struct {
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at,omitzero"`
}

// deviceEntry is an entry of a document.
type deviceEntry[E any] interface {
	*E
	name() string
	when() *Timestamps
	// follows takes over what the former reading knows, and tells whether what was read differs.
	follows(former *E) bool
}

func (b *BIOSSetting) name() string      { return b.Name }
func (b *BIOSSetting) when() *Timestamps { return &b.Timestamps }
func (b *BIOSSetting) follows(former *BIOSSetting) bool {
	return (b.Value == nil) != (former.Value == nil) || b.Value != nil && *b.Value != *former.Value
}

func (f *FirmwareComponent) name() string      { return f.Component }
func (f *FirmwareComponent) when() *Timestamps { return &f.Timestamps }
func (f *FirmwareComponent) follows(former *FirmwareComponent) bool {
	f.InitialVersion, f.LastVersionFlashed = former.InitialVersion, former.LastVersionFlashed
	return f.CurrentVersion != former.CurrentVersion
}

// BIOSSettings reads the settings of a node as they were told last, by name; none if they never were.
func (s *Nodes) BIOSSettings(ctx context.Context, nodeID string) ([]BIOSSetting, error) {
	return toldOf[BIOSSetting](ctx, nil, s.store, nodeID, BIOSSettings)
}

// Firmware reads the firmware of a node as it was told last; none if it never was.
func (s *Nodes) Firmware(ctx context.Context, nodeID string) ([]FirmwareComponent, error) {
	return toldOf[FirmwareComponent](ctx, nil, s.store, nodeID, Firmware)
}

// Document reads what is kept of a node; problem.NotFound if there is none.
func (s *Nodes) Document(ctx context.Context, nodeID string, kind DocumentKind) (Document, error) {
	return s.store.Document(ctx, nil, nodeID, kind)
}

// KeepBIOSSettings stores settings as they were just read.
func (s *Nodes) KeepBIOSSettings(ctx context.Context, tx job.Tx, nodeID string, list []BIOSSetting) error {
	return keepTold(ctx, tx, s, nodeID, BIOSSettings, list)
}

// KeepFirmware stores the firmware as it was just read.
func (s *Nodes) KeepFirmware(ctx context.Context, tx job.Tx, nodeID string, list []FirmwareComponent) error {
	return keepTold(ctx, tx, s, nodeID, Firmware, list)
}

func toldOf[E any](ctx context.Context, tx job.Tx, store DocumentStore, nodeID string, kind DocumentKind) ([]E, error) {
	doc, err := store.Document(ctx, tx, nodeID, kind)
	if problem.Is(err, problem.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []E
	if err := json.Unmarshal(doc.Body, &list); err != nil {
		return nil, fmt.Errorf("document %s of node %s: %w", kind, nodeID, err)
	}
	return list, nil
}

func keepTold[E any, P deviceEntry[E]](ctx context.Context, tx job.Tx, s *Nodes, nodeID string, kind DocumentKind, list []E) error {
	former, err := toldOf[E](ctx, tx, s.store, nodeID, kind)
	if err != nil {
		return err
	}
	known := make(map[string]*E, len(former))
	for i := range former {
		known[P(&former[i]).name()] = &former[i]
	}
	list = slices.Clone(list)
	now := s.now().Truncate(time.Second)
	for i := range list {
		e := P(&list[i])
		*e.when() = Timestamps{CreatedAt: now}
		if before := known[e.name()]; before != nil {
			*e.when() = *P(before).when()
			if e.follows(before) {
				e.when().UpdatedAt = now
			}
		}
	}
	slices.SortFunc(list, func(a, b E) int { return strings.Compare(P(&a).name(), P(&b).name()) })
	body, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return s.store.SaveDocument(tx, Document{NodeID: nodeID, Kind: kind, Body: body, CreatedAt: now, UpdatedAt: now})
}
