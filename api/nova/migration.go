package nova

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"salvor/compute"
	"salvor/problem"
	"salvor/record"
)

// migrationRoutes are of moves, which the Compute API knows as migrations.
func (s *apiServer) migrationRoutes() []versionedRoute {
	return []versionedRoute{
		{method: "GET", path: "/os-migrations", need: admin, do: handlerOf(migrationCall.listMigrations)},
		{method: "GET", path: "/servers/{server}/migrations", need: admin, since: 23, do: handlerOf(migrationCall.listServerMigrations)},
		{method: "GET", path: "/servers/{server}/migrations/{migration}", need: admin, since: 23, do: handlerOf(migrationCall.getServerMigration)},
	}
}

// migrationWords are the arguments of the list, by the microversion that has them.
var migrationWords = []struct {
	since int
	name  string
}{
	{1, "status"}, {1, "host"}, {1, "instance_uuid"}, {1, "source_compute"}, {1, "migration_type"}, {1, "hidden"},
	{59, "limit"}, {59, "marker"}, {59, "changes-since"}, {66, "changes-before"}, {80, "user_id"}, {80, "project_id"},
}

// migrationWord gives an argument of the list, where the microversion has it.
func (c migrationCall) migrationWord(name string) string {
	for _, w := range migrationWords {
		if w.name == name && c.Minor >= w.since {
			return c.Query.Get(name)
		}
	}
	return ""
}

// listMigrations lists moves: the newest first from 2.59 on, before that in their order.
func (c migrationCall) listMigrations() error {
	var known []string
	for _, w := range migrationWords {
		if c.Minor >= w.since {
			known = append(known, w.name)
		}
	}
	if err := c.only(59, known...); err != nil {
		return err
	}
	dir, err := c.s.names.get(c.R.Context())
	if err != nil {
		return err
	}
	f, some, err := c.migrationFilter(dir)
	if err != nil {
		return err
	}
	p, err := c.migrationPage()
	if err != nil {
		return err
	}
	var found []*compute.Move
	if some {
		found, err = c.s.Services.Moves.ListByStatus(c.R.Context(), compute.MoveState(c.migrationWord("status")), f, p)
	}
	if problem.Is(err, problem.NotFound) && p.Marker != "" {
		return problem.Invalidf("Marker %s could not be found.", p.Marker)
	}
	if err != nil {
		return err
	}
	out := make([]jsonObject, len(found))
	for i, m := range found {
		out[i] = c.migrationView(m, dir)
	}
	answer := jsonObject{"migrations": out}
	if c.Minor >= 59 && len(found) > 0 {
		if next := c.next("/os-migrations", len(found), p.Limit, found[len(found)-1].ID); next != nil {
			answer["migrations_links"] = next
		}
	}
	return c.json(http.StatusOK, answer)
}

func (c migrationCall) migrationPage() (record.Page, error) {
	p := record.Page{Limit: c.s.MaxLimit}
	if c.Minor < 59 {
		return record.Page{}, nil // there were no pages, and nobody would ask for the second
	}
	limit, err := c.number("limit", 0)
	if err != nil {
		return p, err
	}
	if limit > 0 {
		p.Limit = min(p.Limit, limit)
	}
	p.Desc, p.Marker = true, c.Query.Get("marker")
	if p.Marker != "" && !record.IsUUID(p.Marker) {
		return p, problem.Invalidf("Marker %s could not be found.", truncateText(p.Marker))
	}
	return p, nil
}

// migrationFilter reads what narrows the list; some is false where nothing can be in it.
func (c migrationCall) migrationFilter(dir *nameSnapshot) (f compute.MoveFilter, some bool, err error) {
	f = compute.MoveFilter{
		ServerID: c.migrationWord("instance_uuid"), Kind: compute.MoveKind(c.migrationWord("migration_type")),
		User: c.migrationWord("user_id"), Project: c.migrationWord("project_id"),
	}
	some = true
	if word := c.migrationWord("hidden"); word != "" {
		hidden, err := c.flag("hidden")
		if err != nil {
			return f, false, err
		}
		some = !hidden // none is hidden: none was ever reverted
	}
	for name, to := range map[string]*string{"host": &f.HostID, "source_compute": &f.SourceID} {
		word := c.migrationWord(name)
		if word == "" {
			continue
		}
		if *to, err = dir.hostID(word); err != nil {
			return f, false, err
		}
		some = some && *to != ""
	}
	for name, to := range map[string]*time.Time{"changes-since": &f.ChangesSince, "changes-before": &f.ChangesBefore} {
		word := c.migrationWord(name)
		if word == "" {
			continue
		}
		at, ok := parseQueryTime(word)
		if !ok {
			return f, false, problem.Invalidf("Invalid input for query parameters %s. Value: %s. '%s' is not a 'date-time'", name, truncateText(word), truncateText(word))
		}
		*to = at
	}
	if !f.ChangesSince.IsZero() && !f.ChangesBefore.IsZero() && f.ChangesSince.After(f.ChangesBefore) {
		return f, false, problem.Invalidf("The value of changes-since must be less than or equal to changes-before.")
	}
	return f, some, nil
}

