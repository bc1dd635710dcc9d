package compute

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// PlanInput is all that a plan is drafted from, read at one time.
type PlanInput struct {
	Source *Host
	// Servers of the source, as the plan narrows them.
	Servers []*Server
	// Hosts are all of them; Up tells which live, by host.
	Hosts []*Host
	Up    map[string]bool
	// Dest, by UUID, is the only destination; empty: any.
	Dest string
	// Forced: Dest takes servers even if it is disabled, full or in another zone.
	Forced bool
	// Images that servers could be made from again, by UUID.
	Images map[string]*Image
	// Moving are open moves, by server.
	Moving map[string]*Move
	// Elsewhere are guests of its servers that another host or boot tells and that are not proven off, in words, by server.
	Elsewhere map[string]string
	// Sights are what destinations said, by host and server; what nobody asked is absent.
	Sights map[string]map[string]DiskSight
	Policy ReimagePolicy
	// Consent names servers that may be re-imaged; All consents for each.
	Consent map[string]bool
	All     bool
	Drain   bool
	// Variables is the word of the source's group on UEFI variables that are lost; DiscardVariables consents to their loss.
	Variables        VariablesPolicy
	DiscardVariables bool
}

// PriorityKey is the metadata of a server that orders it in plans: a whole number, higher first, 0 where it is absent.
const PriorityKey = "evacuate_priority"

// planDraft counts the places that a plan takes.
type planDraft struct {
	*PlanInput
	hosts []*Host // copies, in which places are reserved
}

// DraftPlan decides for each server what becomes of it and where to, in the order in which they are moved. It is pure: the same input
// gives the same plan.
func DraftPlan(o *PlanInput) []PlanItem {
	d := newDraft(o)
	servers := slices.Clone(o.Servers)
	items := make(map[string]*PlanItem, len(servers))
	for _, s := range servers {
		items[s.ID] = d.judge(s)
	}
	slices.SortFunc(servers, func(a, b *Server) int {
		x, y := items[a.ID], items[b.ID]
		return cmp.Or(cmp.Compare(y.Priority, x.Priority), cmp.Compare(dispositionRank(x.Disposition), dispositionRank(y.Disposition)), cmp.Compare(a.Num, b.Num), strings.Compare(a.ID, b.ID))
	})
	out := make([]PlanItem, 0, len(servers))
	for _, s := range servers {
		d.place(s, items[s.ID])
		out = append(out, *items[s.ID])
	}
	return out
}

func newDraft(o *PlanInput) *planDraft {
	d := &planDraft{PlanInput: o}
	for _, h := range o.Hosts {
		copied := *h
		d.hosts = append(d.hosts, &copied)
	}
	slices.SortFunc(d.hosts, func(a, b *Host) int { return cmp.Or(cmp.Compare(a.Num, b.Num), strings.Compare(a.ID, b.ID)) })
	return d
}

// dispositionRank orders dispositions: what loses nothing goes first.
func dispositionRank(d Disposition) int {
	switch d {
	case Reimage:
		return 1
	case Cannot:
		return 2
	}
	return 0
}

func serverPriority(s *Server) int {
	n, err := strconv.Atoi(strings.TrimSpace(s.Metadata[PriorityKey]))
	if err != nil {
		return 0
	}
	return min(max(n, -1_000_000), 1_000_000)
}

// judge decides what becomes of a server's disks, whatever room there is.
func (d *planDraft) judge(s *Server) *PlanItem {
	item := &PlanItem{
		ServerID: s.ID, Name: s.Name, Project: s.Project, Priority: serverPriority(s), Power: s.Power, State: s.State, InRescue: s.InSession(),
	}
	item.Disposition, item.Why = d.disposition(s)
	kind := Evacuation
	switch {
	case d.Drain && s.Power == PowerOn:
		kind = LiveMigration
	case d.Drain:
		kind = Migration
	}
	item.MayLoseVariables = d.DiscardVariables || d.Variables == VariablesDiscard
	if item.Disposition != Cannot && d.Source.Kind == AgentHost {
		item.LosesVariables = s.losesVariables(kind, item.Disposition)
		memory := ""
		if kind == Evacuation {
			_, memory = restorablePower(s)
		}
		item.Why = JoinWords(item.Why, JoinWords(memory, s.DescribeLoss(kind, item.Disposition)))
	}
	written := s.State != Building // else there is nothing that could be lost
	if item.Disposition == Reimage {
		item.NeedsConsent = d.Policy != ReimageAlways && written
		item.Consented = !item.NeedsConsent || d.All || d.Consent[s.ID]
	} else if item.LosesVariables {
		item.NeedsConsent = d.Variables != VariablesDiscard && written
		item.Consented = !item.NeedsConsent || d.DiscardVariables || d.Consent[s.ID]
	}
	return item
}

