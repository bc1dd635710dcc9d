package fleet

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"salvor/client"
	"salvor/problem"
	"salvor/wire/ironic"
	"salvor/wire/native"
)

const (
	firstLook = 50 * time.Millisecond
	lastLook  = time.Second
	// flight is how many nodes are on their way for each request that may be: most of them wait for the control plane.
	flight = 6
	// stateTimeout is how long one node may take to one state beside what its machine takes to boot.
	stateTimeout = 10 * time.Minute
)

// Enroll makes the nodes, active with systems of their own, as many at once as there are workers, and puts
// those that are to be there into rescue. Nodes of an earlier run are taken over. Faults begin after that.
// The failure of one node ends nothing: Enroll complains and goes on. An error says why no node could be rescued; then none is enrolled.
func (f *Fleet) Enroll(ctx context.Context) error {
	if err := f.canRescue(ctx); err != nil {
		return err
	}
	if err := f.canAdopt(ctx); err != nil {
		return err
	}
	f.each(ctx, f.enroll)
	f.faulty.Store(true)
	return nil
}

// canAdopt enrolls the first node alone, if it is new: what the control plane refuses of one node it refuses of all, and is told once.
func (f *Fleet) canAdopt(ctx context.Context) error {
	if len(f.machines) == 0 {
		return nil
	}
	there, err := f.create(ctx, 0)
	for _, step := range [][2]string{{"manage", "manageable"}, {"adopt", "active"}} {
		if err == nil && !there {
			err = f.ask(ctx, 0, step[0], step[1])
		}
	}
	if err == nil || there || ctx.Err() != nil {
		return nil // an old node's own trouble is reported as any other's
	}
	if _, left := f.remove(ctx, 0); left != nil {
		f.complain(0, left)
	}
	return problem.Invalidf("this control plane does not take the simulated nodes: %w; no node was enrolled", err)
}

// canRescue asks the control plane for the preflight of the first node that is to be rescued. A reason against it is one against all nodes.
func (f *Fleet) canRescue(ctx context.Context) error {
	i := 0
	for i < len(f.machines) && !f.machines[i].rescued && !f.machines[i].held {
		i++
	}
	if i == len(f.machines) {
		return nil
	}
	there, err := f.create(ctx, i)
	if err != nil {
		return nil // its enrollment reports the error
	}
	var found native.Preflight
	path := "/nodes/" + f.UUID(i) + "/preflight"
	unknown := f.again(ctx, func() error { return f.api().Ask(ctx, client.Native, http.MethodGet, path, nil, nil, &found) })
	if !there {
		if _, err := f.remove(ctx, i); err != nil {
			f.complain(i, err)
		}
	}
	if unknown != nil {
		return nil // the control plane knows no reason
	}
	for _, one := range found.Operations {
		if one.Operation != "rescue" || len(one.Reasons) == 0 {
			continue
		}
		texts := make([]string, len(one.Reasons))
		for k, r := range one.Reasons {
			texts[k] = r.Text
		}
		return problem.Invalidf("this control plane cannot rescue the simulated nodes: %s; configure a rescue ramdisk, or leave out --rescue and --hold; no node was enrolled", strings.Join(texts, "; "))
	}
	return nil
}

// Clean removes the nodes of a fleet, whatever they are doing; their machines need not be there.
func (f *Fleet) Clean(ctx context.Context) (removed int64) {
	var count atomic.Int64
	f.each(ctx, func(ctx context.Context, i int) error {
		gone, err := f.remove(ctx, i)
		if gone {
			count.Add(1)
		}
		return err
	})
	return count.Load()
}

func (f *Fleet) each(ctx context.Context, do func(context.Context, int) error) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(flight*f.config.Workers, len(f.machines)) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(f.machines) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil && ctx.Err() == nil {
					f.complain(i, err)
				}
			}
		})
	}
	all.Wait()
}

func (f *Fleet) enroll(ctx context.Context, i int) error {
	n := &client.Node{ProvisionState: "enroll"}
	there, err := f.create(ctx, i)
	if err == nil && there {
		n, err = f.node(ctx, i, "provision_state")
	}
	if err != nil {
		return err
	}
	switch n.ProvisionState {
	case "enroll", "manageable", "active":
	default:
		// Its ramdisk went with the run before, whose machines are gone.
		if _, err := f.remove(ctx, i); err != nil {
			return err
		}
		if _, err := f.create(ctx, i); err != nil {
			return err
		}
		n.ProvisionState = "enroll"
	}
	if n.ProvisionState == "enroll" {
		if err := f.ask(ctx, i, "manage", "manageable"); err != nil {
			return err
		}
		n.ProvisionState = "manageable"
	}
	if n.ProvisionState == "manageable" {
		if err := f.ask(ctx, i, "adopt", "active"); err != nil {
			return err
		}
	}
	f.counts.enrolled.Add(1)
	return f.rescue(ctx, i)
}

// rescue has those machines rescued that are to be, and holds those that are to wait.
func (f *Fleet) rescue(ctx context.Context, i int) error {
	m := &f.machines[i]
	switch {
	case m.rescued:
		if err := f.ask(ctx, i, "rescue", "rescue"); err != nil {
			return err
		}
		f.counts.rescued.Add(1)
	case m.held:
		if err := f.ask(ctx, i, "rescue", "rescue wait"); err != nil {
			return err
		}
		if err := f.again(ctx, func() error { return f.api().SetMaintenance(ctx, f.UUID(i), "kept waiting by salvor sim") }); err != nil {
			return err
		}
		m.mu.Lock()
		m.waits = true
		m.mu.Unlock()
		f.counts.held.Add(1)
	}
	return nil
}

