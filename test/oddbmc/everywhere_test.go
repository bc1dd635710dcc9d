package oddbmc

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"salvor/lab/odd"
)

// sampledEverywhere is how many of all pairs go test takes; make odd takes all.
const sampledEverywhere = 60

// TestOddPairsEverywhere runs the verbs behind BMCs that write all of their documents in two odd ways which cost a client nothing: every verb
// must be done.
func TestOddPairsEverywhere(t *testing.T) {
	known := profiles(t, nil)
	kinds := slices.DeleteFunc(slices.Clone(odd.BMCKinds), func(k *odd.BMCKind) bool {
		return !slices.Contains([]string{"links", "members", "page", "value"}, family(k)) || k.Cost != odd.CostNothing
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
	if os.Getenv("SALVOR_SWEEP") != "whole" {
		work = work[:sampledEverywhere]
	}
	report(t, judgeAll(t, work, known), len(work))
}

// TestOddestBMCs runs every verb behind the oddest BMCs, of which each shows one oddity of every family at once. Package demos rescues real machines behind
// the same BMCs.
func TestOddestBMCs(t *testing.T) {
	known := profiles(t, nil)
	var work []combination
	for _, oddities := range odd.OddestBMCs(10) {
		for i := range verbs {
			work = append(work, combine(nil, &verbs[i], oddities...))
		}
	}
	report(t, judgeAll(t, work, known), len(work))
}

func family(k *odd.BMCKind) string {
	name, _, _ := strings.Cut(k.Name, ":")
	return name
}
