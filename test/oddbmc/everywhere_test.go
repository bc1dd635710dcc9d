package oddbmc

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"salvor/lab/odd"
)

// Of all pairs, go test takes sampledEverywhere and make odd wholeEverywhere.
const (
	sampledEverywhere = 60
	wholeEverywhere   = 3000
)

// TestOddPairsEverywhere runs the verbs behind BMCs that write all of their documents in two odd ways which cost a client nothing: every verb
// must be done.
func TestOddPairsEverywhere(t *testing.T) {
	known := profiles(t, nil)
	kinds := slices.DeleteFunc(slices.Clone(odd.BMCKinds), func(k *odd.BMCKind) bool {
		// A list of systems with a member that nobody can read is a question to the operator, whichever verb asks.
		ghost := strings.HasPrefix(k.Name, "members: one") || k.Name == "members: the collection itself"
		writes := slices.Contains([]string{"links", "members", "page", "value"}, family(k))
		return !writes || k.Cost != odd.CostNothing || ghost
	})
	var work []combination
	for i, a := range kinds {
		for _, b := range kinds[i+1:] {
			if family(a) == family(b) {
				continue // two oddities of one thing hide each other
			}
			for j := range verbs {
				work = append(work, combine(nil, &verbs[j], odd.BMCOddity{Kind: a}, odd.BMCOddity{Kind: b}))
			}
		}
	}
	random := rand.New(rand.NewPCG(seedOf(t), 0))
	random.Shuffle(len(work), func(i, j int) { work[i], work[j] = work[j], work[i] })
	t.Logf("%d kinds, %d verbs, %d pairs everywhere", len(kinds), len(known), len(work))
	size := sampledEverywhere
	if os.Getenv("SALVOR_SWEEP") == "whole" {
		size = wholeEverywhere
	}
	work = work[:min(len(work), size)]
	report(t, judgeAll(t, work, known), len(work))
}

func family(k *odd.BMCKind) string {
	name, _, _ := strings.Cut(k.Name, ":")
	return name
}