func (d *planDraft) disposition(s *Server) (Disposition, string) {
	if why := d.stays(s); why != "" {
		return Cannot, why
	}
	if d.Source.Kind == GanetiHost {
		return KeepDisk, "its cluster has its disks on another node as well, or where all nodes see them, and brings it there"
	}
	markers := MarkersOf(s, d.Source)
	if len(markers) == 0 {
		return Reattach, "its disks are volumes, which its new host reaches as well"
	}
	if slices.Contains(markers, "") {
		return Cannot, "which disk store its disks lie in is not known: its host saw it no more before it died. Bring the host back to where it sees the store"
	}
	lone := ""
	for _, marker := range markers {
		if HostWithStore(d.hosts, d.Source, marker) == nil {
			lone = d.storeName(marker)
		}
	}
	if lone == "" {
		return KeepDisk, fmt.Sprintf("its disks lie in store %s, which other hosts see as well", d.storeName(markers[0]))
	}
	return d.rebuildable(s, lone)
}

// stays tells why a server is not moved, whatever its disks are; empty: nothing speaks against it.
func (d *planDraft) stays(s *Server) string {
	m := d.Moving[s.ID]
	switch {
	case d.Source.Kind == IronicHost:
		return "it is a machine, and its own host: repair it, or deploy it anew"
	case d.Elsewhere[s.ID] != "":
		return d.Elsewhere[s.ID]
	case s.Task == Deleting:
		return "it is being deleted: that comes to its end without its host"
	case m != nil && (d.Drain || !m.YieldsFrom(d.Source.ID)) && (m.State != MoveAttached || m.DestID != d.Source.ID):
		return "it is on its way already, by move " + m.ID
	case s.State == Errored && s.LaunchedAt.IsZero():
		return "it was never made: delete it and create it anew"
	case s.Foreign && d.Source.Kind != GanetiHost:
		return "its disks are none of salvor's"
	}
	if err := s.RefusalToLeave(); err != nil {
		return err.Error()
	}
	return ""
}

func (d *planDraft) storeName(marker string) string {
	if store := d.Source.StoreOf(marker); store != nil {
		return store.Name
	}
	return "of its host"
}

// rebuildable judges a server with a disk that only its host has.
func (d *planDraft) rebuildable(s *Server, store string) (Disposition, string) {
	lost := fmt.Sprintf("a disk of it lies in store %s of its host alone", store)
	i := slices.IndexFunc(s.Disks, func(k Disk) bool { return k.BootIndex == 0 })
	switch {
	case d.Drain:
		return Cannot, lost + ": it can only be moved while it runs, or by its owner"
	case d.Policy == ReimageNever:
		return Cannot, lost + ", and the host's group never re-images: bring the host, or its disks, back"
	case i < 0 || s.Disks[i].VolumeID != "":
		return Cannot, lost + ", and it boots from a volume: nothing could make that disk again"
	case d.Images[s.Disks[i].ImageID] == nil:
		return Cannot, lost + ", and the image that it was made from is gone"
	}
	return Reimage, lost + ": it is made anew from image " + cmp.Or(d.Images[s.Disks[i].ImageID].Name, s.Disks[i].ImageID) + "; ALL THAT WAS WRITTEN TO IT IS LOST"
}

// place finds the destination and reserves the place there; without one the server stays.
func (d *planDraft) place(s *Server, item *PlanItem) {
	if item.Disposition == Cannot || d.Source.Kind == GanetiHost {
		return
	}
	w := NewDestinationFilter(s, d.Source, item.Disposition == KeepDisk)
	w.Forced = d.Forced
	if missing := d.missing(s, item.Disposition == Reimage); missing != "" && item.Disposition != Reattach {
		item.Disposition, item.Why, item.NeedsConsent, item.Consented = Cannot, missing, false, false
		return
	}
	best, why := PickRoomiestHost(d.hosts, func(h *Host) string {
		if h.ID == d.Source.ID {
			return "it comes from there"
		}
		if d.Dest != "" && h.ID != d.Dest {
			return "another host is asked for"
		}
		if reason := w.Refusal(h, d.Up[h.ID]); reason != "" {
			return reason
		}
		sight := d.Sights[h.ID][s.ID]
		if sight.Sight == SightMissing && item.Disposition == KeepDisk && d.half(s) {
			return ""
		}
		return explainDiskSight(sight, item.Disposition)
	})
	if best == nil {
		item.Disposition, item.NeedsConsent, item.Consented = Cannot, false, false
		item.Why += "; but no host can take it: " + joinReasons(why)
		return
	}
	item.DestID = best.ID
	best.Reserve(w.needs)
}

