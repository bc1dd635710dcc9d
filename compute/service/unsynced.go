package service

import (
	"context"
	"fmt"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
)

// SyncRescue compares the sessions of servers with how their guests boot. The cluster is the truth in both directions: a guest
// whose first boot device is a rescue image of ours is in rescue, with that image; any other is not, and its image is released. A CD
// that is no image of ours is no rescue. Servers with a task or an operation of their own are left alone: that settles it.
// Only guests of ours count. seen are the servers from before the guests were read (see Seen): one that was changed since is left
// for the next look. Without fix nothing is changed; of what is as it should be nothing is read or written.
func (s *Reconciler) SyncRescue(ctx context.Context, guests []compute.Guest, seen map[string]*compute.Server, fix bool) ([]compute.Unsynced, error) {
	images, err := s.readImagesByPath(ctx)
	if err != nil {
		return nil, err
	}
	out := []compute.Unsynced{}
	for i := range guests {
		g := &guests[i]
		srv := seen[g.ID]
		if !g.Ours || srv == nil || images.judge(srv, g) == nil {
			continue
		}
		now, err := s.store.Servers().Get(ctx, nil, g.ID)
		if err != nil && !problem.Is(err, problem.NotFound) {
			return nil, err
		}
		if err != nil || now.Version != srv.Version {
			continue
		}
		u := compute.Unsynced{ServerID: srv.ID, Name: srv.Name, Cluster: g.Rescue, Server: images.known(srv)}
		onlyStage := images.same(srv, g) // whether it runs is no more than a stage of the session
		if fix {
			if u.Fixed, err = s.mendRescue(ctx, images, g, srv.Version); err != nil {
				return nil, err
			}
		}
		busy, err := s.busy(ctx, srv.ID)
		if err != nil {
			return nil, err
		}
		if !onlyStage && (u.Fixed || !busy) {
			out = append(out, u)
		}
	}
	return out, nil
}

// busy tells whether an operation works on a server.
func (s *Reconciler) busy(ctx context.Context, id string) (busy bool, err error) {
	err = s.jobs.Do(ctx, func(tx job.Tx) error {
		open, err := s.jobs.Unended(tx, compute.Subject(id))
		busy = len(open) > 0
		return err
	})
	return busy, err
}

