package node

import (
	"slices"
	"strings"

	"salvor/metal"
)

// suggestNextVerbs ends a last_error: what may be asked of a node in this state, most likely first.
func suggestNextVerbs(state metal.State) string {
	var verbs []string
	for _, t := range metal.Transitions {
		if t.From == state && t.Verb != "" && !slices.Contains(verbs, string(t.Verb)) {
			verbs = append(verbs, string(t.Verb))
		}
	}
	switch last := len(verbs) - 1; last {
	case -1:
		return ""
	case 0:
		return ". Once that is mended, ask for " + verbs[0] + "."
	default:
		return ". Once that is mended, ask for " + strings.Join(verbs[:last], ", ") + " or " + verbs[last] + "."
	}
}
