package nova

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"salvor/compute"
	"salvor/problem"
)

// serverFilterBuilder collects what a query asks of a list of servers.
type serverFilterBuilder struct {
	c   *novaCall
	dir *nameSnapshot
	f   compute.ServerFilter
	// conditions are the conditions that the store cannot hold servers to.
	conditions []func(*compute.Server) bool
	// nothing can match.
	none bool
}

// serverArg is an argument of the query of a list of servers.
type serverArg struct {
	name  string
	since int
	admin bool // ignored where somebody else names it
	set   func(*serverFilterBuilder, string) error
}

// exactMatchArg makes an argument that compares a value of the server.
func exactMatchArg(name string, since int, admin bool, get func(*compute.Server) string) serverArg {
	return serverArg{name, since, admin, func(n *serverFilterBuilder, word string) error {
		n.conditions = append(n.conditions, func(s *compute.Server) bool { return get(s) == word })
		return nil
	}}
}

var serverArgs = []serverArg{
	{name: "name", set: (*serverFilterBuilder).byName},
	{name: "status", set: (*serverFilterBuilder).byStatus},
	{name: "image", set: func(n *serverFilterBuilder, word string) error { n.f.ImageID = strings.ToLower(word); return nil }},
	{name: "flavor", set: (*serverFilterBuilder).byFlavor},
	{name: "host", admin: true, set: (*serverFilterBuilder).byHost},
	{name: "node", admin: true, set: (*serverFilterBuilder).byHost},
	{name: "hypervisor_hostname", admin: true, set: (*serverFilterBuilder).byHost},
	{name: "uuid", set: func(n *serverFilterBuilder, word string) error {
		word = strings.ToLower(word)
		n.conditions = append(n.conditions, func(s *compute.Server) bool { return s.ID == word })
		return nil
	}},
	{name: "tenant_id", admin: true, set: (*serverFilterBuilder).byProject},
	{name: "project_id", admin: true, set: (*serverFilterBuilder).byProject},
	{name: "user_id", admin: true, set: func(n *serverFilterBuilder, word string) error { n.f.User = word; return nil }},
	{name: "deleted", admin: true, set: (*serverFilterBuilder).byDeleted},
	{name: "changes-since", set: func(n *serverFilterBuilder, word string) error {
		t, ok := parseQueryTime(word)
		if !ok {
			return badQuery("changes-since", word, "is not a 'date-time'")
		}
		n.f.ChangesSince, n.f.AnyDeleted = t, true
		return nil
	}},
	{name: "changes-before", since: 66, set: func(n *serverFilterBuilder, word string) error {
		t, ok := parseQueryTime(word)
		if !ok {
			return badQuery("changes-before", word, "is not a 'date-time'")
		}
		n.conditions = append(n.conditions, func(s *compute.Server) bool { return !s.UpdatedAt.After(t) })
		return nil
	}},
	{name: "tags", since: 26, set: byTags(func(have, want []string) bool { return hasAll(have, want) })},
	{name: "tags-any", since: 26, set: byTags(func(have, want []string) bool { return hasAny(have, want) })},
	{name: "not-tags", since: 26, set: byTags(func(have, want []string) bool { return !hasAll(have, want) })},
	{name: "not-tags-any", since: 26, set: byTags(func(have, want []string) bool { return !hasAny(have, want) })},
	{name: "locked", since: 73, set: func(n *serverFilterBuilder, word string) error {
		v, ok := boolWords[word]
		if !ok {
			return badQuery("locked", word, "is not a boolean")
		}
		n.f.Locked = &v
		return nil
	}},
	{name: "ip", set: byAddress(false)},
	{name: "ip6", set: byAddress(true)},
	{name: "vm_state", admin: true, set: func(n *serverFilterBuilder, word string) error {
		n.f.States = append(n.f.States, compute.VMState(strings.ToLower(word)))
		return nil
	}},
	{name: "power_state", admin: true, set: func(n *serverFilterBuilder, word string) error {
		n.conditions = append(n.conditions, func(s *compute.Server) bool { return strconv.Itoa(powerNumbers[s.Power]) == word })
		return nil
	}},
	{name: "config_drive", set: func(n *serverFilterBuilder, word string) error {
		want := boolWords[word]
		n.conditions = append(n.conditions, func(s *compute.Server) bool { return s.ConfigDrive == want })
		return nil
	}},
	exactMatchArg("task_state", 0, true, func(s *compute.Server) string { return string(s.Task) }),
	exactMatchArg("key_name", 0, false, func(s *compute.Server) string { return s.KeyName }),
	exactMatchArg("availability_zone", 0, false, func(s *compute.Server) string { return s.Zone }),
	exactMatchArg("reservation_id", 0, false, func(s *compute.Server) string { return reservationID(s.ID) }),
	exactMatchArg("description", 0, false, func(s *compute.Server) string { return s.Description }),
	exactMatchArg("instance_name", 0, true, func(s *compute.Server) string { return s.GuestName }),
	exactMatchArg("access_ip_v4", 0, false, func(*compute.Server) string { return "" }),
	exactMatchArg("access_ip_v6", 0, false, func(*compute.Server) string { return "" }),
	exactMatchArg("hostname", 0, true, func(s *compute.Server) string { return sanitizeHostname(s.Name) }),
	exactMatchArg("root_device_name", 0, true, func(s *compute.Server) string { return rootDevice(&serverView{Server: s}) }),
	exactMatchArg("progress", 0, true, func(s *compute.Server) string { return strconv.Itoa(inProgress[statusOf(s)]) }),
}

