package storetest

import (
	"fmt"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
	"salvor/test/must"
)

func testFlavors(b *testEnv) {
	tableCase[compute.Flavor, compute.FlavorFilter]{b.s.Flavors(), "Flavor", fillRecord[compute.Flavor], (*compute.Flavor).Head,
		func(f *compute.Flavor) string { return f.Ref }, []string{"flavorid", "memory_mb", "root_gb", "vcpus", "name"}}.test(b)
	taken := fillRecord[compute.Flavor](1)
	taken.ID, taken.Name = "x", "x"
	refusedBoth(b, b.s.Flavors(), taken, fillRecord[compute.Flavor](8), func(f *compute.Flavor) { f.Ref = taken.Ref },
		"Flavor with ID "+taken.Ref+" already exists.")
	small := &compute.Flavor{Record: record.Record{ID: "small"}, Ref: "small", Name: "small", RAM: 1, Disk: 1}
	b.do(func(tx job.Tx) error { return b.s.Flavors().Insert(tx, small) })
	no := false
	checkListCounts(b, b.s.Flavors(), map[string]listCase[compute.FlavorFilter]{
		"public": {compute.FlavorFilter{Public: &no}, 1}, "ram": {compute.FlavorFilter{MinRAM: 2}, 5},
		"disk": {compute.FlavorFilter{MinDisk: 2}, 5}, "name": {compute.FlavorFilter{Name: "small"}, 1},
	})
	got := must.Get(b.s.Flavors().Get(b.ctx, nil, small.Name))(b)
	if got.Num == 0 || got.Num != small.Num {
		b.Errorf("the flavor's number is %d, as inserted %d", got.Num, small.Num)
	}
}

func testImages(b *testEnv) {
	tableCase[compute.Image, compute.ImageFilter]{b.s.Images(), "Image", fillRecord[compute.Image], (*compute.Image).Head, nil,
		[]string{"name", "status", "size", "disk_format", "container_format"}}.test(b)
	for i, v := range []string{"public", "private", "community"} {
		b.do(func(tx job.Tx) error {
			return b.s.Images().Insert(tx, &compute.Image{Record: record.Record{ID: v}, Name: v, Owner: fmt.Sprint("p", i), Visibility: v, SHA512: v,
				Tags: []string{"x%y", "old " + v}})
		})
	}
	checkListCounts(b, b.s.Images(), map[string]listCase[compute.ImageFilter]{
		"project": {compute.ImageFilter{Project: "p1"}, 2}, "another": {compute.ImageFilter{Project: "p9"}, 1},
		"community": {compute.ImageFilter{Project: "p1", Visibility: "community"}, 1}, "name": {compute.ImageFilter{Name: "private"}, 1},
		"owner": {compute.ImageFilter{Owner: "p1"}, 1}, "hash": {compute.ImageFilter{OSHash: "public"}, 1}, "tag": {compute.ImageFilter{Tag: "x%y"}, 3},
		"part of a tag": {compute.ImageFilter{Tag: "old"}, 0}, "ids": {compute.ImageFilter{IDs: []string{"public", "private", "z"}}, 2},
		"no ids": {compute.ImageFilter{IDs: []string{}}, 0}, "status": {compute.ImageFilter{Status: "active"}, 0},
	})
	_, err := b.s.Images().List(b.ctx, nil, compute.ImageFilter{Project: "p9"}, record.Page{Marker: "private"})
	b.refused(err, problem.NotFound, "Image private could not be found.")
}

func testKeypairs(b *testEnv) {
	tableCase[compute.Keypair, compute.KeypairFilter]{b.s.Keypairs(), "Key pair", fillRecord[compute.Keypair], (*compute.Keypair).Head, nil,
		[]string{"name"}}.test(b)
	taken := fillRecord[compute.Keypair](1)
	taken.ID = "x"
	refusedBoth(b, b.s.Keypairs(), taken, fillRecord[compute.Keypair](8), func(k *compute.Keypair) { k.User, k.Name = taken.User, taken.Name },
		"Key pair '"+taken.Name+"' already exists.")
	taken.User = "another"
	b.do(func(tx job.Tx) error { return b.s.Keypairs().Insert(tx, taken) })
	checkListCounts(b, b.s.Keypairs(), map[string]listCase[compute.KeypairFilter]{
		"user": {compute.KeypairFilter{User: "another"}, 1}, "both": {compute.KeypairFilter{User: "another", Name: taken.Name}, 1},
		"name": {compute.KeypairFilter{Name: taken.Name}, 2},
	})
}