func (f *Fleet) api() *client.Client { return f.config.API }

// call sends one request of an administrator's, in its turn.
func (f *Fleet) call(ctx context.Context, do func() error) error {
	select {
	case f.asks <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-f.asks }()
	return do()
}

func (f *Fleet) node(ctx context.Context, i int, fields ...string) (n *client.Node, err error) {
	err = f.call(ctx, func() error { n, err = f.api().Node(ctx, f.UUID(i), fields...); return err })
	return n, err
}

// create makes node and port, or tells an old node, which is there, where its BMC is now.
func (f *Fleet) create(ctx context.Context, i int) (there bool, err error) {
	address := "http://" + net.JoinHostPort(f.host(i), strconv.Itoa(f.port))
	mode := "uefi"
	if f.config.BIOS {
		mode = "bios"
	}
	record := client.Record{
		"uuid": f.UUID(i), "name": f.Name(i), "driver": "redfish", "network_interface": "noop", "resource_class": "sim",
		"properties": map[string]any{"cpus": 64, "memory_mb": 262144, "local_gb": 900, "cpu_arch": "x86_64", "capabilities": "boot_mode:" + mode},
		"extra":      map[string]any{"simulated": true},
		"driver_info": map[string]any{
			"redfish_address": address, "redfish_system_id": systems + "/" + strconv.Itoa(i), "redfish_username": username, "redfish_password": password,
		},
	}
	if f.config.BootInterface != "" {
		record["boot_interface"] = f.config.BootInterface
	}
	err = f.call(ctx, func() error { _, err := f.api().CreateNode(ctx, record); return err })
	if there = client.StatusOf(err) == http.StatusConflict; there {
		value, _ := json.Marshal(address)
		change := []ironic.PatchOperation{{Op: "replace", Path: "/driver_info/redfish_address", Value: value}}
		err = f.call(ctx, func() error { _, err := f.api().PatchNode(ctx, f.UUID(i), change, false); return err })
	}
	if err != nil {
		return there, err
	}
	port := client.Record{"node_uuid": f.UUID(i), "address": f.MAC(i)}
	err = f.call(ctx, func() error { _, err := f.api().Create(ctx, client.Ports, port); return err })
	if client.StatusOf(err) == http.StatusConflict {
		err = nil
	}
	return there, err
}

// meanDuration is how long the control plane takes for a verb of late: who knows it does not ask long before it may be done.
type meanDuration struct{ mean atomic.Int64 }

// took learns. Of two who learn at once one is not heard, which does no harm.
func (p *meanDuration) took(d time.Duration) {
	mean := p.mean.Load()
	p.mean.Store(mean + (int64(d)-mean)/8)
}

// first is when to look, early enough to notice that it has become faster.
func (p *meanDuration) first() time.Duration {
	return min(max(time.Duration(p.mean.Load())*3/4, firstLook), 5*lastLook)
}

// ask has a node go to a state and waits until it is there and nobody works on it.
func (f *Fleet) ask(ctx context.Context, i int, verb, want string) error {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout+f.config.Boot)
	defer cancel()
	request := ironic.ProvisionRequest{Target: verb}
	if verb == "rescue" {
		request.RescuePassword = "simulated-rescue"
	}
	if err := f.again(ctx, func() error { return f.api().Provision(ctx, f.UUID(i), request) }); err != nil {
		return err
	}
	began, first := time.Now(), f.paces[verb].first()
	for pause, state := first, verb; ; pause = min(max(first/4, firstLook), lastLook) {
		select {
		case <-ctx.Done():
			return problem.Unavailablef("%s: it stays %q: %w", verb, state, ctx.Err())
		case <-time.After(pause):
		}
		n, err := f.node(ctx, i, "provision_state", "reservation", "last_error")
		if err != nil {
			return err
		}
		switch state = n.ProvisionState; {
		case state == want && n.Reservation == "":
			f.paces[verb].took(time.Since(began))
			return nil
		case n.Reservation == "" && n.LastError != "" || strings.HasSuffix(state, "failed"):
			return problem.Conflictf("%s: it is %q instead of %q: %s", verb, state, want, n.LastError)
		}
	}
}

// again asks anew while somebody else holds the node or the control plane has no hands free.
func (f *Fleet) again(ctx context.Context, do func() error) error {
	for {
		err := f.call(ctx, do)
		if status := client.StatusOf(err); status != http.StatusConflict && status != http.StatusServiceUnavailable {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(4 * firstLook):
		}
	}
}

// remove forgets one node; in maintenance that is possible in every state.
func (f *Fleet) remove(ctx context.Context, i int) (gone bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	id := f.UUID(i)
	for _, do := range []func() error{
		func() error { return f.api().SetMaintenance(ctx, id, "removed by salvor sim") },
		func() error { return f.api().DeleteNode(ctx, id) },
	} {
		if err := f.again(ctx, do); client.StatusOf(err) == http.StatusNotFound {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	return true, nil
}
