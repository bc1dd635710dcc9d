package compute

import (
	"strings"

	"salvor/problem"
)

// FileSearch is what hosts said about the files of a rescue image, by their names. A host that did not answer, or whose release does
// not know the question, is Unknown.
type FileSearch struct {
	Found, Missing, Unknown []string
}

// Refusal is the error about an image that cannot be used anywhere; nil: some host has its files, or may have them.
func (f *FileSearch) Refusal(files []string) error {
	if len(f.Missing) == 0 || len(f.Found)+len(f.Unknown) > 0 {
		return nil
	}
	return problem.Conflictf("rescue image: %s is not among the rescue images of any host (asked: %s); copy it there (salvor host --rescue-images), "+
		"or add the image all the same with --force", strings.Join(files, ", "), strings.Join(f.Missing[:min(len(f.Missing), shownReasons)], ", "))
}