// mendRescue looks again in a transaction, and writes what the cluster tells.
func (s *Reconciler) mendRescue(ctx context.Context, images *imagesByPath, g *compute.Guest, version int64) (mended bool, err error) {
	err = s.change(ctx, func(tx job.Tx) error {
		mended = false
		open, err := s.jobs.Unended(tx, compute.Subject(g.ID))
		if err != nil || len(open) > 0 {
			return err
		}
		srv, err := s.store.Servers().Get(ctx, tx, g.ID)
		if problem.Is(err, problem.NotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		mend := images.judge(srv, g)
		if mend == nil || srv.Version != version {
			return nil
		}
		if src := images.find(srv, g.Rescue); src != nil && src.ImageID != 0 {
			if err := s.store.UseRescueImage(tx, src.ImageID); err != nil && !problem.Is(err, problem.NotFound) {
				return err
			}
		}
		was, same := images.known(srv), images.same(srv, g)
		mended = true
		if _, err := s.servers.edit(ctx, tx, g.ID, func(v *compute.Server) { mend(s, v) }); err != nil || same {
			return err
		}
		return s.note(tx, g.ID, record.Asker{}, "contact", fmt.Sprintf("rescue was %s here and is %s at the cluster: the cluster is believed",
			compute.OrNone(was), compute.OrNone(g.Rescue)))
	})
	return mended, err
}

// imagesByPath is all rescue images, by where hypervisors that read them themselves find them.
type imagesByPath struct {
	dir   string
	paths map[string]*rescue.Image
}

func (s *Reconciler) readImagesByPath(ctx context.Context) (*imagesByPath, error) {
	all, err := s.store.RescueImages().List(ctx, nil, rescue.ImageFilter{}, record.Page{})
	if err != nil {
		return nil, err
	}
	out := &imagesByPath{dir: s.opts.RescueImagePath, paths: make(map[string]*rescue.Image, len(all))}
	for _, img := range all {
		at, err := compute.RescuePath(out.dir, &img.Source)
		if err != nil || img.Source.Kind != rescue.ISO {
			continue
		}
		if old := out.paths[at]; old == nil || img.Num < old.Num {
			out.paths[at] = img
		}
	}
	return out, nil
}

// known is what a server's session boots, as the cluster would name it.
func (h *imagesByPath) known(srv *compute.Server) string {
	if !srv.InSession() || srv.Rescue.Source == nil {
		return ""
	}
	at, err := compute.RescuePath(h.dir, srv.Rescue.Source)
	if err != nil {
		return srv.Rescue.Source.Name
	}
	return at
}

// find is the image of ours that lies there: the one of the session, though its row may be gone, or one of these; else nil.
func (h *imagesByPath) find(srv *compute.Server, at string) *rescue.Source {
	if at == "" {
		return nil
	}
	if srv.Rescue != nil && srv.Rescue.Source != nil && h.known(srv) == at {
		return srv.Rescue.Source
	}
	img := h.paths[at]
	if img == nil {
		return nil
	}
	src := img.Source
	src.ImageID, src.Name = img.Num, img.Name
	return &src
}

// same tells whether a server is in the very rescue that its guest is in.
func (h *imagesByPath) same(srv *compute.Server, g *compute.Guest) bool {
	return srv.State == compute.Rescued && srv.InSession() && srv.Rescue.State != rescue.Failed && g.Rescue != "" && h.known(srv) == g.Rescue
}

// judge tells what to change of a server so that it is as its guest; nil: nothing.
func (h *imagesByPath) judge(srv *compute.Server, g *compute.Guest) func(*Reconciler, *compute.Server) {
	if srv.State == compute.Deleted || srv.State == compute.Building || srv.Task != compute.NoTask {
		return nil
	}
	src, open := h.find(srv, g.Rescue), srv.InSession()
	switch {
	case src == nil && !open:
		return nil
	case src == nil:
		return func(s *Reconciler, v *compute.Server) { s.outOfRescue(v, g) }
	case h.same(srv, g) && srv.Rescue.State == stageOf(g):
		return nil
	}
	return func(s *Reconciler, v *compute.Server) { s.intoRescue(v, g, src) }
}

// outOfRescue closes a session that the cluster knows nothing of.
func (s *Reconciler) outOfRescue(v *compute.Server, g *compute.Guest) {
	v.Rescue = nil
	v.Power, v.Wanted = g.Power, g.Power
	v.State = compute.Stopped
	if g.Power == compute.PowerOn {
		v.State = compute.Active
	}
}

// stageOf is how far the session of a guest in rescue is: what runs may have been started by anybody.
func stageOf(g *compute.Guest) rescue.State {
	if g.Power == compute.PowerOn {
		return rescue.Ready
	}
	return rescue.Prepared
}

// intoRescue opens a session for a rescue that somebody else began, or corrects the image of ours. What that rescue replaced
// nobody saved: the cluster's defaults are what is put back, but for a kernel that is still set.
func (s *Reconciler) intoRescue(v *compute.Server, g *compute.Guest, src *rescue.Source) {
	session := rescue.Session{StartedAt: s.now()}
	if v.InSession() {
		session = *v.Rescue
	} else {
		session.Saved = rescue.Boot{Power: savedPower(v), Mode: string(v.Firmware)}
		if s.opts.RescueTimeout > 0 {
			session.ExpiresAt = s.now().Add(s.opts.RescueTimeout)
		}
	}
	if !session.SavedKnown {
		session.SavedSettings, session.SavedKnown = map[string]string{}, true
		if kernel, set := g.Settings["kernel_path"]; set {
			session.SavedSettings["kernel_path"] = kernel
		}
	}
	session.Source, session.Image, session.State = src, src.Name, stageOf(g)
	v.Rescue, v.State, v.Fault = &session, compute.Rescued, nil
	v.Power, v.Wanted = g.Power, g.Power
}