func testVolumes(b *testEnv) {
	tableCase[compute.Volume, compute.VolumeFilter]{b.s.Volumes(), "Volume", fillRecord[compute.Volume], (*compute.Volume).Head, nil,
		[]string{"name", "size", "status", "display_name"}}.test(b)
	taken := fillRecord[compute.Volume](1)
	taken.ID = "x"
	refusedBoth(b, b.s.Volumes(), taken, fillRecord[compute.Volume](8), func(v *compute.Volume) { v.IQN, v.LUN = taken.IQN, taken.LUN },
		"A volume for this LUN of "+taken.IQN+" already exists.")
	v := &compute.Volume{Record: record.Record{ID: "v"}, Name: "data", Project: "p", Status: compute.VolumeInUse, ServerID: "s", IQN: "iqn.2026-01.example:data"}
	b.do(func(tx job.Tx) error { return b.s.Volumes().Insert(tx, v) })
	checkListCounts(b, b.s.Volumes(), map[string]listCase[compute.VolumeFilter]{
		"project": {compute.VolumeFilter{Project: "p"}, 1}, "name": {compute.VolumeFilter{Name: "data"}, 1},
		"server": {compute.VolumeFilter{ServerID: "s"}, 1}, "status": {compute.VolumeFilter{Status: compute.VolumeInUse}, 1},
		"none": {compute.VolumeFilter{Project: "p", Status: compute.VolumeAvailable}, 0},
		"iqn":  {compute.VolumeFilter{IQN: v.IQN}, 1}, "other iqn": {compute.VolumeFilter{IQN: v.IQN + "x"}, 0},
	})
}

// filledHost is one that lists show.
func filledHost(seed int) *compute.Host {
	h := fillRecord[compute.Host](seed)
	h.Lost = false
	return h
}

func testHosts(b *testEnv) {
	tableCase[compute.Host, compute.HostFilter]{b.s.Hosts(), "Host", filledHost, (*compute.Host).Head, nil, []string{"name", "zone"}}.test(b)
	taken := filledHost(1)
	taken.ID = "x"
	refusedBoth(b, b.s.Hosts(), taken, filledHost(8), func(h *compute.Host) { h.ClusterID, h.Name = taken.ClusterID, taken.Name },
		"A host "+taken.Name+" of cluster "+taken.ClusterID+" already exists.")
	for _, id := range []string{"one", "two"} { // names of hosts prove nothing, so they are free
		b.do(func(tx job.Tx) error {
			return b.s.Hosts().Insert(tx, &compute.Host{Record: record.Record{ID: id}, Name: "vm1", Kind: compute.AgentHost})
		})
	}
	checkListCounts(b, b.s.Hosts(), map[string]listCase[compute.HostFilter]{
		"name": {compute.HostFilter{Name: "vm1"}, 2}, "kind": {compute.HostFilter{Kind: compute.AgentHost}, 2},
		"cluster": {compute.HostFilter{ClusterID: taken.ClusterID}, 1},
	})
	tableCase[compute.Cluster, compute.ClusterFilter]{b.s.Clusters(), "Cluster", fillRecord[compute.Cluster], (*compute.Cluster).Head,
		func(c *compute.Cluster) string { return c.Name }, []string{"name"}}.test(b)
	cluster := fillRecord[compute.Cluster](1)
	cluster.ID = "x"
	refusedBoth(b, b.s.Clusters(), cluster, fillRecord[compute.Cluster](8), func(c *compute.Cluster) { c.Name = cluster.Name },
		"A cluster with name "+cluster.Name+" already exists.")
	tableCase[compute.JoinToken, compute.JoinTokenFilter]{b.s.JoinTokens(), "Join token", fillRecord[compute.JoinToken], (*compute.JoinToken).Head,
		nil, nil}.test(b)
	token := fillRecord[compute.JoinToken](1)
	token.ID = "x"
	refusedBoth(b, b.s.JoinTokens(), token, fillRecord[compute.JoinToken](8), func(j *compute.JoinToken) { j.Digest = token.Digest },
		"This join token already exists.")
	checkListCounts(b, b.s.JoinTokens(), map[string]listCase[compute.JoinTokenFilter]{"digest": {compute.JoinTokenFilter{Digest: token.Digest}, 1}})
}

