package compute

import (
	"context"

	"github.com/google/uuid"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// Adoption is a guest that exists already at a Ganeti cluster.
type Adoption struct {
	HostID       string
	Guest        Guest
	Name         string
	OS, OSFamily string
	Project      string
	User         string
}

// Adopt makes a server of a guest that exists: it is Foreign, and no job works on it.
func (s *Servers) Adopt(ctx context.Context, a Adoption, who Who) (*Server, error) {
	srv := &Server{
		Record: record.Record{ID: uuid.NewString(), CreatedAt: s.now()}, Name: a.Name, Project: a.Project, User: a.User,
		HostID: a.HostID, Epoch: 1, GuestName: a.Guest.Name, Foreign: true, LaunchedAt: s.now(),
		OS: a.OS, OSFamily: a.OSFamily, Firmware: BIOS, NICs: a.Guest.NICs,
		Flavor: Flavor{Name: "adopted", VCPUs: a.Guest.VCPUs, RAM: a.Guest.RAM},
	}
	if record.IsUUID(a.Guest.ID) {
		srv.ID = a.Guest.ID
	}
	if srv.Name == "" {
		srv.Name = a.Guest.Name
	}
	srv.Settle(a.Guest.Power)
	if srv.State == "" {
		srv.State, srv.Power = Stopped, PowerOff
	}
	srv.Wanted = srv.Power
	if srv.Wanted == PowerCrashed {
		srv.Wanted = PowerOff
	}
	if err := checkWords(srv); err != nil {
		return nil, err
	}
	err := s.jobs.Do(ctx, func(tx job.Tx) error {
		if _, err := s.store.Hosts().Get(ctx, tx, a.HostID); err != nil {
			return missing(err, "host", a.HostID)
		}
		if err := s.store.Servers().Insert(tx, srv); err != nil {
			if problem.Is(err, problem.Conflict) {
				return problem.Conflictf("guest %s was adopted before: %w", a.Guest.Name, err)
			}
			return err
		}
		return s.note(tx, srv.ID, who.Asker, "request", "adopted "+a.Guest.Name)
	})
	return srv, err
}
