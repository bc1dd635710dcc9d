package agent

import (
	"context"
	"encoding/json"

	"salvor/agent/examine"
	rules "salvor/diagnose/system"
	wire "salvor/wire/agent"
)

// examineDisks looks at all disks of the virtual machine, for the host that asked over the channel. Its answer is a diagnose.Examination. The keys
// of p are overwritten with zeros.
func (u *Unlock) examineDisks(ctx context.Context, p wire.ExamineParams) (json.RawMessage, error) {
	r := examine.Request{Now: p.Now, Rules: rules.Rules(), Log: u.Log, OnlyRead: p.OnlyRead}
	r.Keys, r.KeysByUUID = channelKeys(p)
	defer r.ClearKeys()
	if err := checkLUKSKeys(r.Keys, r.KeysByUUID); err != nil {
		return nil, err
	}
	look := u.Examiner
	if look == nil {
		if err := inRamdisk(ctx, u.Root, "examine"); err != nil {
			return nil, err
		}
		look = examine.Run
	}
	if len(p.NetworkData) > 0 && string(p.NetworkData) != "null" {
		r.NetworkData = p.NetworkData
	}
	ctx, cancel := context.WithTimeout(ctx, examineTime)
	defer cancel()
	found, err := look(ctx, r)
	if err != nil {
		return nil, err
	}
	return json.Marshal(found)
}

// channelKeys are the LUKS keys that came over the channel. They share the memory of p.
func channelKeys(p wire.ExamineParams) (keys []examine.Key, byUUID map[string][]examine.Key) {
	for _, k := range p.LUKSKeys {
		keys = append(keys, k)
	}
	byUUID = make(map[string][]examine.Key, len(p.LUKSKeysByUUID))
	for uuid, some := range p.LUKSKeysByUUID {
		for _, k := range some {
			byUUID[uuid] = append(byUUID[uuid], k)
		}
	}
	return keys, byUUID
}
