//go:build !race

package jobtest

// underRace says that the race detector watches, under which a run costs ten times as much.
const underRace = false
