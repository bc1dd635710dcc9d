package fleet

import (
	"math/rand/v2"

	"salvor/problem"
)

// bmcFault is how a BMC misbehaves, from the moment when the fleet is enrolled.
type bmcFault uint8

const (
	none   bmcFault = iota
	silent          // it takes requests and never answers
	slow            // it answers well, but seconds late
	lying           // it takes orders and does not act
	busy            // it answers 503
)

// Rates are the shares of BMCs that misbehave, each 0 to 1.
type Rates struct{ Silent, Slow, Lying, Busy float64 }

func (r Rates) check() error {
	sum := 0.0
	for _, share := range []float64{r.Silent, r.Slow, r.Lying, r.Busy} {
		if !(share >= 0 && share <= 1) {
			return problem.Invalidf("a share of %g of the BMCs that misbehave: want 0 to 1", share)
		}
		sum += share
	}
	if sum > 1 {
		return problem.Invalidf("the shares of BMCs that misbehave make %g: want 1 at most", sum)
	}
	return nil
}

func (r Rates) pick(dice *rand.Rand) bmcFault {
	at := dice.Float64()
	for _, f := range []struct {
		kind  bmcFault
		share float64
	}{{silent, r.Silent}, {slow, r.Slow}, {lying, r.Lying}, {busy, r.Busy}} {
		if at < f.share {
			return f.kind
		}
		at -= f.share
	}
	return none
}
