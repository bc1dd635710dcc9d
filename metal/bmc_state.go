package metal

import (
	"time"

	"salvor/problem"
)

// BMCState is what the readings of the power tell of a node's BMC.
type BMCState string

const (
	BMCAnswering BMCState = "answering" // the last reading succeeded
	BMCSilent    BMCState = "silent"    // the last reading failed without a usable answer
	BMCRefusing  BMCState = "refusing"  // the BMC refused the login or the request, or driver_info does not suffice to ask it
	BMCUnknown   BMCState = "unknown"   // there is no reading, or the last one is old
)

// BMCStates lists all states.
var BMCStates = []BMCState{BMCAnswering, BMCSilent, BMCRefusing, BMCUnknown}

// ParseBMCState reads a word of a user.
func ParseBMCState(word string) (BMCState, error) {
	for _, state := range BMCStates {
		if string(state) == word {
			return state, nil
		}
	}
	return "", problem.Invalidf("Invalid value for bmc: %.40q; want answering, silent, refusing or unknown.", word)
}

// minFreshReading is the shortest age at which a reading of the power is old.
const minFreshReading = 10 * time.Minute

// FreshReading is the age up to which a reading of the power counts as present: power sync reads each node once in an interval, and two turns
// may be missed.
func FreshReading(interval time.Duration) time.Duration { return max(3*interval, minFreshReading) }

// BMCState is the state of the BMC; readings before since are old.
func (c *Contact) BMCState(since time.Time) BMCState {
	switch {
	case c.PowerError != "" && c.PowerFailedAt.Before(since), c.PowerError == "" && c.PowerReadAt.Before(since), c.PowerReadAt.IsZero() && c.PowerFailedAt.IsZero():
		return BMCUnknown
	case c.PowerError == "":
		return BMCAnswering
	case c.PowerRefused:
		return BMCRefusing
	}
	return BMCSilent
}

// RefusesReading tells whether the error of a reading is a refusal: to ask again as before cannot help. Other errors are those of a silent BMC.
func RefusesReading(err error) bool {
	return err != nil && !problem.Is(err, problem.Unavailable) && !problem.Is(err, problem.Internal)
}

// PowerReadSince is the time from which on a reading of the power counts as present.
func (s *Nodes) PowerReadSince() time.Time { return s.now().Add(-FreshReading(s.opts.PowerInterval)) }
