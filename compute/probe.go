package compute

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"salvor/job"
)

// How long destinations have to tell what they see, how often it is looked whether they did, and how many questions one order holds.
const (
	probePatience = 10 * time.Second
	probeLook     = 50 * time.Millisecond
	maxProbes     = 1000
)

// Probes are the questions to the destination of a server: whether each of its disks is there, or, of one without disks in stores or
// one that is made anew, whether its guest is. The disks are named as the destination names their stores.
func Probes(srv *Server, source, dest *Host, d Disposition, images map[string]*Image) []DiskProbe {
	there := relocateDisks(srv.Disks, source, dest, d == Reimage)
	var out []DiskProbe
	for i, disk := range srv.Disks {
		marker := markerOf(disk, source)
		if disk.VolumeID != "" || marker == "" {
			continue
		}
		spec := SpecDisk{Name: disk.Name, BootIndex: disk.BootIndex, Store: there[i].Store, SizeGiB: disk.SizeGiB, File: srv.ID + "-" + disk.Name}
		if disk.ImageID != "" {
			spec.Image = specImage(disk.ImageID, images[disk.ImageID])
		}
		out = append(out, DiskProbe{ServerID: srv.ID, GuestName: srv.GuestName, Marker: marker, Disk: &spec})
	}
	if len(out) == 0 {
		out = append(out, DiskProbe{ServerID: srv.ID, GuestName: srv.GuestName})
	}
	return out
}

// WorstSight is what several sights of one server come to.
func WorstSight(all []DiskSight) DiskSight {
	order := []Sight{SightGuest, SightMissing, SightUnknown, SightAbsent, SightSame}
	worst := DiskSight{Sight: SightUnknown, Text: "it told of nothing"}
	best := len(order)
	for _, s := range all {
		i := slices.Index(order, s.Sight)
		if i < 0 {
			i, s.Sight = slices.Index(order, SightUnknown), SightUnknown
		}
		if i < best {
			best, worst = i, s
		}
	}
	return worst
}

// probeOrder is an order to one destination, and which of its answers belong to which server.
type probeOrder struct {
	order   Order
	host    string
	probes  []DiskProbe
	servers []string
}

// ask asks the destinations of a draft what they see of the servers that are to go there and takes the answers into the outlook.
// Nobody who is asked and does not answer in time has seen anything. Servers without a question need none.
func (s *Hosts) ask(ctx context.Context, o *PlanInput, items []PlanItem) error {
	orders, err := o.questions(items)
	if err != nil || len(orders) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	if err := s.jobs.Do(ctx, func(tx job.Tx) error {
		for i := range orders {
			if _, err := s.store.InsertOrder(tx, &orders[i].order); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	err = s.awaitSights(ctx, o, orders)
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), probePatience)
	defer cancel()
	dropped := s.jobs.Do(ctx, func(tx job.Tx) error {
		for i := range orders {
			if err := s.store.DropOrder(tx, orders[i].order.ID); err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(err, dropped)
}

// questions makes one order for each destination, of all servers that were assigned to it and not asked about there yet.
func (o *PlanInput) questions(items []PlanItem) ([]*probeOrder, error) {
	byHost := map[string]*probeOrder{}
	var out []*probeOrder
	for _, item := range items {
		if item.DestID == "" || o.Sights[item.DestID][item.ServerID].Sight != "" {
			continue
		}
		s := o.Servers[slices.IndexFunc(o.Servers, func(s *Server) bool { return s.ID == item.ServerID })]
		dest := o.Hosts[slices.IndexFunc(o.Hosts, func(h *Host) bool { return h.ID == item.DestID })]
		a := byHost[dest.ID]
		if a == nil || len(a.probes) >= maxProbes {
			id := uuid.NewString()
			a = &probeOrder{host: dest.ID, order: Order{ID: id, HostID: dest.ID, BootID: dest.BootID, ServerID: dest.ID, Verb: Probe,
				Within: int(probePatience / time.Second), JobID: id, Action: "probe"}}
			byHost[dest.ID] = a
			out = append(out, a)
		}
		for _, p := range Probes(s, o.Source, dest, item.Disposition, o.Images) {
			a.probes, a.servers = append(a.probes, p), append(a.servers, s.ID)
		}
	}
	for _, a := range out {
		args, err := json.Marshal(Args{Probes: a.probes})
		if err != nil {
			return nil, err
		}
		a.order.Args = args
	}
	return out, nil
}

func (s *Hosts) awaitSights(ctx context.Context, o *PlanInput, open []*probeOrder) error {
	tick := time.NewTicker(probeLook)
	defer tick.Stop()
	for len(open) > 0 {
		select {
		case <-ctx.Done():
			for _, a := range open {
				o.takeSights(a, nil)
			}
			return nil
		case <-tick.C:
		}
		var left []*probeOrder
		for _, a := range open {
			now, err := s.store.Order(ctx, nil, a.order.ID)
			switch {
			case err != nil && ctx.Err() == nil:
				return err
			case err != nil || now.Result == nil:
				left = append(left, a)
			default:
				o.takeSights(a, now.Result)
			}
		}
		open = left
	}
	return nil
}

// takeSights takes an answer in; nil, or one that does not fit the questions, says that nothing is known.
func (o *PlanInput) takeSights(a *probeOrder, r *Result) {
	all := make(map[string][]DiskSight, len(a.servers))
	for i, id := range a.servers {
		sight := DiskSight{Sight: SightUnknown, Text: "it did not answer in time"}
		switch {
		case r != nil && r.ErrorKind != "":
			sight.Text = r.Error
		case r != nil && len(r.Sights) == len(a.probes):
			sight = r.Sights[i]
		case r != nil:
			sight.Text = "its answer is not understood"
		}
		all[id] = append(all[id], sight)
	}
	if o.Sights == nil {
		o.Sights = map[string]map[string]DiskSight{}
	}
	if o.Sights[a.host] == nil {
		o.Sights[a.host] = map[string]DiskSight{}
	}
	for id, sights := range all {
		o.Sights[a.host][id] = WorstSight(sights)
	}
}