// testJoinTokenOnce: of two hosts that come with one token one is let in.
func testJoinTokenOnce(b *testEnv) {
	b.do(func(tx job.Tx) error {
		return b.s.JoinTokens().Insert(tx, &compute.JoinToken{Record: record.Record{ID: "t"}, Digest: "d"})
	})
	stores := bothStores(b)
	won := countConcurrentWins(8, func(i int) bool {
		s := stores[i%2]
		return s.Do(b.ctx, func(tx job.Tx) error {
			all, err := s.JoinTokens().List(b.ctx, tx, compute.JoinTokenFilter{Digest: "d"}, record.Page{})
			if err != nil || len(all) != 1 || all[0].UsedBy != "" {
				return problem.Conflictf("not let in: %d tokens, %v", len(all), err)
			}
			all[0].UsedBy, all[0].UsedAt = fmt.Sprint("host", i), time.Now()
			return s.JoinTokens().Save(tx, all[0])
		}) == nil
	})
	if won != 1 {
		b.Errorf("%d hosts were let in with one token", won)
	}
}

// server inserts a server after change has had its way with it.
func (b *testEnv) server(id string, change ...func(*compute.Server)) *compute.Server {
	b.Helper()
	v := &compute.Server{Record: record.Record{ID: id}, Name: id, State: compute.Active}
	for _, c := range change {
		c(v)
	}
	b.do(func(tx job.Tx) error { return b.s.Servers().Insert(tx, v) })
	return v
}

// inSession opens a session with a rescue image.
func inSession(image int64, expires time.Time) func(*compute.Server) {
	return func(v *compute.Server) {
		v.Rescue = &rescue.Session{State: rescue.Ready, StartedAt: beginning, Source: &rescue.Source{ImageID: image}, ExpiresAt: expires,
			Credential: rescue.Credential{Hash: secret.New("hash"), Keys: []string{"key"}}}
	}
}

func testServers(b *testEnv) {
	tableCase[compute.Server, compute.ServerFilter]{b.s.Servers(), "Server", fillRecord[compute.Server], (*compute.Server).Head, nil,
		[]string{"display_name", "host", "user_id", "project_id", "vm_state", "power_state", "task_state", "availability_zone", "image_ref",
			"instance_type_id", "locked", "key_name", "launched_at", "terminated_at"}}.test(b)
	taken := fillRecord[compute.Server](1)
	taken.ID = "x"
	refusedBoth(b, b.s.Servers(), taken, fillRecord[compute.Server](8), func(v *compute.Server) { v.HostID, v.GuestName = taken.HostID, taken.GuestName },
		"A server with guest name "+taken.GuestName+" already exists on host "+taken.HostID+".")
	v := b.server("v")
	for _, ask := range []int64{v.Num, v.Num + 1} {
		got, err := b.s.ServerByNum(b.ctx, nil, ask)
		if ask == v.Num && (err != nil || got.ID != "v") {
			b.Errorf("server %d: %v %v", ask, got, err)
		} else if ask != v.Num {
			b.refused(err, problem.NotFound, fmt.Sprintf("Server %d could not be found.", ask))
		}
	}
}