// otherServerArgs narrow nothing.
var otherServerArgs = []string{"limit", "marker", "sort_key", "sort_dir", "all_tenants", "soft_deleted", "auto_disk_config", "created_at", "launched_at", "terminated_at", "launch_index", "kernel_id", "ramdisk_id", "user_id"}

// serverFilter reads what a query asks for; a nil filter matches nothing.
func (c serverCall) serverFilter(dir *nameSnapshot) (*compute.ServerFilter, func(*compute.Server) bool, error) {
	n := &serverFilterBuilder{c: c.novaCall, dir: dir}
	known := slices.Clone(otherServerArgs)
	for _, a := range serverArgs {
		if c.Minor >= a.since {
			known = append(known, a.name)
		}
	}
	if err := c.only(75, known...); err != nil {
		return nil, nil, err
	}
	for _, a := range serverArgs {
		if !c.Query.Has(a.name) || a.admin && !c.admin || c.Minor < a.since {
			continue
		}
		for _, word := range c.Query[a.name] {
			if len(word) > 4096 {
				return nil, nil, badQuery(a.name, word, "is too long")
			}
			if err := a.set(n, word); err != nil {
				return nil, nil, err
			}
		}
	}
	all, err := c.flag("all_tenants")
	if err != nil {
		return nil, nil, err
	}
	switch {
	case all && !c.admin:
		return nil, nil, problem.Forbiddenf(policyForbidden, "os_compute_api:servers:detail:get_all_tenants")
	case !all && c.requester.Project != "":
		n.f.Project = c.requester.Project
	}
	if n.none {
		return nil, nil, nil
	}
	return &n.f, n.matchFunc(), nil
}

// matchFunc is all conditions in one; nil where there is none.
func (n *serverFilterBuilder) matchFunc() func(*compute.Server) bool {
	if len(n.conditions) == 0 {
		return nil
	}
	return func(s *compute.Server) bool {
		return !slices.ContainsFunc(n.conditions, func(k func(*compute.Server) bool) bool { return !k(s) })
	}
}

func badQuery(name, word, why string) error {
	return problem.Invalidf("Invalid input for query parameters %s. Value: %s. '%s' %s", name, truncateText(word), truncateText(word), why)
}

// plainName is a name that means itself as an expression, but for its dots, by which people mean dots.
var plainName = regexp.MustCompile(`^(\^?)([\w. -]+)(\$?)$`)

