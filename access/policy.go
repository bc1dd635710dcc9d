package access

import (
	"slices"
	"strings"
)

// Policy decides what principals whose roles have a scope may do, as Ironic's default
// policy does.
type Policy struct {
	// EnforceScope closes rules of the whole system to roles in a project, whatever the old rules say.
	EnforceScope bool
	// OldDefaults lets in, beside whom the rules name, whom the rules of before secure RBAC
	// named: an admin of any project, and baremetal_admin and baremetal_observer of the
	// projects baremetal and demo.
	OldDefaults bool
	// ServiceProject is the name of the project in which the role service may do what a member of the
	// system may; empty: none. Another domain may have a project of that name, so the project counts in one
	// domain only: that of ServiceDomainID or, where this is empty, that of ServiceDomainName.
	ServiceProject, ServiceDomainID, ServiceDomainName string
	// Rules are those of a policy file; nil: there is none.
	Rules *Rules
}

// Target is whose the object of a request is; the zero Target is nobody's.
type Target struct{ Owner, Lessee string }

// group is a set of those whom a rule names.
type group uint32

const (
	systemReader group = 1 << iota
	systemMember
	systemAdmin
	systemService
	ownerReader
	ownerMember
	ownerManager
	ownerAdmin
	ownerService
	lesseeReader
	lesseeMember
	lesseeManager
	lesseeAdmin
	anyReader
	anyMember
	anyManager
	anyAdmin
	anyService
	elevatedService
	oldAdmin
	oldObserver
	oldAllocator
)

// roleGroups are the groups of a role in the system, in the project that owns, in the project that leases, and anywhere.
var roleGroups = map[string]struct{ system, owner, lessee, any group }{
	"reader":  {systemReader, ownerReader, lesseeReader, anyReader},
	"member":  {systemMember, ownerMember, lesseeMember, anyMember},
	"manager": {0, ownerManager, lesseeManager, anyManager},
	"admin":   {systemAdmin, ownerAdmin, lesseeAdmin, anyAdmin},
	"service": {systemService, ownerService, 0, anyService},
}

// groups are those that the scope's roles make it one of, against a target.
func (p Policy) groups(s Scope, t Target) group {
	var g group
	for _, role := range s.Roles {
		of := roleGroups[role]
		g |= of.any
		if s.System {
			g |= of.system
		}
		if s.Project != "" && s.Project == t.Owner {
			g |= of.owner
		}
		if s.Project != "" && s.Project == t.Lessee {
			g |= of.lessee
		}
		if role == "service" && p.isServiceProject(s) {
			g |= elevatedService
		}
	}
	if p.OldDefaults && !s.Bound {
		g |= oldGroups(s)
	}
	return g
}

// isServiceProject tells whether the scope is the project of OpenStack's own services. A token of salvor's own never is: its
// roles end at its project.
func (p Policy) isServiceProject(s Scope) bool {
	if s.Bound || p.ServiceProject == "" || s.ProjectName != p.ServiceProject {
		return false
	}
	if p.ServiceDomainID != "" {
		return s.ProjectDomain == p.ServiceDomainID
	}
	// Keystone finds a domain by its name in any case, so salvor logs in with one that the operator wrote in another case.
	return p.ServiceDomainName != "" && strings.EqualFold(s.ProjectDomainName, p.ServiceDomainName)
}

// oldGroups are those of the rules of before secure RBAC.
func oldGroups(s Scope) group {
	has := func(roles ...string) bool {
		return slices.ContainsFunc(roles, func(r string) bool { return slices.Contains(s.Roles, r) })
	}
	member := (s.ProjectDomain == "default" || s.ProjectDomain == "") && (s.ProjectName == "demo" || s.ProjectName == "baremetal")
	var g group
	if has("admin", "administrator") || member && has("baremetal_admin") {
		g |= oldAdmin | oldAllocator
	}
	if member && has("observer", "baremetal_observer") {
		g |= oldObserver
	}
	return g
}

// Allows tells whether the principal may do what a rule is about to the target. A rule
// that is not known allows nobody but an administrator.
func (p Policy) Allows(rule string, principal Principal, t Target) bool {
	switch principal.Role {
	case Admin:
		return true
	case Scoped:
	default:
		return false
	}
	if c := p.Rules.of(bareMetal + rule); c != nil {
		return c(&question{p, principal, t})
	}
	return p.byDefault(rule, principal, t)
}

// SeesFleet tells whether the principal may see what there is of all projects, as counts, pictures and metrics.
func (p Policy) SeesFleet(principal Principal) bool {
	return principal.Role == Admin || principal.Role == Reader || principal.Role == Scoped && p.Allows("node:list_all", principal, Target{})
}

func (p Policy) byDefault(rule string, principal Principal, t Target) bool {
	r, ok := rules[rule]
	if !ok || r.systemOnly && p.EnforceScope && !principal.Scope.System {
		return false
	}
	return p.groups(principal.Scope, t)&(r.allowed|r.old) != 0
}

// Known tells whether there is such a rule.
func Known(rule string) bool {
	_, ok := rules[rule]
	return ok
}