// hostID gives the host of a name; empty: there is none.
func (d *nameSnapshot) hostID(name string) (id string, err error) {
	for host, n := range d.hosts {
		if n.name != name {
			continue
		}
		if id != "" {
			return "", problem.Conflictf("several hosts are named %s", truncateText(name))
		}
		id = host
	}
	return id, nil
}

// hostWord is the name of a host, or its id where it is gone; nil where there is none.
func (d *nameSnapshot) hostWord(id string) any {
	if n, ok := d.hosts[id]; ok {
		return n.name
	}
	return orNil(id)
}

// ends are where a move leads from and to.
func (c migrationCall) ends(o jsonObject, m *compute.Move, dir *nameSnapshot) {
	source, dest := dir.hostWord(m.SourceID), dir.hostWord(m.DestID)
	o["source_compute"], o["source_node"], o["dest_compute"], o["dest_node"] = source, source, dest, dest
	o["dest_host"] = orNil(dir.hosts[m.DestID].address)
	o["status"], o["created_at"], o["updated_at"] = string(m.Status()), timeOrNil(m.CreatedAt), timeOrNil(m.UpdatedAt)
	if m.UpdatedAt.IsZero() {
		o["updated_at"] = timeOrNil(m.CreatedAt)
	}
	if c.Minor >= 59 {
		o["uuid"] = m.ID
	}
	if c.Minor >= 80 {
		o["user_id"], o["project_id"] = orNil(m.User), orNil(m.Project)
	}
}

func (c migrationCall) migrationView(m *compute.Move, dir *nameSnapshot) jsonObject {
	// No server changes its flavor here.
	o := jsonObject{"id": m.Num, "instance_uuid": m.ServerID, "old_instance_type_id": nil, "new_instance_type_id": nil}
	c.ends(o, m, dir)
	if c.Minor >= 23 {
		o["migration_type"] = string(m.Kind)
		if m.Kind == compute.LiveMigration && m.Going() {
			o["links"] = c.links("/servers/" + m.ServerID + "/migrations/" + strconv.FormatInt(m.Num, 10))
		}
	}
	return o
}

// serverMigrationView has no figures: no hypervisor's are brought here.
func (c migrationCall) serverMigrationView(m *compute.Move, dir *nameSnapshot) jsonObject {
	o := jsonObject{"id": m.Num, "server_uuid": m.ServerID}
	c.ends(o, m, dir)
	for _, what := range []string{"memory", "disk"} {
		for _, which := range []string{"total", "processed", "remaining"} {
			o[what+"_"+which+"_bytes"] = nil
		}
	}
	return o
}

// openMoves reads the live migration of the server that the path names, if one goes on.
func (c migrationCall) openMoves() (*compute.Server, []*compute.Move, error) {
	srv, err := c.server()
	if err != nil {
		return nil, nil, err
	}
	moves, err := c.s.Services.Moves.List(c.R.Context(), compute.MoveFilter{ServerID: srv.ID, Kind: compute.LiveMigration, Open: true}, record.Page{})
	return srv, moves, err
}

func (c migrationCall) listServerMigrations() error {
	_, moves, err := c.openMoves()
	if err != nil {
		return err
	}
	dir, err := c.s.names.get(c.R.Context())
	if err != nil {
		return err
	}
	out := make([]jsonObject, len(moves))
	for i, m := range moves {
		out[i] = c.serverMigrationView(m, dir)
	}
	return c.json(http.StatusOK, jsonObject{"migrations": out})
}

func (c migrationCall) getServerMigration() error {
	srv, moves, err := c.openMoves()
	if err != nil {
		return err
	}
	dir, err := c.s.names.get(c.R.Context())
	if err != nil {
		return err
	}
	i := slices.IndexFunc(moves, func(m *compute.Move) bool { return strconv.FormatInt(m.Num, 10) == c.Arg("migration") })
	if i < 0 {
		return problem.NotFoundf("In-progress live migration %s is not found for server %s.", truncateText(c.Arg("migration")), srv.ID)
	}
	return c.json(http.StatusOK, jsonObject{"migration": c.serverMigrationView(moves[i], dir)})
}
