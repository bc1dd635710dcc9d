package job

import (
	"fmt"
	"slices"
)

// Programs of two releases may share a store while an upgrade rolls. A job carries the version that its operation's list had
// where it was asked for, and is worked off by that version's list to its end: a newer program keeps the actions of the
// release before it, an older one leaves newer jobs alone.

// of gives the list as it was in a version; jobs from before versions were stored are of the first.
func (o *Definition) of(version int) *Definition {
	version = max(version, 1)
	if version >= o.Version && !slices.ContainsFunc(o.Actions, func(a Action) bool { return a.Until > 0 }) {
		return o
	}
	then := *o
	then.Actions = nil
	for _, a := range o.Actions {
		if a.Since <= version && (a.Until == 0 || version <= a.Until) {
			then.Actions = append(then.Actions, a)
		}
	}
	return &then
}

// checkVersions tells what is wrong with the bounds of an action.
func (o *Definition) checkVersions(a Action) error {
	if a.Since < 0 || a.Since > o.Version || a.Until < 0 || a.Until >= max(o.Version, 1) || a.Until > 0 && a.Since > a.Until {
		return fmt.Errorf("operation %s, action %q: it cannot belong to versions %d to %d of a list of version %d", o.Kind, a.Name, a.Since, a.Until, o.Version)
	}
	return nil
}

// Versions gives the version of each list.
func Versions(all []Definition) map[Kind]int {
	out := make(map[Kind]int, len(all))
	for _, o := range all {
		out[o.Kind] = o.Version
	}
	return out
}
