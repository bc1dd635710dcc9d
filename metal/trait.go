package metal

import (
	"regexp"
	"slices"

	"salvor/problem"
)

// traitName is a standard trait, by the families of OpenStack's os-traits, or a custom one.
var traitName = regexp.MustCompile(`^(CUSTOM|COMPUTE|HW|MISC|OWNER|STORAGE)_[A-Z0-9_]{1,248}$`)

// CheckTrait tells whether a word can be a trait.
func CheckTrait(word string) error {
	if !traitName.MatchString(word) || len(word) > 255 {
		return problem.Invalidf("Invalid trait %.100q: a trait is a standard one, or begins with CUSTOM_ and has only A-Z, 0-9 and _; it has at most 255 characters", word)
	}
	return nil
}

// checkInstanceTraits holds the traits that an instance asks for to be traits of its node.
func (n *Node) checkInstanceTraits() error {
	v, ok := n.InstanceInfo["traits"]
	if !ok || v == nil {
		return nil
	}
	list, ok := v.([]any)
	for _, e := range list {
		word, isText := e.(string)
		if ok = ok && isText; ok && !slices.Contains(n.Traits, word) {
			return problem.Invalidf("Cannot specify instance traits that are not also set as node traits: node %s has no trait %.255s.", n.ID, word)
		}
	}
	if !ok {
		return problem.Invalidf("Error parsing traits from Node %s instance_info field. A list of strings is expected.", n.ID)
	}
	return nil
}

func checkTraits(traits []string) error {
	for _, word := range traits {
		if err := CheckTrait(word); err != nil {
			return err
		}
	}
	return nil
}
