package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
)

// nodeSort maps the words that nodes can be sorted by to columns; both the names
// of Ironic's fields and the columns' own are known.
var nodeSort = map[string]string{
	"": "num", "id": "num", "uuid": "id", "name": "name", "driver": "driver", "instance_uuid": "instance_uuid", "chassis_uuid": "chassis_uuid",
	"chassis_id": "chassis_uuid", "resource_class": "resource_class", "description": "description", "owner": "owner", "lessee": "lessee",
	"shard": "shard", "conductor_group": "conductor_group", "maintenance": "maintenance", "fault": "fault", "protected": "protected",
	"retired": "retired", "console_enabled": "console_enabled", "power_state": "power_state", "target_power_state": "target_power",
	"provision_state": "provision_state", "target_provision_state": "target_provision", "last_error": "last_error",
	"provision_updated_at": "provisioned_at", "inspection_started_at": "inspection_start", "inspection_finished_at": "inspection_end",
	"created_at": "created_at", "updated_at": "updated_at", "parent_node": "parent_node", "allocation_id": "allocation_id",
	"allocation_uuid": "allocation_id", "instance_name": "instance_name", "disable_power_off": "disable_power_off", "health": "health",
}

// page adds the window to a query whose table has the alias a: rows are ordered by
// the key and, where it is equal, by their insertion, so that a marker names one place.
// marker is the condition for the marker's row, as m.
func (c *whereClause) page(p record.Page, table, a, marker string, sortable map[string]string) (order string, err error) {
	column, ok := sortable[p.SortKey]
	if !ok {
		return "", problem.Invalidf("The sort_key value %q is an invalid field for sorting: %s", p.SortKey, problem.WantOneOf(slices.Collect(maps.Keys(sortable))))
	}
	after, way := ">", "ASC"
	if p.Desc {
		after, way = "<", "DESC"
	}
	key, order := a+".num", fmt.Sprintf(" ORDER BY %s.num %s", a, way)
	if column != "num" {
		key = fmt.Sprintf("%s.%s, %s.num", a, column, a)
		order = fmt.Sprintf(" ORDER BY %s.%s %s, %s.num %s", a, column, way, a, way)
	}
	if p.Marker != "" {
		c.and(fmt.Sprintf("(%s) %s (SELECT %s FROM %s m WHERE %s)", key, after, strings.ReplaceAll(key, a+".", "m."), table, marker))
	}
	if p.Limit > 0 {
		order += " LIMIT " + c.count(p.Limit)
	}
	return order, nil
}

// Nodes is metal.NodeStore's.
func (s nodeTables) Nodes(ctx context.Context, t job.Tx, f metal.NodeFilter, p record.Page) ([]*metal.Node, error) {
	return nodePage(ctx, s.storeCore, t, f, p, func(tail string, args []any) ([]*metal.Node, error) {
		return s.nodes(ctx, t, selectNodes+tail, args...)
	})
}

// nodePage reads a page of nodes; tail is all of the query from WHERE on.
func nodePage[T any](ctx context.Context, s *storeCore, t job.Tx, f metal.NodeFilter, p record.Page, read func(tail string, args []any) ([]T, error)) ([]T, error) {
	c := s.newWhere()
	c.nodes(f)
	isWhole := len(c.parts) == 0
	mine := func(c *whereClause) string { return c.mine(nodeOf, f.Project) }
	order, err := c.page(p, "node", "n", c.marker(p, mine), nodeSort)
	if err != nil {
		return nil, err
	}
	page := ""
	if isWhole && nodeSort[p.SortKey] == "num" && p.Limit > 0 {
		page = order
	}
	c.confineNodes(f, page)
	out, err := read(c.where()+order, c.args)
	if err != nil {
		return nil, err
	}
	if len(out) == 0 && p.Marker != "" {
		if ok, err := s.markerExists(ctx, t, "node", p, mine); err != nil || !ok {
			return nil, errorOrNotFound(err, "Node %s could not be found.", p.Marker)
		}
	}
	return out, nil
}

