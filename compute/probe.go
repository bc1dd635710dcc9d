package compute

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"
)

// How long destinations have to answer, and how often salvor looks whether they did.
const (
	ProbeTimeout      = 10 * time.Second
	ProbePollInterval = 50 * time.Millisecond
)

// maxProbes is how many questions one order holds.
const maxProbes = 1000

// Probes are the questions to the destination of a server: whether each of its disks is there, or, of one without disks in stores or
// one that is made anew, whether its guest is. The disks are named as the destination names their stores.
func Probes(srv *Server, source, dest *Host, d Disposition, images map[string]*Image) []DiskProbe {
	there := RelocateDisks(srv.Disks, source, dest, d == Reimage)
	var out []DiskProbe
	for i, disk := range srv.Disks {
		marker := markerOf(disk, source)
		if disk.VolumeID != "" || marker == "" {
			continue
		}
		spec := SpecDisk{Name: disk.Name, BootIndex: disk.BootIndex, Store: there[i].Store, SizeGiB: disk.SizeGiB, File: srv.ID + "-" + disk.Name}
		if disk.ImageID != "" {
			spec.Image = NewSpecImage(disk.ImageID, images[disk.ImageID])
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

// ProbeOrder is an order to one destination, and which of its answers belong to which server.
type ProbeOrder struct {
	Order   Order
	host    string
	probes  []DiskProbe
	servers []string
}

// ProbeOrders makes one order for each destination, of all servers that were assigned to it and not asked about there yet.
func (o *PlanInput) ProbeOrders(items []PlanItem) ([]*ProbeOrder, error) {
	byHost := map[string]*ProbeOrder{}
	var out []*ProbeOrder
	for _, item := range items {
		if item.DestID == "" || o.Sights[item.DestID][item.ServerID].Sight != "" {
			continue
		}
		s := o.Servers[slices.IndexFunc(o.Servers, func(s *Server) bool { return s.ID == item.ServerID })]
		dest := o.Hosts[slices.IndexFunc(o.Hosts, func(h *Host) bool { return h.ID == item.DestID })]
		a := byHost[dest.ID]
		if a == nil || len(a.probes) >= maxProbes {
			id := uuid.NewString()
			a = &ProbeOrder{host: dest.ID, Order: Order{ID: id, HostID: dest.ID, BootID: dest.BootID, ServerID: dest.ID, Verb: Probe,
				Within: int(ProbeTimeout / time.Second), JobID: id, Action: "probe"}}
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
		a.Order.Args = args
	}
	return out, nil
}

// ApplySights takes an answer in; nil, or one that does not fit the questions, says that nothing is known.
func (o *PlanInput) ApplySights(a *ProbeOrder, r *Result) {
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