func testServerLists(b *testEnv) {
	yes, no := true, false
	place := func(host, guest string) func(*compute.Server) {
		return func(v *compute.Server) { v.HostID, v.GuestName = host, guest }
	}
	b.server("a", place("h1", "g1"), inSession(7, beginning), func(v *compute.Server) { v.Project, v.Locked = "p", true })
	b.server("b", place("h1", "g2"), inSession(7, time.Time{}), func(v *compute.Server) { v.Name, v.User = "web_1%", "u" })
	b.server("c", place("h2", "g1"), func(v *compute.Server) { v.ImageID, v.Flavor.ID, v.State = "i", "f", compute.Stopped })
	gone := b.server("d", place("h2", "g9"), inSession(7, beginning), func(v *compute.Server) { v.State = compute.Deleted })
	b.server("e", place("h2", "g9"), func(v *compute.Server) {
		v.Rescue = &rescue.Session{State: rescue.Closed, Source: &rescue.Source{ImageID: 7}}
		v.Drift = []compute.Drift{{Part: "disk vda", Text: "lies elsewhere", Disk: true}}
	})
	b.server("f", inSession(9, beginning.Add(time.Hour)))
	b.server("g", func(v *compute.Server) { v.State = compute.Building })
	later := time.Now().Add(time.Hour)
	checkListCounts(b, b.s.Servers(), map[string]listCase[compute.ServerFilter]{
		"nothing": {compute.ServerFilter{}, 6}, "deleted": {compute.ServerFilter{Deleted: true}, 1}, "all": {compute.ServerFilter{AnyDeleted: true}, 7},
		"state deleted": {compute.ServerFilter{State: compute.Deleted}, 1}, "host": {compute.ServerFilter{HostID: "h2"}, 2},
		"host, all": {compute.ServerFilter{HostID: "h2", AnyDeleted: true}, 3}, "project": {compute.ServerFilter{Project: "p"}, 1},
		"user": {compute.ServerFilter{User: "u"}, 1}, "name": {compute.ServerFilter{Name: "web_1%"}, 1}, "part": {compute.ServerFilter{NameContains: "B_1%"}, 1},
		"no wildcard": {compute.ServerFilter{NameContains: "b_%"}, 0}, "flavor": {compute.ServerFilter{FlavorID: "f"}, 1}, "image": {compute.ServerFilter{ImageID: "i"}, 1},
		"states": {compute.ServerFilter{States: []compute.VMState{compute.Stopped, compute.Building}}, 2}, "locked": {compute.ServerFilter{Locked: &yes}, 1},
		"unlocked": {compute.ServerFilter{Locked: &no}, 5}, "since": {compute.ServerFilter{ChangesSince: beginning}, 6}, "since later": {compute.ServerFilter{ChangesSince: later}, 0},
		"rescue image": {compute.ServerFilter{RescueImage: 7}, 2}, "in rescue": {compute.ServerFilter{InRescue: true}, 3},
		"expired": {compute.ServerFilter{RescueExpired: beginning.Add(time.Minute)}, 1}, "expired later": {compute.ServerFilter{RescueExpired: later}, 2},
	})
	_, err := b.s.Servers().List(b.ctx, nil, compute.ServerFilter{Project: "p"}, record.Page{Marker: "b"})
	b.refused(err, problem.NotFound, "Server b could not be found.")
	use, err := b.s.RescueImageUse(b.ctx, nil)
	b.ok(err)
	on, err := b.s.HostUse(b.ctx)
	b.ok(err)
	if fmt.Sprint(use, on) != "map[7:2 9:1] map[h1:{2 0} h2:{2 1}]" {
		b.Errorf("in use: images %v, hosts %v", use, on)
	}
	b.do(func(tx job.Tx) error { return b.s.Servers().Save(tx, gone) })
	n, err := b.s.PruneServers(b.ctx, gone.CreatedAt)
	b.ok(err)
	if n != 0 {
		b.Errorf("%d fresh rows were pruned", n)
	}
	n, err = b.s.PruneServers(b.ctx, later)
	b.ok(err)
	_, err = b.s.Servers().Get(b.ctx, nil, "d")
	if b.refused(err, problem.NotFound, "Server d could not be found."); n != 1 {
		b.Errorf("%d deleted rows were pruned", n)
	}
}

// testServerSecrets: a session's credential goes with the session, and is in nobody's list of columns.
func testServerSecrets(b *testEnv) {
	v := b.server("a", inSession(1, time.Time{}))
	read := func() *compute.Server {
		got := must.Get(b.s.Servers().Get(b.ctx, nil, "a"))(b)
		return got
	}
	if c := read().Rescue.Credential; c.Hash.Reveal() != "hash" || len(c.Keys) != 1 || c.Keys[0] != "key" {
		b.Fatalf("the credential is not read back: %v", c)
	}
	v.Rescue.State = rescue.Closed
	b.do(func(tx job.Tx) error { return b.s.Servers().Save(tx, v) })
	if c := read().Rescue.Credential; !c.Hash.Empty() || c.Keys != nil {
		b.Fatalf("a closed session has a credential: %v", c)
	}
}
