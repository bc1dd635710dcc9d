package metal

import (
	"regexp"

	"salvor/problem"
)

// traitName is a standard trait, by the families of OpenStack's os-traits, or a custom one.
var traitName = regexp.MustCompile(`^(CUSTOM|COMPUTE|HW|MISC|OWNER|STORAGE)_[A-Z0-9_]{1,248}$`)

// CheckTrait tells whether a word can be a trait.
func CheckTrait(word string) error {
	if !traitName.MatchString(word) || len(word) > 255 {
		return problem.Invalidf("Invalid trait %.100q: a trait is a standard one or begins with CUSTOM_, and has only A-Z, 0-9 and _ (at most 255 characters)", word)
	}
	return nil
}

func checkTraits(words []string) error {
	for _, word := range words {
		if err := CheckTrait(word); err != nil {
			return err
		}
	}
	return nil
}
