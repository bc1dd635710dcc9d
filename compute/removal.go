package compute

import (
	"fmt"
	"strings"

	"salvor/problem"
)

// maxListed bounds how many open things of a host a refusal names.
const maxListed = 10

func CheckLost(reason string) error {
	if len(reason) > 255 || strings.ContainsAny(reason, "\x00\n\r") || reason != "" && strings.TrimSpace(reason) == "" {
		return problem.Invalidf("lost: want the reason in one line of at most 255 characters")
	}
	return nil
}

// AbbreviateList joins the first of many words.
func AbbreviateList(items []string) string {
	if len(items) > maxListed {
		return strings.Join(items[:maxListed], "; ") + fmt.Sprintf("; and %d more", len(items)-maxListed)
	}
	return strings.Join(items, "; ")
}
