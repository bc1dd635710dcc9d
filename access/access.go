// Package access knows who asks and what they may do: principals and policy rules.
// It is pure and knows no HTTP, no password and no record: whoever authenticates
// makes a Principal, and whoever serves a request asks the Policy about it.
package access

import (
	"cmp"
	"slices"
	"time"

	"salvor/problem"
)

// Role is what a principal may do at most.
type Role string

const (
	// Nobody may only use the doors that are open to all.
	Nobody Role = ""
	// Reader may read all and change nothing.
	Reader Role = "reader"
	// Admin may do all.
	Admin Role = "admin"
	// Member is the role of a token alone: its principal is Scoped.
	Member Role = "member"
	// Scoped may do what the Policy says of its roles and its scope.
	Scoped Role = "scoped"
)

// Principal is who asks. The zero Principal is nobody.
type Principal struct {
	User string // for the log and the timeline; empty: not told
	// UserID is by what things of a user are kept: names of users of several projects or domains may be alike. Empty: it is User.
	UserID string
	Role   Role
	// TokenID is the token of the API that the principal came with, and Until when that ends; empty and zero: another credential, or never.
	TokenID string
	Until   time.Time
	// Scope is what a Scoped principal's roles are for.
	Scope Scope
}

// Owner is by what things that belong to the user, as keypairs do, are kept.
func (p Principal) Owner() string { return cmp.Or(p.UserID, p.User) }

// Scope is where a principal has which roles: the whole system, a domain or one project.
type Scope struct {
	System        bool
	Project       string // UUID
	ProjectName   string
	ProjectDomain string // id of the domain of the project
	// ProjectDomainName is Keystone's name of that domain; empty for a token of salvor's own.
	ProjectDomainName string
	Domain            string // id
	Roles             []string
	// Bound roles end at the project: the role admin is over it alone. Keystone's are not bound where Nova's default policy
	// takes the role admin in any project for an administrator of all.
	Bound bool
}

// DefaultDomain is the id of the domain of all projects where no Keystone keeps others.
const DefaultDomain = "default"

// Rank is what a principal is to rules that know three roles and no owner.
type Rank int

const (
	Stranger  Rank = iota
	Observer       // may see what belongs to its project
	Worker         // may change what belongs to its project
	Oversight      // may see, or do, what concerns all projects
)

// Rank is what the principal is where it reads or, without read, changes something.
func (p Principal) Rank(read bool) Rank {
	switch p.Role {
	case Admin:
		return Oversight
	case Reader:
		if read {
			return Oversight
		}
		return Observer
	case Scoped:
		return p.Scope.rank(read)
	}
	return Stranger
}

// SeesQuotations tells whether the principal may read text of BMCs, agents and hosts. Only principals with access to all projects
// may.
func (p Principal) SeesQuotations() bool { return p.Role != Scoped || p.Rank(true) == Oversight }

// Redact gives a text as the principal may read it: problem.Redact removes the quotations unless SeesQuotations. An answer that shows a
// stored text, such as the fault of a server, calls Redact and not problem.Redact, which does not know the reader.
func (p Principal) Redact(text string) string {
	if p.SeesQuotations() {
		return text
	}
	return problem.Redact(text)
}

// Leads tells whether the principal administers one project and no more.
func (p Principal) Leads() bool {
	return p.Role == Scoped && p.Scope.Bound && p.Scope.Project != "" && slices.Contains(p.Scope.Roles, "admin")
}

func (s Scope) rank(read bool) Rank {
	has := func(roles ...string) bool {
		return slices.ContainsFunc(roles, func(r string) bool { return slices.Contains(s.Roles, r) })
	}
	switch works := has("member", "_member_", "manager", "service"); {
	case has("admin") && !s.Bound, read && s.System && (works || has("reader")):
		return Oversight
	case has("admin"), works:
		return Worker
	case has("reader"):
		return Observer
	}
	return Stranger
}

// Need is what a request needs of a principal.
type Need int

const (
	// Write needs the right to change. It is the zero Need, so a forgotten one closes the door.
	Write Need = iota
	// Read needs the right to see.
	Read
	// Open needs nothing: booting machines have no credential.
	Open
)

// Allow refuses (Forbidden) what the principal may not do. action names it in the error.
// Scoped principals pass: the Policy decides on them.
func (p Principal) Allow(need Need, action string) error {
	switch {
	case need == Open, p.Role == Admin, p.Role == Scoped, p.Role == Reader && need == Read:
		return nil
	}
	return problem.Forbiddenf("%s is not allowed for user %q", action, p.User)
}
