package storetest

import (
	"fmt"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
)

// testForeignMarkers: in a list that is confined to a project a marker of others is one that is not there.
func testForeignMarkers(b *testEnv) {
	for i, owner := range []string{"o", "p", "o"} {
		id := fmt.Sprint("m", i)
		b.node(id, func(n *metal.Node) { n.Owner = owner })
		b.do(func(tx job.Tx) error {
			r := record.Record{ID: id}
			for _, err := range []error{
				b.s.InsertPort(tx, &metal.Port{Record: r, NodeID: id, Address: "52:54:00:00:00:0" + fmt.Sprint(i)}),
				b.s.Portgroups().Insert(tx, &metal.Portgroup{Record: r, NodeID: id}),
				b.s.Connectors().Insert(tx, &metal.Connector{Record: r, NodeID: id, Type: "iqn", ConnectorID: id}),
				b.s.Targets().Insert(tx, &metal.Target{Record: r, NodeID: id, VolumeType: "iscsi", VolumeID: "v"}),
				b.s.Allocations().Insert(tx, &metal.Allocation{Record: r, NodeID: id, Owner: owner, State: metal.AllocationDone}),
				b.s.Runbooks().Insert(tx, &metal.Runbook{Record: r, Name: id, Owner: owner}),
			} {
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	for what, after := range map[string]func(record.Page) (int, error){
		"node": func(p record.Page) (int, error) {
			return listLength(b.s.Nodes(b.ctx, nil, metal.NodeFilter{Project: "o"}, p))
		},
		"port": func(p record.Page) (int, error) {
			return listLength(b.s.PortTable().List(b.ctx, nil, metal.PortFilter{Project: "o"}, p))
		},
		"portgroup": func(p record.Page) (int, error) {
			return listLength(b.s.Portgroups().List(b.ctx, nil, metal.PortgroupFilter{Project: "o"}, p))
		},
		"connector": func(p record.Page) (int, error) {
			return listLength(b.s.Connectors().List(b.ctx, nil, metal.ConnectorFilter{Project: "o"}, p))
		},
		"target": func(p record.Page) (int, error) {
			return listLength(b.s.Targets().List(b.ctx, nil, metal.TargetFilter{Project: "o"}, p))
		},
		"allocation": func(p record.Page) (int, error) {
			return listLength(b.s.Allocations().List(b.ctx, nil, metal.AllocationFilter{Owner: "o"}, p))
		},
		"runbook": func(p record.Page) (int, error) {
			return listLength(b.s.Runbooks().List(b.ctx, nil, metal.RunbookFilter{Project: "o"}, p))
		},
	} {
		for _, key := range []string{"", "uuid"} {
			if n, err := after(record.Page{Marker: "m0", SortKey: key}); n != 1 || err != nil {
				b.Errorf("%ss after the own one: %d, %v", what, n, err)
			}
			if n, err := after(record.Page{Marker: "m2", SortKey: key}); n != 0 || err != nil {
				b.Errorf("%ss after the last own one: %d, %v", what, n, err)
			}
			for _, marker := range []string{"m1", "nobody"} {
				_, err := after(record.Page{Marker: marker, SortKey: key})
				b.refused(err, problem.NotFound, "")
			}
		}
	}
	_, err := b.s.PortTable().List(b.ctx, nil, metal.PortFilter{NodeID: "m0"}, record.Page{Marker: "m1"})
	b.refused(err, problem.NotFound, "Port m1 could not be found.")
	_, err = b.s.PortTable().List(b.ctx, nil, metal.PortFilter{PortgroupID: "m0"}, record.Page{Marker: "m1"})
	b.refused(err, problem.NotFound, "Port m1 could not be found.")
}

func listLength[T any](list []T, err error) (int, error) { return len(list), err }
