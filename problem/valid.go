package problem

import (
	"slices"
	"strings"
)

// WantOneOf is the end of an error about a word of a closed list: it lists the words that are valid, in the order of the alphabet.
func WantOneOf[W ~string](valid []W) string {
	words := make([]string, 0, len(valid))
	for _, w := range valid {
		if w != "" {
			words = append(words, string(w))
		}
	}
	slices.Sort(words)
	return "want one of " + strings.Join(words, ", ")
}
