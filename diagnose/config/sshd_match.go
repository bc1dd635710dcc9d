package config

import (
	"slices"
	"strconv"
	"strings"
)

// matchBlock is a Match line of sshd's configuration. nil stands for lines outside of all blocks.
type matchBlock struct {
	criteria []string
	outer    *matchBlock // the block that includes the file of this one
	place    string
}

// key tells blocks apart, and lines outside of all blocks from those within one.
func (b *matchBlock) key() string {
	if b == nil {
		return "\x00"
	}
	return b.place + "\x00"
}

// isAll: the block is "Match all", within no other block. sshd takes its lines for lines of the whole configuration too.
func (b *matchBlock) isAll() bool {
	return len(b.criteria) == 1 && strings.EqualFold(b.criteria[0], "all") && (b.outer == nil || b.outer.isAll())
}

// answer is yes, no, or unknown where the address of the client decides.
type answer int

const (
	unknown answer = iota
	yes
	no
)

// matches says whether a block holds for an account, whatever the client's address is.
func (b *matchBlock) matches(c *SSHDConfig, a *Account, groups []string) answer {
	if b == nil {
		return yes
	}
	result := yes
	take := func(one answer) {
		if one == no || result == yes {
			result = one
		}
	}
	if b.outer != nil {
		take(b.outer.matches(c, a, groups))
	}
	for i := 0; i < len(b.criteria) && result != no; i++ {
		name, value, joined := strings.Cut(b.criteria[i], "=")
		if name = strings.ToLower(name); name == "all" {
			continue
		}
		if !joined && i+1 < len(b.criteria) {
			i++
			value = b.criteria[i]
		}
		switch name {
		case "user":
			take(namesMatch(value, []string{a.Name}))
		case "group":
			take(namesMatch(value, groups))
		case "localport":
			ports := c.Ports()
			set := slices.ContainsFunc(ports, func(p int) bool { return strconv.Itoa(p) == value })
			switch {
			case !set:
				take(no)
			case len(ports) > 1:
				take(unknown)
			}
		case "address", "host", "localaddress":
			if value != "*" && value != "0.0.0.0/0,::/0" {
				take(unknown)
			}
		case "invalid-user":
			take(no)
		default:
			take(unknown)
		}
	}
	return result
}

// namesMatch applies a list of patterns of sshd to names: a pattern with ! before it that matches excludes.
func namesMatch(list string, names []string) answer {
	result := no
	for pattern := range strings.SplitSeq(list, ",") {
		plain, negated := strings.CutPrefix(pattern, "!")
		if !slices.ContainsFunc(names, func(n string) bool { return MatchPattern(plain, n) }) {
			continue
		}
		if negated {
			return no
		}
		result = yes
	}
	return result
}

// Bounds of a configuration whose Match blocks are applied to each account.
const (
	maxMatchBlocks   = 256
	maxMatchSettings = 5000
)

// HasTooManyBlocks says whether the Match blocks are too many to be applied to each account. For then leaves them out.
func (c *SSHDConfig) HasTooManyBlocks() bool {
	blocks := map[*matchBlock]bool{}
	for _, s := range c.settings {
		if s.block != nil {
			blocks[s.block] = true
		}
	}
	return len(blocks) > maxMatchBlocks || len(blocks) > 0 && len(c.settings) > maxMatchSettings
}

// maxUnknownBlocks bounds the Match blocks that are tried one by one for an account.
const maxUnknownBlocks = 8

// For returns the configurations that sshd may apply to an account of those groups: one where the Match blocks that depend on the client's address
// do not hold, one with each of those blocks, and one with all. What a block sets takes the place of what lines outside of blocks set.
func (c *SSHDConfig) For(a *Account, groups []string) []*SSHDConfig {
	if c.HasTooManyBlocks() {
		return []*SSHDConfig{c}
	}
	answers := map[*matchBlock]answer{nil: no}
	var open []*matchBlock
	for _, s := range c.settings {
		if _, done := answers[s.block]; done {
			continue
		}
		answers[s.block] = s.block.matches(c, a, groups)
		if answers[s.block] == unknown {
			open = append(open, s.block)
		}
	}
	if len(answers) == 1 {
		return []*SSHDConfig{c}
	}
	with := func(chosen ...*matchBlock) *SSHDConfig {
		out := &SSHDConfig{Exists: c.Exists, Partial: c.Partial}
		set := map[string]bool{}
		for _, s := range c.settings {
			if answers[s.block] == yes || slices.Contains(chosen, s.block) {
				s.match, set[s.Keyword] = false, true
				out.settings = append(out.settings, s)
			}
		}
		for _, s := range c.settings {
			if s.block == nil && !set[s.Keyword] {
				out.settings = append(out.settings, s)
			}
		}
		return out
	}
	out := []*SSHDConfig{with()}
	if len(open) == 0 {
		return out
	}
	for _, block := range open[:min(len(open), maxUnknownBlocks)] {
		out = append(out, with(block))
	}
	return append(out, with(open...))
}
