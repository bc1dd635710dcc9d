//go:build race

package jobtest

import "os"

// stride is how many disturbances there are to one that is tried. Under the race detector
// a run costs ten times as much and teaches nothing that others do not: goroutines meet in
// the same ways. make sweep and the long rounds try them all.
var stride = func() int {
	if os.Getenv("SALVOR_SOAK") != "" {
		return 1
	}
	return 16
}()
