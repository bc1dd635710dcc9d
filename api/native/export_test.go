package native

import "time"

// Impatient cuts slow followers off at once.
func Impatient(d time.Duration) (restore func()) {
	was := streamPatience
	streamPatience = d
	return func() { streamPatience = was }
}

// Distrustful asks before each event whether a follower may see it.
func Distrustful() (restore func()) {
	was := streamTrust
	streamTrust = 0
	return func() { streamTrust = was }
}

// Followers counts those who follow.
func (f *Feed) Followers() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.followers
}

// RuleOf is the name by which a policy file may deny a route.
func RuleOf(method, path string) string { return ruleOf(method, path[len(root):]) }