// byName takes an expression, as Nova does: a plain word is found anywhere in a name.
func (n *serverFilterBuilder) byName(word string) error {
	parts := plainName.FindStringSubmatch(word)
	switch {
	case parts == nil || parts[1] == "" && parts[3] != "" || parts[1] != "" && parts[3] == "":
		return n.byExpression(word)
	case parts[1] != "":
		n.f.Name = parts[2]
	default:
		n.f.NameContains = word
	}
	return nil
}

func (n *serverFilterBuilder) byExpression(word string) error {
	e, err := regexp.Compile("(?i)" + word)
	if err != nil {
		return badQuery("name", word, "is not a valid regular expression")
	}
	n.conditions = append(n.conditions, func(s *compute.Server) bool { return e.MatchString(s.Name) })
	return nil
}

// byStatus narrows to any of the statuses that are named.
func (n *serverFilterBuilder) byStatus(word string) error {
	status := strings.ToUpper(word)
	if status == "DELETED" {
		if !n.c.admin {
			return problem.Forbiddenf("Only administrators may list deleted instances")
		}
		n.f.Deleted = true
		return nil
	}
	states, byTask := statesOf(status)
	if len(states) == 0 { // as in Nova, a word that is no status matches nothing, and for one who is no administrator it is an error
		if !n.c.admin && n.c.Minor >= 38 {
			return badQuery("status", word, "is no status")
		}
		n.none = true
		return nil
	}
	n.f.States = append(n.f.States, states...)
	if byTask {
		wanted := n.c.Query["status"]
		n.conditions = append(n.conditions, func(s *compute.Server) bool {
			return slices.ContainsFunc(wanted, func(w string) bool { return strings.EqualFold(w, statusOf(s)) })
		})
	}
	return nil
}

func (n *serverFilterBuilder) byFlavor(word string) error {
	f, err := n.c.flavorNamed(word)
	if problem.Is(err, problem.NotFound) {
		n.none = true
		return nil
	}
	if err != nil {
		return err
	}
	n.f.FlavorID = f.ID
	return nil
}

func (n *serverFilterBuilder) byHost(word string) error {
	var ids []string
	for id, h := range n.dir.hosts {
		if h.name == word || id == word {
			ids = append(ids, id)
		}
	}
	switch len(ids) {
	case 0:
		n.none = true
	case 1:
		n.f.HostID = ids[0]
	default: // names of hosts are not unique
		n.conditions = append(n.conditions, func(s *compute.Server) bool { return slices.Contains(ids, s.HostID) })
	}
	return nil
}

func (n *serverFilterBuilder) byProject(word string) error {
	if all, err := n.c.flag("all_tenants"); err != nil || !all {
		return err
	}
	n.f.Project = word
	return nil
}

func (n *serverFilterBuilder) byDeleted(word string) error {
	v, ok := boolWords[word]
	if !ok {
		return badQuery("deleted", word, "is not a boolean")
	}
	n.f.Deleted = v
	return nil
}

func byTags(match func(have, want []string) bool) func(*serverFilterBuilder, string) error {
	return func(n *serverFilterBuilder, word string) error {
		want := strings.Split(word, ",")
		n.conditions = append(n.conditions, func(s *compute.Server) bool { return match(s.Tags, want) })
		return nil
	}
}

// byAddress takes an expression that one of the server's addresses matches.
func byAddress(six bool) func(*serverFilterBuilder, string) error {
	return func(n *serverFilterBuilder, word string) error {
		e, err := regexp.Compile(word)
		if err != nil {
			return badQuery("ip", word, "is not a valid regular expression")
		}
		n.conditions = append(n.conditions, func(s *compute.Server) bool {
			for _, nic := range s.NICs {
				if slices.ContainsFunc(nic.Addresses, func(a string) bool { return strings.Contains(a, ":") == six && e.MatchString(a) }) {
					return true
				}
			}
			return false
		})
		return nil
	}
}
