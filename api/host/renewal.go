package host

import (
	"encoding/json"

	"salvor/compute"
	"salvor/problem"
	wire "salvor/wire/host"
)

// Bounds of a renewal.
const (
	maxGuests     = 4096
	maxDeeds      = 1000
	maxCleaned    = 1000
	maxNeighbours = 64
	maxWord       = 255
)

func renewalOf(in wire.Renewal) (compute.Renewal, error) {
	out := compute.Renewal{BootID: in.BootID, Name: in.Name, Watchdog: in.Watchdog, Stopped: in.Stopped}
	if in.BootID == "" || len(in.BootID) > maxWord || len(in.Name) > maxWord || len(in.Watchdog) > maxWord {
		return out, problem.Invalidf("boot_id, name and watchdog: at most %d characters, and a boot_id no less than 1", maxWord)
	}
	if hasJSONValue(in.Inventory) {
		out.Inventory = &compute.Inventory{}
		if err := json.Unmarshal(in.Inventory, out.Inventory); err != nil {
			return out, problem.Invalidf("inventory: %w", err)
		}
	}
	if hasJSONValue(in.Guests) {
		out.HasGuests = true
		if err := json.Unmarshal(in.Guests, &out.Guests); err != nil {
			return out, problem.Invalidf("guests: %w", err)
		}
	}
	if len(out.Guests) > maxGuests || len(in.Did) > maxDeeds || len(in.Cleaned) > maxCleaned || len(in.Neighbours) > maxNeighbours {
		return out, problem.Invalidf("at most %d guests, %d deeds, %d clean-ups and %d neighbours in a renewal", maxGuests, maxDeeds, maxCleaned, maxNeighbours)
	}
	for _, action := range in.Did {
		out.Did = append(out.Did, compute.LocalAction{ServerID: action.ServerID, Text: problem.Abridge(action.Text, maxWord), At: action.At})
	}
	for _, c := range in.Cleaned {
		out.Cleaned = append(out.Cleaned, compute.Cleaned{ServerID: c.ServerID, Epoch: c.Epoch, Error: problem.Abridge(c.Error, maxWord)})
	}
	for _, n := range in.Neighbours {
		out.Neighbours = append(out.Neighbours, compute.Neighbour{HostID: truncateText(n.HostID), Address: truncateText(n.Address), Reached: n.Reached})
	}
	return out, nil
}

func hasJSONValue(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

func truncateText(s string) string {
	if r := []rune(s); len(r) > maxWord {
		return string(r[:maxWord])
	}
	return s
}

// renewedOf keeps apart a host on which no server should be from one that is told nothing of servers.
func renewedOf(got compute.Renewed) (wire.Renewed, error) {
	out := wire.Renewed{Resend: got.Resend, Hold: got.Hold, Stop: got.Stop, SelfFence: got.SelfFence, Held: got.Held, Now: got.Now, QuarantineDays: got.QuarantineDays}
	if got.Servers != nil {
		out.Servers = make(map[string]wire.Wanted, len(got.Servers))
		for id, s := range got.Servers {
			out.Servers[id] = wire.Wanted{Power: string(s.Power), Epoch: s.Epoch, Busy: s.Busy}
		}
	}
	for id, c := range got.Clean {
		instruction := wire.Clean{Do: string(c.Do), Epoch: c.Epoch, Incarnation: c.Incarnation, Erase: c.Erase}
		if c.Spec != nil {
			b, err := json.Marshal(c.Spec)
			if err != nil {
				return out, err
			}
			instruction.Spec = b
		}
		if out.Clean == nil {
			out.Clean = map[string]wire.Clean{}
		}
		out.Clean[id] = instruction
	}
	for _, n := range got.Look {
		out.Look = append(out.Look, wire.Neighbour(n))
	}
	return out, nil
}
