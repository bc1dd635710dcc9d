package redfish

import (
	"context"
	"slices"
	"time"

	"salvor/metal"
	"salvor/problem"
)

// resetKey of internal_info remembers that the firmware was asked to forget its settings, when, and which it had.
const resetKey = "redfish_bios_reset"

// resetWait is how long the settings may stay as they are after a reset: a machine shows those of its BIOS after POST, and settings that
// were the factory's already never change.
const resetWait = 5 * time.Minute

// reset has the firmware forget its settings at its next boot. Called again it boots the machine, and then looks whether the firmware has
// forgotten them.
func (b BIOS) reset(ctx context.Context, n *metal.Node, s *bmcSession) (wait bool, err error) {
	doc, err := s.bios()
	if err != nil {
		return false, err
	}
	record, _ := n.InternalInfo[resetKey].(map[string]any)
	if at, err := time.Parse(time.RFC3339, metal.Text(record["at"])); err == nil && time.Since(at) < requestedAge {
		if err := s.checkTask(n, resetKey); err != nil {
			return false, err
		}
		started := hasStarted(n, resetKey)
		if err := s.startAfterRequest(ctx, n, resetKey); err != nil || !started {
			return err == nil, err
		}
		taken, err := s.isResetTaken(doc, metal.Text(record["before"]), time.Since(at))
		if err == nil && taken {
			n.SetInternal(resetKey, nil)
		}
		return !taken && err == nil, err
	}
	if doc.Actions.Reset.Target == "" {
		return false, problem.Unsupportedf("the BMC offers no reset of BIOS settings")
	}
	if err := s.switchOffToChange(ctx, n); err != nil {
		return false, err
	}
	order, err := s.bmc.Post(doc.Actions.Reset.Target, map[string]any{})
	if err = order.Sure(err); err == nil {
		record := map[string]any{"at": time.Now().UTC().Format(time.RFC3339), "task": order.Task}
		if len(doc.Attributes) > 0 { // a machine in POST may show none
			record["before"] = metal.Digest(doc.Attributes)
		}
		n.SetInternal(resetKey, record)
	}
	return err == nil, err
}

// isResetTaken tells whether the firmware has forgotten its settings: others are shown, the machine has passed POST since its start, or
// so much time has gone that it must have.
func (s *bmcSession) isResetTaken(now *biosDoc, before string, since time.Duration) (bool, error) {
	if before != "" && len(now.Attributes) > 0 && metal.Digest(now.Attributes) != before || since > resetWait {
		return true, nil
	}
	if since < startWait { // a BMC may still show how far the former start was
		return false, nil
	}
	var sys struct {
		BootProgress struct{ LastState string }
	}
	_, err := s.bmc.Get(s.system, &sys)
	return slices.Contains([]string{"SystemHardwareInitializationComplete", "OSBootStarted", "OSRunning"}, sys.BootProgress.LastState), err
}