// confineNodes confines a list to the nodes that a project owns or leases, that an owner owns, or that a lessee leases. The index of each column gives
// its part of the numbers: no index serves an OR, and an engine that guesses where the nodes lie in the order of a list may read all nodes to find none.
// page is the order and the limit of a list that has no other condition than its marker and is ordered by number: then each index gives a page at most.
func (c *whereClause) confineNodes(f metal.NodeFilter, page string) {
	value, columns := f.Project, []string{"owner", "lessee"}
	switch {
	case f.Project != "":
	case f.Owner != "":
		value, columns = f.Owner, columns[:1]
	case f.Lessee != "":
		value, columns = f.Lessee, columns[1:]
	default:
		return
	}
	if page == "" {
		c.and("n.num" + c.anyOf(nodesOf(c.arg(value), "num", columns...)))
		return
	}
	mark, marker := c.arg(value), ""
	if len(c.parts) > 0 {
		marker = " AND " + strings.Join(c.parts, " AND ")
	}
	parts := make([]string, len(columns))
	for i, column := range columns {
		parts[i] = fmt.Sprintf(`SELECT num FROM (SELECT n.num FROM node n WHERE n.%[1]s = %[2]s AND n.%[1]s <> ''%[3]s%[4]s) AS %[1]s_page`, column, mark, marker, page)
	}
	c.parts = []string{"n.num" + c.anyOf(strings.Join(parts, " UNION ALL "))}
}

// nodesOf is a query for one column of the nodes that have the value, a placeholder, in any of the columns owner and lessee.
func nodesOf(value, column string, in ...string) string {
	parts := make([]string, len(in))
	for i, name := range in {
		parts[i] = fmt.Sprintf(`SELECT %[1]s FROM node WHERE %[2]s = %[3]s AND %[2]s <> ''`, column, name, value)
	}
	return strings.Join(parts, " UNION ALL ")
}

// nodeOf is what the row m that a marker names must be for a project that a list is confined to:
// a marker that the project may not see is one that is not there. %s is the project.
const nodeOf = `(m.owner = %[1]s OR m.lessee = %[1]s)`

// mine is the condition of a marker for a project; empty for none.
func (c *whereClause) mine(condition, project string) string {
	if project == "" {
		return ""
	}
	return fmt.Sprintf(condition, c.arg(project))
}

// mineOf is mine for children of nodes, in a list of one node's or of a project's.
func (c *whereClause) mineOf(node, project string) string {
	if node != "" {
		return "m.node_id = " + c.arg(node)
	}
	return c.mine(`EXISTS (SELECT 1 FROM node o WHERE o.id = m.node_id AND (o.owner = %[1]s OR o.lessee = %[1]s))`, project)
}

// marker is the condition for the row of the marker; mine adds that of the confinement.
func (c *whereClause) marker(p record.Page, mine func(*whereClause) string) string {
	if p.Marker == "" {
		return ""
	}
	condition := "m.id = " + c.arg(p.Marker)
	if own := mine(c); own != "" {
		condition += " AND " + own
	}
	return condition
}

// markerExists tells whether the marker's row is there.
func (s *storeCore) markerExists(ctx context.Context, t job.Tx, table string, p record.Page, mine func(*whereClause) string) (found bool, err error) {
	c := &whereClause{}
	text := `SELECT 1 FROM ` + table + ` m WHERE ` + c.marker(p, mine)
	err = s.read(ctx, t, func(*sql.Rows) error { found = true; return nil }, text, c.args...)
	return found, err
}

// Shards is metal.Store's.
func (s nodeTables) Shards(ctx context.Context) ([]metal.Shard, error) {
	var out []metal.Shard
	err := s.read(ctx, nil, func(r *sql.Rows) error {
		var shard metal.Shard
		err := r.Scan(&shard.Name, &shard.Count)
		out = append(out, shard)
		return err
	}, `SELECT shard, COUNT(*) FROM node GROUP BY shard ORDER BY shard`)
	if err != nil {
		return nil, fmt.Errorf("count shards: %w", err)
	}
	return out, nil
}