// half tells whether the server was being made, or made anew, when its host died: its disks need not be there.
func (d *planDraft) half(s *Server) bool {
	if m := d.Moving[s.ID]; m != nil {
		return m.WasBuilding()
	}
	return wasBuilding(s.State, s.Task)
}

// missing tells of a store that is there and has not the disk, or may be there: nothing is made in its place.
func (d *planDraft) missing(s *Server, anew bool) string {
	if d.half(s) {
		return ""
	}
	for _, h := range d.hosts {
		if h.ID == d.Source.ID {
			continue
		}
		switch sight := d.Sights[h.ID][s.ID]; {
		case sight.Sight == SightMissing:
			return fmt.Sprintf("host %s has the disk store, and its disk is not in it, or is not proven to be its own: %s", OrID(h), cmp.Or(sight.Text, "look there"))
		case anew && slices.ContainsFunc(h.Inventory.Stores, func(store DiskStore) bool { return store.Marker == "" }):
			return fmt.Sprintf("host %s has a disk store that it cannot read, which may be the one with its disks: mount it there, and make a new plan", OrID(h))
		}
	}
	return ""
}

// explainDiskSight tells why what a host said of a server's disks speaks against it; what nobody asked does not.
func explainDiskSight(s DiskSight, d Disposition) string {
	switch {
	case s.Sight == "", s.Sight == SightSame, s.Sight == SightAbsent && d != KeepDisk:
		return ""
	case s.Sight == SightGuest:
		return "a guest of that name or UUID is there already"
	case s.Sight == SightAbsent:
		return "it does not see the disk store any more"
	}
	return "what it sees of the disks is not known: " + cmp.Or(s.Text, "it did not answer in time")
}

// joinReasons shortens what speaks against each host to what is said of several.
func joinReasons(why []string) string {
	if len(why) == 0 {
		return "there is no other host"
	}
	if len(why) > shownReasons {
		return strings.Join(why[:shownReasons], "; ") + fmt.Sprintf("; and %d more", len(why)-shownReasons)
	}
	return strings.Join(why, "; ")
}

// LargestFreeHost is the host other than the source whose servers take the most RAM once the plan is done; nil: there is none that lives.
func LargestFreeHost(o *PlanInput, items []PlanItem) *Host {
	var largest *Host
	for _, h := range newDraftWithItems(o, items).hosts {
		if h.ID != o.Source.ID && o.Up[h.ID] && (largest == nil || h.UsedRAM > largest.UsedRAM) {
			largest = h
		}
	}
	return largest
}

// newDraftWithItems is a draft with the places of the items taken.
func newDraftWithItems(o *PlanInput, items []PlanItem) *planDraft {
	d := newDraft(o)
	for _, item := range items {
		h := slices.IndexFunc(d.hosts, func(h *Host) bool { return h.ID == item.DestID })
		s := slices.IndexFunc(o.Servers, func(s *Server) bool { return s.ID == item.ServerID })
		if h >= 0 && s >= 0 {
			d.hosts[h].Reserve(NeedsOf(o.Servers[s], ""))
		}
	}
	return d
}

// SurvivesNextFailure tells whether, after the plan, the largest host may die too and its servers (there is what it has now) still find places
// on the others; else which does not. Without words it says nothing: no server is given a place.
func SurvivesNextFailure(o *PlanInput, items []PlanItem, largest *Host, there []*Server) (bool, string) {
	stay := 0
	for i := range items {
		if items[i].Disposition == Cannot {
			stay++
		}
	}
	switch {
	case !slices.ContainsFunc(items, func(i PlanItem) bool { return i.DestID != "" }):
		return false, ""
	case stay > 0:
		return false, fmt.Sprintf("%d of the %d servers stay even now", stay, len(items))
	case largest == nil:
		return false, "no other host lives"
	}
	d := newDraftWithItems(o, items)
	all := slices.Clone(there)
	for _, item := range items {
		if item.DestID == largest.ID {
			i := slices.IndexFunc(o.Servers, func(s *Server) bool { return s.ID == item.ServerID })
			all = append(all, o.Servers[i])
		}
	}
	slices.SortFunc(all, func(a, b *Server) int {
		return cmp.Or(cmp.Compare(b.Flavor.RAM, a.Flavor.RAM), cmp.Compare(a.Num, b.Num), strings.Compare(a.ID, b.ID))
	})
	for _, s := range all {
		w := DestinationFilter{needs: NeedsOf(s, ""), Except: []string{o.Source.ID, largest.ID}}
		w.needs.Disks = nil
		best, why := PickRoomiestHost(d.hosts, func(h *Host) string { return w.Refusal(h, o.Up[h.ID]) })
		if best == nil {
			return false, fmt.Sprintf("if host %s died as well, server %s (%s) would find no place: %s", OrID(largest), s.Name, s.ID, joinReasons(why))
		}
		best.Reserve(w.needs)
	}
	return true, ""
}