// nodes narrows by all of the filter but what confineNodes does.
func (c *whereClause) nodes(f metal.NodeFilter) {
	for _, e := range []struct{ column, value string }{
		{"n.driver", f.Driver}, {"n.resource_class", f.ResourceClass}, {"n.fault", f.Fault}, {"n.shard", f.Shard},
		{"n.provision_state", string(f.ProvisionState)}, {conductorOf, f.Conductor}, {"n.instance_name", f.InstanceName},
	} {
		c.equal(e.column, e.value)
	}
	c.contains("n.description", f.DescriptionContains)
	c.search(f.Search)
	if f.ConductorGroup != nil {
		c.and(`n.conductor_group = ` + c.arg(*f.ConductorGroup))
	}
	if f.Project != "" {
		c.equal("n.owner", f.Owner)
	}
	if f.Project != "" || f.Owner != "" {
		c.equal("n.lessee", f.Lessee)
	}
	c.rare("n.instance_uuid", f.InstanceUUID)
	c.rare("n.chassis_uuid", f.ChassisUUID)
	c.rare("n.parent_node", f.ParentNode)
	if f.NoChildren {
		c.and(`n.parent_node = ''`)
	}
	for _, trait := range f.Traits { // the body's JSON names it, though maybe elsewhere
		c.and(`n.body LIKE ` + c.arg(`%"`+likeWord(trait)+`"%`) + ` ESCAPE '!'`)
	}
	if f.RescueExpires { // the session's JSON has the key only where it ends by itself
		c.and(`n.body LIKE ` + c.arg(`%"expires_at":"%`))
	}
	if f.ConsoleEnabled { // as the index node_console has it
		c.and(`n.console_enabled`)
	}
	if f.Powered {
		c.and(`(n.power_state <> '' OR n.target_power <> '')`)
	}
	c.any("n.id", f.IDs)
	c.bmc(f.BMC, f.PowerReadSince)
	c.any("n.shard", f.Shards)
	c.filled("n.instance_uuid", f.Associated)
	c.filled("n.shard", f.Sharded)
	c.filled("n.fault", f.Faulty)
	for _, e := range []struct {
		column string
		want   *bool
	}{{"n.maintenance", f.Maintenance}, {"n.retired", f.Retired}} {
		if e.want != nil {
			c.and(e.column + ` = ` + c.arg(*e.want))
		}
	}
}

// bmc narrows to nodes whose BMC is in a state. Few BMCs are silent, so an index of their rows is asked first; most answer, so the list looks at each
// node's row until the page is full.
func (c *whereClause) bmc(state metal.BMCState, since time.Time) {
	if state == "" {
		return
	}
	at := c.arg(toMicros(since))
	switch state {
	case metal.BMCSilent, metal.BMCRefusing:
		not := "NOT "
		if state == metal.BMCRefusing {
			not = ""
		}
		c.and(`n.id` + c.anyOf(`SELECT node_id FROM contact WHERE power_error <> '' AND `+not+`power_refused AND power_failed_at >= `+at))
	case metal.BMCAnswering:
		c.and(`EXISTS (SELECT 1 FROM contact k WHERE k.node_id = n.id AND k.power_error = '' AND k.power_read_at >= ` + at + `)`)
	case metal.BMCUnknown:
		c.and(`NOT EXISTS (SELECT 1 FROM contact k WHERE k.node_id = n.id AND CASE WHEN k.power_error = '' THEN k.power_read_at ELSE k.power_failed_at END >= ` + at + `)`)
	}
}

// equal narrows by a value unless it is empty.
func (c *whereClause) equal(column, value string) {
	if value != "" {
		c.and(column + " = " + c.arg(value))
	}
}

// rare is equal for a column whose index leaves the empty out: the engine must see that it fits.
func (c *whereClause) rare(column, value string) {
	c.equal(column, value)
	if value != "" {
		c.and(column + " <> ''")
	}
}

// contains narrows to values with the word in them, in whatever case, unless it is empty.
func (c *whereClause) contains(column, word string) {
	if word != "" {
		c.and(`lower(` + column + `) LIKE lower(` + c.arg("%"+likeWord(word)+"%") + `) ESCAPE '!'`)
	}
}

// search narrows to nodes that a few letters of a name or of a UUID may mean, unless there are none. It asks apart from
// the rest, where an index has all that is compared: the rows themselves are large.
func (c *whereClause) search(word string) {
	if word != "" {
		within, begins := c.arg("%"+likeWord(word)+"%"), c.arg(likeWord(strings.ToLower(word))+"%")
		c.and(`n.num IN (SELECT s.num FROM node s WHERE lower(s.name) LIKE lower(` + within + `) ESCAPE '!' OR s.id LIKE ` + begins + ` ESCAPE '!' OR s.instance_uuid LIKE ` + begins + ` ESCAPE '!')`)
	}
}

// any narrows to the values unless there are none at all.
func (c *whereClause) any(column string, values []string) {
	if values != nil {
		c.and(c.in(column, values))
	}
}

// ofNode narrows children by their node: whose it is, or who serves it.
func (c *whereClause) ofNode(project string, groups, shards []string) {
	c.node = c.node || groups != nil || shards != nil
	if project != "" {
		c.and("t.node_id" + c.anyOf(nodesOf(c.arg(project), "id", "owner", "lessee")))
	}
	c.any("n.conductor_group", groups)
	c.any("n.shard", shards)
}

// filled narrows by whether the column is empty.
func (c *whereClause) filled(column string, want *bool) {
	switch {
	case want == nil:
	case *want:
		c.and(column + " <> ''")
	default:
		c.and(column + " = ''")
	}
}

// likeWord makes a word of a user literal in a LIKE, with ! as its escape.
func likeWord(word string) string {
	return strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(word)
}
